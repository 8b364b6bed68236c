"""Where the worst case moved the training rows before the last round of a fair boosting model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import xgboost

from fairfrontier.evaluate.certificate.worst_move import Move
from fairfrontier.metric.fair_metric import FairMetric
from fairfrontier.runtime.errors import ConfigError
from fairfrontier.train.base import unit_weight
from fairfrontier.train.individual.budro.estimator import BuDRO
from fairfrontier.train.individual.budro.objective import evaluate_losses
from fairfrontier.train.individual.budro.solver import Setting, build_problem, plan_columns, solve

# Columns of the map that are looked at together.
BLOCK = 256
# Less than this share of a row's mass is rounding.
LEAST = 1e-9


@dataclass(frozen=True)
class LastMap:
    """The transport map of the last round.

    Attributes
    ----------
    moves : tuple of Move
        All moves to other rows, those that add most to the loss first.
    gain, cost : float
        Σ mass × gain over the moves, and Σ mass × distance, which the budget bounds.
    """

    moves: tuple[Move, ...]
    gain: float
    cost: float


def recall_last_map(
    model: BuDRO,
    X: np.ndarray,
    y: np.ndarray,
    metric: FairMetric,
    sample_weight: np.ndarray | None = None,
) -> LastMap:
    """Solve the transport of a fitted model's last round again.

        Π = argmax ⟨R, Π⟩   s.t.  Π ≥ 0,  ⟨C, Π⟩ ≤ ε,  Πᵀ1 = m                   (2.8)

    where R_ij is the loss of row i under the label of row j by all trees but the last.

    Parameters
    ----------
    model : BuDRO
        Fitted or loaded, with two rounds at least.
    X : float64 array of shape (n_samples, n_features)
        The rows that it was fitted on.
    y : int64 array of shape (n_samples,)
        Their labels.
    metric : FairMetric
        The one that it was fitted with.
    sample_weight : float64 array of shape (n_samples,), optional
        As in ``fit``.

    Returns
    -------
    LastMap
        ``Move.row`` is the row j that is moved, ``becomes`` the row i that stands for it.

    Raises
    ------
    ConfigError
        When the model has a single round, before which nothing was moved.

    Notes
    -----
    One solution of the transport, and O(n² k) operations for the map, a block of columns at a time.
    Where several maps attain the same, the one that training met may be another: there the search
    began at the round before. Of the stochastic solvers the batches are drawn anew.

    References
    ----------
    A. Vargo, F. Zhang, M. Yurochkin, Y. Sun. Individually fair gradient boosting. ICLR 2021, (2.8)
    and Figure 1.
    """
    rounds = model.booster_.num_boosted_rounds()
    if rounds < 2:
        raise ConfigError(
            "A model of one round has moved no rows.", "Train it with n_estimators of 2 or more."
        )
    data = xgboost.DMatrix(X, nthread=model.n_jobs)
    margin = model.booster_.predict(data, output_margin=True, iteration_range=(0, rounds - 1))
    loss = evaluate_losses(np.asarray(margin, dtype=np.float64))
    weight = unit_weight(sample_weight, len(y))
    z = np.asarray(metric.embed(X))
    problem = build_problem(z, y, loss, model.budget, mass=weight / weight.sum())
    generator = np.random.default_rng(model.random_state)
    found = solve(problem, model.solver, Setting.of(model), generator=generator)
    moves = []
    for first in range(0, len(y), BLOCK):
        rows = np.arange(first, min(first + BLOCK, len(y)))
        plan = plan_columns(problem, found, rows)
        there, column = np.nonzero(plan > LEAST * problem.geometry.row_mass[rows])
        row = rows[column]
        gain = loss[there, y[row]] - loss[row, y[row]]
        distance = np.sum((z[there] - z[row]) ** 2, axis=1)
        told = zip(row, there, plan[there, column], gain, distance, strict=True)
        moves += [
            Move(int(j), int(i), float(mass), float(more), float(far))
            for j, i, mass, more, far in told
            if i != j
        ]
    moves.sort(key=lambda each: (-each.carries, each.row, each.becomes))
    return LastMap(
        tuple(moves),
        gain=sum(each.carries for each in moves),
        cost=sum(each.mass * each.distance for each in moves),
    )
