"""The datasets, methods, metrics, measures, figures and studies of a project."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fairfrontier.runtime.finder import list_names


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
