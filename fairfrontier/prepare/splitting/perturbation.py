"""Data made worse on purpose: wrong groups and biased samples, seeded."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from fairfrontier.prepare.config.section import Drop, Noise
from fairfrontier.prepare.splitting.encoder import Attribute, cross_codes
from fairfrontier.runtime.errors import refuse_unknown


def add_noise(
    rules: Mapping[str, Noise],
    attributes: tuple[Attribute, ...],
    groups: np.ndarray,
    seed: int,
    file: Path | str,
) -> np.ndarray:
    """Return the group codes with some replaced by wrong ones.

    With ``share`` γ, round(γ·n) rows are drawn without replacement and each moves to one of the
    other groups, uniformly. With ``confusion`` C, every row of group j is seen in group k with
    probability C[j][k]. Cross products follow. ``groups``: int64, shape (n_samples, n_attributes).
    """
    noisy = groups.copy()
    for position, attribute in enumerate(attributes):
        rule = rules.get(attribute.name)
        if rule is None:
            continue
        # One stream per attribute: adding a second noisy attribute leaves the first alone.
        generator = np.random.default_rng([seed, 1, position])
        codes = groups[:, position]
        if rule.share is not None:
            noisy[:, position] = move_share(codes, rule.share, len(attribute.names), generator)
        else:
            chance = _confusion(rule, attribute, file)
            noisy[:, position] = draw_confused(codes, chance, generator)
    return cross_codes(noisy, attributes)


def move_share(
    codes: np.ndarray, share: float, n_levels: int, generator: np.random.Generator
) -> np.ndarray:
    """Move round(share · n) rows, drawn without replacement, to another group each, uniformly."""
    noisy = codes.copy()
    moved = generator.choice(len(codes), size=round(share * len(codes)), replace=False)
    step = generator.integers(1, n_levels, size=moved.size)
    noisy[moved] = (codes[moved] + step) % n_levels
    return noisy


def draw_confused(
    codes: np.ndarray, chance: np.ndarray, generator: np.random.Generator
) -> np.ndarray:
    """Return the group in which each row is seen, with probability chance[true, seen].

    ``chance`` may have more or fewer columns than rows: the groups seen may be others.
    """
    edges = np.cumsum(chance, axis=1)
    draw = generator.random(len(codes))
    passed = (draw[:, None] >= edges[codes]).sum(axis=1)
    return np.asarray(np.minimum(passed, chance.shape[1] - 1))


def _confusion(rule: Noise, attribute: Attribute, file: Path | str) -> np.ndarray:
    names = attribute.names
    chance = np.zeros((len(names), len(names)))
    for true, seen in (rule.confusion or {}).items():
        where = f"{file}: perturb.noisy_groups.{attribute.name}.confusion: there is no group"
        refuse_unknown((true, *seen), names, where)
        for name, probability in seen.items():
            chance[names.index(true), names.index(name)] = probability
    chance[np.diag_indices_from(chance)] += 1 - chance.sum(axis=1)
    return chance


def drop_rows(
    rule: Drop,
    train: np.ndarray,
    attributes: tuple[Attribute, ...],
    groups: np.ndarray,
    y: np.ndarray,
    classes: tuple[str, ...],
    seed: int,
    file: Path | str,
) -> np.ndarray:
    """Return the training rows without those that match a case and are drawn to be dropped.

    ``groups`` are the true codes of all rows, before noise: the sample was biased by what people
    are.
    """
    names = [attribute.name for attribute in attributes]
    matches = np.zeros(train.size, dtype=bool)
    for number, case in enumerate(rule.where):
        key = f"{file}: perturb.drop.where.{number}"
        match = np.ones(train.size, dtype=bool)
        for name, level in case.groups.items():
            column = names.index(name)
            levels = attributes[column].names
            refuse_unknown([level], levels, f"{key}.groups.{name}: there is no group")
            match &= groups[train, column] == levels.index(level)
        if case.label is not None:
            refuse_unknown([case.label], classes, f"{key}.label: there is no class")
            match &= y[train] == classes.index(case.label)
        matches |= match
    draw = np.random.default_rng([seed, 2]).random(train.size)
    return train[~(matches & (draw < rule.probability))]
