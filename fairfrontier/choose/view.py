"""A bundle of several classes, or of a regression, as one of two classes: what rates are of."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from fairfrontier.choose.bundle import Bundle, ClassifierBundle, RegressorBundle
from fairfrontier.choose.judgement import Above, OneClass, predict_numbers
from fairfrontier.choose.reference import describe_rows
from fairfrontier.prepare.row import EncodedRows
from fairfrontier.runtime.errors import ConfigError, nearest

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
