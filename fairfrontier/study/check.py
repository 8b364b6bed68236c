"""Checking that the measures, groups, figures and rows that a study mentions exist and fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

from fairfrontier.prepare.config.dataset import DatasetConfig
from fairfrontier.runtime.errors import ConfigError, nearest
from fairfrontier.study.claim import Block, refuse_claims
from fairfrontier.study.config import StudyConfig, split_name
from fairfrontier.study.resolve import ResolvedStudy


def check(resolved: ResolvedStudy) -> None:
    """Raise a ConfigError for a mention of what does not exist, or does not suit the dataset."""
    _refuse_measures(resolved.study, resolved.dataset, resolved.where)
    _refuse_figures(resolved.study, resolved.dataset, resolved.where)
    settings: dict[Block, list[tuple[str, Mapping[str, Any]]]] = {}
    for row in resolved.rows:
        settings.setdefault(row.block, []).append((row.shared["method"], row.setting))
    refuse_claims(resolved.study, settings, resolved.where)


def names_levels(study: StudyConfig) -> bool:
    """Return whether a study mentions a measure of one level, such as ``tpr:sex=Female``."""
    return any("=" in name for _, name in _list_mentions(study))


def refuse_levels(study: StudyConfig, attributes: Mapping[str, tuple[str, ...]]) -> None:
    """Raise a ConfigError for a mention of a level that no attribute of the dataset has."""
    from fairfrontier.evaluate.measure.registry import MEASURES

    for key, name in _list_mentions(study):
        measure, group = split_name(name)
        attribute, _, level = group.partition("=")
        if "=" not in group or not MEASURES.all()[measure].needs & {"decision", "score", "group"}:
            continue
        crossed = attribute.rpartition(" inside ")[2]
        parts = [crossed] if crossed in attributes else crossed.split("×")
        levels = ["×".join(cell) for cell in product(*(attributes[part] for part in parts))]
        if level not in levels:
            raise ConfigError(
                f"Study {study.study}: {key} names {name!r}, but no row of {study.dataset} has "
                f"{crossed}={level}.",
                nearest(level, levels),
            )


def _list_mentions(study: StudyConfig) -> Iterator[tuple[str, str]]:
    """Yield each key that names a measure, and the name."""
    accuracy = "objective" if study.objective == study.frontier.accuracy else "frontier.accuracy"
    yield accuracy, study.frontier.accuracy
    yield from (("frontier.fairness", name) for name in study.frontier.fairness)
    yield from ((f"claims.{c.id}", name) for c in study.claims for name in c.check.measure)


def _refuse_measures(study: StudyConfig, dataset: DatasetConfig, where: str) -> None:
    from fairfrontier.evaluate.certificate.certificate import name_budget
    from fairfrontier.evaluate.measure.registry import CERTIFIED, MEASURES

    known = MEASURES.all()
    task = dataset.label.task
    for key, name in _list_mentions(study):
        prefix = f"{where}: {key} names"
        measure, group = split_name(name)
        if measure not in known:
            raise ConfigError(f"{prefix} the unknown measure {measure!r}.", nearest(measure, known))
        needs = known[measure].needs
        if task not in known[measure].task:
            raise ConfigError(
                f"{prefix} {measure!r}, which is for {' or '.join(sorted(known[measure].task))} "
                f"labels, and {study.dataset} poses a {task} task.",
                f"Choose among: {', '.join(sorted(n for n in known if task in known[n].task))}.",
            )
        if not key.startswith("claims") and known[measure].direction == "none":
            ranked = sorted(other for other in known if known[other].direction != "none")
            raise ConfigError(
                f"{prefix} {measure!r}, of which no value is better than another.",
                f"Choose among: {', '.join(ranked)}.",
            )
        if "membership" in needs:
            if group:
                raise ConfigError(
                    f"{prefix} {name!r}, but {measure} covers all groups with the levels yes and "
                    "no.",
                    f"Write {measure}.",
                )
            continue
        if key == "frontier.fairness" and not group:
            raise ConfigError(
                f"{prefix} {measure!r} without a group.",
                f"Write {measure}:GROUP, a protected attribute or a counterfactual set.",
            )
        if needs & CERTIFIED:
            certified = study.certificate.budgets if study.certificate else ()
            groups = [name_budget(budget) for budget in certified]
            if group not in groups:
                raise ConfigError(
                    f"{prefix} {name!r}, which the study does not certify.",
                    nearest(group, groups)
                    if groups
                    else "Add certificate: {budgets: [0.1]}, for example.",
                )
            continue
        of_sets = needs & {"counterfactuals", "counterfactual_score"}
        section = "counterfactuals" if of_sets else "groups"
        declared = dataset.set_names if of_sets else tuple(dataset.groups)
        # A level is written sex=Female, a cross product sex×race, and one attribute within a level
        # of another "sex inside race=Black".
        attribute = group.partition("=")[0]
        parts = attribute.split(" inside ") if " inside " in attribute else attribute.split("×")
        if len(set(parts)) < len(parts):
            raise ConfigError(f"{prefix} {name!r}, with an attribute twice.", "Name each once.")
        for part in parts if attribute not in declared else ():
            if group and part not in declared:
                raise ConfigError(
                    f"{prefix} {name!r}, but {study.dataset} has no {part!r} under {section}.",
                    nearest(part, declared),
                )


def _refuse_figures(study: StudyConfig, dataset: DatasetConfig, where: str) -> None:
    from fairfrontier.study.drawing import FIGURES

    known = FIGURES.all()
    for name in study.figures:
        if name not in known:
            raise ConfigError(
                f"{where}: figures names the unknown figure {name!r}.", nearest(name, known)
            )
        reason = known[name].supports(dataset)
        if reason is not None:
            raise ConfigError(f"{where}: figures asks for {name!r}, but {reason}.", "Take it out.")
        try:
            known[name].needs(study)
        except ConfigError as error:
            raise ConfigError(f"{where}: figures: {error.fault}", error.mend) from None
