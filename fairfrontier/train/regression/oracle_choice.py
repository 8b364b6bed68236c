"""Which oracle a method's parameters name."""

from __future__ import annotations

import numpy as np

from fairfrontier.train.regression.bounded_loss import BoundedLossProblem
from fairfrontier.train.regression.oracle.envelope import EnvelopeOracle, EnvelopeTreeOracle
from fairfrontier.train.regression.oracle.hinge import HingeOracle
from fairfrontier.train.regression.oracle.logistic import LogisticRegressor
from fairfrontier.train.regression.oracle.oracle import (
    GroupSquareOracle,
    LearnerOracle,
    LeastSquaresOracle,
    LogisticOracle,
    Oracle,
    RiskOracle,
    TargetOracle,
    TreeOracle,
    WeightedOracle,
    make_learner,
    weigh_copies,
)
from fairfrontier.train.regression.parity import ParityProblem
from fairfrontier.train.regression.reduction import ReductionSetting

# C of the copies' logistic regression where the loss has none.
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
        loss = setting.loss
        if setting.learner == "xgboost":
            return EnvelopeTreeOracle(_make_trees(setting, X, weight, loss.sharpness), loss.scale)
        # The penalty of lr is on log-odds 2C (f − ½), in units of −log p.
        unit = loss.scale * (2.0 * loss.sharpness) ** 2 if loss.sharpness else 1.0
        return EnvelopeOracle(X, weight, setting.penalty * unit)
    if setting.learner == "linear" and kind == "ls":
        return LeastSquaresOracle(X, weight, problem.cell, problem.n_cells)
    return _make_target_oracle(setting, X, weight, sharpness)


def choose_risk_oracle(
    setting: ReductionSetting,
    problem: BoundedLossProblem,
    X: np.ndarray,
    y: np.ndarray,
    weight: np.ndarray,
) -> RiskOracle:
    """Return the oracle for a problem of bounded group loss on rows X with labels in [0, 1]."""
    kind, sharpness = read_oracle(setting)
    if setting.learner == "linear" and kind != "lr":
        exact = setting.loss.name == "square"
        return GroupSquareOracle(X, y, weight, problem.group, problem.share.size, exact=exact)
    if sharpness and not setting.loss.sharpness:
        # A probability p stands for the prediction ½ + logit(p) / (2C), which is to be the label.
        y = weigh_copies(y, sharpness)
    fit = _make_target_oracle(setting, X, weight, sharpness).fit
    return WeightedOracle(fit, y, weight, problem.group)


def read_oracle(setting: ReductionSetting) -> tuple[str, float]:
    """Return the kind of oracle, and the C of a classifier or 0."""
    loss, kind = setting.loss, setting.oracle
    if kind is None and loss.sharpness:
        kind = "lr"
    elif kind is None:
        sloped = isinstance(setting.learner, str) and setting.learner in ("linear", "xgboost")
        parity = setting.constraint == "statistical_parity"
        kind = "envelope" if sloped and parity and loss.name not in MEANS else "ls"
    return kind, (loss.sharpness or SHARPNESS) if kind == "lr" else 0.0


def _make_trees(
    setting: ReductionSetting, X: np.ndarray, weight: np.ndarray, sharpness: float
) -> TreeOracle:
    return TreeOracle(X, weight, sharpness=sharpness, **setting.find_tree_parameters())


def _make_target_oracle(
    setting: ReductionSetting, X: np.ndarray, weight: np.ndarray, sharpness: float
) -> TargetOracle:
    if setting.learner == "linear":
        regressor = LogisticRegressor(X, setting.penalty)
        return LogisticOracle(regressor, weight, sharpness, setting.variant)
    if setting.learner == "xgboost":
        return _make_trees(setting, X, weight, sharpness)
    learner = make_learner(
        setting.learner,
        classifier=sharpness > 0,
        random_state=setting.random_state,
        n_jobs=setting.n_jobs,
    )
    return LearnerOracle(X, weight, learner, sharpness, setting.variant)
