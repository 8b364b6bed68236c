"""The rows of a study on noisy groups by approach, and what they violate as noise grows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fairfrontier.prepare.config.dataset import DatasetConfig, read_dataset
from fairfrontier.reproduce.figure.classifier import ClassifierRow, Stored, list_rows
from fairfrontier.runtime.errors import ConfigError
from fairfrontier.runtime.finder import find_yaml
from fairfrontier.study.drawing import Scene
from fairfrontier.train.registry import METHODS

# Each is also the name of a method, after this.
PREFIX = "noisy_"
NAIVE, DRO, SOFT = "naive", "dro", "soft_assignment"
UNCONSTRAINED, TRUE_GROUPS = "unconstrained", "true_groups"
ROBUST = (DRO, SOFT)
NAMES: Mapping[str, str] = {
    NAIVE: "naive",
    DRO: "DRO",
    SOFT: "soft assignments",
    UNCONSTRAINED: "unconstrained",
    TRUE_GROUPS: "true groups",
}
# What a criterion bounds from above, as measures without the groups' kind; α stands beside them.
MEASURES: Mapping[str, tuple[str, ...]] = {
    "equal_opportunity": ("tpr_shortfall",),
    "equalized_odds": ("tpr_shortfall", "fpr_excess"),
}
# Of which groups a violation is told.
KINDS: Mapping[str, str] = {
    "true": "true_{}",
    "noisy": "{}",
    "ball": "{}_ball",
    "assignment": "{}_assignment",
}


@dataclass(frozen=True, eq=False)
class Trained:
    """A row of the study at one setting, as its estimator's parameters have it.

    Attributes
    ----------
    row : ClassifierRow
        Its label, setting and fits.
    approach, inner, criterion : str
        Of the estimator; ``inner`` is "" where no worst case is sought.
    attribute : str
        Whose groups are noisy.
    budget : float
        α; 0 without constraints.
    noise : float
        γ, the share of rows in a wrong group.
    """

    row: ClassifierRow
    approach: str
    inner: str
    criterion: str
    attribute: str
    budget: float
    noise: float

    @property
    def label(self) -> str:
        """What the study calls the row."""
        return self.row.label

    def first(self) -> Stored:
        """Return the fit of the first split."""
        return next(iter(self.row.fits.values()))


@dataclass(frozen=True, eq=False)
class Line:
    """What one row of the study comes to along a parameter, over its splits.

    Attributes
    ----------
    label, approach, inner : str
        The row, and what it is.
    at : ndarray of float64, shape (n_points,)
        Noise or budget, ascending.
    mean, error : ndarray of float64, shape (n_points,)
        Mean over the splits and its standard error, NaN with one split.
    worst : tuple of str
        ``measure:group`` of each mean, where it is the largest of several; else empty.
    """

    label: str
    approach: str
    inner: str
    at: np.ndarray
    mean: np.ndarray
    error: np.ndarray
    worst: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The approach, and how its worst case is found, for readers."""
        return f"{NAMES[self.approach]}, {self.inner}" if self.inner else NAMES[self.approach]


def refuse_groups(described: DatasetConfig) -> str | None:
    """Say why a dataset has no figure of noisy groups; None where it has."""
    if described.label.task != "binary":
        return f"it shows decisions between two classes, and {described.dataset} has no such label"
    if not described.perturb.noisy_groups:
        return f"it shows models of noisy groups, and {described.dataset} injects no noise"
    return None


def list_trained(scene: Scene, figure: str) -> tuple[Trained, ...]:
    """Return the rows of the study's frontier that train on noisy groups.

    Parameters
    ----------
    scene : Scene
    figure : str
        Which figure asks, for messages.

    Returns
    -------
    tuple of Trained
        At least one, in the order of the study; of one attribute and one criterion.

    Raises
    ------
    ConfigError
        When there is none, or they differ in attribute or criterion, or bound other rates than
        true and false positive ones, or the noise of a row is no share.
    """
    described = read_dataset(find_yaml("dataset", scene.study.dataset, scene.home), scene.home)
    approaches = {f"{PREFIX}{each}" for each in NAMES}
    rows = [
        _read_row(row, described, figure)
        for row in list_rows(scene)
        if row.then is None and next(iter(row.fits.values())).group.estimator in approaches
    ]
    if not rows:
        raise ConfigError(
            f"{scene.study.study}: {figure} shows models of noisy groups, and no row has them.",
            f"Add a row {{method: {PREFIX}{NAIVE}, noise: [0.1, 0.3]}}.",
        )
    for field in ("attribute", "criterion"):
        found = list(dict.fromkeys(getattr(each, field) for each in rows))
        if len(found) > 1:
            raise ConfigError(
                f"{scene.study.study}: {figure} shows one {field}, and the rows have "
                f"{', '.join(found)}.",
                "Put them into studies of their own.",
            )
    if rows[0].criterion not in MEASURES:
        raise ConfigError(
            f"{scene.study.study}: {figure} shows true and false positive rates, and the rows are "
            f"trained for {rows[0].criterion}.",
            f"Take the figure out, or choose a criterion among {', '.join(MEASURES)}.",
        )
    return tuple(rows)


def _read_row(row: ClassifierRow, described: DatasetConfig, figure: str) -> Trained:
    first = next(iter(row.fits.values()))
    member, method = first.member, METHODS.find(first.group.estimator)
    known: dict[str, Any] = {**method().get_params(deep=False), **member.parameters}
    column = known["attribute"]
    attribute = column if isinstance(column, str) else list(described.groups)[column]
    noise = member.noise
    if noise is None:
        rule = described.perturb.noisy_groups.get(attribute)
        noise = None if rule is None else rule.share
    if noise is None:
        raise ConfigError(
            f"{figure} shows the share of rows in a wrong group, and the row {row.label!r} has "
            "none.",
            "Give the row noise: [0.1, 0.3], for example.",
        )
    return Trained(
        row=row,
        approach=first.group.estimator.removeprefix(PREFIX),
        inner=known.get("inner", ""),
        criterion=known["criterion"],
        attribute=attribute,
        budget=float(known.get("budget", 0.0)),
        noise=float(noise),
    )


def select(
    rows: Sequence[Trained], figure: str, approach: str, inner: str = ""
) -> tuple[Trained, ...]:
    """Return the rows of an approach, found by ``inner`` where that is said.

    Raises
    ------
    ConfigError
        When there is none, saying which row to add.
    """
    found = tuple(
        each for each in rows if each.approach == approach and (not inner or each.inner == inner)
    )
    if not found:
        way = f", inner: {inner}" if inner else ""
        raise ConfigError(
            f"{figure} shows the approach {approach}{f' by {inner}' if inner else ''}, and no row "
            "of the study has that.",
            f"Add a row {{method: {PREFIX}{approach}{way}, noise: [0.1, 0.3]}}.",
        )
    return found


def choose_budget(rows: Sequence[Trained]) -> float:
    """Return the budget of most constrained rows, the smallest of equals.

    Rows that seek the exact worst case may sweep it, so that they have no say where others have.
    """
    constrained = [each for each in rows if each.approach != UNCONSTRAINED]
    voters = [each for each in constrained if each.inner != "exact"] or constrained or list(rows)
    budgets = [each.budget for each in voters]
    return min(sorted(set(budgets)), key=lambda each: -budgets.count(each))


def trace(
    rows: Sequence[Trained],
    figure: str,
    along: str,
    measure: Callable[[Trained], tuple[float, float, str]],
) -> tuple[Line, ...]:
    """Return a line for each label among the rows.

    Parameters
    ----------
    rows : sequence of Trained
    figure : str
    along : {"noise", "budget"}
    measure : callable
        ClassifierRow -> mean, standard error, and which group it is of.

    Raises
    ------
    ConfigError
        When a label has two settings at one place of the line.
    """
    lines = []
    for label in dict.fromkeys(each.label for each in rows):
        own = sorted(
            (each for each in rows if each.label == label), key=lambda each: getattr(each, along)
        )
        at = [float(getattr(each, along)) for each in own]
        if len(set(at)) < len(at):
            raise ConfigError(
                f"{figure} shows one model for each {along}, and the row {label!r} has several.",
                "Give each of its settings a row of its own; a list within a list, as "
                "learning_rate: [[0.01, 0.1]], lets validation rows choose.",
            )
        found = [measure(each) for each in own]
        mean, error = (np.array([each[place] for each in found]) for place in (0, 1))
        worst = tuple(each[2] for each in found)
        lines.append(Line(label, own[0].approach, own[0].inner, np.array(at), mean, error, worst))
    return tuple(lines)


@dataclass(frozen=True, eq=False)
class Results:
    """What rows come to on test rows; indexes points.parquet once for all of them."""

    values: Mapping[tuple[str, str], pd.DataFrame]

    @classmethod
    def of(cls, points: pd.DataFrame, rows: Sequence[Trained]) -> Results:
        """Keep the test values of the rows, by label and setting."""
        kept = points[(points["part"] == "test") & points["method"].isin({r.label for r in rows})]
        tables = kept.groupby(["method", "setting"])
        return cls({(str(key[0]), str(key[1])): table for key, table in tables})

    def violation(
        self, row: Trained, kind: str, budget: float, measures: Sequence[str] | None = None
    ) -> tuple[float, float, str]:
        """Return the violation of the constraint with the largest mean, and its standard error.

            max_{r, j} mean_s (value_rjs − α)

        over the rates r of the criterion and the groups j, s being the splits.

        Parameters
        ----------
        row : Trained
        kind : {"true", "noisy", "ball", "assignment"}
            Of which groups.
        budget : float
            α.
        measures : sequence of str, optional
            Among the criterion's; all of them by default.

        Returns
        -------
        mean, error : float
            NaN where a group has too few rows; the error also with one split.
        worst : str
            ``measure:group``.
        """
        names = [KINDS[kind].format(each) for each in measures or MEASURES[row.criterion]]
        table = self.values[row.label, row.row.setting]
        prefix = f"{row.attribute}="
        table = table[table["measure"].isin(names) & table["group"].str.startswith(prefix)]
        values = table["value"].groupby(table["measure"] + ":" + table["group"])
        means = values.mean()
        # A group that could not be estimated hides which is the largest.
        if means.empty or means.isna().any():
            return np.nan, np.nan, ""
        worst = str(means.idxmax())
        mean, error = average(values.get_group(worst).dropna().to_numpy())
        return mean - budget, error, worst

    def error_rate(self, row: Trained) -> tuple[float, float, str]:
        """Return the mean error rate, its standard error, and ""."""
        table = self.values[row.label, row.row.setting]
        value = table.loc[(table["measure"] == "accuracy") & (table["group"] == ""), "value"]
        return (*average(1.0 - value.to_numpy()), "")


def average(values: np.ndarray) -> tuple[float, float]:
    """Return the mean and its standard error, NaN with fewer than two values."""
    n = len(values)
    error = float(np.std(values, ddof=1) / np.sqrt(n)) if n > 1 else np.nan
    return float(np.mean(values)) if n else np.nan, error


def refer_to_trivial(row: Trained, scene: Scene) -> float:
    """Return the mean error on test of the classifier that decides 0: the share of labels 1."""
    shares = []
    for stored in row.row.fits.values():
        part = stored.split(scene.home).test
        if part is not None:
            shares.append(np.average(part.y, weights=part.weight))
    return float(np.mean(shares))
