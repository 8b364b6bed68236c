"""What is decided about a split before its features are encoded."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from fairfrontier.prepare.config.dataset import DatasetConfig
from fairfrontier.prepare.config.section import Group
from fairfrontier.prepare.split import CounterfactualSet, Part, Split
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
from fairfrontier.prepare.table.column import find_rows, unique_levels, used_columns
from fairfrontier.runtime.errors import ConfigError, DataError, nearest

SelectOn = Literal["train", "validation"]


@dataclass(frozen=True, eq=False)
class Request:
    """What ``load`` was asked for.

    Attributes
    ----------
    config : DatasetConfig
    file : Path
        The YAML; named in errors.
    home : Path
    seed, rows, select_on
        As in ``load``.
    """

    config: DatasetConfig
    file: Path
    home: Path
    seed: int
    rows: int | None
    select_on: SelectOn | None

    def digest(self, files: tuple[str, ...], text: str | None = None) -> str:
        """Return the sha256 that names the split: raw files, what shapes arrays, the request.

        ``text`` is the digest of what makes vectors of texts.
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

    Attributes
    ----------
    config : DatasetConfig
    file : Path
    seed : int
    ids : ndarray of int64, shape (n_samples,)
        Row numbers in the source.
    target : Target
    attributes : tuple of Attribute
    groups, true_groups : ndarray of int64, shape (n_samples, n_attributes)
        As seen and as they are; ``true_groups`` is None without noise.
    protected : ndarray of float64, shape (n_samples, n_protected)
    protected_kinds : mapping
    weight : ndarray of float64, shape (n_samples,)
    levels : mapping of str to tuple of str
        Levels that occur in columns used as levels.
    parts : mapping of str to ndarray of int64
        Part -> row positions.
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
        return {each.name: each.names for each in self.attributes}

    def group_columns(self, rows: slice) -> dict[str, np.ndarray]:
        """Return groups as seen (noise included) that are features, as columns of level names."""
        return {
            GROUP_PREFIX + each.name: np.array(each.names, dtype=object)[self.groups[rows, place]]
            for place, each in enumerate(self.attributes)
            if each.name in self.config.features.groups
        }

    def edits(self, encoder: Encoder) -> dict[str, tuple[Edit, ...]]:
        """Encode the counterfactual sets."""
        return make_edits(
            self.config.counterfactuals, self.levels, encoder, self.attributes, self.file
        )

    def part(
        self,
        name: str,
        rows: np.ndarray,
        X: Any,
        edits: Mapping[str, tuple[Edit, ...]],
        place: Callable[[np.ndarray], Any] = lambda array: array,
    ) -> Part:
        """Put one part together; ``place`` turns its arrays into those of the backend of X."""
        groups = place(self.groups[rows])
        sets: dict[str, CounterfactualSet] = {
            key: Edits(X, groups, self.attributes, each) for key, each in edits.items()
        }
        return Part(
            dataset=self.config.dataset,
            name=name,
            ids=place(self.ids[rows]),
            X=X,
            y=place(self.target.y[rows]),
            groups=groups,
            protected=place(self.protected[rows]),
            weight=place(self.weight[rows]),
            attributes=self.group_names,
            classes=self.target.classes,
            true_groups=None if self.true_groups is None else place(self.true_groups[rows]),
            counterfactuals=sets,
        )

    def split(self, encoder: Encoder, parts: Mapping[str, Part], digest: str) -> Split:
        """Put the split together."""
        return Split(
            dataset=self.config.dataset,
            seed=self.seed,
            task=self.config.label.task,
            feature_names=encoder.feature_names,
            protected_columns=self._protected_columns(encoder),
            protected_kinds=dict(self.protected_kinds),
            digest=digest,
            favourable=self.target.favourable,
            **dict(parts),  # type: ignore[arg-type]
        )

    def _protected_columns(self, encoder: Encoder) -> dict[str, tuple[int, ...]]:
        columns: dict[str, tuple[int, ...]] = {}
        for name in self.config.protected:
            sources = {name}
            if name in self.config.groups:
                group = self.config.groups[name]
                made_of = group.cross or (name,)
                sources = {GROUP_PREFIX + each for each in (name, *made_of)}
                sources |= {str(self.config.groups[each].column) for each in made_of}
            spans = encoder.spans(sources)
            columns[name] = tuple(
                sorted(
                    index
                    for slices in spans.values()
                    for span in slices
                    for index in range(span.start, span.stop)
                )
            )
        return columns


def make_plan(frame: pd.DataFrame, request: Request) -> Plan:
    """Decide labels, groups, noise and parts; features are not needed for it.

    Parameters
    ----------
    frame : DataFrame
        Label, group, protected, weight and split columns of all kept rows; its index holds ids.
    request : Request
    """
    config, file, seed = request.config, request.file, request.seed
    if frame.empty:
        raise DataError(f"{file}: rows: no row is left.", "Loosen rows.keep or missing: drop.")
    target = encode_label(frame[config.label.column], config.label, file)
    _, level_columns = used_columns(config)
    levels = {name: unique_levels([frame[name]]) for name in level_columns if name in frame}
    for name, level in config.features.binary.items():
        if level not in levels[name]:
            raise ConfigError(
                f"{file}: features.binary.{name}: no row has {level!r}.",
                nearest(level, levels[name]),
            )
    attributes = fit_attributes(config.groups, levels, file)
    groups = encode_attributes(attributes, frame, file)
    place = {each.name: position for position, each in enumerate(attributes)}
    rule = config.split
    dealt = np.flatnonzero(find_rows(frame, rule.of, "split.of", file))
    parts = partition(
        rule,
        dealt.size,
        seed,
        y=target.y[dealt],
        groups=groups[:, place[rule.group]] if rule.group else None,
        column=frame[rule.column] if rule.column else None,
        file=file,
    )
    parts = {name: dealt[rows] for name, rows in parts.items()}
    if rule.others:
        parts = add_others(rule, parts, np.setdiff1d(np.arange(len(frame)), dealt), seed, file)
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
    protected, kinds = _protected(frame, config, attributes, seen, levels, parts, file)
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
    attributes: tuple[Attribute, ...],
    groups: np.ndarray,
    levels: Mapping[str, tuple[str, ...]],
    parts: Mapping[str, np.ndarray],
    file: Path,
) -> tuple[np.ndarray, dict[str, Literal["continuous", "categorical"]]]:
    """Return raw values of continuous protected attributes and codes of categorical ones."""
    numbers, _ = used_columns(config)
    place = {each.name: position for position, each in enumerate(attributes)}
    values: list[np.ndarray] = []
    kinds: dict[str, Literal["continuous", "categorical"]] = {}
    for name, said in config.protected.items():
        if said == "continuous" or (said == "auto" and name in numbers):
            kinds[name] = "continuous"
            column = frame[name].to_numpy(dtype=np.float64)
            if np.ptp(column[parts["train"]]) == 0:
                raise DataError(
                    f"{file}: protected.{name} is constant: it is {column[0]:g} in all training "
                    "rows.",
                    "A fair metric has nothing to ignore there: choose another column or rows.",
                )
        elif name in place:
            kinds[name] = "categorical"
            column = groups[:, place[name]]
        else:
            kinds[name] = "categorical"
            (attribute,) = fit_attributes({name: Group(column=name)}, levels, file)
            column = attribute.encode(frame[name], file)
            check_attributes((attribute,), column[:, None], parts, file)
        values.append(column.astype(np.float64))
    return np.column_stack(values) if values else np.empty((len(frame), 0)), kinds
