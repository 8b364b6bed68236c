"""Rules fitted on the parts of a split, behind a trained model."""

from __future__ import annotations

from copy import copy
from typing import Any, cast

import numpy as np

from fairfrontier.models.prediction import check_features
from fairfrontier.models.registry import METHODS, create, name_columns
from fairfrontier.models.response import name_estimator, score_rows
from fairfrontier.models.thresholds.base import GroupRule, PostProcessor, score_part
from fairfrontier.prepare.split import Part, Split
from fairfrontier.runtime.errors import ConfigError, DataError, GroupError


def post_process(
    model: Any, split: Split, method: str = "randomized_threshold", **parameters: Any
) -> PostProcessor:
    """Fit a rule of a method behind a trained model: on calibration rows, tuned on validation rows.

    Parameters
    ----------
    model : estimator
        Fitted on ``split.train``; any with a ``predict_proba``.
    split : Split
        With a calibration part, and a validation part where parameters are to be chosen; with a
        validation part alone rules are fitted on it, too.
    method : str
        A registered post-processor.
    **parameters
        Its parameters; ``attributes`` may be names.

    Raises
    ------
    ConfigError
        For an unknown post-processor, parameter or attribute, or a split without such rows.
    DataError
        When a group has validation or test rows and none to be fitted on.
    """
    cls = METHODS.find(method)
    if not issubclass(cls, PostProcessor):
        rules = [name for name, each in METHODS.all().items() if issubclass(each, PostProcessor)]
        raise ConfigError(
            f"The method {method!r} does not decide from scores.",
            f"Choose a post-processor: {', '.join(rules)}.",
        )
    attributes = list(split.train.attributes)
    named = name_columns(cls, parameters, attributes, split.dataset, method)
    processor = cast("PostProcessor", create(method, **named))
    reason = processor.supports(split.replace(feature_names=("score",)))
    if reason is not None:
        raise ConfigError(reason, "Post-process a model of two classes on a split with groups.")
    fitted, validation = require_calibration(split), split.validation
    scores = [None if part is None else _score(model, part) for part in (fitted, validation)]
    fit_processor(processor, split, cast("np.ndarray", scores[0]), scores[1])
    rule = copy(processor)
    rule._stand_behind(model, _find_positive(model))
    return rule


def _score(model: Any, part: Part) -> np.ndarray:
    check_features(model, part)
    return score_rows(model, part.X, _find_positive(model), name_estimator(model))[0]


def _find_positive(model: Any) -> Any:
    """Return the model's label of the split's class 1, whatever it calls it."""
    return getattr(model, "classes_", (0, 1))[-1]


def fit_processor(
    processor: GroupRule, split: Split, calibration: np.ndarray, validation: np.ndarray | None
) -> None:
    """Fit a post-processor on P(Y=1|x) of the part it takes and, if any, the validation part."""
    refuse_unknown_groups(split, processor)
    part, checked = score_part(require_calibration(split), calibration), None
    if split.validation is not None and validation is not None:
        checked = score_part(split.validation, validation)
    keywords = {
        "sample_weight": part.weight,
        "sensitive_features": part.groups,
        "validation": checked,
        "unit": part.units[1],
    }
    taken = {
        name: value
        for name, value in keywords.items()
        if name in processor.fit_takes and value is not None
    }
    try:
        processor.fit(part.X, part.y, **taken)
    except GroupError as error:
        raise error.name(part.attributes) from None


def require_calibration(split: Split) -> Part:
    """Return the part that rules are fitted on: calibration, or validation where there is none.

    ConfigError is raised where there is neither.
    """
    part = split.calibration or split.validation
    if part is None:
        raise ConfigError(
            f"{split.dataset} has no calibration part, on which a post-processor is fitted.",
            "Give its YAML one: split: {kind: random, train: 0.4, calibration: 0.2, "
            "validation: 0.2, test: 0.2}, for example.",
        )
    return part


def refuse_unknown_groups(split: Split, processor: GroupRule) -> None:
    """Raise DataError for a group with validation or test rows, but no calibration row."""
    if processor.takes_unseen:
        return
    fitted = require_calibration(split)
    seen = set(map(tuple, processor.cross(fitted.groups).tolist()))
    for part in (split.validation, split.test):
        if part is None:
            continue
        for cell in np.unique(processor.cross(part.groups), axis=0):
            if tuple(cell.tolist()) not in seen:
                named = processor.name_cell(cell, part.attributes).items()
                group = ", ".join(map("=".join, named))
                raise DataError(
                    f"No {fitted.name} row of {part.dataset} is of the group {group}, but "
                    f"{part.name} rows are.",
                    processor.mend_unseen,
                )
