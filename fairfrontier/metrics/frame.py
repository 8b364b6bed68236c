"""Metrics of groups under fairlearn's names: `MetricFrame`, disparities and derived metrics.

Names, parameters, defaults, results and refusals are fairlearn's, so that programs written for it
need another import and nothing else. What is computed is ours: metrics that are known are counted
for all groups at once, from the rows of each group, label and decision.
"""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from inspect import signature
from typing import Any, Literal

import numpy as np
import pandas as pd
from sklearn import metrics as skm
from sklearn.utils import check_consistent_length

Metric = Callable[..., Any]
Method = Literal["between_groups", "to_overall"]
Errors = Literal["raise", "coerce"]
TRANSFORMS = ("difference", "group_min", "group_max", "ratio")
# The last digits of sums of fractions depend on their order: of fewer rows than this, metrics with
# such weights are called, which takes no time.
MANY_ROWS = 10_000


def _squeeze(values: Any) -> np.ndarray:
    """Return an array without axes of one element, but with one axis at least."""
    array = np.asarray(values)
    return array.reshape(1) if array.size == 1 else np.squeeze(array) if array.size else array


# Metrics of labels and predictions.


def _rate(
    y_true: Any, y_pred: Any, sample_weight: Any, pos_label: Any, label: int, predicted: int
) -> float:
    """Return the share of the rows of a label that are predicted 0 or 1; 0 where there are none."""
    found = list(np.unique(np.vstack((y_true, y_pred))))
    if pos_label is None:
        if not (set(found) <= {0, 1} or set(found) <= {-1, 1}):
            raise ValueError("If pos_label is not specified, values must be from {0, 1} or {-1, 1}")
        pos_label = 1
    if not 0 < len(found) < 3:
        raise ValueError("Must have no more than two unique y values")
    if len(found) == 2 and pos_label not in found:
        raise ValueError("Must have pos_label in y values")
    other = [value for value in found if value != pos_label] or [np.iinfo(np.int64).min]
    counts = skm.confusion_matrix(
        y_true, y_pred, sample_weight=sample_weight, labels=[*other, pos_label], normalize="true"
    )
    return counts[label, predicted]  # type: ignore[no-any-return]


def true_positive_rate(
    y_true: Any, y_pred: Any, sample_weight: Any = None, pos_label: Any = None
) -> float:
    """Return P(ŷ = 1 | y = 1), also called sensitivity, recall or hit rate; 0 where none is 1.

    Parameters
    ----------
    y_true, y_pred : array-like, shape (n_samples,)
        Labels and predictions, of two values at most.
    sample_weight : array-like or None
        Case weights.
    pos_label : scalar or None
        The value that means 1. With None values must be of {0, 1} or {−1, 1}, and 1 it is.

    Raises
    ------
    ValueError
        For more than two values, and for a ``pos_label`` that is none of two.
    """
    return _rate(y_true, y_pred, sample_weight, pos_label, 1, 1)


def true_negative_rate(
    y_true: Any, y_pred: Any, sample_weight: Any = None, pos_label: Any = None
) -> float:
    """Return P(ŷ = 0 | y = 0), the specificity; see `true_positive_rate`."""
    return _rate(y_true, y_pred, sample_weight, pos_label, 0, 0)


def false_positive_rate(
    y_true: Any, y_pred: Any, sample_weight: Any = None, pos_label: Any = None
) -> float:
    """Return P(ŷ = 1 | y = 0), the fall-out; see `true_positive_rate`."""
    return _rate(y_true, y_pred, sample_weight, pos_label, 0, 1)


def false_negative_rate(
    y_true: Any, y_pred: Any, sample_weight: Any = None, pos_label: Any = None
) -> float:
    """Return P(ŷ = 0 | y = 1), the miss rate; see `true_positive_rate`."""
    return _rate(y_true, y_pred, sample_weight, pos_label, 1, 0)


def count(y_true: Any, y_pred: Any) -> int:
    """Return the number of rows."""
    check_consistent_length(y_true, y_pred)
    return len(y_true)


def mean_prediction(
    y_true: Any,  # noqa: ARG001 - metrics take labels
    y_pred: Any,
    sample_weight: Any = None,
) -> float:
    """Return the weighted mean of the predictions, of numbers of any kind; labels do not count."""
    predicted = _squeeze(y_pred)
    weight = np.ones(len(predicted)) if sample_weight is None else _squeeze(sample_weight)
    return np.dot(predicted, weight) / weight.sum()  # type: ignore[no-any-return]


def selection_rate(
    y_true: Any, y_pred: Any, *, pos_label: Any = 1, sample_weight: Any = None
) -> float:
    """Return the weighted share of predictions that equal ``pos_label``; labels do not count."""
    selected = _squeeze(y_pred) == pos_label
    if len(selected) == 0:
        raise ValueError("Empty y_pred passed to selection_rate function.")
    return mean_prediction(y_true, selected, sample_weight)


# Metrics that are counted: ratios of sums of the cells (y, ŷ) = 00, 01, 10, 11.


def _share(above: Sequence[int], below: Sequence[int]) -> Metric:
    """Return the function that maps cells, (n, 4), to ratios; NaN where the denominator is 0."""

    def divide(cells: np.ndarray) -> np.ndarray:
        total = cells @ np.array(below, dtype=np.float64)
        value = cells @ np.array(above, dtype=np.float64)
        return np.asarray(value / np.where(total > 0, total, np.nan))

    return divide


ALL = (1, 1, 1, 1)
_ACCURACY, _SELECTED = _share((1, 0, 0, 1), ALL), _share((0, 1, 0, 1), ALL)
_RATES: dict[Metric, Metric] = {
    true_positive_rate: _share((0, 0, 0, 1), (0, 0, 1, 1)),
    true_negative_rate: _share((1, 0, 0, 0), (1, 1, 0, 0)),
    false_positive_rate: _share((0, 1, 0, 0), (1, 1, 0, 0)),
    false_negative_rate: _share((0, 0, 1, 0), (0, 0, 1, 1)),
}
_COUNTED: dict[Metric, Metric] = {
    **_RATES,
    count: lambda cells: cells.sum(axis=1).astype(np.int64),
    selection_rate: _SELECTED,
    mean_prediction: _SELECTED,
    skm.accuracy_score: _ACCURACY,
    skm.zero_one_loss: lambda cells: 1 - _ACCURACY(cells),
    skm.precision_score: _share((0, 0, 0, 1), (0, 1, 0, 1)),
    skm.recall_score: _RATES[true_positive_rate],
    skm.f1_score: _share((0, 0, 0, 2), (0, 1, 1, 2)),
    skm.balanced_accuracy_score: lambda cells: (
        (_RATES[true_negative_rate](cells) + _RATES[true_positive_rate](cells)) / 2
    ),
}


@dataclass(frozen=True, eq=False)
class _Call:
    """A metric with those of its arguments that have a value for every row."""

    function: Metric
    arguments: Mapping[str, np.ndarray]

    def read(self, cells: np.ndarray | None) -> np.ndarray | None:
        """Return the values of all groups from their cells, or None where they are not in them.

        Where a group has no value, the metric itself is to say so.
        """
        function = self.function
        if isinstance(function, partial) and not (function.args or function.keywords):
            function = function.func
        counted = _COUNTED.get(function) if isinstance(function, Hashable) else None
        taken = {*self.arguments} <= ({"sample_weight"} if function is not count else set())
        if cells is None or counted is None or not taken:
            return None
        value = np.asarray(counted(cells))
        if function in _RATES:
            return np.asarray(np.nan_to_num(value))
        return None if np.isnan(value).any() else value

    def apply(self, y: Sequence[np.ndarray], rows: np.ndarray) -> Any:
        """Return the value of some rows."""
        arguments = {key: value[rows] for key, value in self.arguments.items()}
        return self.function(y[0][rows], y[1][rows], **arguments)


def _count_cells(
    y: Sequence[np.ndarray], weight: np.ndarray | None, position: np.ndarray, size: int
) -> np.ndarray | None:
    """Return the weight of each group's rows by label and prediction of 0 or 1, (size, 4).

    None where weights may not be added up, and where a group has none.
    """
    if weight is not None:
        if weight.ndim > 1 or weight.dtype.kind not in "biuf":
            return None
        weight = weight.astype(np.float64)
        whole = (weight == np.rint(weight)).all() and weight.sum() < 1 << 53
        if not (weight >= 0).all() or not (whole or len(weight) >= MANY_ROWS):
            return None
    cell = 4 * position + (2 * y[0] + y[1]).astype(np.intp)
    cells = np.bincount(cell, weight, 4 * size).reshape(size, 4)
    total = cells.sum(axis=1)
    return cells if ((total > 0) & (total < np.inf)).all() else None


@dataclass(frozen=True, eq=False)
class _Feature:
    """A sensitive or control feature: the code of each row's level, and the levels in order."""

    name: str
    codes: np.ndarray
    levels: pd.Index

    @classmethod
    def read(cls, base: str, values: Any, index: int) -> _Feature:
        """Return the feature of an array, or of a series, whose name it then has."""
        name = getattr(values, "name", None)
        if not (name is None or isinstance(name, str)):
            raise ValueError(
                f"Series name must be a string. Value '{name}' was of type {type(name)}"
            )
        name = f"{base}{index}" if name is None else name
        # Equal objects, as 1 and True, are of one type only once all of them are known.
        if values.dtype == object and pd.api.types.infer_dtype(values) != "string":
            values = pd.Series(list(values))
        codes, found = pd.factorize(values)
        if (codes < 0).any():
            raise ValueError(
                f"Feature '{name}' contains missing values. Remove or replace them before "
                "constructing a MetricFrame"
            )
        place, levels = pd.factorize(pd.Series(list(found)), sort=True)
        return cls(name, place[codes], levels)


def _read_features(base: str, features: Any, y: np.ndarray) -> list[_Feature]:
    """Return the features of whatever they come in; see `MetricFrame`."""
    if isinstance(features, dict):
        try:
            features = pd.DataFrame.from_dict(features)
        except ValueError as error:
            raise ValueError(
                "DataFrame.from_dict() failed on sensitive features. Please ensure each array is "
                "strictly 1-D. The __cause__ field of this exception may contain further "
                "information."
            ) from error
    columns: list[Any]
    if isinstance(features, pd.DataFrame):
        columns = [features.iloc[:, i] for i in range(features.shape[1])]
    elif isinstance(features, pd.Series):
        columns = [features]
    else:
        if isinstance(features, list):
            if not all(pd.api.types.is_scalar(each) for each in features):
                raise ValueError("Feature lists must be of scalar types")
            array = np.atleast_1d(np.squeeze(np.asarray(features, dtype=object)))
        else:
            known = isinstance(features, np.ndarray)
            array = np.squeeze(features if known else np.asarray(features, dtype=object))
        if array.ndim not in (1, 2):
            raise ValueError("Feature array has too many dimensions")
        columns = [array] if array.ndim == 1 else list(array.T)
    found = []
    for i, column in enumerate(columns):
        if isinstance(features, pd.DataFrame) and not isinstance(column.name, str):
            raise ValueError(
                "DataFrame column names must be strings. "
                f"Name '{column.name}' is of type {type(column.name)}"
            )
        check_consistent_length(column, y)
        found.append(_Feature.read(base, column, i))
    return found


def _as_passed(values: Any) -> np.ndarray:
    """Return an array as metrics get it: numbers of 64 bits, texts as such, rows of any shape."""
    array = _squeeze(values)
    if array.ndim == 1 and array.size and array.dtype.kind in "bif":
        return array.astype({"b": bool, "i": np.int64, "f": np.float64}[array.dtype.kind])
    return np.stack(list(pd.Series(list(array)).to_numpy()))


# What is made of the values of groups.


def _keep_scalars(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a frame with NaN for what is no scalar."""
    scalars = frame.apply(lambda each: each.apply(lambda x: x if np.isscalar(x) else np.nan))
    return pd.DataFrame(scalars)


@dataclass(frozen=True, eq=False)
class _Values:
    """Values of metrics: ``overall``, by the ``controls``, and ``by_group``."""

    overall: Any
    by_group: pd.DataFrame
    controls: list[str] | None

    def combine(self, kind: str, frame: pd.DataFrame) -> Any:
        """Return the least or the largest values of groups."""
        if not self.controls:
            return frame.agg(kind, axis=0)
        return frame.groupby(level=self.controls).agg(kind)

    def group(self, kind: str, errors: str) -> Any:
        """Return the same; ``errors`` says what becomes of values that are no scalars."""
        try:
            return self.combine(
                kind, self.by_group if errors == "raise" else _keep_scalars(self.by_group)
            )
        except ValueError as error:
            raise ValueError(
                "Metric frame contains non-scalar cells. Please remove non-scalar columns from "
                "your metric frame or use parameter errors='coerce'."
            ) from error

    def compare(self, kind: str, method: str, errors: str) -> Any:
        """Return the largest differences, or the smallest ratios."""
        between = method == "between_groups"
        if kind == "difference":
            least = self.group("min", errors) if between else self.overall
            found = self.combine("max", (_keep_scalars(self.by_group) - least).abs())
        elif between:
            found = self.group("min", errors) / self.group("max", errors)
        else:
            ratio = (self.by_group / self.overall).map(lambda x: 1 / x if x > 1 else x)
            found = self.combine("min", ratio)
        return found.where(found.notna(), np.nan)


def _bound(quantiles: Sequence[float], samples: list[Any]) -> list[Any]:
    """Return quantiles of the same values in several samples; missing groups do not count."""
    quantile: Metric = np.quantile
    if isinstance(samples[0], pd.DataFrame):
        index = reduce(pd.Index.union, (each.index for each in samples))
        samples, quantile = [each.reindex(index) for each in samples], np.nanquantile
    try:
        found = quantile(samples, q=quantiles, axis=0)
    except ValueError as error:
        raise ValueError(
            "Error calling numpy.quantiles. Most likely due to a metric returning a non-scalar "
            "result"
        ) from error
    like = samples[0]
    if isinstance(like, pd.Series):
        return [pd.Series(each, index=like.index, name=like.name) for each in found]
    return [pd.DataFrame(each, index=like.index, columns=like.columns) for each in found]


def _seed_samples(random_state: Any, size: int) -> np.ndarray:
    """Return a seed for each bootstrap sample."""
    most = np.iinfo(np.uint32).max
    if isinstance(random_state, np.random.RandomState):
        return random_state.randint(0, most, size=size, dtype=np.uint32)
    if random_state is None or isinstance(random_state, numbers.Integral):
        seed = None if random_state is None else int(random_state)
        return np.random.default_rng(seed).integers(0, most, size=size, dtype=np.uint32)
    raise ValueError(f"Unsupported random_state: {random_state}")


class MetricFrame:
    """Metrics of all rows and of every group of them, as fairlearn's class of this name.

    Parameters
    ----------
    metrics : callable or dict of str to callable
        ``f(y_true, y_pred, **sample_params)`` of any result. Results are series over metrics, or
        frames, for a dict, and without that dimension for a callable.
    y_true, y_pred : array-like
        Labels or targets, and predictions: one entry a row.
    sensitive_features, control_features : list, Series, dict of 1-D arrays, array or DataFrame
        Who is compared, and within what. Names are those of columns and keys, which must be
        strings, or ``sensitive_feature_0``, ``control_feature_0`` and so on. Every combination of
        levels is a group; one without rows is NaN. Missing values are refused.
    sample_params : dict or None
        Arguments that have a value for every row, such as ``sample_weight``, by name; for a dict of
        metrics by metric.
    n_boot : int or None
        Bootstrap samples, for intervals.
    ci_quantiles : list of float or None
        Quantiles, in (0, 1), of the values in these samples that attributes and methods ending in
        ``_ci`` return, one each.
    random_state : int, RandomState or None
        Of the samples.

    Attributes
    ----------
    overall : scalar, Series or DataFrame
        Of all rows; by the control features where there are some.
    by_group : Series or DataFrame
        Of every group, with an index of the control features and the sensitive ones.
    overall_ci, by_group_ci : list
        The same at each quantile.
    control_levels, sensitive_levels : list of str
        The names of the features; the former None where there are none.

    Raises
    ------
    ValueError
        For features that are missing values, have no usable names, twice the same or other numbers
        of rows, for parameters of metrics that are not there, for what is no metric.

    Notes
    -----
    fairlearn's rates, counts and means, and scikit-learn's accuracy, zero-one loss, balanced
    accuracy, precision, recall and F1, are counted for all groups at once where labels and
    predictions are 0 and 1: O(n) whatever the number of groups and metrics, also in every bootstrap
    sample. Other metrics are called for every group. Weights that are no whole numbers are added
    up in another order than fairlearn's from 10,000 rows on, which last digits may show.

    Examples
    --------
    >>> from fairfrontier.metrics import MetricFrame, selection_rate
    >>> frame = MetricFrame(
    ...     metrics=selection_rate,
    ...     y_true=[1, 1, 0, 0],
    ...     y_pred=[1, 1, 1, 0],
    ...     sensitive_features=["woman", "woman", "man", "man"],
    ... )
    >>> frame.by_group.to_dict()
    {'man': 0.5, 'woman': 1.0}
    >>> float(frame.difference())
    0.5
    """

    def __init__(
        self,
        *,
        metrics: Metric | Mapping[str, Metric],
        y_true: Any,
        y_pred: Any,
        sensitive_features: Any,
        control_features: Any = None,
        sample_params: Mapping[str, Any] | None = None,
        n_boot: int | None = None,
        ci_quantiles: list[float] | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        check_consistent_length(y_true, y_pred)
        y = self._y = (_as_passed(y_true), _as_passed(y_pred))
        if len(y[0]) != len(y[1]):
            raise ValueError("All arrays must be of the same length")
        self._binary = all(
            each.ndim == 1 and each.dtype.kind in "bif" and ((each == 0) | (each == 1)).all()
            for each in y
        )
        self._calls = self._read_calls(metrics, sample_params, len(y[0]))
        self._sensitive = _read_features("sensitive_feature_", sensitive_features, y[0])
        self._control = None
        if control_features is not None:
            self._control = _read_features("control_feature_", control_features, y[0])
        names = [each.name for each in self._sensitive + (self._control or [])]
        for i, name in enumerate(names):
            if name in names[:i]:
                raise ValueError(f"Detected duplicate feature name: '{name}'")
        self.ci_quantiles, self.n_boot = ci_quantiles, n_boot
        self._values = self._compute(slice(None))
        self.overall = self._extract(self._values.overall, bool(self._control))
        self.by_group = self._extract(self._values.by_group, True)
        self._samples: list[_Values] = []
        bounded = ci_quantiles is not None and len(ci_quantiles) > 0
        if bounded != (n_boot is not None):
            raise ValueError("Must specify both n_boot and ci_quantiles")
        if bounded:
            if not isinstance(n_boot, numbers.Integral) or n_boot < 1:
                raise ValueError("Must have n_boot be a positive integer")
            if not all(isinstance(each, float) and 0 < each < 1 for each in ci_quantiles or ()):
                raise ValueError("Must have all ci_quantiles be floats in (0, 1)")
            n_rows = len(y[0])
            for seed in _seed_samples(random_state, int(n_boot)):
                drawn = np.random.RandomState(seed).choice(n_rows, n_rows)
                self._samples.append(self._compute(drawn))
            # What has no quantiles is refused here.
            self.by_group_ci, self.overall_ci  # noqa: B018

    def _read_calls(self, metrics: Any, sample_params: Any, n_rows: int) -> dict[str, _Call]:
        """Return the metrics with their arguments, by name."""
        self._single = not isinstance(metrics, dict)
        if sample_params is None:
            sample_params = {}
        if not isinstance(sample_params, dict):
            raise ValueError("Sample parameters must be a dictionary")
        if self._single:
            name = getattr(metrics, "__name__", "metric")
            if callable(metrics) and not hasattr(metrics, "__name__"):
                warnings.warn("Supplied 'func' had no __name__ attribute", stacklevel=3)
            metrics, sample_params = {name: metrics}, {name: sample_params}
        elif not {*sample_params} <= {*metrics}:
            raise ValueError("Keys in 'sample_params' do not match those in 'metric'")
        calls: dict[str, _Call] = {}
        arrays: dict[int, np.ndarray] = {}
        for name, function in metrics.items():
            given = sample_params.get(name, {})
            if not isinstance(given, dict):
                raise ValueError("Sample parameters must be a dictionary")
            if function is None:
                raise ValueError("Found 'None' instead of metric function")
            if not callable(function):
                raise ValueError("Object passed as metric function not callable")
            for key, value in given.items():
                if id(value) not in arrays and value is not None:
                    # A column of a frame has the right number of rows.
                    column = pd.DataFrame(index=range(n_rows))
                    column[key] = np.asarray(value)
                    array = np.asarray(column[key])
                    arrays[id(value)] = np.stack(list(array)) if array.dtype == object else array
            filled = {key: arrays[id(value)] for key, value in given.items() if value is not None}
            calls[name] = _Call(function, filled)
        return calls

    def _compute(self, rows: Any) -> _Values:
        """Return the values of all metrics on some of the rows."""
        controls = self._control or []
        overall, by_group = (
            self._apply(rows, features) for features in (controls, controls + self._sensitive)
        )
        return _Values(overall, by_group, self.control_levels)

    def _apply(self, rows: Any, features: list[_Feature]) -> Any:
        """Return the values by every combination of the features' levels."""
        y = [each[rows] for each in self._y]
        shape = tuple(len(each.levels) for each in features)
        joint = np.zeros(len(y[0]), dtype=np.intp)
        if features:
            joint = np.ravel_multi_index([each.codes[rows] for each in features], shape)
        position, present = pd.factorize(joint, sort=True)
        size = len(present)
        groups: list[np.ndarray] = []
        cells: dict[int, np.ndarray | None] = {}
        columns: dict[str, Any] = {}
        for name, call in self._calls.items():
            weight = call.arguments.get("sample_weight")
            if self._binary and id(weight) not in cells:
                drawn = None if weight is None else weight[rows]
                cells[id(weight)] = _count_cells(y, drawn, position, size)
            columns[name] = call.read(cells.get(id(weight)))
            if columns[name] is None:
                if not groups:
                    order = np.argsort(position, kind="stable")
                    groups = np.split(order, np.searchsorted(position[order], np.arange(1, size)))
                taken = _Call(call.function, {k: v[rows] for k, v in call.arguments.items()})
                columns[name] = [taken.apply(y, own) for own in groups]
        kind = None if columns else float
        values = [
            pd.Series({name: each[i] for name, each in columns.items()}, dtype=kind)
            for i in range(size)
        ]
        if not features:
            return values[0]
        places = np.unravel_index(present, shape)
        at = [each.levels.take(i) for each, i in zip(features, places, strict=True)]
        names = [each.name for each in features]
        several = len(names) > 1
        stacked: Any = np.vstack([np.asarray(each) for each in values])
        frame = pd.DataFrame(
            # Types are found cell by cell in lists alone.
            stacked.tolist() if stacked.dtype == object else stacked,
            index=pd.MultiIndex.from_arrays(at, names=names) if several else at[0].rename(names[0]),
            columns=values[0].index,
        )
        if not several:
            return frame
        levels = [np.unique(np.asarray(each)) for each in at]
        return frame.reindex(pd.MultiIndex.from_product(levels, names=names))

    def _extract(self, found: Any, framed: bool) -> Any:
        """Return what was found, without the dimension of metrics where there is a single one."""
        if not self._single:
            return found
        return found.iloc[:, 0] if framed else found.iloc[0]

    def _bound_by(self, compute: Callable[[_Values], Any], framed: bool) -> list[Any]:
        """Return the quantiles of what is made of the values of each bootstrap sample."""
        if not self._samples:
            raise ValueError(
                "Could not compute confidence intervals: Bootstrapping parameters n_boot and "
                "ci_quantiles were not specified in the MetricFrame constructor."
            )
        samples = [compute(each) for each in self._samples]
        return [self._extract(each, framed) for each in _bound(self.ci_quantiles or [], samples)]

    @property
    def overall_ci(self) -> list[Any]:
        """Return the quantiles of ``overall`` in the bootstrap samples, one each."""
        return self._bound_by(lambda each: each.overall, bool(self._control))

    @property
    def by_group_ci(self) -> list[Any]:
        """Return the quantiles of ``by_group`` in the bootstrap samples, one each."""
        return self._bound_by(lambda each: each.by_group, True)

    @property
    def control_levels(self) -> list[str] | None:
        """Return the names of the control features, or None."""
        return None if self._control is None else [each.name for each in self._control]

    @property
    def sensitive_levels(self) -> list[str]:
        """Return the names of the sensitive features."""
        return [each.name for each in self._sensitive]

    def _combine(self, kind: str, errors: str) -> Any:
        _check(errors=errors)
        return self._extract(self._values.group(kind, errors), bool(self._control))

    def _compare(self, kind: str, method: str, errors: str) -> Any:
        _check(method, errors)
        return self._extract(self._values.compare(kind, method, errors), bool(self._control))

    def _compare_ci(self, kind: str, method: str) -> list[Any]:
        _check(method)
        return self._bound_by(lambda each: each.compare(kind, method, "raise"), bool(self._control))

    def group_min(self, errors: Errors = "raise") -> Any:
        """Return the smallest value of the groups; values that are no scalars raise, or are NaN."""
        return self._combine("min", errors)

    def group_max(self, errors: Errors = "raise") -> Any:
        """Return the largest value of the groups; values that are no scalars raise, or are NaN."""
        return self._combine("max", errors)

    def difference(self, method: Method = "between_groups", errors: Errors = "coerce") -> Any:
        """Return the largest absolute difference between two groups, or of a group to overall.

        Parameters
        ----------
        method : {"between_groups", "to_overall"}
            max_jk |x_j − x_k|, or max_k |x_k − x|.
        errors : {"raise", "coerce"}
            Whether values that are no scalars raise or are NaN.
        """
        return self._compare("difference", method, errors)

    def ratio(self, method: Method = "between_groups", errors: Errors = "coerce") -> Any:
        """Return the smallest ratio of two groups, or of a group and overall, the larger below.

        Parameters
        ----------
        method : {"between_groups", "to_overall"}
            min_k x_k / max_k x_k, or min_k min(x_k / x, x / x_k).
        errors : {"raise", "coerce"}
            Whether values that are no scalars raise or are NaN.
        """
        return self._compare("ratio", method, errors)

    def group_min_ci(self) -> list[Any]:
        """Return the quantiles of `group_min` in the bootstrap samples, one each."""
        return self._bound_by(lambda each: each.group("min", "raise"), bool(self._control))

    def group_max_ci(self) -> list[Any]:
        """Return the quantiles of `group_max` in the bootstrap samples, one each."""
        return self._bound_by(lambda each: each.group("max", "raise"), bool(self._control))

    def difference_ci(self, method: Method = "between_groups") -> list[Any]:
        """Return the quantiles of `difference` in the bootstrap samples, one each."""
        return self._compare_ci("difference", method)

    def ratio_ci(self, method: Method = "between_groups") -> list[Any]:
        """Return the quantiles of `ratio` in the bootstrap samples, one each."""
        return self._compare_ci("ratio", method)


def _check(method: str = "between_groups", errors: str = "coerce") -> None:
    if errors not in ("raise", "coerce"):
        raise ValueError("Invalid error value specified. Valid values are ['raise', 'coerce']")
    if method not in ("between_groups", "to_overall"):
        raise ValueError(f"Unrecognised comparison method: {method}")


# Disparities of one rate, or of both odds.


def _make_frame(
    metrics: dict[str, Metric], y_true: Any, y_pred: Any, sensitive_features: Any, weight: Any
) -> MetricFrame:
    return MetricFrame(
        metrics=metrics,
        y_true=y_true,
        y_pred=y_pred,
        sensitive_features=sensitive_features,
        sample_params={name: {"sample_weight": weight} for name in metrics},
    )


def _name_disparity(name: str, metric: Metric, kind: str, what: str) -> Callable[..., float]:
    """Return the function of this name that compares one metric between groups."""

    def compare(
        y_true: Any,
        y_pred: Any,
        *,
        sensitive_features: Any,
        method: Method = "between_groups",
        sample_weight: Any = None,
    ) -> float:
        frame = _make_frame({"": metric}, y_true, y_pred, sensitive_features, sample_weight)
        return getattr(frame, kind)(method=method).iloc[0]  # type: ignore[no-any-return]

    compare.__name__ = compare.__qualname__ = f"{name}_{kind}"
    compare.__doc__ = f"""Return the {what} between groups.

    Parameters are those of `equalized_odds_difference`.
    """
    return compare


_SELECTED_RATES, _TRUE_RATES = "selection rates P(ŷ = 1)", "true positive rates P(ŷ = 1 | y = 1)"
demographic_parity_difference = _name_disparity(
    "demographic_parity", selection_rate, "difference", f"largest difference of {_SELECTED_RATES}"
)
demographic_parity_ratio = _name_disparity(
    "demographic_parity", selection_rate, "ratio", f"smallest ratio of {_SELECTED_RATES}"
)
equal_opportunity_difference = _name_disparity(
    "equal_opportunity", true_positive_rate, "difference", f"largest difference of {_TRUE_RATES}"
)
equal_opportunity_ratio = _name_disparity(
    "equal_opportunity", true_positive_rate, "ratio", f"smallest ratio of {_TRUE_RATES}"
)


def _compare_odds(kind: str, agg: str, method: Method, *rows: Any) -> float:
    if agg not in ("worst_case", "mean"):
        raise ValueError(f"agg must be one of 'worst_case' or 'mean', got {agg}")
    odds = {"tpr": true_positive_rate, "fpr": false_positive_rate}
    found = getattr(_make_frame(odds, *rows), kind)(method=method)
    worst = max if kind == "difference" else min
    return worst(found) if agg == "worst_case" else found.mean()  # type: ignore[no-any-return]


def equalized_odds_difference(
    y_true: Any,
    y_pred: Any,
    *,
    sensitive_features: Any,
    method: Method = "between_groups",
    sample_weight: Any = None,
    agg: Literal["worst_case", "mean"] = "worst_case",
) -> float:
    """Return the larger of the differences in true and in false positive rate, or their mean.

    Parameters
    ----------
    y_true, y_pred : array-like, shape (n_samples,)
        Labels and decisions, of {0, 1} or {−1, 1}.
    sensitive_features : array-like, DataFrame or dict
        Who is compared; see `MetricFrame`.
    method : {"between_groups", "to_overall"}
        Largest difference between two groups, or of a group to all rows.
    sample_weight : array-like or None
        Case weights.
    agg : {"worst_case", "mean"}
        The larger one of both differences, or their mean.
    """
    rows = (y_true, y_pred, sensitive_features, sample_weight)
    return _compare_odds("difference", agg, method, *rows)


def equalized_odds_ratio(
    y_true: Any,
    y_pred: Any,
    *,
    sensitive_features: Any,
    method: Method = "between_groups",
    sample_weight: Any = None,
    agg: Literal["worst_case", "mean"] = "worst_case",
) -> float:
    """Return the smaller of the ratios of true and of false positive rates, or their mean.

    Parameters are those of `equalized_odds_difference`.
    """
    rows = (y_true, y_pred, sensitive_features, sample_weight)
    return _compare_odds("ratio", agg, method, *rows)


# Metrics of groups as one number, for what takes such a function.


class _DerivedMetric:
    """What `make_derived_metric` returns; of a module, so that it can be sent to a process."""

    def __init__(self, metric: Metric, transform: str, sample_param_names: Sequence[str]) -> None:
        self.metric, self.transform = metric, transform
        self.sample_param_names = sample_param_names

    def __repr__(self) -> str:
        """Return what pictures call it."""
        return f"{getattr(self.metric, '__name__', 'metric')}, {self.transform}"

    def __call__(
        self, y_true: Any, y_pred: Any, *, sensitive_features: Any, **others: Any
    ) -> float:
        """Return the number: ``others`` are what the metric and the transform take."""
        method = {key: others.pop(key) for key in ("method",) if key in others}
        samples = {key: others.pop(key) for key in self.sample_param_names if key in others}
        bound = partial(self.metric, **others)
        bound.__name__ = getattr(self.metric, "__name__", "metric")  # type: ignore[attr-defined]
        frame = MetricFrame(
            metrics=bound,
            y_true=y_true,
            y_pred=y_pred,
            sensitive_features=sensitive_features,
            sample_params=samples,
        )
        compared = self.transform in ("difference", "ratio")
        return getattr(frame, self.transform)(**method if compared else {})  # type: ignore[no-any-return]


def make_derived_metric(
    *, metric: Metric, transform: str, sample_param_names: Sequence[str] | None = None
) -> Callable[..., float]:
    """Return a function of labels, predictions and sensitive features that gives one number.

    Parameters
    ----------
    metric : callable
        ``f(y_true, y_pred, ...)``, without a parameter ``method``.
    transform : {"difference", "group_min", "group_max", "ratio"}
        The method of `MetricFrame` that makes a number of the groups' values.
    sample_param_names : sequence of str or None
        The metric's parameters that have a value for every row; None is ``["sample_weight"]``.

    Returns
    -------
    callable
        Takes what the metric takes, ``sensitive_features=`` and, for differences and ratios,
        ``method=``.

    Raises
    ------
    ValueError
        For another transform, and for what is no such metric.

    Examples
    --------
    >>> from sklearn.metrics import recall_score
    >>> worst = make_derived_metric(metric=recall_score, transform="group_min")
    >>> float(worst([1, 1, 1], [1, 0, 1], sensitive_features=["a", "a", "b"]))
    0.5
    """
    if not callable(metric):
        raise ValueError("Supplied metric object must be callable")
    if "method" in signature(metric).parameters:
        raise ValueError(
            "Callables which accept a 'method' argument may not be passed to "
            "make_derived_metric(). Please use functools.partial()"
        )
    if transform not in TRANSFORMS:
        raise ValueError(f"Transform must be one of {list(TRANSFORMS)}")
    names = ("sample_weight",) if sample_param_names is None else sample_param_names
    return _DerivedMetric(metric, transform, names)


def _derive() -> dict[str, Any]:
    """Return the derived metrics that have names of their own, such as ``f1_score_group_min``."""
    rates = [*_RATES, selection_rate]
    least = (
        skm.balanced_accuracy_score,
        skm.precision_score,
        skm.recall_score,
        skm.roc_auc_score,
        skm.r2_score,
        skm.f1_score,
    )
    most = (skm.mean_absolute_error, skm.mean_squared_error, skm.log_loss)
    wanted = {
        **dict.fromkeys(rates, ("difference", "ratio")),
        skm.accuracy_score: ("difference", "ratio", "group_min"),
        skm.zero_one_loss: ("difference", "ratio", "group_max"),
        **dict.fromkeys(least, ("group_min",)),
        **dict.fromkeys(most, ("group_max",)),
    }
    derived: dict[str, Any] = {}
    for metric, transforms in wanted.items():
        for transform in transforms:
            name = f"{metric.__name__}_{transform}"
            derived[name] = make_derived_metric(metric=metric, transform=transform)
            derived[name].__name__ = name
    return derived


globals().update(_derive())
