"""The ideal algorithm for noisy groups, as an estimator: a mixture of iterates of training."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np

from fairfrontier.models.base import TrainingWarning
from fairfrontier.models.neural.network import Network
from fairfrontier.models.noisy.estimator import NoisySoftAssignment, RobustClassifier
from fairfrontier.models.noisy.problem import (
    TOLERANCE,
    Approach,
    Best,
    Setting,
    Solution,
    score_rows,
)
from fairfrontier.models.noisy.rate import GroupedRows, find_rates, sum_scores
from fairfrontier.models.registry import method
from fairfrontier.runtime.arrays import to_numpy
from papers.rival.ideal import IdealProblem, solve_ideal

# Shifts of the scores between the iterates and the classifiers of a mixture.
SHIFTS = (-1.0, -0.5, 0.0, 0.5, 1.0)


@method("noisy_ideal")
@dataclass(kw_only=True, eq=False, repr=False)
class NoisyIdeal(RobustClassifier):
    """A mixture of classifiers, near-optimal and near-feasible under the worst soft assignments.

    The ideal algorithm on a finite class: the iterates of training with and without constraints,
    with shifted scores, and the two constant decisions. For small problems.

    Parameters
    ----------
    response : {"exact", "nested"}
        Best responses: in closed form, or by algorithm 3.
    response_steps, game_steps : int
        Q of algorithm 3 and T of algorithm 1, whose radius is T^{1/4}.
    response_slack, response_tolerance, response_radius : float
        τ, κ and R' of algorithm 3; R' = B'/τ when None.
    **others
        As in `RobustClassifier`, without ``best``.

    References
    ----------
    Wang et al., NeurIPS 2020, algorithms 1 and 3.
    """

    approach: ClassVar[Approach] = "soft_assignment"
    solvers: ClassVar[None] = None
    randomized: ClassVar[bool] = True
    example: ClassVar[Mapping[str, Any]] = {**NoisySoftAssignment.example, "game_steps": 50}

    best: Best = field(default="paper", init=False)
    response: Literal["exact", "nested"] = "exact"
    game_steps: int = 2000
    response_steps: int = 200
    response_slack: float = 0.01
    response_tolerance: float = 0.0
    response_radius: float | None = None

    def check(self) -> None:
        """Raise ConfigError for invalid parameters."""
        super().check()
        self.require("response", self.response in ("exact", "nested"), "exact or nested")
        self.require("game_steps", self.game_steps >= 1, "1 or more")
        self.require("response_steps", self.response_steps >= 1, "1 or more")
        self.require("response_slack", 0 < self.response_slack < math.inf, "a number above 0")
        tolerated = 0 <= self.response_tolerance < math.inf
        self.require("response_tolerance", tolerated, "a number of 0 or more")

    def mix(self) -> Callable[..., Solution]:
        """Return what runs the ideal algorithm on the iterates of training."""
        return self._mix_iterates

    def _mix_iterates(
        self,
        solution: Solution,
        pools: Sequence[list[np.ndarray]],
        rows: GroupedRows,
        setting: Setting,
    ) -> Solution:
        """Mix the recorded iterates, with shifts, and the two constant decisions."""
        arrays = [np.concatenate(layer).astype(np.float64) for layer in zip(*pools, strict=True)]
        shifted = [np.concatenate([array] * len(SHIFTS)) for array in arrays]
        shifted[-1] = shifted[-1] + np.repeat(SHIFTS, len(arrays[0]))[:, None, None]
        constant = [np.zeros((2, *array.shape[1:])) for array in arrays]
        constant[-1][:, 0, 0] = (-1.0, 1.0)
        pool = Network.of([np.concatenate(pair) for pair in zip(shifted, constant, strict=True)])
        x, weight, weighted = (
            to_numpy(array).astype(np.float64) for array in (rows.x, rows.weight, rows.weighted)
        )
        wide = replace(rows, x=x, weight=weight, weighted=weighted)
        cells = np.maximum(sum_scores(wide, score_rows(wide, pool)).count, 0.0)
        error = cells[:, :, 1:3].sum(axis=(1, 2))
        rates, (m, seen) = find_rates(setting.criterion), solution.joint.shape
        posterior = (solution.joint / solution.joint.sum(axis=0)).T
        mixture = solve_ideal(
            IdealProblem(error, cells, posterior, rates, setting.budget),
            iterations=self.game_steps,
            response=self.response,
            inner_iterations=self.response_steps,
            slack=self.response_slack,
            tolerance=self.response_tolerance,
            inner_radius=self.response_radius,
        )
        violation = float(mixture.violation.max())
        if violation > 100 * TOLERANCE + mixture.gap:
            told = f"The mixture violates a constraint by {violation:.3f}."
            warnings.warn(told, TrainingWarning, stacklevel=2)
        chosen = np.flatnonzero(mixture.probability > 0)
        return replace(
            solution,
            network=Network.of([array[chosen] for array in pool.arrays]),
            probability=mixture.probability[chosen],
            error=mixture.error,
            violation=violation,
            gap=mixture.gap,
            step=mixture.iterations,
            cell_mass=np.zeros((len(rates), m, seen, 4)),
        )
