"""Checking a study: the measures, groups, figures and rows that it mentions exist and fit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fairfrontier.prepare.config.dataset import DatasetConfig
from fairfrontier.runtime.errors import ConfigError, nearest
from fairfrontier.study.claim import Block, refuse_claims
from fairfrontier.study.config import StudyConfig, split_name
from fairfrontier.study.resolve import ResolvedStudy


def check(resolved: ResolvedStudy) -> None:
    """Refuse a study that mentions what is not there, or cannot be asked of its dataset.

    Raises
    ------
    ConfigError
        Naming the file, the key and the nearest name.
    """
    refuse_measures(resolved.study, resolved.dataset, resolved.where)
    refuse_figures(resolved.study, resolved.dataset, resolved.where)
    settings: dict[Block, list[tuple[str, Mapping[str, Any]]]] = {}
    for row in resolved.rows:
        settings.setdefault(row.block, []).append((row.shared["method"], row.setting))
    refuse_claims(resolved.study, settings, resolved.where)


def refuse_measures(study: StudyConfig, described: DatasetConfig, where: str) -> None:
    """Refuse unknown measures, and unknown groups or counterfactual sets behind them.

    Raises
    ------
    ConfigError
        Naming the file, the key and the nearest name.
    """
    from fairfrontier.evaluate.certificate.certificate import name_budget
    from fairfrontier.evaluate.measure.registry import CERTIFIED, MEASURES

    known = MEASURES.all()
    named = [("frontier.accuracy", study.frontier.accuracy)]
    named += [("frontier.fairness", each) for each in study.frontier.fairness]
    named += [(f"claims.{c.id}", each) for c in study.claims for each in c.check.measure]
    for key, name in named:
        measure, group = split_name(name)
        if measure not in known:
            raise ConfigError(
                f"{where}: {key} names the unknown measure {measure!r}.", nearest(measure, known)
            )
        if described.label.task not in known[measure].task:
            fitting = sorted(each for each in known if described.label.task in known[each].task)
            raise ConfigError(
                f"{where}: {key} names {measure!r}, which is for "
                f"{' or '.join(sorted(known[measure].task))} labels, and {study.dataset} poses a "
                f"{described.label.task} task.",
                f"Choose among: {', '.join(fitting)}.",
            )
        if key.startswith("frontier") and known[measure].direction == "none":
            ranked = sorted(each for each in known if known[each].direction != "none")
            raise ConfigError(
                f"{where}: {key} names {measure!r}, of which no value is better than another.",
                f"Choose among: {', '.join(ranked)}.",
            )
        if "membership" in known[measure].needs:
            if group:
                raise ConfigError(
                    f"{where}: {key} names {name!r}, but {measure} is of all groups with the "
                    "levels yes and no.",
                    f"Write {measure}.",
                )
            continue
        if key == "frontier.fairness" and not group:
            raise ConfigError(
                f"{where}: {key} names {measure!r} without a group.",
                f"Write {measure}:GROUP, a protected attribute or a counterfactual set.",
            )
        if known[measure].needs & CERTIFIED:
            certified = study.certificate.budgets if study.certificate else ()
            groups = [name_budget(each) for each in certified]
            if group not in groups:
                raise ConfigError(
                    f"{where}: {key} names {name!r}, which the study does not certify.",
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
                    f"{where}: {key} names {name!r}, but {study.dataset} has no {each!r} under "
                    f"{section}.",
                    nearest(each, declared),
                )


def refuse_figures(study: StudyConfig, described: DatasetConfig, where: str) -> None:
    """Refuse further figures that are unknown, or cannot be drawn of the dataset.

    Raises
    ------
    ConfigError
        Naming the file and the nearest name, or why not.
    """
    from fairfrontier.study.drawing import FIGURES

    known = FIGURES.all()
    for name in study.figures:
        if name not in known:
            raise ConfigError(
                f"{where}: figures names the unknown figure {name!r}.", nearest(name, known)
            )
        reason = known[name].supports(described)
        if reason is not None:
            raise ConfigError(f"{where}: figures asks for {name!r}, but {reason}.", "Take it out.")
