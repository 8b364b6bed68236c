"""Pictures of metrics by group, under fairlearn's names: models compared, and ROC curves."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from sklearn.metrics import RocCurveDisplay
from sklearn.utils import check_array, check_consistent_length

if TYPE_CHECKING:
    from matplotlib.axes import Axes

logger = logging.getLogger(__name__)


def _merge(features: Any, *, finite: bool) -> pd.Series:
    """Return one column of groups: values of several columns joined by commas; NA is missing."""
    if isinstance(features, dict) and not finite:
        features = pd.DataFrame(features)
    array = check_array(features, ensure_2d=False, dtype=None, ensure_all_finite=finite)
    if array.ndim == 1 or array.shape[1] == 1:
        return pd.Series(array.squeeze())
    cells = [
        [each.replace("\\", "\\\\").replace(",", "\\,") for each in row]
        for row in array.astype(str)
    ]
    merged = pd.Series([",".join(row) for row in cells], dtype=object)
    return merged.mask(pd.isna(array).any(axis=1), pd.NA)


def _check_kind(value: Any, name: str, kinds: tuple[type, ...], wanted: str) -> None:
    if not isinstance(value, kinds):
        raise ValueError(
            f"The only allowed input data formats for {name} are: {wanted}. Your provided data was "
            f"of type {type(value).__name__}."
        )


def plot_model_comparison(
    *,
    y_preds: Any,
    y_true: Any = None,
    sensitive_features: Any = None,
    x_axis_metric: Any = None,
    y_axis_metric: Any = None,
    ax: Axes | None = None,
    axis_labels: bool | Sequence[str] = True,
    point_labels: bool | list[Any] = False,
    point_labels_position: Sequence[float] = (0, 0),
    legend: bool = False,
    show_plot: bool = False,
    **kwargs: Any,
) -> Axes:
    """Draw several models' predictions as points of two metrics.

    Parameters
    ----------
    y_preds : array-like of shape (n_models, n_samples), or dict of name to array-like
        The models' predictions.
    y_true, sensitive_features : array-like
        Labels, numbers, and groups; several columns are crossed.
    x_axis_metric, y_axis_metric : callable
        ``f(y_true, y_pred, sensitive_features=)`` or ``f(y_true, y_pred)``.
    ax : Axes or None
        Where to draw; a new figure's axes when None.
    axis_labels : bool or pair of str
        Whether the metrics' names are written, or what instead.
    point_labels : bool or list
        Whether keys or numbers are written at the points, or what instead.
    point_labels_position : pair of float
        Their offset in units of the axes.
    legend, show_plot : bool
        Whether a legend is added, with ``label=`` among ``kwargs``, and the figure shown.
    **kwargs
        For `matplotlib.axes.Axes.scatter`.

    Raises
    ------
    ValueError
        For options of other kinds, and numbers of rows or labels that differ.
    """
    import matplotlib.pyplot as plt

    y = np.asarray(y_true)
    if len(y_true) == 0:
        raise ValueError(f"Must supply nonempty y, got y={y_true}.")
    if y.ndim > 2 or (y.ndim == 2 and y.shape[1] > 1):
        raise ValueError(f"`y` must be of shape (n,) or (n,1), got y of shape=({y.shape}).")
    y = check_array(y.reshape(-1), ensure_2d=False, dtype="numeric", ensure_all_finite=False)
    if sensitive_features is None:
        raise ValueError("Must specify sensitive_features (for now)")
    check_consistent_length(y, sensitive_features)
    groups = _merge(sensitive_features, finite=True).to_numpy()

    names = list(y_preds) if isinstance(y_preds, dict) else range(len(y_preds))
    listed = list(y_preds.values()) if isinstance(y_preds, dict) else y_preds
    predictions = check_array(np.atleast_2d(np.array(listed)))
    if predictions.shape[1] != len(y):
        raise ValueError(
            "Arrays y_true and the rows of y_preds have an inconsistent number of items"
        )
    _check_kind(axis_labels, "axis_labels", (bool, list, tuple), "boolean or tuple of two strings")
    if not isinstance(axis_labels, bool) and len(axis_labels) != 2:
        raise ValueError("Key word argument axis_labels should be a list or tuple of two strings.")
    _check_kind(legend, "legend", (bool,), "boolean")
    _check_kind(show_plot, "show_plot", (bool,), "boolean")
    _check_kind(point_labels, "point_labels", (bool, list), "boolean or list of labels")
    if isinstance(point_labels, list) and len(point_labels) != len(predictions):
        raise ValueError("Arrays point_labels and y_preds have an inconsistent number of items")
    if not isinstance(point_labels_position, list | tuple) or len(point_labels_position) != 2:
        raise ValueError("Key word argument point_labels_position is not a two-tuple.")
    if not all(isinstance(each, int | float) for each in point_labels_position):
        raise ValueError(
            "Key word argument point_labels_position is not a list or two-tuple containing only "
            "numbers."
        )

    metrics = (x_axis_metric, y_axis_metric)
    points = []
    for metric in metrics:
        try:
            values = [metric(y, each, sensitive_features=groups) for each in predictions]
        except TypeError:
            values = [metric(y, each) for each in predictions]
        points.append(np.array(values))
    if ax is None:
        logger.warning("No matplotlib.Axes object was provided to draw on, so we create a new one")
        ax = plt.axes()
    if axis_labels is True:
        names_of = [
            getattr(each, "__qualname__", getattr(each, "__name__", "")) or repr(each)
            for each in metrics
        ]
        axis_labels = [each.replace("_", " ") for each in names_of]
    if not isinstance(axis_labels, bool):
        ax.set(xlabel=axis_labels[0], ylabel=axis_labels[1])
    if point_labels:
        labels = names if point_labels is True else point_labels
        for x, y_, label in zip(*points, labels, strict=True):
            ax.text(x + point_labels_position[0], y_ + point_labels_position[1], label)
    ax.scatter(*points, **kwargs)
    if legend:
        ax.legend()
    if show_plot:
        plt.show()
    return ax


def plot_roc_curve_by_group(
    y_true: Any,
    y_score: Any,
    *,
    sensitive_features: Any,
    ax: Axes | None = None,
    plot_overall: bool = True,
    plot_chance_level: bool = True,
    pos_label: Any = None,
    title: str | None = None,
) -> Axes:
    """Draw the ROC curve of every group, with its AUC.

    Parameters
    ----------
    y_true, y_score : array-like, shape (n_samples,)
        Labels, and scores of the positive one.
    sensitive_features : array-like, dict of 1-D arrays or DataFrame
        Groups; several columns are crossed. Rows with a missing value count overall alone.
    ax : Axes or None
        Where to draw; those of a new figure when None.
    plot_overall, plot_chance_level : bool
        Whether the curve of all rows, and the diagonal, are drawn.
    pos_label : scalar or None
        The positive label.
    title : str or None
        What is written above.

    Raises
    ------
    ValueError
        For numbers of rows that differ.
    """
    import matplotlib.pyplot as plt

    y, score = np.asarray(y_true), np.asarray(y_score)
    if len(y) != len(score):
        raise ValueError("Arrays y_true and y_score have an inconsistent number of items")
    groups = _merge(sensitive_features, finite=False)
    check_consistent_length(y, groups)
    ax = plt.subplots()[1] if ax is None else ax
    if plot_chance_level:
        ax.plot([0, 1], [0, 1], linestyle="--", color="0.8", label="Chance level (AUC = 0.50)")
    curves: list[tuple[str, Any]] = [("Overall", slice(None))] if plot_overall else []
    curves += [(str(g), (groups == g).to_numpy()) for g in sorted(groups.dropna().unique())]
    for name, rows in curves:
        RocCurveDisplay.from_predictions(
            y[rows], score[rows], name=name, pos_label=pos_label, ax=ax
        )
    if title is not None:
        ax.set_title(title)
    return ax
