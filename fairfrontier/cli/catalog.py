"""The datasets, methods, metrics, measures, figures and studies of a project."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from fairfrontier.prepare.config.dataset import DatasetConfig
from fairfrontier.prepare.config.text import EncoderConfig, Swap, Terms
from fairfrontier.runtime.cluster.config import ClusterConfig
from fairfrontier.runtime.finder import list_names
from fairfrontier.study.config import MethodFile, StudyConfig
from fairfrontier.study.reproduction import load_laboratory


def list_entries(kind: str, home: Path) -> list[dict[str, Any]]:
    """Return the name and facts of every entry of a kind, sorted by name, as plain values."""
    return {
        "datasets": _list_datasets,
        "methods": _list_methods,
        "metrics": _list_metrics,
        "measures": _list_measures,
        "figures": _list_figures,
        "studies": _list_studies,
    }[kind](home)


def _list_datasets(home: Path) -> list[dict[str, Any]]:
    from fairfrontier.prepare.config.dataset import read_dataset

    entries = []
    for name, path in list_names("dataset", home).items():
        config = read_dataset(path, home)
        entries.append(
            {
                "name": name,
                "task": config.label.task,
                "label": config.label.meaning or config.label.column,
                "groups": ", ".join(config.groups),
                "counterfactuals": ", ".join(config.set_names),
            }
        )
    return entries


def _list_methods(_: Path) -> list[dict[str, Any]]:
    from fairfrontier.models.registry import METHODS

    return [
        {
            "name": name,
            "task": ", ".join(sorted(cls.task)),
            "needs": ", ".join(sorted(cls.fit_needs)),
            "about": _first_line(cls),
            "paper": cls.paper,
            "package": cls.__module__.partition(".")[0],
        }
        for name, cls in sorted(METHODS.all().items())
    ]


def _list_metrics(_: Path) -> list[dict[str, Any]]:
    from fairfrontier.similarity.registry import METRICS

    return [
        {"name": name, "about": _first_line(learner)} for name, learner in METRICS.all().items()
    ]


def _list_measures(_: Path) -> list[dict[str, Any]]:
    from fairfrontier.metrics.measure.registry import MEASURES

    return [
        {
            "name": name,
            "task": ", ".join(sorted(each.task)),
            "better": each.direction,
            "about": each.what,
        }
        for name, each in sorted(MEASURES.all().items())
    ]


def _list_figures(_: Path) -> list[dict[str, Any]]:
    from fairfrontier.study.drawing import FIGURES

    return [
        {"name": name, "title": each.title, "package": each.draw.__module__.partition(".")[0]}
        for name, each in FIGURES.all().items()
    ]


def _list_studies(home: Path) -> list[dict[str, Any]]:
    from fairfrontier.study.check import load_study
    from fairfrontier.study.config import DEFAULT_PROFILE

    entries = []
    for name in list_names("study", home):
        study = load_study(name, home=home).study
        entries.append(
            {
                "name": name,
                "dataset": Path(study.dataset).stem,
                "methods": ", ".join(study.methods),
                "profiles": ", ".join([DEFAULT_PROFILE, *study.profiles]),
                "reproduces": ", ".join(study.reproduced),
            }
        )
    return entries


def _first_line(documented: object) -> str:
    return (documented.__doc__ or "").strip().partition("\n")[0]


# JSON Schemas of the YAML files, from the models that read them.

MODELS: dict[str, Any] = {
    "dataset": DatasetConfig,
    "study": StudyConfig,
    "cluster": ClusterConfig,
    "method": MethodFile,
    "encoder": EncoderConfig,
    "vocabulary": Terms | Swap,
}


class _Untitled(GenerateJsonSchema):
    """Leaves out titles: they would repeat the keys."""

    def field_title_should_be_set(self, _: Any) -> bool:
        return False


def make_schema(kind: str) -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a kind of YAML file: a key of `MODELS`."""
    schema = TypeAdapter(MODELS[kind]).json_schema(schema_generator=_Untitled)
    laboratory = load_laboratory() if kind == "study" else None
    if laboratory is not None:
        claim = laboratory.describe_claim(_Untitled)
        schema["$defs"] |= claim.pop("$defs") | {"Claim": claim}
        schema["properties"]["claims"]["items"] = {"$ref": "#/$defs/Claim"}
    dialect = {"$schema": GenerateJsonSchema.schema_dialect}
    return dialect | schema | {"title": f"A {kind} of fairfrontier"}
