"""What a frontier chooses between: a fitted estimator with a rule, and the model that is chosen."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fairfrontier.deployment.estimator import Origin
from fairfrontier.models.group import SensitiveFeatures, frame_features
from fairfrontier.models.response import score_as_probability
from fairfrontier.models.thresholds.group_thresholds import GroupThresholds
from fairfrontier.models.thresholds.places import Places, fill_places
from fairfrontier.runtime.errors import InputError


@dataclass(frozen=True, eq=False)
class Candidate:
    """A model of the frontier: a fitted member, and the rule that decides from its scores.

    Without a rule the scores are decided at ``cut``. ``positive`` is the estimator's name of the
    favourable label.
    """

    method: str
    setting: str
    estimator: Any
    positive: Any
    cut: float = 0.5
    rule: GroupThresholds | None = None

    def score(self, X: Any) -> np.ndarray:
        """Return P(Y = 1 | x), or a margin as one; see `score_as_probability`."""
        name = f"The member {self.method}"
        return score_as_probability(self.estimator, X, self.positive, name)

    def decide(self, score: np.ndarray, groups: pd.DataFrame | None) -> np.ndarray:
        """Return the decisions on scores, float64 of 0 and 1."""
        if self.rule is None:
            return (score >= self.cut).astype(np.float64)
        return self.rule.predict(score, sensitive_features=groups).astype(np.float64)


@dataclass(frozen=True, eq=False)
class FrontierModel:
    """The model that `Frontier.select` chose; it predicts as scikit-learn's classifiers do.

    Attributes
    ----------
    method, setting : str
        The member, and the rule behind it, empty where there is none.
    measures_ : DataFrame
        Its measures on validation and test rows, with 95% intervals.
    exceeded_ : DataFrame
        The bounds asked for that are passed on the test rows, on which nothing was chosen.
    needs_sensitive_features : bool
        Whether it asks for the group of a row when it decides.
    rule : GroupThresholds or None
        The rule, which decides on scores of any origin; without one they are cut.
    """

    candidate: Candidate
    classes_: np.ndarray
    features: SensitiveFeatures
    measures_: pd.DataFrame
    exceeded_: pd.DataFrame
    origin: Origin
    # The rows that `save` describes.
    rows: tuple[Any, np.ndarray, pd.DataFrame]

    @property
    def method(self) -> str:
        """The member."""
        return self.candidate.method

    @property
    def setting(self) -> str:
        """The rule behind it; empty where its scores are cut."""
        return self.candidate.setting

    @property
    def needs_sensitive_features(self) -> bool:
        """Whether predictions ask for the groups."""
        return self.candidate.rule is not None

    @property
    def rule(self) -> GroupThresholds | None:
        """The thresholds by group, for scores of any origin."""
        return self.candidate.rule

    def save(self, folder: str | Path, *, trusted: Collection[str] = ()) -> Path:
        """Write a bundle, which `load_bundle` and ``fairfrontier score`` read without pickle.

        Where the estimator cannot be saved the bundle has the rule, which decides from a column of
        scores, and a ShippedApartWarning says why. ``trusted`` names types in it that fairfrontier
        does not know; whoever loads the bundle has to name them, too. StoreError is raised where
        the folder is not empty or cannot be written.

        Notes
        -----
        The test rows are scored twice, and three of them for every column: missing cells, and
        levels that no row of the fit had, are passed on where the estimator answers to them, and
        else refused.
        """
        from fairfrontier.frontier.saving import save  # Which needs pydantic.

        return save(self, folder, *self.rows, trusted=trusted)

    def predict(self, X: Any, *, sensitive_features: Any = None) -> np.ndarray:
        """Return labels, shape (n_samples,); a rule by group needs ``sensitive_features``."""
        groups = None
        if self.needs_sensitive_features:
            if sensitive_features is None:
                raise InputError(
                    f"The chosen rule decides by {self.setting}, and no groups were given.",
                    "Pass sensitive_features=, or select among models that do without.",
                )
            asked = self.candidate.rule.sensitive_features_in_.names  # type: ignore[union-attr]
            groups = frame_features(sensitive_features, asked)
            # A level that no row of the fit had is refused here, and not pooled.
            self.origin.number(groups, self.features.take(asked))
        decision = self.candidate.decide(self.candidate.score(X), groups)
        return np.asarray(self.classes_[decision.astype(np.int64)])

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the member's probabilities, float64 (n_samples, 2), before the rule decides."""
        score = self.candidate.score(X)
        return np.column_stack([1.0 - score, score])

    def decide(self, X: Any, *, places: int, **options: Any) -> Places:
        """Give so many places to the rows of a batch, by the member's scores and not by the rule.

        ``options`` are those of `fill_places`: ``sensitive_features``, ``floor``, ``ceiling``,
        ``ids``, ``random_state``.
        """
        return fill_places(self.candidate.score(X), places=places, **options)
