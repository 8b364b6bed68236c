"""A trained model with a post-processor behind it."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from fairfrontier.prepare.split import Part, Split
from fairfrontier.runtime.errors import ConfigError, DataError
from fairfrontier.train.attribute import name_columns
from fairfrontier.train.postprocess.base import PostProcessor, score_part
from fairfrontier.train.registry import METHODS, create


class PostProcessed:
    """A model whose decisions are those of a post-processor on its scores.

    P(decision = 1 | x, group) = h(P(Y = 1 | x), group), with P from ``model`` and h from
    ``processor``. To be asked like any other estimator; ``evaluate`` takes it as it is.

    Parameters
    ----------
    model : estimator
        Fitted, for two classes.
    processor : PostProcessor
        Fitted on that model's probabilities, on rows that the model was not trained on.

    Notes
    -----
    When a counterfactual version of a row has another group, the rule of that group is applied.
    """

    def __init__(self, model: Any, processor: PostProcessor) -> None:
        self.model = model
        self.processor = processor

    @property
    def randomized(self) -> bool:
        """Whether the post-processor draws its decisions."""
        return self.processor.randomized

    @property
    def classes_(self) -> np.ndarray:
        """The labels in ascending order; the last one is the positive one."""
        return self.processor.classes_

    @property
    def predict_needs(self) -> frozenset[str]:
        """Keywords of ``predict_proba``: the post-processor's and the model's."""
        return self.processor.predict_needs | _needs(self.model)

    def predict_proba(
        self, X: np.ndarray, *, groups: np.ndarray, ids: np.ndarray | None = None
    ) -> np.ndarray:
        """Return the exact probabilities of the decisions 0 and 1, float64, (n_samples, 2)."""
        score = self._score(X, groups, ids)
        return self.processor.predict_proba(score, groups=groups)

    def predict(
        self, X: np.ndarray, *, groups: np.ndarray, ids: np.ndarray | None = None
    ) -> np.ndarray:
        """Return decisions as labels, (n_samples,); ``ids`` are needed where they are drawn."""
        return self.processor.predict(self._score(X, groups, ids), groups=groups, ids=ids)

    def ask(self, part: Part) -> np.ndarray:
        """Return the model's P(Y = 1 | x) on the rows of a part, float64, (n_samples,)."""
        return self._score(part.X, part.groups, part.ids)

    def _score(self, X: np.ndarray, groups: np.ndarray, ids: np.ndarray | None) -> np.ndarray:
        offered = {"groups": groups, "ids": ids}
        asked = {key: offered[key] for key in _needs(self.model)}
        probability: np.ndarray = self.model.predict_proba(X, **asked)[:, 1]
        return probability


def _needs(model: Any) -> frozenset[str]:
    """Return what a model's predictions need; nothing where it is no estimator of the house."""
    needs: frozenset[str] = getattr(model, "predict_needs", frozenset())
    return needs


def post_process(
    model: Any, split: Split, method: str = "randomized_threshold", **parameters: Any
) -> PostProcessed:
    """Fit a post-processor behind a trained model: on calibration rows, tuned on validation rows.

    Parameters
    ----------
    model : estimator
        Fitted on ``split.train``; of the house, or anything with a ``predict_proba``.
    split : Split
        With a calibration part, and a validation part where parameters are to be chosen.
    method : str
        A registered post-processor.
    **parameters
        Its parameters; ``attributes`` may be names.

    Returns
    -------
    PostProcessed
        The model with the post-processor behind it.

    Raises
    ------
    ConfigError
        For an unknown post-processor, parameter or attribute, or a split without calibration rows.
    DataError
        When a group has validation or test rows and no calibration row.
    """
    cls = METHODS.find(method)
    if not issubclass(cls, PostProcessor):
        raise ConfigError(
            f"The method {method!r} does not decide from scores.",
            "Choose a post-processor: randomized_threshold, hardt, reject_option, shift_inference.",
        )
    found = create(method, **name_columns(cls, parameters, split, method))
    reason = found.supports(split.replace(feature_names=("score",)))
    if reason is not None:
        raise ConfigError(reason, "Post-process a model of two classes on a split with groups.")
    processor = cast("PostProcessor", found)
    chain = PostProcessed(model, processor)
    fresh, checked = require_calibration(split), split.validation
    scores = chain.ask(fresh)
    scored = score_split(split, scores, None if checked is None else chain.ask(checked))
    refuse_unknown_groups(split, processor)
    fit_processor(processor, scored)
    return chain


def fit_processor(processor: PostProcessor, scored: Split) -> None:
    """Fit a post-processor on what ``score_split`` returned."""
    part = scored.train
    offered = {"sample_weight": part.weight, "groups": part.groups, "validation": scored.validation}
    taken = {
        name: value
        for name, value in offered.items()
        if name in processor.fit_takes and value is not None
    }
    processor.fit(part.X, part.y, **taken)


def score_split(split: Split, train: np.ndarray, validation: np.ndarray | None) -> Split:
    """Return the split that a post-processor is fitted on: the calibration rows and their scores.

    Parameters
    ----------
    split : Split
        Of the model, with a calibration part.
    train : ndarray of float64, shape (n_calibration,)
        P(Y=1|x) on the calibration part, which becomes the train part.
    validation : ndarray of float64 or None
        P(Y=1|x) on the validation part.

    Returns
    -------
    Split
        One feature, ``score``.

    Raises
    ------
    ConfigError
        When the split has no calibration part.
    """
    checked = (
        None
        if split.validation is None or validation is None
        else score_part(split.validation, validation)
    )
    return split.replace(
        train=score_part(require_calibration(split), train),
        calibration=None,
        validation=checked,
        test=None,
        feature_names=("score",),
        protected_columns={},
    )


def require_calibration(split: Split) -> Part:
    """Return the calibration part, or raise ConfigError where there is none."""
    if split.calibration is None:
        raise ConfigError(
            f"{split.dataset} has no calibration part, on which a post-processor is fitted.",
            "Give its YAML one: split: {kind: random, train: 0.4, calibration: 0.2, "
            "validation: 0.2, test: 0.2}, for example.",
        )
    return split.calibration


def refuse_unknown_groups(split: Split, processor: PostProcessor) -> None:
    """Refuse groups that have validation or test rows, and no calibration row, by their names.

    Parameters
    ----------
    split : Split
        With a calibration part.
    processor : PostProcessor
        Knows which attributes are crossed.

    Raises
    ------
    DataError
        Naming the group and the part.
    """
    fresh = require_calibration(split)
    seen = set(map(tuple, processor.cross(fresh.groups).tolist()))
    for part in (split.validation, split.test):
        if part is None:
            continue
        for cell in np.unique(processor.cross(part.groups), axis=0):
            if tuple(cell.tolist()) not in seen:
                named = processor.name_cell(cell, part.attributes)
                told = ", ".join(f"{attribute}={level}" for attribute, level in named.items())
                raise DataError(
                    f"No calibration row of {part.dataset} is of the group {told}, and "
                    f"{part.name} rows are.",
                    "Merge small levels in the dataset's groups, or enlarge the calibration part.",
                )
