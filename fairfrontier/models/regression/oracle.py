"""Oracles: learners without fairness constraints that answer multipliers with a predictor.

Weighted sums of rows by group, from which linear least squares is solved repeatedly.

Logistic regression on labels between 0 and 1, solved repeatedly as they change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import xgboost
from scipy.linalg import cho_factor, cho_solve
from scipy.special import expit
from sklearn.base import clone
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from fairfrontier.models.regression.predictor import (
    LearnerPredictor,
    LinearPredictor,
    Predictor,
    TreePredictor,
)
from fairfrontier.runtime.cluster.executor import Block, Rows
from fairfrontier.runtime.errors import ConfigError, nearest

# Directions whose variance is below this share of the largest are left out: one-hot columns that
# add up to 1 leave one such direction.
COLLINEAR = 1e-10


@dataclass(frozen=True, eq=False)
class Moments:
    """Sums over the rows of each group; those of partitions add up.

    Σ w, shape (n_groups,), Σ w x, shape (n_groups, d), and Σ w x xᵀ, shape (n_groups, d, d).
    """

    total: np.ndarray
    features: np.ndarray
    gram: np.ndarray

    def __add__(self, other: Moments) -> Moments:
        """Return the moments of both sets of rows."""
        return Moments(
            self.total + other.total, self.features + other.features, self.gram + other.gram
        )

    def combine(self, factor: np.ndarray) -> Moments:
        """Return the moments of all rows as one group, group a weighted by ``factor[a]``."""
        return Moments(
            np.atleast_1d(factor @ self.total),
            (factor @ self.features)[None, :],
            np.tensordot(factor, self.gram, axes=1)[None],
        )


def sum_moments(X: np.ndarray, weight: np.ndarray, group: np.ndarray, n_groups: int) -> Moments:
    """Return the moments of each group; O(n d²), and no copy of more than one group's rows."""
    total = np.bincount(group, weights=weight, minlength=n_groups)
    features = np.zeros((n_groups, X.shape[1]))
    gram = np.zeros((n_groups, X.shape[1], X.shape[1]))
    for a in range(n_groups):
        mine = X[group == a]
        raised = mine * weight[group == a, None]
        features[a] = raised.sum(axis=0)
        gram[a] = raised.T @ mine
    return Moments(total, features, gram)


def sum_by_cell(X: np.ndarray, weight: np.ndarray, cell: np.ndarray, n_cells: int) -> np.ndarray:
    """Return Σ w x over the rows of each cell, shape (n_features + 1, n_cells); Σ w comes last.

    For targets u that are equal within a cell, Xᵀ W u is this table times the cells' targets. Such
    tables of partitions add up.
    """
    sums = np.empty((X.shape[1] + 1, n_cells))
    for column in range(X.shape[1]):
        sums[column] = np.bincount(cell, weights=weight * X[:, column], minlength=n_cells)
    sums[-1] = np.bincount(cell, weights=weight, minlength=n_cells)
    return sums


@dataclass(frozen=True, eq=False)
class LeastSquares:
    """The factor of min_{β,b} Σ w (u − xᵀβ − b)², for any targets u.

    The pseudo-inverse of the features' centred Gram matrix, shape (n_features, n_features), their
    weighted mean, and Σ w.
    """

    inverse: np.ndarray
    mean: np.ndarray
    total: float

    def solve(self, cross: np.ndarray, target: float) -> tuple[np.ndarray, float]:
        """Return (β, b) from Σ w x u and Σ w u; of several solutions that of least ‖β‖."""
        coefficient: np.ndarray = self.inverse @ (cross - self.mean * target)
        return coefficient, target / self.total - float(self.mean @ coefficient)


def factorise(moments: Moments) -> LeastSquares:
    """Return the factor for moments of one group; O(d³)."""
    total, mean = float(moments.total[0]), moments.features[0] / moments.total[0]
    centred = moments.gram[0] - total * np.outer(mean, mean)
    value, vector = np.linalg.eigh(centred)
    kept = value > COLLINEAR * max(float(value[-1]), float(np.finfo(np.float64).tiny))
    basis = vector[:, kept]
    return LeastSquares((basis / value[kept]) @ basis.T, mean, total)


# Newton steps at most; two or three are usual from a near start.
STEPS = 100
# Rows whose products with their features are in memory at a time.
BLOCK = 1 << 14
# A step after which more than this share of the gradient remains asks for a new Hessian.
SLOW = 0.3
# Where this share remains after a fresh estimate, the estimate is bad and not merely old.
STUCK = 0.8
# Rows from which a Hessian is first estimated: so many per feature, and at least so many.
PER_FEATURE, LEAST = 40, 2000


class LogisticRegressor:
    """min_{β,b}  Σ w_i (log(1 + exp(m_i)) − p_i m_i) / Σ w + (penalty / 2) ‖β‖²,  m = Xβ + b.

    Labels p between 0 and 1 are the two weighted copies of a row, label 1 with weight p and label 0
    with 1 − p. Keeps the last solution and the last Hessian's factor, from which the next call
    starts. With many rows, the Hessian is that of every k-th row, and of all rows where that is too
    slow: the solution depends on the gradient alone, which ends below ``tolerance`` in every entry.
    A step costs O(n d), a factor from all rows O(n d²). ``penalty`` is above 0.
    """

    def __init__(self, rows: Rows, penalty: float, tolerance: float = 1e-6) -> None:
        self.rows, self.penalty, self.tolerance = rows, penalty, tolerance
        self.solution = np.zeros(rows.n_features + 1)
        self._factor: tuple[np.ndarray, bool] | None = None

    def solve(self, targets: Targets) -> np.ndarray:
        """Return (β, b), float64, shape (n_features + 1,), for labels in [0, 1]."""
        theta = self.solution
        value, gradient = self._evaluate(theta, targets)
        use_all = False
        for _ in range(STEPS):
            size = float(np.abs(gradient).max())
            if size <= self.tolerance:
                break
            fresh = self._factor is None
            if fresh:
                stride = 1 if use_all else self._stride
                self._factor = cho_factor(self._hessian(theta, targets, stride))
            step = cho_solve(self._factor, gradient)
            length = 1.0
            while True:
                candidate = theta - length * step
                reached = self._evaluate(candidate, targets)
                if reached[0] <= value - 1e-4 * length * float(gradient @ step) + 1e-15:
                    break
                length /= 2.0
                if length < 1e-6:
                    break
            failed = length < 1e-6
            if failed and fresh and (use_all or self._stride == 1):
                break
            if not failed:
                theta, (value, gradient) = candidate, reached
            remaining = float(np.abs(gradient).max()) / size
            if failed or length < 1.0 or remaining > SLOW:
                self._factor, use_all = None, failed or (fresh and remaining > STUCK)
        self.solution = theta
        return theta

    def _evaluate(self, theta: np.ndarray, targets: Targets) -> tuple[float, np.ndarray]:
        value, gradient = self.rows.sum(_evaluate, theta, targets)
        pull = self.penalty * np.append(theta[:-1], 0.0)
        return value + float(pull @ theta) / 2.0, gradient + pull

    @property
    def _stride(self) -> int:
        return max(1, self.rows.n_samples // max(LEAST, PER_FEATURE * (self.solution.size - 1)))

    def _hessian(self, theta: np.ndarray, targets: Targets, stride: int) -> np.ndarray:
        curvature, total = self.rows.sum(_evaluate_curvature, theta, targets, stride)
        hessian: np.ndarray = curvature / total
        size = len(hessian) - 1
        hessian[np.arange(size), np.arange(size)] += self.penalty
        # The factorisation must not fail where large margins make the curvature vanish.
        hessian[np.arange(size + 1), np.arange(size + 1)] += 1e-12
        return hessian


def _evaluate(block: Block, theta: np.ndarray, targets: Targets) -> tuple[float, np.ndarray]:
    """Return Σ w (log(1 + exp(m)) − p m) / Σ w of all rows, and its gradient."""
    label, weight = targets.labels(block), targets.weights(block) / targets.total
    margin = block.X @ theta[:-1] + theta[-1]
    value = float(weight @ (np.logaddexp(0.0, margin) - label * margin))
    residual = weight * (expit(margin) - label)
    return value, np.append(residual @ block.X, residual.sum())


def _evaluate_curvature(
    block: Block, theta: np.ndarray, targets: Targets, stride: int
) -> tuple[np.ndarray, float]:
    """Return the Hessian of every ``stride``-th of all rows, and their weight."""
    some = slice(-block.start % stride, None, stride)
    weight = (targets.weights(block) / targets.total)[some]
    X = np.ascontiguousarray(block.X[some])
    chance = expit(X @ theta[:-1] + theta[-1])
    return sum_curvature(X, weight * (chance * (1.0 - chance))), float(weight.sum())


def sum_curvature(X: np.ndarray, curve: np.ndarray) -> np.ndarray:
    """Return Σ c x xᵀ, x with a 1 appended, shape (n_features + 1, n_features + 1)."""
    size = X.shape[1]
    hessian = np.zeros((size + 1, size + 1))
    for start in range(0, len(curve), BLOCK):
        rows, some = X[start : start + BLOCK], curve[start : start + BLOCK]
        raised = rows * some[:, None]
        hessian[:size, :size] += rows.T @ raised
        hessian[size, :size] += raised.sum(axis=0)
    hessian[:size, size] = hessian[size, :size]
    hessian[size, size] = curve.sum()
    return hessian


Variant = Literal["paper", "authors"]

# Short names of scikit-learn's learners: (regressor, classifier).
LEARNERS: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "decision_tree": (
        lambda: DecisionTreeRegressor(max_depth=6),
        lambda: DecisionTreeClassifier(max_depth=6),
    ),
    "extra_trees": (ExtraTreesRegressor, ExtraTreesClassifier),
    "random_forest": (RandomForestRegressor, RandomForestClassifier),
    "ridge": (Ridge, LogisticRegression),
}


@dataclass(frozen=True, eq=False)
class Costs:
    """What a best response under statistical parity minimises: Σ_i w_i g_λ(ỹ_i, a_i, f(x_i)).

    Attributes
    ----------
    total : ndarray of float64, shape (n_groups, n_labels, N + 1)
        g_λ at the levels.
    target : ndarray of float64, shape (n_groups, n_labels)
        U, the middle of the interval where g_λ is least.
    """

    total: np.ndarray
    target: np.ndarray


@dataclass(frozen=True, eq=False)
class Targets:
    """Labels in [0, 1] and weights of a fit, described by few numbers, which go to the rows.

    ``target``, shape (n_cells,), is the label of the rows in each cell, or None where rows keep
    their own; ``factor``, shape (n_groups,), multiplies the weights of each group, or None; all of
    them are then multiplied by ``scale``. ``total`` is Σ w of the result.
    """

    target: np.ndarray | None
    total: float
    factor: np.ndarray | None = None
    scale: float = 1.0

    def labels(self, block: Block) -> np.ndarray:
        """Return the label of each row."""
        return block["y"] if self.target is None else self.target[block["cell"]]

    def weights(self, block: Block) -> np.ndarray:
        """Return the weight of each row."""
        if self.factor is None:
            return block["weight"]
        weights: np.ndarray = block["weight"] * self.factor[block["group"]] * self.scale
        return weights


class Oracle(Protocol):
    """Answers costs of a parity problem, or factors of the groups of one of bounded group loss.

    ``exact`` if it minimises over its class Σ_i w_i g_λ(ỹ_i, a_i, f(x_i)), or, for factors m,
    Σ_a m_a Σ_{i: a_i = a} w_i ℓ(y_i, f(x_i)).
    """

    exact: bool

    def respond(self, asked: Any, /) -> Predictor:
        """Return a predictor of small costs."""
        ...


class LeastSquaresOracle:
    """LS with linear functions: one factorisation, then a call is a product with the targets.

    Targets are equal within each cell. O(n d²) once; a call takes O(d · n_cells) and reads no row.
    """

    exact = False

    def __init__(self, rows: Rows, n_cells: int) -> None:
        moments, self.sums = rows.sum(_sum_design, n_cells)
        self.factor = factorise(moments)

    def respond(self, costs: Costs) -> Predictor:
        """Return the least-squares fit of U."""
        sums = self.sums @ costs.target.reshape(-1)
        return LinearPredictor(*self.factor.solve(sums[:-1], float(sums[-1])))


class TargetOracle:
    """Base of the oracles that fit a learner: LS, a regressor on U; LR, a classifier on copies.

    Parameters
    ----------
    total : float
        Σ w of the rows.
    sharpness : float
        C of a classifier, for which p = σ(C(2u − 1)); 0 for a regressor.
    variant : {"paper", "authors"}
        See `weigh_copies`.
    """

    exact = False

    def __init__(self, total: float, sharpness: float, variant: Variant) -> None:
        self.total, self.sharpness, self.variant = total, sharpness, variant

    def respond(self, costs: Costs) -> Predictor:
        """Return the learner fitted on U, or on two weighted copies of each row."""
        target = costs.target.reshape(-1)
        if self.sharpness:
            target = weigh_copies(target, self.sharpness, self.variant)
        return self.fit(Targets(target, self.total))

    def fit(self, targets: Targets) -> Predictor:
        """Return the learner fitted on targets in [0, 1]."""
        raise NotImplementedError


class LogisticOracle(TargetOracle):
    """LR with linear functions: logistic regression on two weighted copies of each row."""

    def __init__(
        self,
        regressor: LogisticRegressor,
        total: float,
        sharpness: float,
        variant: Variant = "paper",
    ) -> None:
        super().__init__(total, sharpness, variant)
        self.regressor = regressor

    def fit(self, targets: Targets) -> Predictor:
        """Return the logistic fit of labels in [0, 1]."""
        theta = self.regressor.solve(targets) / (2.0 * self.sharpness)
        return LinearPredictor(theta[:-1], 0.5 + float(theta[-1]))


class TreeOracle(TargetOracle):
    """LS or LR with XGBoost: by default the paper's 200 trees of depth 4, or 150 of depth 3.

    gamma is 1 and 2, the learning rate .1: the default of XGBoost's scikit-learn wrapper when the
    paper was written. XGBoost takes labels between 0 and 1 for the two copies of a row.

    Every process makes its matrix once, so that its bins are those of the first fit's weights, and
    all grow in step. Bins are quantiles that they agree on: those of one process while a worker has
    at most 2,048 different values of a feature (eight times XGBoost's 256 bins), approximately so
    beyond.
    """

    def __init__(
        self,
        rows: Rows,
        total: float,
        *,
        sharpness: float = 0.0,
        variant: Variant = "paper",
        n_estimators: int | None = None,
        max_depth: int | None = None,
        n_jobs: int = 1,
        random_state: int = 0,
    ) -> None:
        super().__init__(total, sharpness, variant)
        self.rounds = n_estimators or (150 if sharpness else 200)
        self.parameters = {
            "objective": "binary:logistic" if sharpness else "reg:squarederror",
            "max_depth": max_depth or (3 if sharpness else 4),
            "gamma": 2.0 if sharpness else 1.0,
            "learning_rate": 0.1,
            "base_score": 0.5,
            "tree_method": "hist",
            "nthread": n_jobs,
            "seed": random_state,
            "disable_default_eval_metric": 1,
        }
        self.team = rows.make(Matrix, n_jobs)
        # Scale and shift that turn a margin into a prediction.
        self.units = (0.5 / sharpness, 0.5) if sharpness else (1.0, 0.0)

    def fit(self, targets: Targets) -> Predictor:
        """Return the ensemble grown on targets in [0, 1]."""
        grown = self.team.together(Matrix.grow, targets, self.parameters, self.rounds)
        return TreePredictor(next(each for each in grown if each is not None), *self.units)


class LearnerOracle(TargetOracle):
    """LS or LR with a learner of scikit-learn that takes ``sample_weight``; it is cloned.

    LS takes a regressor, LR a classifier with ``predict_proba``.
    """

    def __init__(
        self, block: Block, learner: Any, sharpness: float = 0.0, variant: Variant = "paper"
    ) -> None:
        super().__init__(float(block["weight"].sum()), sharpness, variant)
        self.block, self.learner = block, learner

    def fit(self, targets: Targets) -> Predictor:
        """Return the learner fitted on targets in [0, 1]."""
        learner, X = clone(self.learner), self.block.X
        target, weight = targets.labels(self.block), targets.weights(self.block)
        if not self.sharpness:
            learner.fit(X, target, sample_weight=weight)
        else:
            both = np.concatenate([weight * (1.0 - target), weight * target])
            label = np.repeat([0, 1], len(target))
            used = both > 0
            learner.fit(np.concatenate([X, X])[used], label[used], sample_weight=both[used])
        return LearnerPredictor(learner, self.sharpness)


class GroupSquareOracle:
    """Weighted least squares on the labels for bounded group loss: one Gram matrix per group.

    Exact for the square loss of linear functions, before predictions are clipped to [0, 1].
    """

    def __init__(self, rows: Rows, n_groups: int, *, exact: bool = True) -> None:
        self.exact = exact
        self.moments, self.cross = rows.sum(_sum_group_design, n_groups)

    def respond(self, factor: np.ndarray) -> Predictor:
        """Return the fit with the rows of group a weighted by ``factor[a]``."""
        solver = factorise(self.moments.combine(factor))
        sums = self.cross @ factor
        return LinearPredictor(*solver.solve(sums[:-1], float(sums[-1])))


class WeightedOracle:
    """Any fit of labels with row weights, for bounded group loss; not exact."""

    exact = False

    def __init__(
        self, fit: Callable[[Targets], Predictor], weight: np.ndarray, group: np.ndarray
    ) -> None:
        self.fit, self.weight, self.group = fit, weight, group
        self.total = float(weight.sum())

    def respond(self, factor: np.ndarray) -> Predictor:
        """Return the fit with the rows of group a weighted by ``factor[a]``."""
        weight = self.weight * factor[self.group]
        # Learners with penalties of their own must not see weights that grow with λ.
        scale = self.total / weight.sum()
        return self.fit(Targets(None, float((weight * scale).sum()), factor, scale))


def weigh_copies(target: np.ndarray, sharpness: float, variant: Variant = "paper") -> np.ndarray:
    """Return the weight W₂ of each row's copy with label 1; that with label 0 has 1 − W₂.

    The derivative condition of appendix F.3, (1 − W₂) ∂ℓ(0, U)/∂u + W₂ ∂ℓ(1, U)/∂u = 0, gives for
    the logistic loss W₂ = σ(C(2U − 1)), so that the weighted copies are fitted best by u = U.
    ``authors`` takes W₂ = U, as the paper's example and its code do: u = ½ + logit(U) / (2C) is
    what fits those best, which is not U.
    """
    if variant == "authors":
        return target
    chance: np.ndarray = expit(sharpness * (2.0 * target - 1.0))
    return chance


def make_learner(learner: str | Any, *, classifier: bool, random_state: int, n_jobs: int) -> Any:
    """Return an unfitted learner of scikit-learn, by its short name or from an object.

    ConfigError for an unknown name, or an object without the methods that its oracle calls.
    """
    if isinstance(learner, str):
        if learner not in LEARNERS:
            known = ["linear", "xgboost", *LEARNERS]
            raise ConfigError(f"There is no learner {learner!r}.", nearest(learner, known))
        made = LEARNERS[learner][int(classifier)]()
        accepted = made.get_params()
        settings = {"random_state": random_state, "n_jobs": n_jobs}
        return made.set_params(**{key: settings[key] for key in settings if key in accepted})
    wanted = "predict_proba" if classifier else "predict"
    if not hasattr(learner, "fit") or not hasattr(learner, wanted):
        raise ConfigError(
            f"The learner {learner!r} has no fit or no {wanted}.",
            f"Give a {'classifier' if classifier else 'regressor'} with scikit-learn's interface.",
        )
    return learner


class Matrix:
    """All rows of one process, as XGBoost holds them."""

    def __init__(self, blocks: Iterable[Block], n_jobs: int) -> None:
        self.blocks, self.n_jobs = list(blocks), n_jobs
        self._data: xgboost.DMatrix | None = None

    def __sizeof__(self) -> int:
        return sum(block.__sizeof__() for block in self.blocks)

    def __getstate__(self) -> dict[str, Any]:
        # XGBoost's matrix cannot be pickled; it is made again where it is needed.
        return {**vars(self), "_data": None}

    @property
    def data(self) -> xgboost.DMatrix:
        """The matrix."""
        if self._data is None:
            rows = _join([block.X for block in self.blocks])
            self._data = xgboost.DMatrix(rows, nthread=self.n_jobs)
        return self._data

    def tell(self, targets: Targets) -> xgboost.DMatrix:
        """Return the matrix with these labels and weights."""
        self.data.set_label(_join([targets.labels(block) for block in self.blocks]))
        self.data.set_weight(_join([targets.weights(block) for block in self.blocks]))
        return self.data

    def grow(
        self, targets: Targets, parameters: Mapping[str, Any], rounds: int
    ) -> xgboost.Booster | None:
        """Train together with the other processes; the first of them returns the common trees."""
        booster = xgboost.train(dict(parameters), self.tell(targets), rounds)
        return booster if xgboost.collective.get_rank() == 0 else None


def _join(parts: list[np.ndarray]) -> np.ndarray:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _sum_design(block: Block, n_cells: int) -> tuple[Moments, np.ndarray]:
    """Return the moments, and Σ w x by cell, for least squares on targets by cell."""
    everyone = np.zeros(len(block), dtype=np.int64)
    moments = sum_moments(block.X, block["weight"], everyone, 1)
    return moments, sum_by_cell(block.X, block["weight"], block["cell"], n_cells)


def _sum_group_design(block: Block, n_groups: int) -> tuple[Moments, np.ndarray]:
    """Return the moments and Σ w x y of each group, for least squares on the labels."""
    moments = sum_moments(block.X, block["weight"], block["group"], n_groups)
    cross = sum_by_cell(block.X, block["weight"] * block["y"], block["group"], n_groups)
    return moments, cross
