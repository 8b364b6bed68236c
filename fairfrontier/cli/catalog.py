"""The datasets, methods, metrics, measures, figures and studies of a project."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from fairfrontier.prepare.config.dataset import (
    DatasetConfig,
    EncoderConfig,
    Swap,
    Terms,
    read_dataset,
)
from fairfrontier.prepare.config.section import Origin
from fairfrontier.runtime.cluster.config import ClusterConfig
from fairfrontier.runtime.finder import list_names
from fairfrontier.study.config import DEFAULT_PROFILE, MethodFile, StudyConfig
from fairfrontier.study.reproduction import load_laboratory


def list_entries(kind: str, home: Path) -> list[dict[str, Any]]:
    """Return the name and facts of every entry of a kind, sorted by name, as plain values."""
    return [{"name": name, **facts} for name, facts in _list_facts(kind, home)]


def _list_facts(kind: str, home: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    match kind:
        case "datasets":
            for name, path in list_names("dataset", home).items():
                config = read_dataset(path, home)
                expected = config.expected
                yield (
                    name,
                    {
                        "rows": expected.rows or "",
                        "read": expected.read or "",
                        "from": _name_origin(config.source.path[0].origins[0]),
                        "licence": config.licence,
                        "task": config.label.task,
                        "label": config.label.meaning or config.label.column,
                        "groups": ", ".join(config.groups),
                        "counterfactuals": ", ".join(config.set_names),
                    },
                )
        case "methods":
            from fairfrontier.models.registry import METHODS

            for name, cls in METHODS.all().items():
                yield (
                    name,
                    {
                        "task": ", ".join(sorted(cls.task)),
                        "needs": ", ".join(sorted(cls.fit_needs)),
                        "about": _first_line(cls),
                        "paper": cls.paper,
                        "package": cls.__module__.partition(".")[0],
                    },
                )
        case "metrics":
            from fairfrontier.similarity.registry import METRICS

            yield from ((name, {"about": _first_line(of)}) for name, of in METRICS.all().items())
        case "measures":
            from fairfrontier.metrics.measure.registry import MEASURES

            for name, measure in MEASURES.all().items():
                task, better = ", ".join(sorted(measure.task)), measure.direction
                yield name, {"task": task, "better": better, "about": measure.what}
        case "figures":
            from fairfrontier.study.drawing import FIGURES

            for name, figure in FIGURES.all().items():
                package = figure.draw.__module__.partition(".")[0]
                yield name, {"title": figure.title, "package": package}
        case "studies":
            from fairfrontier.study.check import load_study

            for name in list_names("study", home):
                study = load_study(name, home=home).study
                yield (
                    name,
                    {
                        "dataset": Path(study.dataset).stem,
                        "methods": ", ".join(study.methods),
                        "profiles": ", ".join([DEFAULT_PROFILE, *study.profiles]),
                        "reproduces": ", ".join(study.reproduced),
                    },
                )


def _name_origin(origin: Origin) -> str:
    """Return the name of the folder, the package or the host that a file is from."""
    if origin.path:
        # data/downloads/acs/2018/psam_p06.csv was downloaded.
        return "".join(Path(origin.path).parts[:-1][:2][-1:])
    return origin.package.partition("==")[0] if origin.package else urlsplit(str(origin.url)).netloc


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
