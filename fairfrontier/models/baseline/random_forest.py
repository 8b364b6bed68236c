"""A random forest without any notion of fairness."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.ensemble import RandomForestClassifier

from fairfrontier.models.base import Classifier, training_weight
from fairfrontier.models.persistence import State
from fairfrontier.models.registry import method
from fairfrontier.prepare.split import Task


@method("random_forest")
@dataclass(kw_only=True, eq=False, repr=False)
class RandomForest(Classifier):
    """Classification trees, each grown on a bootstrap sample with √d candidate features per node.

    P(k | x) = mean over trees of the share of class k in the leaf of x

    Parameters
    ----------
    n_estimators : int
        Trees.
    max_depth : int or None
        Depth of a tree; None grows until the leaves are pure.
    min_samples_leaf : int
        Fewest rows of a leaf.
    n_jobs : int
        Threads of the fit; the trees do not depend on them.
    random_state : int
        Seed of the bootstrap samples and of the candidate features.

    Attributes
    ----------
    forest_ : sklearn.ensemble.RandomForestClassifier
        The trees.

    Notes
    -----
    O(n log n √d) per tree and level at worst. Predictions use one thread: with several,
    scikit-learn sums the trees in no fixed order, which changes the last digits.

    References
    ----------
    L. Breiman. Random forests. Machine Learning 45, 2001.
    """

    task: ClassVar[frozenset[Task]] = frozenset({"binary", "multiclass"})
    takes_missing: ClassVar[bool] = True
    # Weights act on the rows of the bootstrap sample, where a repeated row is another draw.
    weights_are_counts: ClassVar[bool] = False
    paper: ClassVar[str] = "Breiman, Random forests, Machine Learning 2001"
    example: ClassVar[Mapping[str, Any]] = {"n_estimators": 5, "max_depth": 4}

    forest_: RandomForestClassifier = field(init=False)

    n_estimators: int = 100
    max_depth: int | None = None
    min_samples_leaf: int = 1
    n_jobs: int = 1
    random_state: int = 0

    def check(self) -> None:
        """Raise ConfigError for invalid parameters."""
        self.require("n_estimators", self.n_estimators >= 1, "1 or more")
        depth = self.max_depth
        self.require("max_depth", depth is None or depth >= 1, "1 or more, or null for no limit")
        self.require("min_samples_leaf", self.min_samples_leaf >= 1, "1 or more")
        self.require("n_jobs", self.n_jobs != 0, "1 or more, or -1 for all processors")
        self.require("random_state", self.random_state >= 0, "0 or more")

    def fit(self, X: np.ndarray, y: np.ndarray, *, sample_weight: np.ndarray | None = None) -> Self:
        """Grow the trees on rows X with labels y."""
        self.check()
        X, codes = self.validate_training(X, y)
        if sample_weight is not None:
            sample_weight = training_weight(sample_weight, len(codes))
        forest = RandomForestClassifier(
            n_estimators=self.n_estimators,
            max_depth=self.max_depth,
            min_samples_leaf=self.min_samples_leaf,
            n_jobs=self.n_jobs,
            random_state=self.random_state,
        ).fit(X, codes, sample_weight=sample_weight)
        self.forest_ = forest.set_params(n_jobs=1)
        return self

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        """Return class probabilities, float64, shape (n_samples, n_classes)."""
        rows = self.validate_rows(X)
        probability: np.ndarray = self.forest_.predict_proba(rows)
        return probability

    def get_state(self) -> State:
        """Return the forest."""
        return State(learners={"forest": self.forest_})

    def set_state(self, state: State) -> None:
        """Restore the forest."""
        self.forest_ = state.learners["forest"]
