"""Which oracle a method's parameters name."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fairfrontier.runtime.cluster.executor import Block, Rows
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


def choose_oracle(setting: ReductionSetting, problem: ParityProblem) -> Oracle:
    """Return the oracle for a parity problem."""
    kind, sharpness = read_oracle(setting)
    if kind in ("cs", "envelope"):
        block, loss = take_block(problem.rows), setting.loss
        weight, cell = block["weight"], block["cell"]
        if kind == "cs":
            return HingeOracle(block.X, weight, cell, problem.n_grid)
        if setting.learner == "xgboost":
            trees = _make_trees(setting, problem.rows, loss.sharpness)
            return EnvelopeTreeOracle(trees, weight, cell, loss.scale)
        # The penalty of lr is on log-odds 2C (f − ½), in units of −log p.
        unit = loss.scale * (2.0 * loss.sharpness) ** 2 if loss.sharpness else 1.0
        return EnvelopeOracle(block.X, weight, cell, setting.penalty * unit)
    if setting.learner == "linear" and kind == "ls":
        return LeastSquaresOracle(problem.rows, problem.n_cells)
    return _make_target_oracle(setting, problem.rows, sharpness)


def choose_risk_oracle(
    setting: ReductionSetting, problem: BoundedLossProblem, weight: np.ndarray, group: np.ndarray
) -> RiskOracle:
    """Return the oracle for a problem of bounded group loss of rows of these weights and groups."""
    kind, sharpness = read_oracle(setting)
    rows = problem.rows
    if setting.learner == "linear" and kind != "lr":
        return GroupSquareOracle(rows, problem.share.size, exact=setting.loss.name == "square")
    if sharpness and not setting.loss.sharpness:
        # A probability p stands for the prediction ½ + logit(p) / (2C), which is to be the label.
        rows = rows.derive(_weigh_labels, sharpness)
    return WeightedOracle(_make_target_oracle(setting, rows, sharpness).fit, weight, group)


def take_block(rows: Rows) -> Block:
    """Return all rows, which are in one block."""
    [block] = rows.map(lambda block: block)
    taken: Block = block
    return taken


def _weigh_labels(block: Block, sharpness: float) -> Block:
    labels = weigh_copies(block["y"], sharpness)
    return replace(block, columns={**block.columns, "y": labels})


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


def _make_trees(setting: ReductionSetting, rows: Rows, sharpness: float) -> TreeOracle:
    return TreeOracle(rows, rows.sum(_weigh), sharpness=sharpness, **setting.find_tree_parameters())


def _weigh(block: Block) -> float:
    return float(block["weight"].sum())


def _make_target_oracle(setting: ReductionSetting, rows: Rows, sharpness: float) -> TargetOracle:
    if setting.learner == "linear":
        regressor = LogisticRegressor(rows, setting.penalty)
        return LogisticOracle(regressor, rows.sum(_weigh), sharpness, setting.variant)
    if setting.learner == "xgboost":
        return _make_trees(setting, rows, sharpness)
    learner = make_learner(
        setting.learner,
        classifier=sharpness > 0,
        random_state=setting.random_state,
        n_jobs=setting.n_jobs,
    )
    return LearnerOracle(take_block(rows), learner, sharpness, setting.variant)
