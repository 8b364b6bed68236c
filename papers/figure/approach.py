"""The rows of a study on noisy groups by approach, and their violations as noise grows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fairfrontier.models.registry import METHODS
from fairfrontier.prepare.config.dataset import DatasetConfig, read_dataset
from fairfrontier.runtime.errors import ConfigError
from fairfrontier.runtime.finder import find_yaml
from fairfrontier.study.drawing import Scene
from papers.figure.classifier import ClassifierRow, list_rows

# The methods' names are this prefix and an approach.
PREFIX = "noisy_"
NAIVE, DRO, SOFT = "naive", "dro", "soft_assignment"
UNCONSTRAINED, TRUE_GROUPS = "unconstrained", "true_groups"
ROBUST = (DRO, SOFT)
# Approaches that figures compare, as they are trained by default.
INNER = {NAIVE: "", DRO: "ascent", SOFT: "ascent"}
NAMES: Mapping[str, str] = {
    NAIVE: "naive",
    DRO: "DRO",
    SOFT: "soft assignments",
    UNCONSTRAINED: "unconstrained",
    TRUE_GROUPS: "true groups",
}
# The rates that a criterion bounds by α from above, as measures without the kind of groups.
MEASURES: Mapping[str, tuple[str, ...]] = {
    "equal_opportunity": ("tpr_shortfall",),
    "equalized_odds": ("tpr_shortfall", "fpr_excess"),
}
# The measures of a rate by the kind of groups that are violated.
KINDS: Mapping[str, str] = {
    "true": "true_{}",
    "noisy": "{}",
    "ball": "{}_ball",
    "assignment": "{}_assignment",
}


@dataclass(frozen=True, eq=False)
class Trained:
    """A row of the study at one setting, with the parameters of its estimator.

    ``inner`` is "" where no worst case is sought; ``attribute`` has the noisy groups; ``budget`` is
    α, 0 without constraints; ``noise`` is γ, the share of rows in a wrong group.
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
        """The row's label in the study."""
        return self.row.label


@dataclass(frozen=True, eq=False)
class Line:
    """Results of one row of the study against noise or budget ``at``, ascending.

    ``mean`` is over the splits and ``error`` its standard error, NaN with one split, both of shape
    (n_points,); ``worst`` is the ``measure:group`` of each mean where it is the largest of several.
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


def refuse_groups(dataset: DatasetConfig) -> str | None:
    """Return why a dataset has no figure of noisy groups; None where it has."""
    if dataset.label.task != "binary":
        return f"it shows decisions between two classes, and {dataset.dataset} has no such label"
    if not dataset.perturb.noisy_groups:
        return f"it shows models of noisy groups, and {dataset.dataset} injects no noise"
    return None


def list_trained(scene: Scene, figure: str) -> tuple[Trained, ...]:
    """Return the rows of the study's frontier that train on noisy groups, in study order.

    They must have one attribute and one criterion, which bounds true or false positive rates, and
    all have noise; else a ConfigError is raised, as without any row.
    """
    dataset = read_dataset(find_yaml("dataset", scene.study.dataset, scene.home), scene.home)
    prefix = f"{scene.study.study}: {figure} shows"
    estimators = {f"{PREFIX}{approach}" for approach in NAMES}
    rows = [
        _read_row(row, dataset, figure)
        for row in list_rows(scene)
        if row.then is None and row.first.group.estimator in estimators
    ]
    if not rows:
        raise ConfigError(
            f"{prefix} models of noisy groups, and no row has them.",
            f"Add a row {{method: {PREFIX}{NAIVE}, noise: [0.1, 0.3]}}.",
        )
    for field in ("attribute", "criterion"):
        values = list(dict.fromkeys(getattr(row, field) for row in rows))
        if len(values) > 1:
            raise ConfigError(
                f"{prefix} one {field}, and the rows have {', '.join(values)}.",
                "Put them into separate studies.",
            )
    if rows[0].criterion not in MEASURES:
        raise ConfigError(
            f"{prefix} true and false positive rates, and the rows are trained for "
            f"{rows[0].criterion}.",
            f"Take the figure out, or choose a criterion among {', '.join(MEASURES)}.",
        )
    return tuple(rows)


def _read_row(row: ClassifierRow, dataset: DatasetConfig, figure: str) -> Trained:
    member, estimator = row.first.member, row.first.group.estimator
    parameters: dict[str, Any] = {
        **METHODS.find(estimator)().get_params(deep=False),
        **member.parameters,
    }
    column = parameters["attribute"]
    attribute = column if isinstance(column, str) else list(dataset.groups)[column]
    noise = member.noise
    if noise is None and attribute in dataset.perturb.noisy_groups:
        noise = dataset.perturb.noisy_groups[attribute].share
    if noise is None:
        raise ConfigError(
            f"{figure} shows the share of rows in a wrong group, and the row {row.label!r} has "
            "none.",
            "Give the row noise: [0.1, 0.3], for example.",
        )
    return Trained(
        row=row,
        approach=estimator.removeprefix(PREFIX),
        inner=parameters.get("inner", ""),
        criterion=parameters["criterion"],
        attribute=attribute,
        budget=float(parameters.get("budget", 0.0)),
        noise=float(noise),
    )


def select(
    rows: Sequence[Trained], figure: str, approach: str, inner: str = ""
) -> tuple[Trained, ...]:
    """Return the rows of an approach, trained by ``inner`` if given; a ConfigError without any."""
    chosen = tuple(row for row in rows if row.approach == approach and inner in ("", row.inner))
    if not chosen:
        setting = f", inner: {inner}" if inner else ""
        raise ConfigError(
            f"{figure} shows the approach {approach}{f' by {inner}' if inner else ''}, and no row "
            "of the study has that.",
            f"Add a row {{method: {PREFIX}{approach}{setting}, noise: [0.1, 0.3]}}.",
        )
    return chosen


def keep_budget(rows: Sequence[Trained], budget: float, *approaches: str) -> tuple[Trained, ...]:
    """Return the rows of some approaches at a budget, which unconstrained training lacks."""
    return tuple(
        row
        for row in rows
        if row.approach in approaches and (row.budget == budget or row.approach == UNCONSTRAINED)
    )


def choose_budget(rows: Sequence[Trained]) -> float:
    """Return the most frequent budget of constrained rows, the smallest of equally frequent ones.

    Rows that seek the exact worst case may sweep it, and count only where there are no others.
    """
    constrained = [row for row in rows if row.approach != UNCONSTRAINED]
    counted = [row for row in constrained if row.inner != "exact"] or constrained or list(rows)
    budgets = [row.budget for row in counted]
    return min(sorted(set(budgets)), key=lambda budget: -budgets.count(budget))


def trace(
    rows: Sequence[Trained],
    figure: str,
    along: str,
    measure: Callable[[Trained], tuple[float, float, str]],
) -> tuple[Line, ...]:
    """Return a line along ``noise`` or ``budget`` for each label among the rows.

    ``measure`` returns the mean, its standard error, and the group that it is of. A ConfigError
    refuses a label with two settings at one point of its line.
    """
    lines = []
    for label in dict.fromkeys(row.label for row in rows):
        own = [row for row in rows if row.label == label]
        own.sort(key=lambda row: getattr(row, along))
        at = np.array([getattr(row, along) for row in own], dtype=np.float64)
        if len(set(at)) < len(at):
            raise ConfigError(
                f"{figure} shows one model for each {along}, and the row {label!r} has several.",
                "Give each of its settings its own row; a list within a list, as "
                "learning_rate: [[0.01, 0.1]], lets validation rows choose.",
            )
        mean, error, worst = zip(*map(measure, own), strict=True)
        first = own[0]
        lines.append(
            Line(label, first.approach, first.inner, at, np.array(mean), np.array(error), worst)
        )
    return tuple(lines)


@dataclass(frozen=True, eq=False)
class Results:
    """The test values of rows, by label and setting."""

    values: Mapping[tuple[str, str], pd.DataFrame]

    @classmethod
    def of(cls, points: pd.DataFrame, rows: Sequence[Trained]) -> Results:
        """Group points.parquet once for all rows."""
        labels = {row.label for row in rows}
        test = points[(points["part"] == "test") & points["method"].isin(labels)]
        tables = test.groupby(["method", "setting"])
        return cls({(str(key[0]), str(key[1])): table for key, table in tables})

    def violation(
        self, row: Trained, kind: str, budget: float, measures: Sequence[str] | None = None
    ) -> tuple[float, float, str]:
        """Return the largest mean violation of the constraint, its standard error and its group.

            max_{r, j} mean_s (value_rjs − α)

        over the rates r of the criterion, or ``measures`` among them, and the groups j of a kind in
        ``KINDS``, s being the splits. All are NaN and "" where a group has too few rows; the error
        is NaN with one split.
        """
        names = [KINDS[kind].format(name) for name in measures or MEASURES[row.criterion]]
        table = self.values[row.label, row.row.setting]
        prefix = f"{row.attribute}="
        table = table[table["measure"].isin(names) & table["group"].str.startswith(prefix)]
        values = table["value"].groupby(table["measure"] + ":" + table["group"])
        means = values.mean()
        # Without an estimate for each group, the largest is unknown.
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
    parts = (stored.split(scene.home).test for stored in row.row.fits.values())
    shares = [np.average(part.y, weights=part.weight) for part in parts if part is not None]
    return float(np.mean(shares))
