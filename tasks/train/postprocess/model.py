"""A trained model with a post-processor behind it."""

from __future__ import annotations

from typing import Any

import numpy as np

from tasks.prepare.split import Part, Split
from tasks.runtime.errors import ConfigError, DataError
from tasks.train.postprocess.base import PostProcessor, choose_columns, score_part


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
    def predict_needs(self) -> frozenset[str]:
        """Keywords of ``predict_proba``: the post-processor's and the model's."""
        needs: frozenset[str] = self.processor.predict_needs | self.model.predict_needs
        return needs

    def predict_proba(
        self, X: np.ndarray, *, groups: np.ndarray, ids: np.ndarray | None = None
    ) -> np.ndarray:
        """Return the exact probabilities of the decisions 0 and 1, float64, (n_samples, 2)."""
        score = self._score(X, groups, ids)
        return self.processor.predict_proba(score, groups=groups)

    def predict(
        self, X: np.ndarray, *, groups: np.ndarray, ids: np.ndarray | None = None
    ) -> np.ndarray:
        """Return decisions, int64, (n_samples,); ``ids`` are needed where they are drawn."""
        return self.processor.predict(self._score(X, groups, ids), groups=groups, ids=ids)

    def _score(self, X: np.ndarray, groups: np.ndarray, ids: np.ndarray | None) -> np.ndarray:
        offered = {"groups": groups, "ids": ids}
        asked = {key: offered[key] for key in self.model.predict_needs}
        probability: np.ndarray = self.model.predict_proba(X, **asked)[:, 1]
        return probability


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


def refuse_unknown_groups(split: Split, attributes: int | list[int] | None, name: str) -> None:
    """Refuse groups that have validation or test rows, and no calibration row, by their names.

    Parameters
    ----------
    split : Split
        With a calibration part.
    attributes : int, list of int or None
        Columns of the groups whose cross product makes the groups; None crosses all.
    name : str
        The post-processor's, for the message.

    Raises
    ------
    DataError
        Naming the group and the part.
    """
    fresh = require_calibration(split)
    seen = set(map(tuple, choose_columns(fresh.groups, attributes, name).tolist()))
    labels = list(fresh.attributes.items())
    if attributes is not None:
        chosen = [attributes] if isinstance(attributes, int) else attributes
        labels = [labels[column] for column in chosen]
    for part in (split.validation, split.test):
        if part is None:
            continue
        present = np.unique(choose_columns(part.groups, attributes, name), axis=0)
        for cell in map(tuple, present.tolist()):
            if cell not in seen:
                told = ", ".join(
                    f"{label}={levels[code]}"
                    for (label, levels), code in zip(labels, cell, strict=True)
                )
                raise DataError(
                    f"No calibration row of {part.dataset} is of the group {told}, and "
                    f"{part.name} rows are.",
                    "Merge small levels in the dataset's groups, or enlarge the calibration part.",
                )
