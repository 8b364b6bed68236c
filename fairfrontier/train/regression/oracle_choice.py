"""Which oracle a method's parameters name."""

from __future__ import annotations

from typing import Any

import numpy as np

from fairfrontier.train.regression.bounded_loss import BoundedLossProblem
from fairfrontier.train.regression.loss import Loss
from fairfrontier.train.regression.oracle.envelope import EnvelopeOracle, EnvelopeTreeOracle
from fairfrontier.train.regression.oracle.hinge import HingeOracle
from fairfrontier.train.regression.oracle.oracle import (
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
from fairfrontier.train.regression.reduction import ReductionSetting

# C of the copies' logistic regression where the loss has none of its own.
SHARPNESS = 5.0
# Losses that a mean minimises, as it does the squared distance from targets.
MEANS = ("poisson", "square")


def choose_oracle(
    setting: ReductionSetting, problem: ParityProblem, X: np.ndarray, weight: np.ndarray
) -> Oracle:
    """Return the oracle for a parity problem on rows X."""
    kind, sharpness = read_oracle(setting)
    if kind == "cs":
        return HingeOracle(X, weight, problem.cell, problem.n_grid)
    if kind == "envelope":
        return _choose_envelope(setting, X, weight)
    if setting.learner == "linear":
        if kind == "ls":
            return LeastSquaresOracle(X, weight, problem.cell, problem.n_cells)
        return LogisticOracle(X, weight, sharpness, setting.penalty, setting.variant)
    oracle: Oracle = _flexible(setting, X, weight, sharpness)
    return oracle


def choose_risk_oracle(
    setting: ReductionSetting,
    problem: BoundedLossProblem,
    X: np.ndarray,
    y: np.ndarray,
    weight: np.ndarray,
) -> RiskOracle:
    """Return the oracle for a problem of bounded group loss on rows X with labels in [0, 1]."""
    kind, sharpness = read_oracle(setting)
    if sharpness and not setting.loss.sharpness:
        # A probability p is taken for ½ + logit(p) / (2C), which is to be the label.
        y = weigh_copies(y, sharpness)
    if setting.learner != "linear":
        fit = _flexible(setting, X, weight, sharpness).fit
        return WeightedOracle(fit, y, weight, problem.group, exact=False)
    if kind == "lr":
        learner = LogisticOracle(X, weight, sharpness, setting.penalty)
        return WeightedOracle(learner.fit, y, weight, problem.group, exact=False)
    exact = setting.loss.name == "square"
    return GroupSquareOracle(X, y, weight, problem.group, problem.share.size, exact=exact)


def read_oracle(setting: ReductionSetting) -> tuple[str, float]:
    """Return the kind of oracle, and the C of a classifier or 0."""
    loss = setting.loss
    kind = setting.oracle or _default(setting, loss)
    return kind, (loss.sharpness or SHARPNESS) if kind == "lr" else 0.0


def _default(setting: ReductionSetting, loss: Loss) -> str:
    if loss.sharpness:
        return "lr"
    sloped = isinstance(setting.learner, str) and setting.learner in ("linear", "xgboost")
    parity = setting.constraint == "statistical_parity"
    return "envelope" if sloped and parity and loss.name not in MEANS else "ls"


def _choose_envelope(
    setting: ReductionSetting, X: np.ndarray, weight: np.ndarray
) -> EnvelopeOracle | EnvelopeTreeOracle:
    loss = setting.loss
    if setting.learner == "xgboost":
        return EnvelopeTreeOracle(_flexible(setting, X, weight, loss.sharpness), loss.scale)
    # The penalty of lr is on log-odds 2C (f − ½), in units of −log p.
    unit = loss.scale * (2.0 * loss.sharpness) ** 2 if loss.sharpness else 1.0
    return EnvelopeOracle(X, weight, setting.penalty * unit)


def _flexible(
    setting: ReductionSetting, X: np.ndarray, weight: np.ndarray, sharpness: float
) -> Any:
    if isinstance(setting.learner, str) and setting.learner == "xgboost":
        return TreeOracle(
            X,
            weight,
            sharpness=sharpness,
            variant=setting.variant,
            n_estimators=setting.n_estimators,
            max_depth=setting.max_depth,
            n_jobs=setting.n_jobs,
            random_state=setting.random_state,
        )
    learner = make_learner(
        setting.learner,
        classifier=sharpness > 0,
        random_state=setting.random_state,
        n_jobs=setting.n_jobs,
    )
    return LearnerOracle(X, weight, learner, sharpness, setting.variant)
