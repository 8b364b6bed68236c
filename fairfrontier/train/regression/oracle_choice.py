"""Which oracle a method's parameters name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fairfrontier.train.regression.bounded_loss import BoundedLossProblem
from fairfrontier.train.regression.envelope import EnvelopeOracle, EnvelopeTreeOracle
from fairfrontier.train.regression.hinge import HingeOracle
from fairfrontier.train.regression.loss import Loss
from fairfrontier.train.regression.oracle import (
    GroupSquareOracle,
    LearnerOracle,
    LeastSquaresOracle,
    LogisticOracle,
    Oracle,
    RiskOracle,
    TreeOracle,
    WeightedOracle,
    make_learner,
    weigh_copies,
)
from fairfrontier.train.regression.parity import ParityProblem

if TYPE_CHECKING:
    from fairfrontier.train.regression.estimator import Reduction

# C of the copies' logistic regression where the loss has none of its own.
SHARPNESS = 5.0
# Losses that a mean minimises, as it does the squared distance from targets.
MEANS = ("poisson", "square")


def choose_oracle(
    model: Reduction, problem: ParityProblem, X: np.ndarray, weight: np.ndarray
) -> Oracle:
    """Return the oracle for a parity problem on rows X."""
    kind, sharpness = read_oracle(model)
    if kind == "cs":
        return HingeOracle(X, weight, problem.cell, problem.n_grid)
    if kind == "envelope":
        return _choose_envelope(model, X, weight)
    if model.learner == "linear":
        if kind == "ls":
            return LeastSquaresOracle(X, weight, problem.cell, problem.n_cells)
        return LogisticOracle(X, weight, sharpness, model.penalty, model.variant)
    oracle: Oracle = _flexible(model, X, weight, sharpness)
    return oracle


def choose_risk_oracle(
    model: Reduction,
    problem: BoundedLossProblem,
    X: np.ndarray,
    y: np.ndarray,
    weight: np.ndarray,
    loss: Loss,
) -> RiskOracle:
    """Return the oracle for a problem of bounded group loss on rows X with labels in [0, 1]."""
    kind, sharpness = read_oracle(model)
    if sharpness and not loss.sharpness:
        # A probability p is taken for ½ + logit(p) / (2C), which is to be the label.
        y = weigh_copies(y, sharpness)
    if model.learner != "linear":
        fit = _flexible(model, X, weight, sharpness).fit
        return WeightedOracle(fit, y, weight, problem.group, exact=False)
    if kind == "lr":
        learner = LogisticOracle(X, weight, sharpness, model.penalty)
        return WeightedOracle(learner.fit, y, weight, problem.group, exact=False)
    square = GroupSquareOracle(X, y, weight, problem.group, problem.share.size)
    square.exact = loss.name == "square"
    return square


def read_oracle(model: Reduction) -> tuple[str, float]:
    """Return the kind of oracle, and the C of a classifier or 0."""
    loss = model._loss()
    kind = model.oracle or _default(model, loss)
    return kind, (loss.sharpness or SHARPNESS) if kind == "lr" else 0.0


def _default(model: Reduction, loss: Loss) -> str:
    if loss.sharpness:
        return "lr"
    sloped = isinstance(model.learner, str) and model.learner in ("linear", "xgboost")
    parity = model.constraint == "statistical_parity"
    return "envelope" if sloped and parity and loss.name not in MEANS else "ls"


def _choose_envelope(
    model: Reduction, X: np.ndarray, weight: np.ndarray
) -> EnvelopeOracle | EnvelopeTreeOracle:
    loss = model._loss()
    if model.learner == "xgboost":
        return EnvelopeTreeOracle(_flexible(model, X, weight, loss.sharpness), loss.scale)
    # The penalty of lr is on log-odds 2C (f − ½), in units of −log p.
    unit = loss.scale * (2.0 * loss.sharpness) ** 2 if loss.sharpness else 1.0
    return EnvelopeOracle(X, weight, model.penalty * unit)


def _flexible(model: Reduction, X: np.ndarray, weight: np.ndarray, sharpness: float) -> Any:
    if isinstance(model.learner, str) and model.learner == "xgboost":
        return TreeOracle(
            X,
            weight,
            sharpness=sharpness,
            variant=model.variant,
            n_estimators=model.n_estimators,
            max_depth=model.max_depth,
            n_jobs=model.n_jobs,
            random_state=model.random_state,
        )
    learner = make_learner(
        model.learner,
        classifier=sharpness > 0,
        random_state=model.random_state,
        n_jobs=model.n_jobs,
    )
    return LearnerOracle(X, weight, learner, sharpness, model.variant)
