"""A regression tree with ridge-penalised leaves, as XGBoost grows it, for weak learners."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, Self

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin

from fairfrontier.runtime.errors import ConfigError
from papers.rival.fair_boosting.parameter import require_number, require_whole

# The child and the feature of a leaf.
LEAF = -1
# XGBoost splits for a gain above this only.
SMALLEST_GAIN = np.float32(1e-6)


@dataclass(frozen=True, eq=False)
class _Sums:
    """G = Σ g and H = Σ h of a node, and its rows by feature in rising order, (n_features, m)."""

    order: np.ndarray
    G: float
    H: float


@dataclass(eq=False)
class _Nodes:
    """The nodes so far; children come after their parents."""

    feature: list[int] = field(default_factory=list)
    threshold: list[np.float32] = field(default_factory=list)
    left: list[int] = field(default_factory=list)
    right: list[int] = field(default_factory=list)
    value: list[float] = field(default_factory=list)
    gain: list[np.float32] = field(default_factory=list)

    def add(self, value: float) -> int:
        """Append a leaf and return its number."""
        self.feature.append(LEAF)
        self.threshold.append(np.float32(0))
        self.left.append(LEAF)
        self.right.append(LEAF)
        self.value.append(value)
        self.gain.append(np.float32(0))
        return len(self.value) - 1


class NewtonTree(RegressorMixin, BaseEstimator):
    """A tree by exact greedy splits on second-order sums.

    With targets t and weights h, g = −h t, and G, H their sums over a leaf's rows,

        value = −G / (H + λ),   gain = G_L² / (H_L + λ) + G_R² / (H_R + λ) − G² / (H + λ):

    for a loss with derivatives g and h, fitting t = −g / h with weights h is Newton's step, and the
    tree is XGBoost's: that of its ``exact`` method, or that of ``hist`` on the training rows where
    no feature has more distinct values than bins.

    Parameters
    ----------
    max_depth : int
        Depth of the tree, 1 or more.
    reg_lambda : float
        λ ≥ 0, on the scale of the weights' sum.
    gamma : float
        Splits that gain less are pruned, from the leaves upwards.
    min_child_weight : float
        Smallest H of a leaf.
    ties : {"low", "high"}
        Which of a feature's thresholds is taken if several gain the same, as among rows without
        weight: the lowest, as in ``hist``, or the highest, as in ``exact``.

    Attributes
    ----------
    feature_, left_, right_ : ndarray of int64, shape (n_nodes,)
        Feature and children of a node; -1 in leaves.
    threshold_ : ndarray of float32, shape (n_nodes,)
        A row goes left if its feature is below.
    value_ : ndarray of float64, shape (n_nodes,)
        Values of the leaves.

    Notes
    -----
    Features are compared in float32, gains too, and the first feature wins a tie, as in XGBoost. A
    fit costs O(n d log n) once and O(n d) for each level, and O(n d) memory, in NumPy: some ten
    times slower than XGBoost.

    References
    ----------
    T. Chen, C. Guestrin. XGBoost: a scalable tree boosting system. KDD 2016, (5)-(7), Algorithm 1.
    """

    feature_: np.ndarray
    threshold_: np.ndarray
    left_: np.ndarray
    right_: np.ndarray
    value_: np.ndarray

    def __init__(
        self,
        *,
        max_depth: int = 3,
        reg_lambda: float = 1.0,
        gamma: float = 0.0,
        min_child_weight: float = 0.0,
        ties: Literal["low", "high"] = "low",
    ) -> None:
        self.max_depth = max_depth
        self.reg_lambda = reg_lambda
        self.gamma = gamma
        self.min_child_weight = min_child_weight
        self.ties = ties

    def check(self) -> None:
        """Raise ConfigError for invalid parameters."""
        require_whole(self, "max_depth", least=1)
        for name in ("reg_lambda", "gamma", "min_child_weight"):
            require_number(self, name)
        if self.ties not in ("low", "high"):
            raise ConfigError(
                f"The parameter 'ties' of NewtonTree is {self.ties!r}.", "Give low or high."
            )

    def fit(self, X: np.ndarray, y: np.ndarray, sample_weight: np.ndarray | None = None) -> Self:
        """Grow the tree on rows X with targets y."""
        self.check()
        columns = np.ascontiguousarray(np.asarray(X, dtype=np.float32).T)
        h = np.ones(len(y)) if sample_weight is None else np.asarray(sample_weight)
        # XGBoost takes gradients in float32.
        g = (-h * np.asarray(y)).astype(np.float32).astype(np.float64)
        h = h.astype(np.float32).astype(np.float64)
        nodes = _Nodes()
        root = _Sums(np.argsort(columns, axis=1, kind="stable"), g.sum(), h.sum())
        waiting = [(nodes.add(self._value(root)), root, 0)]
        while waiting:
            node, sums, depth = waiting.pop(0)
            if depth == self.max_depth:
                continue
            split = self._find_split(columns, g, h, sums)
            if split is None:
                continue
            gain, feature, threshold = split
            children = self._divide(columns[feature] < threshold, g, h, sums)
            nodes.feature[node], nodes.threshold[node] = feature, threshold
            nodes.gain[node] = gain
            nodes.left[node], nodes.right[node] = (
                nodes.add(self._value(child)) for child in children
            )
            numbers = (nodes.left[node], nodes.right[node])
            waiting += [
                (number, child, depth + 1) for number, child in zip(numbers, children, strict=True)
            ]
        self._prune(nodes)
        self._store(nodes)
        self.n_features_in_ = columns.shape[0]
        return self

    def _value(self, sums: _Sums) -> float:
        return -sums.G / (sums.H + self.reg_lambda) if sums.H > 0 else 0.0

    def _score(self, G: Any, H: Any) -> Any:
        """Return G² / (H + λ), 0 for no rows."""
        total = H + self.reg_lambda
        return np.divide(G * G, total, out=np.zeros_like(G * G), where=total > 0)

    def _find_split(
        self, columns: np.ndarray, g: np.ndarray, h: np.ndarray, sums: _Sums
    ) -> tuple[np.float32, int, np.float32] | None:
        """Return (gain, feature, threshold) of the best split, None where none gains."""
        if sums.order.shape[1] < 2:
            return None
        values = np.take_along_axis(columns, sums.order, axis=1)
        first = np.cumsum(g[sums.order], axis=1)[:, :-1]
        second = np.cumsum(h[sums.order], axis=1)[:, :-1]
        remaining, least = sums.H - second, self.min_child_weight
        possible = (values[:, 1:] > values[:, :-1]) & (np.minimum(second, remaining) >= least)
        parent = self._score(np.asarray(sums.G), np.asarray(sums.H))
        gain = self._score(first, second) + self._score(sums.G - first, remaining) - parent
        gain = np.where(possible, gain, 0.0).astype(np.float32)
        feature = int(np.argmax(gain.max(axis=1)))
        last = gain.shape[1] - 1
        position = int(
            np.argmax(gain[feature])
            if self.ties == "low"
            else last - np.argmax(gain[feature, ::-1])
        )
        if gain[feature, position] <= SMALLEST_GAIN:
            return None
        low, high = values[feature, position], values[feature, position + 1]
        middle = np.float32(0.5) * (low + high)
        return gain[feature, position], feature, middle if middle > low else high

    def _divide(
        self, leftward: np.ndarray, g: np.ndarray, h: np.ndarray, sums: _Sums
    ) -> tuple[_Sums, _Sums]:
        is_left = leftward[sums.order]
        n_features = len(is_left)
        # Every feature lists the same rows, so that all rows of the result are equally long.
        orders = (sums.order[order].reshape(n_features, -1) for order in (is_left, ~is_left))
        left, right = (_Sums(order, g[order[0]].sum(), h[order[0]].sum()) for order in orders)
        return left, right

    def _prune(self, nodes: _Nodes) -> None:
        """Turn splits of two leaves that gain less than γ into leaves."""
        for node in reversed(range(len(nodes.value))):
            if nodes.feature[node] == LEAF or nodes.gain[node] >= self.gamma:
                continue
            if nodes.feature[nodes.left[node]] == nodes.feature[nodes.right[node]] == LEAF:
                nodes.feature[node] = nodes.left[node] = nodes.right[node] = LEAF

    def _store(self, nodes: _Nodes) -> None:
        """Store the nodes that can be reached from the root."""
        reachable = [0]
        for node in reachable:
            if nodes.feature[node] != LEAF:
                reachable += [nodes.left[node], nodes.right[node]]
        # The last entry, at index LEAF, stays LEAF.
        number = np.full(len(nodes.value) + 1, LEAF, dtype=np.int64)
        number[reachable] = np.arange(len(reachable))
        self.feature_ = np.asarray(nodes.feature, dtype=np.int64)[reachable]
        self.threshold_ = np.asarray(nodes.threshold, dtype=np.float32)[reachable]
        self.left_ = number[np.asarray(nodes.left)[reachable]]
        self.right_ = number[np.asarray(nodes.right)[reachable]]
        self.value_ = np.asarray(nodes.value, dtype=np.float64)[reachable]

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Return the values of the rows' leaves, float64 (n_samples,)."""
        rows = np.asarray(X, dtype=np.float32)
        node = np.zeros(len(rows), dtype=np.int64)
        below = np.flatnonzero(self.feature_[node] != LEAF)
        while below.size:
            at = node[below]
            left = rows[below, self.feature_[at]] < self.threshold_[at]
            node[below] = np.where(left, self.left_[at], self.right_[at])
            below = below[self.feature_[node[below]] != LEAF]
        values: np.ndarray = self.value_[node]
        return values
