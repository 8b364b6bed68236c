"""Logistic regression without any notion of fairness."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Self

import numpy as np
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV

from fairfrontier.models.base import Classifier
from fairfrontier.models.registry import method
from fairfrontier.prepare.split import Task
from fairfrontier.runtime.cluster.executor import hold, open_rows
from fairfrontier.runtime.cluster.logistic import MOST_NEWTON, fit_logistic
from fairfrontier.runtime.errors import DataError

SOLVERS = ("auto", "newton", "lbfgs")


@method("linear")
@dataclass(kw_only=True, eq=False, repr=False)
class Linear(Classifier):
    """Logistic regression, multinomial for more than two classes.

    min_{W,b}  Σ_i s_i ℓ(y_i, W x_i + b) / Σ_i s_i + (penalty/2) ‖W‖²

    Parameters
    ----------
    penalty : float
        ℓ2 penalty on the mean loss; > 0. Ignored with ``folds``, which choose it.
    class_weight : "balanced" or None
        Whether every class weighs the same.
    folds : int or None
        When set, the penalty is chosen from ``penalties`` by the accuracy (weighted as the loss)
        in a stratified cross-validation with this many folds, without shuffling.
    penalties : sequence of float or None
        Candidates, with ``folds``; None is 1/(C Σ_i s_i) for ten C from 1e-4 to 1e4, evenly spaced
        in the logarithm: the grid usual in scikit-learn, where C weighs the sum of the losses.
    solver : {"auto", "newton", "lbfgs"}
        ``auto`` takes Newton steps for up to 500 coefficients, whatever the columns' scales, and
        L-BFGS for more.

    Attributes
    ----------
    coefficient_ : ndarray of float64, shape (n_classes, n_features)
        W, one row per class; zeros for class 0 of two.
    intercept_ : ndarray of float64, shape (n_classes,)
        b, likewise.
    penalty_ : float
        The penalty of the fit.

    Notes
    -----
    O(n d²) per Newton step, of which few are needed; O(n d) per step of L-BFGS, of which columns of
    unlike scales need thousands. The cross-validation takes Newton steps per candidate and fold
    (5 s for 20,000 rows, 90 features, 10 folds and 10 candidates on one thread).

    References
    ----------
    D. R. Cox. The regression analysis of binary sequences. JRSS B 20, 1958. I. Alabdulmohsin,
    M. Lucic. A near-optimal algorithm for debiasing trained machine learning models. NeurIPS 2021,
    section 5 (the grid).
    """

    task: ClassVar[frozenset[Task]] = frozenset({"binary", "multiclass"})
    takes_blocks: ClassVar[bool] = True
    paper: ClassVar[str] = "Cox, The regression analysis of binary sequences, JRSS B 1958"

    state_arrays: ClassVar[tuple[str, ...]] = ("coefficient", "intercept")
    state_facts: ClassVar[tuple[str, ...]] = ("penalty",)

    coefficient_: np.ndarray = field(init=False)
    intercept_: np.ndarray = field(init=False)
    penalty_: float = field(init=False)

    penalty: float = 1e-4
    class_weight: Literal["balanced"] | None = None
    folds: int | None = None
    penalties: Sequence[float] | None = None
    solver: Literal["auto", "newton", "lbfgs"] = "auto"

    def check(self) -> None:
        """Raise ConfigError for invalid parameters."""
        self.require("penalty", self.penalty > 0, "a number above 0")
        self.require("class_weight", self.class_weight in (None, "balanced"), "balanced or null")
        self.require("solver", self.solver in SOLVERS, "auto, newton or lbfgs")
        self.require("folds", self.folds is None or self.folds >= 2, "2 or more, or null")
        if self.penalties is not None:
            several = len(self.penalties) > 0 and min(self.penalties) > 0
            self.require("penalties", several, "numbers above 0, or null")
            self.require("penalties", self.folds is not None, "folds too, to choose among them")

    def needs_all_rows(self, n_samples: int, n_features: int, n_classes: int) -> str | None:  # noqa: ARG002
        """Return why rows in blocks do not suit the parameters; see `Estimator`."""
        if self.folds is not None or self.solver == "lbfgs":
            return "linear takes neither folds nor solver: lbfgs where rows stay in partitions."
        if n_features * (n_classes if n_classes > 2 else 1) > MOST_NEWTON:
            return f"linear takes at most {MOST_NEWTON} coefficients where rows stay in partitions."
        return None

    def fit(self, X: Any, y: Any, *, sample_weight: np.ndarray | None = None) -> Self:
        """Solve the problem for an array or Dask array of rows, which is read at every step.

        DataError is raised when a class has fewer rows than there are folds, and where the steps do
        not converge, as of features with huge numbers.
        """
        self.check()
        X, y, weight, _ = self.read_training(X, y, sample_weight)
        if self.class_weight == "balanced":
            totals = np.bincount(y, weights=weight)
            weight = weight * (weight.sum() / (np.count_nonzero(totals) * totals))[y]
        total = float(weight.sum())
        if self.folds is None:
            self.penalty_, C = self.penalty, 1.0 / (self.penalty * total)
        else:
            C = self._choose(X, y, weight, self.folds)
            self.penalty_ = 1.0 / (C * total)
        n_classes = self.classes_.size
        few = X.shape[1] * (n_classes if n_classes > 2 else 1) <= MOST_NEWTON
        if self.solver == "newton" or (self.solver == "auto" and few):
            fitted = fit_logistic(open_rows(hold(X), y=y, weight=weight), n_classes, self.penalty_)
            coefficient, intercept = fitted.coefficient, fitted.intercept
        else:
            model = LogisticRegression(C=C, max_iter=10_000, tol=1e-6)
            model.fit(X, y, sample_weight=weight)
            coefficient, intercept = model.coef_, model.intercept_
        if n_classes == 2:
            coefficient = np.vstack([np.zeros_like(coefficient), coefficient])
            intercept = np.append(0.0, intercept)
        self.coefficient_, self.intercept_ = coefficient, intercept
        return self

    def _choose(self, X: np.ndarray, y: np.ndarray, weight: np.ndarray, folds: int) -> float:
        """Return the C of the best accuracy over the folds; of ties the strongest penalty."""
        rarest = int(np.unique(y, return_counts=True)[1].min())
        if rarest < folds:
            raise DataError(
                f"{self.name} needs every class in each of {folds} folds, and a class has {rarest} "
                "rows.",
                "Choose fewer folds, or give it more rows.",
            )
        grid = np.logspace(-4, 4, 10)
        if self.penalties is not None:
            grid = np.sort(1.0 / (np.asarray(self.penalties) * float(weight.sum())))
        # Newton steps converge in a few at every C, where L-BFGS takes hundreds at the large ones.
        chosen = LogisticRegressionCV(
            Cs=grid,
            cv=folds,
            scoring="accuracy",
            solver="newton-cholesky",
            tol=1e-6,
            l1_ratios=(0.0,),
            use_legacy_attributes=False,
        ).fit(X, y, sample_weight=weight)
        return float(chosen.C_)

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        """Return class probabilities, float64, shape (n_samples, n_classes)."""
        margin = self.validate_rows(X) @ self.coefficient_.T + self.intercept_
        probability: np.ndarray = softmax(margin, axis=1)
        return probability
