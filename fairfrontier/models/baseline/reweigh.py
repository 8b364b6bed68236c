"""Reweighing: weights under which group and label are independent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from fairfrontier.models.group import take_attribute
from fairfrontier.models.registry import method
from fairfrontier.models.tree.boosting import BoostedTrees

if TYPE_CHECKING:
    from distributed import Client


def independence_weights(group: np.ndarray, y: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return the factors P(g) P(y) / P(g, y) on the case weights of rows with codes g and y.

    Shares are counted by the case weights, under which the factors have the mean 1.

    References
    ----------
    F. Kamiran, T. Calders. Data preprocessing techniques for classification without
    discrimination. Knowledge and Information Systems 33, 2012, Algorithm 3.
    """
    n_groups, n_classes = int(group.max()) + 1, int(y.max()) + 1
    cell = group * n_classes + y
    joint = np.bincount(cell, weights=weight, minlength=n_groups * n_classes)
    joint = joint.reshape(n_groups, n_classes) / weight.sum()
    independent = joint.sum(axis=1, keepdims=True) * joint.sum(axis=0, keepdims=True)
    factor = np.divide(independent, joint, out=np.zeros_like(joint), where=joint > 0)
    weights: np.ndarray = factor.reshape(-1)[cell]
    return weights


@method("reweigh")
@dataclass(kw_only=True, eq=False, repr=False)
class Reweigh(BoostedTrees):
    """Gradient-boosted trees on rows weighted so that group and label are independent.

    Parameters
    ----------
    attribute : int
        Column of the attribute in ``sensitive_features``; a study's YAML may name it.
    **parameters
        Those of `BoostedTrees`.

    Notes
    -----
    O(n) for the weights beside what `GBDT` costs.

    References
    ----------
    F. Kamiran, T. Calders. Data preprocessing techniques for classification without
    discrimination. Knowledge and Information Systems 33, 2012.
    """

    group_parameters: ClassVar[tuple[str, ...]] = ("attribute",)
    paper: ClassVar[str] = "Kamiran and Calders, Data preprocessing techniques, KAIS 2012"

    attribute: int = 0

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        sensitive_features: np.ndarray,
        sample_weight: np.ndarray | None = None,
        client: Client | None = None,
    ) -> Self:
        """Weigh the rows by group and label, then boost."""
        X, codes, weight, sensitive_features = self.read_training(
            X, y, sample_weight, sensitive_features, client
        )
        group = take_attribute(sensitive_features, self.attribute)
        factor = independence_weights(group, codes, weight)
        return self._boost(X, codes, weight * factor, client)
