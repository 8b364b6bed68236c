"""The verb ``by_group``: labels, decisions and groups in, a tidy table of measures out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import ndtri
from sklearn.utils.multiclass import type_of_target

from fairfrontier.metrics.measure.registry import MEASURES, Audit, MeasureRow
from fairfrontier.metrics.statistic.interval import (
    CONFIDENCE,
    bound_difference,
    bound_extreme,
    bound_ratio,
    widen,
)
from fairfrontier.metrics.verb import find_lack, tabulate
from fairfrontier.models.group import list_columns
from fairfrontier.models.prediction import Prediction, task_of
from fairfrontier.prepare.split import Part, Task
from fairfrontier.prepare.table.column import MISSING_LEVEL, encode_levels, sort_levels
from fairfrontier.runtime.errors import ConfigError, InputError

Function = Callable[..., Any]
# Measures of scores that need no probabilities.
RANKED = ("auc", "disparity")
AGGREGATES = ("difference", "ratio", "min", "max")


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows to be measured, as measures and as functions of the user take them."""

    part: Part
    prediction: Prediction
    y: np.ndarray
    decision: np.ndarray
    weight: np.ndarray | None

    def take(self, rows: np.ndarray, *, attributes: bool = True) -> Rows:
        """Return some rows, with their attributes or without any."""
        part, own = self.part.take(rows), self.prediction
        if not attributes:
            part = replace(part, attributes={}, groups=part.groups[:, :0])
        return Rows(
            part,
            Prediction(own.score[rows], own.decision[rows]),
            self.y[rows],
            self.decision[rows],
            None if self.weight is None else self.weight[rows],
        )

    def apply(self, measure: str | Function) -> MeasureRow:
        """Return the value of all rows; of a function without an interval."""
        if isinstance(measure, str):
            audit = Audit(self.prediction, self.part, minimum=1)
            return next(iter(MEASURES.find(measure).compute(audit)))
        weighted = {} if self.weight is None else {"sample_weight": self.weight}
        return MeasureRow("", float(measure(self.y, self.decision, **weighted)), len(self.y))


def _encode(features: Any, base: str, n_rows: int) -> dict[str, tuple[np.ndarray, tuple[str, ...]]]:
    """Return the codes and levels of every column of features of any kind, by its name."""
    columns = {
        f"{base}_{i}" if name is None else name: column
        for i, (name, column) in enumerate(list_columns(features))
    }
    encoded = {}
    for name, column in columns.items():
        if len(column) != n_rows:
            raise InputError(
                f"The feature {name!r} has {len(column)} rows, and the labels have {n_rows}.",
                "Give one value for every row.",
            )
        codes, levels = encode_levels(pd.Series(column.to_numpy(dtype=object), name=name), name)
        cells = np.append(levels.to_numpy(dtype=object), MISSING_LEVEL)[codes]
        known = sort_levels({*cells})
        encoded[name] = pd.Categorical(cells, categories=list(known)).codes.astype(np.int64), known
    return encoded


def _find_task(y: np.ndarray, decision: np.ndarray) -> Task:
    """Return what is predicted: values that are no whole numbers are those of a regression."""
    if type_of_target(y) == "binary":
        return "binary"
    kinds = {type_of_target(each) for each in (y, decision)}
    return "regression" if "continuous" in kinds else "multiclass"


def _code(
    y: np.ndarray, decision: np.ndarray, pos_label: Any
) -> tuple[tuple[str, ...], np.ndarray, np.ndarray]:
    """Return the classes, their codes as labels, and decisions, which may be probabilities of 1."""
    if pos_label is not None:
        y, decision = (np.asarray(each == pos_label, dtype=np.int64) for each in (y, decision))
        return (f"not {pos_label}", f"{pos_label}"), y, decision.astype(np.float64)
    y, decision = (each.astype(np.int64) if each.dtype == bool else each for each in (y, decision))
    classes = np.unique(y).tolist()
    if {*classes} <= {0, 1}:
        classes = [0, 1]
    codes = {value: code for code, value in enumerate(classes)}
    if classes == [0, 1] and decision.dtype.kind == "f":
        decided = np.where((decision >= 0) & (decision <= 1), decision, np.nan)
    else:
        decided = pd.Series(decision).map(codes).to_numpy(dtype=np.float64)
    if np.isnan(decided).any():
        raise InputError(
            f"The decision {decision[np.isnan(decided)][0]!r} is none of the classes {classes}.",
            "Give decisions of the labels' classes, or probabilities of 1 for labels of 0 and 1.",
        )
    return tuple(map(str, classes)), pd.Series(y).map(codes).to_numpy(dtype=np.int64), decided


def read_rows(
    y: Any, decision: Any, features: Any, scores: Any, sample_weight: Any, pos_label: Any, task: Any
) -> Rows:
    """Return the rows of arrays and frames of any kind."""
    y, decision = (np.squeeze(np.asarray(each)) for each in (y, decision))
    arrays = {"labels": y, "decisions": decision}
    n_rows, given = y.size, sample_weight is not None
    weight = np.asarray(sample_weight, dtype=np.float64) if given else np.ones(n_rows)
    arrays |= {"weights": weight} | ({} if scores is None else {"scores": np.asarray(scores)})
    for name, array in arrays.items():
        if len(np.atleast_1d(array)) != n_rows or pd.isna(array).any():
            raise InputError(
                f"The {name} have {len(np.atleast_1d(array))} rows, {int(pd.isna(array).sum())} "
                f"missing values among them, and {n_rows} values are expected.",
                "Give one value for every row, and leave out rows without one.",
            )
    y, decision = np.atleast_1d(y), np.atleast_1d(decision)
    task = task or _find_task(y, decision)
    classes: tuple[str, ...] = ()
    if task == "regression":
        codes, decided = y.astype(np.float64), decision.astype(np.float64)
        score = decided
    else:
        classes, codes, decided = _code(y, decision, pos_label)
        score = decided if scores is None else np.asarray(scores, dtype=np.float64)
        if len(classes) < 3 and score.ndim == 2:
            score = score[:, -1]
    encoded = _encode(features, "sensitive_feature", n_rows)
    nothing = np.zeros((n_rows, 0))
    part = Part(
        "table",
        "all",
        np.arange(n_rows),
        nothing,
        codes,
        np.stack([code for code, _ in encoded.values()], axis=1),
        nothing,
        weight,
        {name: levels for name, (_, levels) in encoded.items()},
        classes,
    )
    return Rows(part, Prediction(score, decided), y, decision, weight if given else None)


def _choose(rows: Rows, measures: Any, scored: bool) -> dict[str, str | Function]:
    """Return measures and functions by name: all measures that the rows allow when None."""
    task, audit = task_of(rows.part), Audit(rows.prediction, rows.part)
    score = rows.prediction.score
    ranked = task == "binary" and not ((score >= 0) & (score <= 1)).all()

    def is_possible(name: str) -> bool:
        if "score" not in MEASURES.find(name).needs or task == "regression":
            return True
        return scored and (not ranked or name in RANKED)

    if measures is None:
        known = [each for each in MEASURES.all().values() if task in each.task]
        names = [each.name for each in known if find_lack(each, audit) is None]
        return {name: name for name in names if is_possible(name)}
    if isinstance(measures, str) or callable(measures):
        measures = [measures]
    if not isinstance(measures, Mapping):
        measures = {
            each if isinstance(each, str) else getattr(each, "__name__", f"measure_{i}"): each
            for i, each in enumerate(measures)
        }
    for name in measures.values():
        if isinstance(name, str) and not is_possible(name):
            raise ConfigError(
                f"The measure {name!r} is of {'probabilities' if scored else 'scores'}.",
                "Give them as scores=.",
            )
    return dict(measures)


def _list_groups(part: Part) -> Iterator[tuple[str, list[tuple[str, np.ndarray]]]]:
    """Yield every attribute and pair of them with its levels that have rows, and these."""
    names = list(part.attributes)
    for chosen in [(name,) for name in names] + list(combinations(names, 2)):
        levels = [part.attributes[name] for name in chosen]
        codes = [part.group(name) for name in chosen]
        joint = np.ravel_multi_index(codes, [len(each) for each in levels])
        place, present = pd.factorize(joint, sort=True)
        order = np.argsort(place, kind="stable")
        divided = np.split(order, np.searchsorted(place[order], np.arange(1, len(present))))
        at = zip(*np.unravel_index(present, [len(each) for each in levels]), strict=True)
        texts = ["×".join(each[k] for each, k in zip(levels, own, strict=True)) for own in at]
        yield "×".join(chosen), list(zip(texts, divided, strict=True))


def _aggregate(
    name: str, attribute: str, overall: float, levels: Sequence[MeasureRow], minimum: int
) -> Iterator[tuple[str, MeasureRow]]:
    """Yield differences, ratios and extremes of levels of at least so many rows."""
    kept = [each for each in levels if np.isfinite(each.value) and each.n >= minimum]
    if len(kept) < 2:
        kept = []
    value, low, high = (
        np.array([getattr(each, k) for each in kept]) for k in ("value", "low", "high")
    )
    n, left_out = sum(each.n for each in kept), len(levels) - len(kept)
    nothing = (np.nan, np.nan)

    def limits(reach: float) -> tuple[np.ndarray, np.ndarray]:
        ends = widen(value, low, high, np.asarray(reach))
        # What is positive stays so, or there were no ratios.
        ends = np.maximum(ends, 0.0) if shares and (low >= 0).all() else ends
        return ends[:, None, 0], ends[:, None, 1]

    bounded = kept and np.isfinite([low, high]).all()
    least, most = (float(end(value)) if kept else np.nan for end in (np.min, np.max))
    shares = bool(kept) and least >= 0 and most > 0
    fold = (
        [x / overall if abs(x) <= abs(overall) else overall / x for x in value] if overall else []
    )
    mean = float(value.mean()) if kept else np.nan
    found: dict[str, tuple[float, Callable[[], tuple[float, float]] | None]] = {
        "difference": (most - least, partial(bound_difference, value[:, None], limits)),
        "ratio": (
            least / most if shares else np.nan,
            partial(bound_ratio, value[:, None], limits) if shares and (low >= 0).all() else None,
        ),
        "min": (least, partial(bound_extreme, limits, (len(kept), 1), largest=False)),
        "max": (most, partial(bound_extreme, limits, (len(kept), 1), largest=True)),
        "mean": (
            mean,
            # Zou and Donner's limits of a mean of independent values.
            lambda: (
                mean - float(np.hypot.reduce(value - low)) / len(value),
                mean + float(np.hypot.reduce(high - value)) / len(value),
            ),
        ),
        "difference_to_overall": (float(np.abs(value - overall).max()) if kept else np.nan, None),
        "ratio_to_overall": (float(min(fold, default=np.nan)), None),
    }
    for aggregate, (number, bound) in found.items():
        ends = bound() if bounded and bound is not None else nothing
        yield f"{name}_{aggregate}", MeasureRow(attribute, number, n, *ends, left_out)


def _measure(
    rows: Rows, chosen: Mapping[str, str | Function], minimum: int, leave_out_small: bool
) -> pd.DataFrame:
    """Return the measures of rows by group; ``note`` says why a function has no value."""
    kept = minimum if leave_out_small else 1
    named = [each for each in chosen.values() if isinstance(each, str)]
    own = [f"{name}_{end}" for name in named for end in AGGREGATES]
    own = [name for name in own if name in MEASURES.all() and name not in named]
    table = tabulate(rows.prediction, rows.part, [*named, *own], minimum=1)
    if kept > 1:
        fewer = tabulate(rows.prediction, rows.part, [*named, *own], minimum=kept)
        of_levels = table["group"].str.contains("=", regex=False) | (table["group"] == "")
        table = table.where(of_levels, fewer)
    found = [(*row, "") for row in table.itertuples(index=False, name=None)]
    groups = list(_list_groups(rows.part))
    whole = table[table["group"] == ""].set_index("measure")
    for name, measure in chosen.items():
        levels: dict[str, list[MeasureRow]] = {}
        if isinstance(measure, str):
            own_rows = table[
                (table["measure"] == name) & table["group"].str.contains("=", regex=False)
            ]
            for row in own_rows.drop(columns="measure").itertuples(index=False, name=None):
                levels.setdefault(row[0].partition("=")[0], []).append(MeasureRow(*row))
            if name not in whole.index or (not levels and "group" in MEASURES.find(measure).needs):
                continue
            overall = float(whole["value"][name])
        else:
            row = rows.apply(measure)
            overall = row.value
            found.append((name, *row, ""))
        if not levels:
            for attribute, divided in groups:
                for level, at in divided:
                    note = ""
                    try:
                        row = rows.take(at, attributes=False).apply(measure)
                    except Exception as error:
                        row = MeasureRow("", np.nan, len(at))
                        note = f"{type(error).__name__}: {error}"
                    row = row._replace(group=f"{attribute}={level}")
                    levels.setdefault(attribute, []).append(row)
                    found.append((name, *row, note))
        for attribute, each in levels.items():
            made = _aggregate(name, attribute, overall, each, kept)
            found += [(k, *row, "") for k, row in made if k not in own and k not in named]
    columns = ["measure", *MeasureRow._fields, "note"]
    return pd.DataFrame(found, columns=columns)


def by_group(
    y: Any,
    decision: Any,
    *,
    sensitive_features: Any,
    measures: Any = None,
    control_features: Any = None,
    scores: Any = None,
    sample_weight: Any = None,
    pos_label: Any = None,
    task: Task | None = None,
    minimum: int = 10,
    leave_out_small: bool = False,
    confidence: float = CONFIDENCE,
) -> pd.DataFrame:
    """Measure decisions or predictions overall, by group, and between groups.

    Parameters
    ----------
    y, decision : array-like, shape (n_samples,)
        Labels and decisions of any two or more classes, or targets and predictions. Decisions on
        labels 0 and 1 may be probabilities of deciding 1: they count as expectations.
    sensitive_features, control_features : array-like, Series, dict of arrays or frame
        Who is compared, and within what. Text, categories, truth values and numbers are levels; a
        missing value is a level of its own, ``missing``. Columns keep their names; each attribute
        and each pair is compared.
    measures : str, callable, a sequence of these, dict of name to one, or None
        Measures by name, as ``fairfrontier list measures`` shows them, and functions
        ``f(y, decision)``, with ``sample_weight=`` where weights are given. All measures that the
        rows allow when None.
    scores : array-like or None
        P(Y = 1), (n_samples, n_classes) for several classes; of scores on any other scale only AUC
        and disparity are measured, of none no measure of scores.
    sample_weight : array-like or None
        Case weights ≥ 0.
    pos_label : scalar or None
        The class that means 1, and all others 0; the larger one of two by default.
    task : {"binary", "multiclass", "regression"} or None
        By default told from the labels: a regression has values that are no whole numbers.
    minimum : int
        Groups with fewer rows in a rate's denominator are marked ``small``. They are shown.
    leave_out_small : bool
        Whether differences, ratios and extremes leave them out; ``left_out`` counts them.
    confidence : float
        Of the intervals, above 0 and below 1.

    Returns
    -------
    DataFrame
        Columns control (where there are control features), measure, group, value, n, low, high,
        left_out, note and small. ``group`` is ``""`` for all rows, ``sex=Female`` or
        ``sex×race=Female×White`` for a level, and ``sex`` for what compares levels: ``_difference``
        (largest less smallest), ``_ratio`` (smallest over largest), ``_min`` and ``_max``, one of
        which is the worst, ``_mean`` over groups, ``_difference_to_overall`` and
        ``_ratio_to_overall``. NaN is not estimable; ``note`` then has the error of a function.

    Raises
    ------
    InputError
        For rows of different numbers, missing labels, decisions, scores or weights, and decisions
        that are no class.
    ConfigError
        For a measure that is unknown or needs what is not given.

    Notes
    -----
    What has the name of a registered measure is that, as `fairfrontier.evaluate` computes it. The
    AUC, F1, balanced accuracy, log loss and other measures of whole tables are computed within
    every level. Functions have no intervals, and neither have comparisons to overall. O(n log n)
    for each attribute and pair.

    Examples
    --------
    >>> import fairfrontier as ff
    >>> y, hired, sex = [1, 0, 1, 0], [1, 1, 1, 0], ["f", "f", "m", "m"]
    >>> rows = ff.metrics.by_group(y, hired, sensitive_features=sex, measures="selection_rate")
    >>> rows.set_index(["measure", "group"])["value"]["selection_rate_difference"].item()
    0.5
    """
    rows = read_rows(y, decision, sensitive_features, scores, sample_weight, pos_label, task)
    chosen = _choose(rows, measures, scores is not None)
    if not 0 < confidence < 1:
        raise ConfigError(f"The confidence is {confidence}.", "Give a number between 0 and 1.")
    if control_features is None:
        table = _measure(rows, chosen, minimum, leave_out_small)
    else:
        controls = _encode(control_features, "control_feature", len(rows.y))
        held = pd.DataFrame(
            {
                name: np.array(levels, dtype=object)[codes]
                for name, (codes, levels) in controls.items()
            }
        )
        text = held.apply(lambda own: ", ".join(f"{k}={v}" for k, v in own.items()), axis=1)
        tables = []
        for control in sorted(text.unique()):
            own = rows.take(np.flatnonzero(text == control))
            made = _measure(own, chosen, minimum, leave_out_small)
            tables.append(made.assign(control=control)[["control", *made.columns]])
        table = pd.concat(tables, ignore_index=True)
    if confidence != CONFIDENCE:
        reach = np.asarray(ndtri(0.5 + confidence / 2))
        value, low, high = table[["value", "low", "high"]].to_numpy(dtype=np.float64).T
        wide = widen(value, low, high, reach)
        # Shares stay shares.
        inside = (low >= 0) & (high <= 1)
        inside &= ~table["measure"].str.contains("loss|rmse|mae|mean_prediction")
        for i, end in enumerate(("low", "high")):
            table[end] = np.where(inside, np.clip(wide[:, i], 0, 1), wide[:, i])
    few = (table["n"] < minimum) & table["group"].str.contains("=", regex=False)
    return table.assign(small=few.astype(bool))
