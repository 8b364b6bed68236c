"""A trained model with a post-processor behind it."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from fairfrontier.models.prediction import check_features
from fairfrontier.models.registry import METHODS, create, name_columns
from fairfrontier.models.thresholds.base import PostProcessor, score_part
from fairfrontier.prepare.split import Part, Split
from fairfrontier.runtime.errors import ConfigError, DataError, GroupError


class PostProcessed:
    """A model whose decisions are those of a post-processor on its scores.

    P(decision = 1 | x, group) = h(P(Y = 1 | x), group), with P from ``model`` and h from
    ``processor``. It predicts like any other estimator, and ``evaluate`` takes it.

    Parameters
    ----------
    model : estimator
        Fitted, for two classes.
    processor : PostProcessor
        Fitted on that model's probabilities, on rows that the model was not trained on.

    Notes
    -----
    A counterfactual version of a row in another group is decided by the rule of that group.
    """

    def __init__(self, model: Any, processor: PostProcessor) -> None:
        self.model = model
        self.processor = processor

    @property
    def randomized(self) -> bool:
        """Whether the post-processor draws its decisions."""
        return self.processor.randomized

    @property
    def cut_(self) -> float:
        """The least probability that is decided 1 where nothing is drawn."""
        return self.processor.cut_

    @property
    def classes_(self) -> np.ndarray:
        """The labels in ascending order; the last one is the positive one."""
        return self.processor.classes_

    @property
    def feature_names_in_(self) -> np.ndarray:
        """The names of the model's features; AttributeError where it has none."""
        names: np.ndarray = self.model.feature_names_in_
        return names

    @property
    def predict_needs(self) -> frozenset[str]:
        """Keywords of ``predict_proba``: the post-processor's and the model's."""
        return self.processor.predict_needs | _needs(self.model)

    def predict_proba(
        self, X: np.ndarray, *, sensitive_features: Any, ids: np.ndarray | None = None
    ) -> np.ndarray:
        """Return the exact probabilities of the decisions 0 and 1, float64, (n_samples, 2)."""
        return self.processor.predict_proba(
            self._score(X, sensitive_features, ids), sensitive_features=sensitive_features
        )

    def predict(
        self, X: np.ndarray, *, sensitive_features: Any, ids: np.ndarray | None = None
    ) -> np.ndarray:
        """Return decisions as labels, (n_samples,); random ones need ``ids``."""
        return self.processor.predict(
            self._score(X, sensitive_features, ids), sensitive_features=sensitive_features, ids=ids
        )

    def score_part(self, part: Part) -> np.ndarray:
        """Return the model's P(Y = 1 | x) on the rows of a part, float64, (n_samples,)."""
        check_features(self.model, part)
        return self._score(part.X, part.groups, part.ids)

    def _score(self, X: np.ndarray, groups: np.ndarray, ids: np.ndarray | None) -> np.ndarray:
        keywords = {"sensitive_features": groups, "ids": ids}
        taken = {key: keywords[key] for key in _needs(self.model)}
        probability: np.ndarray = self.model.predict_proba(X, **taken)[:, 1]
        return probability


def _needs(model: Any) -> frozenset[str]:
    """Return the keywords that a model's predictions need; none for other libraries' models."""
    needs: frozenset[str] = getattr(model, "predict_needs", frozenset())
    return needs


def post_process(
    model: Any, split: Split, method: str = "randomized_threshold", **parameters: Any
) -> PostProcessed:
    """Fit a post-processor behind a trained model: on calibration rows, tuned on validation rows.

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
    chain, validation = PostProcessed(model, processor), split.validation
    fit_processor(
        processor,
        split,
        chain.score_part(require_calibration(split)),
        None if validation is None else chain.score_part(validation),
    )
    return chain


def fit_processor(
    processor: PostProcessor, split: Split, calibration: np.ndarray, validation: np.ndarray | None
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


def refuse_unknown_groups(split: Split, processor: PostProcessor) -> None:
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
