"""Checking that the measures, groups, figures and rows that a study mentions exist and fit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

from fairfrontier.models.fit.group import FitGroup
from fairfrontier.prepare.config.dataset import DatasetConfig
from fairfrontier.prepare.splitting.plan import split_seed
from fairfrontier.runtime.errors import ConfigError, nearest, refuse_unknown
from fairfrontier.runtime.home import find_home
from fairfrontier.study.config import DEFAULT_PROFILE, Block, StudyConfig, read_study
from fairfrontier.study.drawing import FIGURES
from fairfrontier.study.reproduction import find_laboratory
from fairfrontier.study.resolve import ResolvedStudy, list_whole, resolve

NO_ORDER = "of which no value is better than another."


def check(resolved: ResolvedStudy) -> None:
    """Raise a ConfigError for a mention of what does not exist, or does not suit the dataset."""
    _refuse_measures(resolved.study, resolved.dataset, resolved.where)
    _refuse_figures(resolved.study, resolved.dataset, resolved.where)
    _refuse_splits(resolved.study.seeds, resolved.dataset, resolved.where)
    if laboratory := find_laboratory(resolved.study):
        settings: dict[Block, list[tuple[str, Mapping[str, Any]]]] = {}
        for row in resolved.rows:
            settings.setdefault(row.block, []).append((row.shared["method"], row.setting))
        laboratory.refuse_claims(resolved.study, settings, resolved.where)


def _refuse_splits(seeds: Iterable[int], dataset: DatasetConfig, where: str) -> None:
    """Raise a ConfigError for two seeds of one split, whose results are the same."""
    drawn: dict[int, int] = {}
    for seed in seeds:
        number = split_seed(dataset.split, seed)
        if number in drawn:
            raise ConfigError(
                f"{where}: seeds: {drawn[number]} and {seed} draw the same split of "
                f"{dataset.dataset}, by its split.seeds.",
                "Leave one of them out, or list more split.seeds.",
            )
        drawn[number] = seed


def names_levels(study: StudyConfig) -> bool:
    """Return whether a study mentions a level, as ``tpr:sex=Female``, or a gap of two levels."""
    return any("=" in name or _is_signed(name) for _, name in _list_mentions(study))


def _is_signed(name: str) -> bool:
    """Return whether a measure is one level's value minus that of the attribute's other level."""
    from fairfrontier.metrics.measure.registry import MEASURES, split_name

    return MEASURES.all()[split_name(name)[0]].direction == "zero"


def refuse_levels(study: StudyConfig, attributes: Mapping[str, tuple[str, ...]]) -> None:
    """Raise a ConfigError for a level that the dataset's attributes lack, or a gap of several."""
    from fairfrontier.metrics.measure.registry import CERTIFIED, MEASURES, split_name

    for key, name in _list_mentions(study):
        measure, group = split_name(name)
        attribute, _, level = group.partition("=")
        first = attribute.partition(" inside ")[0]
        if _is_signed(name) and len(attributes[first]) != 2:
            raise ConfigError(
                f"Study {study.study}: {key} names {name!r}, the first of two levels minus the "
                f"second, but {first} has {len(attributes[first])} levels.",
                f"Write {measure.partition('_gap')[0]}_difference:{first}.",
            )
        needs = MEASURES.all()[measure].needs
        # What stands behind = is a certificate's budget elsewhere.
        if "=" not in group or needs & CERTIFIED or not needs & {"decision", "score", "group"}:
            continue
        crossed = attribute.rpartition(" inside ")[2]
        parts = [crossed] if crossed in attributes else crossed.split("×")
        levels = ["×".join(cell) for cell in product(*(attributes[part] for part in parts))]
        lacks = (
            f"Study {study.study}: {key} names {name!r}, but in {study.dataset} {crossed} is never"
        )
        refuse_unknown([level], levels, lacks)


def refuse_certificates(groups: Iterable[FitGroup], home: Path) -> None:
    """Raise a ConfigError where models are to be certified on rows that stay in files."""
    for group in groups:
        if group.certificate is not None and group.is_collection(home):
            raise ConfigError(
                f"The study certifies models, which needs the rows of {group.dataset} in memory, "
                "and they stay in partitions.",
                "Leave out certificate, or give the dataset fewer rows and memory: auto.",
            )


def _list_mentions(study: StudyConfig, where: str = "") -> Iterator[tuple[str, str]]:
    """Yield each key that names a measure, and the name."""
    own = isinstance(study.objective, str) and study.objective != study.frontier.accuracy
    yield "frontier.accuracy" if own else "objective", study.frontier.accuracy
    yield from (("frontier.fairness", name) for name in study.frontier.fairness)
    if laboratory := find_laboratory(study):
        mentions = laboratory.list_mentions(study, where)
        yield from ((f"claims.{claim}", name) for claim, _, name in mentions)


def _refuse_measures(study: StudyConfig, dataset: DatasetConfig, where: str) -> None:
    from fairfrontier.metrics.certificate.certificate import name_budget
    from fairfrontier.metrics.measure.registry import CERTIFIED, MEASURES, split_name
    from fairfrontier.metrics.verb import list_groups

    known = MEASURES.all()
    task = dataset.label.task
    for key, name in _list_mentions(study, where):
        prefix = f"{where}: {key} names"
        of_rows = key in ("objective", "frontier.accuracy")
        measure, group = split_name(name)
        refuse_unknown([measure], known, f"{prefix} the unknown measure")
        needs = known[measure].needs
        suits = task in known[measure].task
        if not suits or (not key.startswith("claims") and known[measure].direction == "none"):
            of = f"which is for {' or '.join(sorted(known[measure].task))} labels"
            suited = [other for other in sorted(known) if task in known[other].task]
            ranked = [other for other in suited if known[other].direction != "none"]
            raise ConfigError(
                f"{prefix} {measure!r}, "
                + (f"{of}, and {study.dataset} poses a {task} task." if not suits else NO_ORDER),
                f"Choose among: {', '.join(list_whole(task) if of_rows else ranked)}.",
            )
        if "membership" in needs:
            if group:
                raise ConfigError(
                    f"{prefix} {name!r}, but {measure} covers all groups with the levels yes and "
                    "no.",
                    f"Write {measure}.",
                )
            continue
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
        if "costs" in needs and isinstance(study.objective, str):
            raise ConfigError(
                f"{prefix} {measure!r}, but the objective has no costs of errors.",
                "Write objective: {costs: {false_positive: 1, false_negative: 5}}, for example.",
            )
        if "true_group" in needs and not dataset.perturb.noisy_groups:
            raise ConfigError(
                f"{prefix} {measure!r}, but {study.dataset} has no noisy groups.",
                "Declare perturb: {noisy_groups: {ATTRIBUTE: {share: 0.1}}} in the dataset.",
            )
        of_sets = needs & {"counterfactuals", "counterfactual_score"}
        section = "counterfactuals" if of_sets else "groups"
        declared = dataset.set_names if of_sets else tuple(dataset.groups)
        # A level is written sex=Female, a cross product sex×race, and one attribute within a level
        # of another "sex inside race=Black".
        attribute = group if of_sets else group.partition("=")[0]
        parts = attribute.split(" inside ") if " inside " in attribute else attribute.split("×")
        if len(set(parts)) < len(parts):
            raise ConfigError(f"{prefix} {name!r}, with an attribute twice.", "Name each once.")
        parts = [attribute] if of_sets or attribute in declared else parts
        lacks = f"{prefix} {name!r}, but {study.dataset} has no"
        refuse_unknown(parts if group else (), declared, lacks, f" under {section}")
        # Pairs are named in the order of the dataset.
        chosen = sorted(
            sorted(declared, key=lambda each: each not in parts)[:2], key=declared.index
        )
        named = declared if of_sets else list_groups(known[measure], task, chosen)
        # Fairness is between groups.
        covered = [each for each in named if each or key != "frontier.fairness"]
        # Which levels there are, only the table knows.
        shapes = {(each.partition("=")[0], "=" in each) for each in covered}
        if (group.partition("=")[0], "=" in group) not in shapes:
            of = f"the level {group}" if "=" in group else group or "all rows"
            written = [f"{measure}:{each}" if each else measure for each in covered]
            written = written or (list_whole(task) if of_rows else [])
            raise ConfigError(
                f"{prefix} {name!r}, but {measure} has no value of {of}.",
                f"Choose among: {', '.join(written)}."
                if written
                else f"Declare {section} in the dataset, or choose another measure.",
            )


def _refuse_figures(study: StudyConfig, dataset: DatasetConfig, where: str) -> None:
    known = FIGURES.all()
    for name in study.figures:
        refuse_unknown([name], known, f"{where}: figures names the unknown figure")
        reason = known[name].supports(dataset)
        if reason is not None:
            raise ConfigError(f"{where}: figures asks for {name!r}, but {reason}.", "Take it out.")
        try:
            known[name].needs(study)
        except ConfigError as error:
            raise ConfigError(f"{where}: figures: {error.fault}", error.mend) from None


def load_study(
    name_or_path: str | Path, profile: str = DEFAULT_PROFILE, home: Path | None = None
) -> ResolvedStudy:
    """Read a study by its name in ``conf/studies`` or its path, resolve its names, and check it.

    A ConfigError names the file, the key and what was expected.
    """
    home = home or find_home()
    study, path = read_study(name_or_path, profile, home)
    resolved = resolve(study, home, path)
    check(resolved)
    return resolved
