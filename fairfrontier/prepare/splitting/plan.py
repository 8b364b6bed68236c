"""What is decided about a split before its features are encoded."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from fairfrontier.prepare.config.dataset import DatasetConfig
from fairfrontier.prepare.config.section import Group
from fairfrontier.prepare.split import Part, Split
from fairfrontier.prepare.splitting.counterfactual import Edit, Edits, make_edits
from fairfrontier.prepare.splitting.encoder import GROUP_PREFIX, Encoder
from fairfrontier.prepare.splitting.group import (
    Attribute,
    check_attributes,
    encode_attributes,
    fit_attributes,
)
from fairfrontier.prepare.splitting.label import Target, encode_label
from fairfrontier.prepare.splitting.partition import (
    add_others,
    carve_validation,
    partition,
    split_seed,
)
from fairfrontier.prepare.splitting.perturbation import add_noise, drop_rows
from fairfrontier.prepare.table.column import MISSING_LEVEL, unique_levels
from fairfrontier.prepare.table.rows import (
    find_rows,
    list_compared,
    list_levels,
    policy_of,
    refuse_absent,
    used_columns,
)
from fairfrontier.runtime.errors import ConfigError, DataError, nearest

SelectOn = Literal["train", "validation"]


@dataclass(frozen=True, eq=False)
class Request:
    """The arguments of `fairfrontier.prepare.loader.load`, and the configuration it read."""

    config: DatasetConfig
    file: Path
    home: Path
    seed: int
    rows: int | None
    select_on: SelectOn | None

    def digest(self, files: tuple[str, ...], text: str | None = None) -> str:
        """Return the sha256 that names the split: raw files, what shapes arrays, the request.

        ``text`` is the digest of the text encoder.
        """
        carved = self.select_on == "validation" and "validation" not in self.config.split.parts
        text = json.dumps(
            {
                "files": files,
                "config": self.config.shape(),
                "seed": self.seed,
                "rows": self.rows,
                # None and "train" give the same arrays, and so does a part that is there already.
                "select_on": "validation" if carved else "train",
                **({} if text is None else {"text": text}),
            },
            sort_keys=True,
        )
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, eq=False)
class Plan:
    """All that is decided about a split before features are encoded.

    ``ids`` are row numbers in the source; ``groups`` and ``true_groups`` (int64, (n_samples,
    n_attributes)) are with and without noise, the latter None where there is none; ``protected`` is
    float64 (n_samples, n_protected), ``weight`` float64 (n_samples,); ``levels`` are those that
    occur in columns used as levels; ``parts`` maps parts to row positions.
    """

    config: DatasetConfig
    file: Path
    seed: int
    ids: np.ndarray
    target: Target
    attributes: tuple[Attribute, ...]
    groups: np.ndarray
    true_groups: np.ndarray | None
    protected: np.ndarray
    protected_kinds: Mapping[str, Literal["continuous", "categorical"]]
    weight: np.ndarray
    levels: Mapping[str, tuple[str, ...]]
    parts: Mapping[str, np.ndarray]

    @property
    def group_names(self) -> dict[str, tuple[str, ...]]:
        """Level names of every attribute."""
        return {attribute.name: attribute.names for attribute in self.attributes}

    def group_columns(self, rows: slice) -> dict[str, np.ndarray]:
        """Return the groups (noise included) that are features, as columns of level names."""
        return {
            GROUP_PREFIX + name: np.array(names, dtype=object)[self.groups[rows, column]]
            for column, (name, names) in enumerate(self.group_names.items())
            if name in self.config.features.groups
        }

    def edits(self, encoder: Encoder) -> dict[str, tuple[Edit, ...]]:
        """Encode the counterfactual sets."""
        return make_edits(self.config, self.levels, encoder, self.attributes, self.file)

    def part(
        self,
        name: str,
        rows: np.ndarray,
        X: Any,
        edits: Mapping[str, tuple[Edit, ...]],
        convert: Callable[[np.ndarray], Any] = lambda array: array,
    ) -> Part:
        """Put one part together; ``convert`` turns its arrays into those of the backend of X."""
        groups = convert(self.groups[rows])
        return Part(
            dataset=self.config.dataset,
            name=name,
            ids=convert(self.ids[rows]),
            X=X,
            y=convert(self.target.y[rows]),
            groups=groups,
            protected=convert(self.protected[rows]),
            weight=convert(self.weight[rows]),
            attributes=self.group_names,
            classes=self.target.classes,
            favourable=self.target.favourable,
            true_groups=None if self.true_groups is None else convert(self.true_groups[rows]),
            counterfactuals={
                key: Edits(X, groups, self.attributes, made) for key, made in edits.items()
            },
        )

    def split(self, encoder: Encoder, parts: Mapping[str, Part], digest: str) -> Split:
        """Put the split together."""
        names = encoder.feature_names
        return Split(
            dataset=self.config.dataset,
            seed=self.seed,
            task=self.config.label.task,
            feature_names=names,
            protected_columns=self._protected_columns(encoder),
            protected_kinds=dict(self.protected_kinds),
            digest=digest,
            favourable=self.target.favourable,
            **{  # type: ignore[arg-type]
                key: replace(part, feature_names=names) for key, part in parts.items()
            },
        )

    def _protected_columns(self, encoder: Encoder) -> dict[str, tuple[int, ...]]:
        columns: dict[str, tuple[int, ...]] = {}
        for name in self.config.protected:
            sources = {name}
            if name in self.config.groups:
                groups = self.config.groups
                factors = groups[name].cross or (name,)
                sources = {GROUP_PREFIX + factor for factor in (name, *factors)}
                sources |= {str(groups[factor].column) for factor in factors}
            spans = chain(*encoder.spans(sources).values())
            columns[name] = tuple(sorted(chain(*(range(s.start, s.stop) for s in spans))))
        return columns


def make_plan(frame: pd.DataFrame, request: Request) -> Plan:
    """Decide labels, groups, noise and parts, which does not depend on features.

    ``frame`` has the label, group, protected, weight and split columns of all kept rows, indexed
    by ids.
    """
    config, file, seed = request.config, request.file, request.seed
    if frame.empty:
        raise DataError(f"{file}: rows: no row remains.", "Loosen rows.keep or missing: drop.")
    target = encode_label(frame[config.label.column], config.label, file)
    number_columns, level_columns = used_columns(config)
    levels = {name: unique_levels(frame[name]) for name in level_columns if name in frame}
    for name, level in config.features.binary.items():
        if level not in levels[name]:
            raise ConfigError(
                f"{file}: features.binary.{name}: no row has {level!r}.",
                nearest(level, levels[name]),
            )
    where = f"{file}: label.column: {config.label.column!r} has {len(target.classes):,} classes"
    config.limits.check("levels", len(target.classes), where, "Merge some of them")
    attributes = fit_attributes(config.groups, levels, file, config.limits)
    groups = encode_attributes(attributes, frame, file)
    rule = config.split
    refuse_absent(list_levels(frame, list_compared(rule.of)), rule.of, "split.of", file)
    compared = frame[[*rule.of]].copy()
    for name in set(rule.of).difference(number_columns):
        if policy_of(name, config, numeric=False) == "category":
            # A missing cell passes no condition, though it is a level of its own by now.
            compared[name] = compared[name].mask(compared[name] == MISSING_LEVEL)
    eligible = np.flatnonzero(find_rows(compared, rule.of, "split.of", file))
    parts = partition(
        rule,
        eligible.size,
        seed,
        y=target.y[eligible],
        groups=groups[:, list(config.groups).index(rule.group)] if rule.group else None,
        column=frame[rule.column] if rule.column else None,
        file=file,
    )
    parts = {name: eligible[rows] for name, rows in parts.items()}
    if rule.others:
        parts = add_others(rule, parts, np.setdiff1d(np.arange(len(frame)), eligible), seed, file)
    check_attributes(attributes, groups, parts, file)
    number = split_seed(rule, seed)
    true_groups = None
    seen = groups
    if config.perturb.noisy_groups:
        true_groups = groups
        seen = add_noise(config.perturb.noisy_groups, attributes, groups, number, file)
    if config.perturb.drop:
        parts["train"] = drop_rows(
            config.perturb.drop, parts["train"], attributes, groups, target.y, target.classes,
            number, file,
        )  # fmt: skip
    n_train = parts["train"].size
    if request.rows is not None and request.rows < n_train:
        generator = np.random.default_rng([number, 0])
        kept = np.sort(generator.choice(n_train, size=request.rows, replace=False))
        parts["train"] = parts["train"][kept]
    if request.select_on == "validation" and "validation" not in parts:
        y = None if config.label.task == "regression" else target.y
        parts["train"], parts["validation"] = carve_validation(rule, parts["train"], y, seed, file)
    for part, positions in parts.items():
        if positions.size == 0:
            raise DataError(f"{file}: split.{part} is left without rows.", "Give it more rows.")
    check_attributes(attributes, groups, {"train": parts["train"]}, file)
    if config.label.task != "regression" and np.unique(target.y[parts["train"]]).size < 2:
        raise DataError(
            f"{file}: all training rows have one class.",
            "Use split.kind: stratified, or more rows.",
        )
    protected, kinds = _protected(frame, config, seen, levels, parts, file)
    weight = np.ones(len(frame))
    if config.weight:
        weight = frame[config.weight].to_numpy(dtype=np.float64)
        if (weight < 0).any():
            raise DataError(f"{file}: weight: {config.weight!r} is negative.", "Correct it.")
    return Plan(
        config, file, seed, frame.index.to_numpy(dtype=np.int64), target, attributes, seen,
        true_groups, protected, kinds, weight, levels, parts,
    )  # fmt: skip


def _protected(
    frame: pd.DataFrame,
    config: DatasetConfig,
    groups: np.ndarray,
    levels: Mapping[str, tuple[str, ...]],
    parts: Mapping[str, np.ndarray],
    file: Path,
) -> tuple[np.ndarray, dict[str, Literal["continuous", "categorical"]]]:
    """Return raw values of continuous protected attributes and codes of categorical ones."""
    numbers, _ = used_columns(config)
    names = list(config.groups)
    values: list[np.ndarray] = []
    kinds: dict[str, Literal["continuous", "categorical"]] = {}
    for name, kind in config.protected.items():
        if kind == "continuous" or (kind == "auto" and name in numbers):
            kinds[name] = "continuous"
            column = frame[name].to_numpy(dtype=np.float64)
            if np.isnan(column).any():
                raise DataError(
                    f"{file}: protected.{name} has missing cells, and a fair metric needs numbers.",
                    f"Set missing.columns: {{{name}: drop}}, or protect a group of its bands.",
                )
            if np.ptp(column[parts["train"]]) == 0:
                raise DataError(
                    f"{file}: protected.{name} is constant: it is {column[0]:g} in all training "
                    "rows.",
                    "A fair metric has nothing to ignore there: choose another column or rows.",
                )
        elif name in names:
            kinds[name] = "categorical"
            column = groups[:, names.index(name)]
        else:
            kinds[name] = "categorical"
            group = {name: Group(column=name)}
            (attribute,) = fit_attributes(group, levels, file, config.limits)
            column = attribute.encode(frame[name], file)
            check_attributes((attribute,), column[:, None], parts, file)
        values.append(column.astype(np.float64))
    return np.column_stack(values) if values else np.empty((len(frame), 0)), kinds
