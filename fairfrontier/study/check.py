"""What a study mentions of measures, groups and figures, checked against what there is."""

from __future__ import annotations

from pathlib import Path

from fairfrontier.prepare.config.dataset import DatasetConfig, read_dataset
from fairfrontier.runtime.errors import ConfigError, nearest
from fairfrontier.runtime.finder import find_yaml
from fairfrontier.study.config import StudyConfig, split_name


def refuse_measures(study: StudyConfig, path: Path, home: Path) -> None:
    """Refuse unknown measures, and unknown groups or counterfactual sets behind them.

    Raises
    ------
    ConfigError
        Naming ``path``, the key and the nearest name.
    """
    from fairfrontier.evaluate.certificate.certificate import name_budget
    from fairfrontier.evaluate.measure.registry import CERTIFIED, MEASURES

    described = _read_described(study, home)
    known = MEASURES.all()
    named = [("frontier.accuracy", study.frontier.accuracy)]
    named += [("frontier.fairness", each) for each in study.frontier.fairness]
    named += [(f"claims.{c.id}", each) for c in study.claims for each in c.check.measure]
    for key, name in named:
        measure, group = split_name(name)
        if measure not in known:
            raise ConfigError(
                f"{path}: {key} names the unknown measure {measure!r}.", nearest(measure, known)
            )
        if described.label.task not in known[measure].task:
            fitting = sorted(each for each in known if described.label.task in known[each].task)
            raise ConfigError(
                f"{path}: {key} names {measure!r}, which is for "
                f"{' or '.join(sorted(known[measure].task))} labels, and {study.dataset} poses a "
                f"{described.label.task} task.",
                f"Choose among: {', '.join(fitting)}.",
            )
        if key.startswith("frontier") and known[measure].direction == "none":
            ranked = sorted(each for each in known if known[each].direction != "none")
            raise ConfigError(
                f"{path}: {key} names {measure!r}, of which no value is better than another.",
                f"Choose among: {', '.join(ranked)}.",
            )
        if "membership" in known[measure].needs:
            if group:
                raise ConfigError(
                    f"{path}: {key} names {name!r}, but {measure} is of all groups with the levels "
                    "yes and no.",
                    f"Write {measure}.",
                )
            continue
        if key == "frontier.fairness" and not group:
            raise ConfigError(
                f"{path}: {key} names {measure!r} without a group.",
                f"Write {measure}:GROUP, a protected attribute or a counterfactual set.",
            )
        if known[measure].needs & CERTIFIED:
            certified = study.certificate.budgets if study.certificate else ()
            groups = [name_budget(each) for each in certified]
            if group not in groups:
                raise ConfigError(
                    f"{path}: {key} names {name!r}, which the study does not certify.",
                    nearest(group, groups)
                    if groups
                    else "Add certificate: {budgets: [0.1]}, for example.",
                )
            continue
        of_sets = known[measure].needs & {"counterfactuals", "counterfactual_score"}
        section = "counterfactuals" if of_sets else "groups"
        declared = described.set_names if of_sets else tuple(described.groups)
        # One level of an attribute stands as sex=Female, a cross product as sex×race, and what is
        # told of one attribute in a level of another as "sex inside race=Black".
        attribute = group.partition("=")[0]
        parts = attribute.split(" inside ") if " inside " in attribute else attribute.split("×")
        for each in parts if attribute not in declared else ():
            if each and each not in declared:
                raise ConfigError(
                    f"{path}: {key} names {name!r}, but {study.dataset} has no {each!r} under "
                    f"{section}.",
                    nearest(each, declared),
                )


def mentions_certified(study: StudyConfig, part: str) -> bool:
    """Tell whether certificates of a part choose the frontier or stand in a claim."""
    from fairfrontier.evaluate.measure.registry import CERTIFIED, MEASURES

    named: list[str] = []
    if part == study.select_on:
        named += [study.frontier.accuracy, *study.frontier.fairness]
    for each in study.claims:
        if each.check.part == part:
            named += each.check.measure
    known = MEASURES.all()
    return any(known[split_name(each)[0]].needs & CERTIFIED for each in named)


def refuse_figures(study: StudyConfig, path: Path, home: Path) -> None:
    """Refuse further figures that are unknown, or cannot be drawn of the dataset.

    Raises
    ------
    ConfigError
        Naming ``path`` and the nearest name, or why not.
    """
    from fairfrontier.study.drawing import FIGURES

    known = FIGURES.all()
    for name in study.figures:
        if name not in known:
            raise ConfigError(
                f"{path}: figures names the unknown figure {name!r}.", nearest(name, known)
            )
        reason = known[name].supports(_read_described(study, home))
        if reason is not None:
            raise ConfigError(f"{path}: figures asks for {name!r}, but {reason}.", "Take it out.")


def _read_described(study: StudyConfig, home: Path) -> DatasetConfig:
    return read_dataset(find_yaml("dataset", study.dataset, home), home)
