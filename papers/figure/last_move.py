"""Where the worst case moved the training rows before the last round of a fair boosting model."""

from __future__ import annotations

import numpy as np
import xgboost

from fairfrontier.metrics.certificate.worst_move import Move
from fairfrontier.models.base import unit_weight
from fairfrontier.models.individual.budget import find_budget, measure_spread
from fairfrontier.models.individual.budro.estimator import BuDRO
from fairfrontier.models.individual.budro.solver import evaluate_losses, solve
from fairfrontier.models.individual.budro.transport import Setting
from fairfrontier.runtime.errors import ConfigError
from fairfrontier.similarity.fair_metric import FairMetric
from papers.rival.transport_plan import build_problem, plan_columns

# Columns of the transport plan that are computed together.
BLOCK = 256
# A smaller share of a row's mass is rounding.
SMALLEST_SHARE = 1e-9


def list_last_moves(
    model: BuDRO,
    X: np.ndarray,
    y: np.ndarray,
    metric: FairMetric,
    sample_weight: np.ndarray | None = None,
) -> tuple[Move, ...]:
    """Return the moves of a fitted model's last round, those that add most to the loss first.

        Π = argmax ⟨R, Π⟩   s.t.  Π ≥ 0,  ⟨C, Π⟩ ≤ ε,  Πᵀ1 = m                   (2.8)

    where R_ij is the loss of row i under the label of row j by all trees but the last. The
    arguments are those of ``fit``; ``Move.row`` is j and ``becomes`` is i. ConfigError when the
    model has a single round, before which nothing was moved.

    Notes
    -----
    One solution of the transport, and O(n² k) operations for the plan, a block of columns at a
    time. Where several plans attain the optimum, training may have met another: there the search
    began at the round before. Batches of the stochastic solvers are drawn anew.

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
    mass = weight / weight.sum()
    budget = find_budget(model, measure_spread(z, mass)).budget
    problem = build_problem(z, y, loss, budget, mass=mass)
    generator = np.random.default_rng(model.random_state)
    solution = solve(problem, model.solver, Setting.of(model), generator=generator)
    moves = []
    for first in range(0, len(y), BLOCK):
        rows = np.arange(first, min(first + BLOCK, len(y)))
        plan = plan_columns(problem, solution, rows)
        target, column = np.nonzero(plan > SMALLEST_SHARE * problem.geometry.row_mass[rows])
        row = rows[column]
        gain = loss[target, y[row]] - loss[row, y[row]]
        distance = np.sum((z[target] - z[row]) ** 2, axis=1)
        numbers = zip(plan[target, column], gain, distance, strict=True)
        moves += [
            Move(int(j), int(i), *map(float, values))
            for j, i, values in zip(row, target, numbers, strict=True)
            if i != j
        ]
    return tuple(sorted(moves, key=lambda move: (-move.carries, move.row, move.becomes)))
