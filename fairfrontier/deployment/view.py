"""A bundle as one of two classes, and in counts the rows that later ones are compared with."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from fairfrontier.deployment.answer import Above, OneClass, predict_numbers
from fairfrontier.deployment.bundle import Bundle, ClassifierBundle, RegressorBundle
from fairfrontier.prepare.config.text import WORDS
from fairfrontier.prepare.row import EncodedRows, RowEncoder
from fairfrontier.prepare.table.column import as_levels
from fairfrontier.prepare.table.rows import used_columns
from fairfrontier.runtime.errors import ConfigError, nearest

# The most bins of a feature, of the scores, and the most levels that are counted by name.
FEATURE_BINS, SCORE_BINS, LEVELS = 10, 50, 100
OTHER = "other"


def describe_rows(
    encoder: RowEncoder, rows: EncodedRows, decided: pd.DataFrame, labels: np.ndarray, minimum: int
) -> dict[str, Any]:
    """Count rows by decision, label, group, score and feature, as plain values.

    Parameters
    ----------
    encoder : RowEncoder
        What encoded them.
    rows : EncodedRows
        The rows.
    decided : DataFrame
        What `Bundle.decide` returns of them.
    labels : ndarray of float64, shape (n_samples,)
        1, 0, or NaN where unknown.
    minimum : int
        Rows that a level or a bin needs to be counted by itself.

    Returns
    -------
    dict
        - ``rows``, ``refused``: numbers of rows, the latter by reason. All below is of the others;
        - ``counts``: see `count_decisions`; ``groups``: attribute -> level -> the same, where
          levels of fewer than ``minimum`` rows, rows of no group, and a level of that name, are
          one, ``other``;
        - ``score``: a histogram; ``features``: column -> a histogram, see `describe_column`.
    """
    kept = decided["refused"].to_numpy() == ""
    probability = decided["probability"].to_numpy(dtype=np.float64)[kept]
    labels, groups = labels[kept], rows.groups[kept]
    numbers = {*used_columns(encoder.config)[0], WORDS}
    described: dict[str, dict[str, Any]] = {}
    for position, attribute in enumerate(encoder.attributes):
        codes = groups[:, position]
        sizes = np.bincount(codes[codes >= 0], minlength=len(attribute.names))
        small = np.append(sizes < minimum, True)[codes]
        levels = {
            name: codes == code
            for code, name in enumerate(attribute.names)
            if sizes[code] >= minimum
        }
        if small.any():
            levels[OTHER] = small | levels.get(OTHER, False)
        described[attribute.name] = {
            name: count_decisions(probability[mask], labels[mask]) for name, mask in levels.items()
        }
    score = pd.Series(decided["score"].to_numpy(dtype=np.float64)[kept])
    return {
        "rows": len(decided),
        "refused": {
            str(reason): int(count)
            for reason, count in decided["refused"].value_counts().items()
            if reason
        },
        "counts": count_decisions(probability, labels),
        "groups": described,
        "score": describe_column(score, True, minimum, SCORE_BINS),
        "features": {
            name: describe_column(rows.columns.loc[kept, name], name in numbers, minimum)
            for name in encoder.described
        },
    }


def count_decisions(probability: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Count rows, decisions and labels.

    ``probability`` is that of deciding 1: ``selected``, ``true_positive`` and ``false_positive``
    are expected numbers of rows, whole where nothing is drawn. ``labelled`` rows have a label,
    ``positive`` ones 1.
    """
    known = ~np.isnan(labels)
    chance, label = probability[known], labels[known]
    return {
        "rows": int(probability.size),
        "selected": float(probability.sum()),
        "labelled": int(known.sum()),
        "positive": int(label.sum()),
        "true_positive": float(chance[label == 1].sum()),
        "false_positive": float(chance[label == 0].sum()),
    }


def describe_column(
    column: pd.Series, numeric: bool, minimum: int, bins: int = FEATURE_BINS
) -> dict[str, Any]:
    """Return the histogram of a column, with what `count_column` needs to count another one by it.

    Numbers are cut at quantiles: bin k is [edge k−1, edge k), and holds about as many rows as the
    others, at least ``minimum``. Levels of fewer rows, and those after the ``LEVELS`` most
    frequent, are counted as one.
    """
    if numeric:
        values = column.to_numpy(dtype=np.float64)
        values = values[~np.isnan(values)]
        parts = max(1, min(bins, values.size // max(1, minimum)))
        inner = np.quantile(values, np.linspace(0, 1, parts + 1)[1:-1]) if values.size else []
        # An edge at the least value would leave the bin below it empty.
        edges = [float(edge) for edge in np.unique(inner) if edge > values.min()]
        described: dict[str, Any] = {"edges": edges}
    else:
        counts = as_levels(column).value_counts()
        named = [str(level) for level in counts.index[counts >= minimum][:LEVELS]]
        described = {"levels": sorted(named)}
    return {**described, "counts": count_column(column, described).tolist()}


def count_column(column: pd.Series, described: Mapping[str, Any]) -> np.ndarray:
    """Count the rows of a column in the bins of a histogram, int64.

    ``described`` has the ``edges`` of numbers or the ``levels``. The bins come first, in order;
    behind those of levels comes the count of all other levels; missing cells are last.
    """
    if "edges" in described:
        values = column.to_numpy(dtype=np.float64)
        missing = np.isnan(values)
        size = len(described["edges"]) + 1
        codes = np.searchsorted(np.asarray(described["edges"]), values[~missing], side="right")
    else:
        levels = as_levels(column)
        missing = levels.isna().to_numpy()
        size = len(described["levels"]) + 1
        codes = pd.Index(described["levels"]).get_indexer(pd.Index(levels[~missing]))
        codes = np.where(codes < 0, size - 1, codes)
    return np.append(np.bincount(codes, minlength=size), missing.sum()).astype(np.int64)


# What differs between the classes in the reference of a bundle.
OF_CLASS = ("counts", "groups", "score")


def view_binary(bundle: Bundle, accepted: str | None = None) -> ClassifierBundle:
    """Return a bundle as one of two classes, of which ``accepted`` is the favourable one.

    By default it is the dataset's. Of several classes, whether a row is decided it. Of a
    regression, whether more is predicted than the median prediction of the test rows; labels are
    cut there, too.

    Raises
    ------
    ConfigError
        When there is no such class, or none, and when nothing says which of several is favourable.
    """
    if not isinstance(bundle, ClassifierBundle):
        if accepted is not None:
            raise ConfigError(
                "--accepted names a class, and the bundle is of a regression.", "Leave it out."
            )
        return _view_above(bundle, float(bundle.reference["cut"]))
    names = bundle.class_names
    if accepted is not None and accepted not in names:
        raise ConfigError(
            f"The bundle has no class {accepted!r} (--accepted).", nearest(accepted, names)
        )
    if bundle.several:
        code = bundle.favourable if accepted is None else names.index(accepted)
        if code is None:
            raise ConfigError(
                f"The bundle decides between {', '.join(names)}, and nothing says which of them is "
                "good for the person.",
                "Name it with --accepted, or as label.favourable in the dataset's YAML before "
                "choosing.",
            )
        return _view_class(bundle, names[code])
    if accepted is None:
        return bundle
    config = bundle.encoder.config
    label = config.label.model_copy(update={"favourable": accepted})
    encoder = replace(bundle.encoder, config=config.model_copy(update={"label": label}))
    view = copy(bundle)
    view.encoder = encoder
    return view


def describe_reference(
    bundle: Bundle, frame: pd.DataFrame, rows: EncodedRows, minimum: int
) -> dict[str, Any]:
    """Count raw rows as `describe_rows` does, as what later rows are compared with.

    Of several classes ``counts``, ``groups`` and ``score`` are those of each class, in ``classes``.
    Of a regression rates are of predictions above ``cut``, in the units of the model.
    """

    def describe(view: Bundle) -> dict[str, Any]:
        decided, labels = view.judge_rows(frame, rows), view.encoder.read_labels(frame)
        return describe_rows(view.encoder, rows, decided, labels, minimum)

    if isinstance(bundle, RegressorBundle):
        accepted = rows.refusals.accepted
        # Nothing that is drawn is looked at.
        ids = np.zeros(int(accepted.sum()), dtype=np.int64)
        values, chance, _ = predict_numbers(
            bundle.model, rows.X[accepted], rows.groups[accepted], ids
        )
        cut = float(np.median(values @ chance))
        return {**describe(_view_above(bundle, cut)), "cut": cut}
    if not isinstance(bundle, ClassifierBundle) or not bundle.several:
        return describe(bundle)
    by_class = {name: describe(_view_class(bundle, name)) for name in bundle.class_names}
    first = next(iter(by_class.values()))
    shared = {name: value for name, value in first.items() if name not in OF_CLASS}
    classes = {name: {key: each[key] for key in OF_CLASS} for name, each in by_class.items()}
    return {**shared, "classes": classes}


def _view_class(bundle: ClassifierBundle, name: str) -> ClassifierBundle:
    """Return whether a row is decided one class, as a bundle."""
    code = bundle.class_names.index(name)
    model = OneClass(bundle.model, code, len(bundle.class_names))
    shared = {key: value for key, value in bundle.reference.items() if key != "classes"}
    own = bundle.reference.get("classes", {}).get(name, {})
    return _view(bundle, model, {"positive": (name,)}, name, {**shared, **own})


def _view_above(bundle: Bundle, cut: float) -> ClassifierBundle:
    """Return whether more is predicted than a cut, as a bundle."""
    label, value = bundle.encoder.config.label, float(bundle.encoder.unscale(np.array(cut)))
    positive = {"above": value} if label.positive is None else {}
    model = Above(bundle.model, cut)
    return _view(bundle, model, positive, f"above {value:.6g}", bundle.reference)


def _view(
    bundle: Bundle, model: Any, positive: Mapping[str, Any], name: str, reference: Mapping[str, Any]
) -> ClassifierBundle:
    config = bundle.encoder.config
    update = {"task": "binary", "favourable": None, "range": None, "clip": False, **positive}
    label = config.label.model_copy(update=update)
    encoder = replace(
        bundle.encoder,
        config=config.model_copy(update={"label": label}),
        classes=(f"not {name}", name),
    )
    return ClassifierBundle(
        model=model,
        encoder=encoder,
        manifest=bundle.manifest,
        reference=reference,
        metric=bundle.metric,
    )
