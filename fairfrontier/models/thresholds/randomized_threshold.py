"""Randomised thresholds by group: near-optimal debiasing of a trained model's scores.

Width and rate are chosen from the paper's grid; ε is traced.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self, cast

import numpy as np
import pandas as pd

from fairfrontier.models.base import training_weight
from fairfrontier.models.group import Attributes
from fairfrontier.models.objective import Objective, choose_cut
from fairfrontier.models.persistence import State
from fairfrontier.models.registry import method
from fairfrontier.models.thresholds.base import PostProcessor, is_number
from fairfrontier.models.thresholds.calibration import KINDS, Calibration, Kind, fit_calibration
from fairfrontier.models.thresholds.curve import Objective as Served
from fairfrontier.models.thresholds.curve import weigh_objective
from fairfrontier.models.thresholds.ramp import (
    Lines,
    Solution,
    as_lines,
    draw_lines,
    judge_lines,
    solve_exact,
)
from fairfrontier.models.thresholds.rule import FittedRule, Scale, ThresholdRule, measure_rates
from fairfrontier.models.thresholds.sample import ScoredRows
from fairfrontier.models.thresholds.threshold import ThresholdProblem
from fairfrontier.prepare.split import Part
from fairfrontier.runtime.errors import ConfigError, InputError

# γ ∈ {.01, .02, .05, .1, .2, …, 1} and ρ ∈ E[y] + {−.1, −.05, 0, .05, .1} (section 5).
WIDTHS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
RATE_OFFSETS = (-0.1, -0.05, 0.0, 0.05, 0.1)
# Accuracies that agree to this precision are equal: rounding must not decide.
DECIMALS = 9


def list_rates(base_rate: float, offsets: Sequence[float] = RATE_OFFSETS) -> list[float]:
    """Return the distinct values of ``base_rate`` + ``offsets``, cut to [0, 1], ascending."""
    shifted = np.clip(base_rate + np.asarray(offsets, dtype=np.float64), 0.0, 1.0)
    return [float(rate) for rate in np.unique(shifted)]


def choose_best(widths: np.ndarray, rates: np.ndarray, accuracy: np.ndarray, centre: float) -> int:
    """Return the position of the most accurate candidate; all arrays have shape (n_candidates,).

    Among accuracies equal to nine decimals it is the smallest width, which draws least, then the
    rate nearest to ``centre``, then the lowest rate.
    """
    apart = np.round(np.abs(rates - centre), DECIMALS)
    return int(np.lexsort((rates, apart, widths, -np.round(accuracy, DECIMALS)))[0])


def choose(
    problem: ThresholdProblem,
    labelled: ThresholdProblem | None,
    *,
    widths: Sequence[float],
    rates: Sequence[float],
    budget: float,
    centre: float = 0.0,
    objective: Objective = "accuracy",
    cut: float = 0.0,
) -> tuple[Solution, float, pd.DataFrame]:
    """Solve every pair of a width and a rate, and return the best by an objective with its rate.

    All candidates come from one sort. ``labelled`` has the rows that judge, by codes 2 k + y; None
    where there is one pair only. The frame lists the candidates' width, rate, accuracy (else
    objective) and gap; it is empty without a choice. See `choose_best` for ties and ``centre``.
    """
    tried = [(width, rate) for width in widths for rate in rates]
    width, column = np.array(tried, dtype=np.float64).T
    judged = "accuracy" if objective == "accuracy" else "objective"
    table, best, lines = {"width": width, "rate": column}, 0, None
    if len(tried) > 1 and labelled is not None:
        drawn = draw_lines(problem, width, column, budget, cut)
        gain = weigh_labels(objective, labelled)
        table[judged], table["gap"] = judge_lines(labelled, drawn, gain)
        best = choose_best(width, column, table[judged], centre)
        lines = [Lines(*(each[[best]] for each in line)) for line in drawn]
    else:
        table = {name: np.zeros(0) for name in (*table, judged, "gap")}
    own, rate = tried[best]
    solution = solve_exact(problem, own, rate, budget, cut, lines=lines)
    return solution, rate, pd.DataFrame(table)


def weigh_labels(objective: Objective, labelled: ThresholdProblem) -> tuple[float, float]:
    """Return how often the objective counts rows labelled 0 and 1, once the label that counts more.

    The share of right decisions among rows that are so counted is the accuracy, the balanced
    accuracy, or the share of the costs of all errors that is saved.
    """
    negative, positive = (
        sum(segment.total for segment in labelled.segments[label::2]) for label in (0, 1)
    )
    gain = weigh_objective(cast("Served", objective), positive, negative)
    most = max(gain.positive, gain.negative)
    return gain.negative / most, gain.positive / most


def trace_budgets(
    problem: ThresholdProblem,
    labelled: ThresholdProblem,
    width: float,
    rate: float,
    n_points: int = 25,
    fit: Callable[[float], ThresholdRule] | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return ε, bias and expected accuracy, (n_points,), as ε grows from 0 until it never binds.

    Thresholds of one width and rate are fitted on ``problem``, by ``fit`` of ε if it is given, and
    measured on ``labelled``, by codes 2 k + y. On the fitted rows the bias is at most ε and never
    decreases.
    """
    # At ε = 2 every |E[h | k] − ρ| ≤ ε/2, so that all thresholds are 0.
    free = solve_exact(problem, width, rate, 2.0)
    budgets = np.linspace(0.0, 2.0 * float(np.nanmax(np.abs(free.rate - rate))), n_points)
    points = []
    for budget in budgets.tolist():
        rule = fit(budget) if fit else solve_exact(problem, width, rate, budget).rule
        points.append(np.concatenate(judge_lines(labelled, as_lines(rule))))
    accuracy, bias = np.array(points).T
    return budgets, bias, accuracy


# On a narrower ramp there are too few double-precision numbers.
LEAST_WIDTH = 1e-6
# At −1 or 1 one of the decisions would never gain.
MOST_CUT = 1.0 - 1e-6


@method("randomized_threshold")
@dataclass(kw_only=True, eq=False, repr=False)
class RandomizedThreshold(PostProcessor):
    """Group-wise thresholds with a ramp of randomised decisions, on any model's scores.

        min_h (γ/2) E h² − E[h f]   s.t.  |E[h | group k] − ρ| ≤ ε/2 for every group k        (6)

    whose solution is h = clip((f − t_k)/γ, 0, 1): the probability of decision 1 for a row of
    group k with f = 2 P(Y=1|x) − 1. Its accuracy is as near to the best possible under the
    constraint as f is to the truth (theorem 2).

    Parameters
    ----------
    estimator, prefit, cv, pos_label, attributes, scale
        As in `PostProcessor`; a study's YAML may name the attributes.
    objective : {"accuracy", "balanced_accuracy"} or mapping
        What width and rate are chosen by; of costs, written ``{"costs": {"false_positive": 1,
        "false_negative": 5}}``, the sum that is saved. With any but accuracy, the paper's, f − c
        stands in place of f in (6), with c the cut of the fitted rows that is best for it.
    budget : float
        ε ≥ 0: width of the interval that rates may lie in.
    width : float or None
        γ: 0 for a threshold with a coin at it, else at least 1e-6. None chooses.
    rate : float or None
        ρ: the rate of decision 1. None chooses.
    width_grid : sequence of float
        Widths to choose from; the paper's by default.
    rate_offsets : sequence of float
        Rates to choose from under parity, as differences from E[y] on the fitted rows, or with
        another objective than accuracy from E[1{f ≥ c}], cut to [0, 1].
    calibrate : {"isotonic", "sigmoid"} or None
        Calibrate the scores on the fitted rows first, which needs y.
    random_state : int
        Seed of the decisions that ``predict`` draws.

    Attributes
    ----------
    rule_ : ThresholdRule
        h by code of ``cells_``.
    width_, rate_ : float
        γ and ρ, as given or chosen.
    base_rate_ : float
        E[y] on the fitted rows; NaN without y.
    cells_ : ndarray of int64, shape (n_cells, n_attributes)
        The groups.
    result_ : dict
        Plain facts: the objective of (6), duality gap, the fitted rows of each cell and E[h] on
        them, which constraints bind, whether the solver met them.
    candidates_ : DataFrame
        One row for each width and rate tried: expected ``accuracy``, or for another objective its
        share of what right decisions would gain, ``objective``; and ``gap``, the largest less the
        smallest E[h | cell], all exact expectations on ``validation``. Empty without a choice.
    calibration_ : Calibration or None

    Notes
    -----
    O(n log n) for one sort, with or without a choice, and some hundred steps of O(log n) for each
    candidate and group: 1,000,000 rows of ten groups take .1 to .3 s. The choice is by the expected
    objective on ``validation`` (or else the fitted rows); ties, to nine decimals, go to the
    smallest width, then the rate nearest to E[y] or E[1{f ≥ c}], then the lowest. With the
    objective accuracy and without a choice y is not needed.

    The guarantee holds on the fitted rows. On others rates differ by sampling error.

    References
    ----------
    I. Alabdulmohsin, M. Lucic. A near-optimal algorithm for debiasing trained machine learning
    models. NeurIPS 2021.
    """

    randomized: ClassVar[bool] = True
    # Of descents, which are now in the papers, of scores in bins, and of other criteria.
    retired: ClassVar[frozenset[str]] = frozenset(
        {"batch_size", "bins", "criterion", "learning_rate", "solver", "steps", "within"}
    )
    paper: ClassVar[str] = "Alabdulmohsin and Lucic, A near-optimal algorithm, NeurIPS 2021"
    example: ClassVar[Mapping[str, Any]] = {
        "attributes": 0,
        "width_grid": [0.1, 0.5],
        "rate_offsets": [-0.05, 0.0, 0.05],
    }

    rule_: ThresholdRule = field(init=False)
    width_: float = field(init=False)
    rate_: float = field(init=False)
    base_rate_: float = field(init=False)
    result_: dict[str, Any] = field(init=False)
    candidates_: pd.DataFrame = field(init=False)
    calibration_: Calibration | None = field(init=False)

    attributes: Attributes = None
    objective: Objective = "accuracy"
    budget: float = 0.0
    width: float | None = None
    rate: float | None = None
    width_grid: Sequence[float] = WIDTHS
    rate_offsets: Sequence[float] = RATE_OFFSETS
    scale: Scale | None = "probability"
    calibrate: Kind | None = None
    random_state: int = 0

    def check(self) -> None:
        """Raise ConfigError for invalid parameters."""
        super().check()
        self.check_objective()
        wanted = "0, or a number from 1e-6"

        def is_width(value: Any) -> bool:
            return is_number(value) and (value >= LEAST_WIDTH or value == 0)

        self.require("width", self.width is None or is_width(self.width), f"{wanted}, or null")
        grid = _is_list(self.width_grid) and all(map(is_width, self.width_grid))
        self.require("width_grid", grid, f"a list of at least one width, {wanted}")
        offsets = _is_list(self.rate_offsets) and all(map(is_number, self.rate_offsets))
        self.require("rate_offsets", offsets, "a list of at least one number")
        self.require("budget", is_number(self.budget) and self.budget >= 0, "a number from 0")
        rate = self.rate
        share = rate is None or (is_number(rate) and 0 <= rate <= 1)
        self.require("rate", share, "a number from 0 to 1, or null")
        self.require("calibrate", self.calibrate in (None, *KINDS), "isotonic, sigmoid or null")

    def fit(
        self,
        X: np.ndarray,
        y: np.ndarray | None = None,
        *,
        sensitive_features: np.ndarray,
        sample_weight: np.ndarray | None = None,
        validation: Part | None = None,
    ) -> Self:
        """Choose width and rate where they are not given, and solve for the thresholds."""
        self.check()
        signed, codes = self.validate_training(
            X, y, sensitive_features, sample_weight=sample_weight
        )
        labels = None if y is None else codes
        weight = training_weight(sample_weight, len(signed))
        self.calibration_ = None
        if self.calibrate is not None:
            self.calibration_ = fit_calibration(
                self.calibrate, signed, self._need_labels(labels, "calibrate"), weight
            )
            signed = self.calibration_.apply(signed)
        code = self.learn_cells(sensitive_features)
        rows = ScoredRows(signed, code, weight, labels, len(self.cells_))
        self.require_weight(code, weight, "fitted")
        self.base_rate_ = math.nan if labels is None else float(np.average(labels, weights=weight))
        fresh = rows
        if self._chooses():
            self._need_labels(labels, "width" if self.width is None else "rate")
            fresh = rows if validation is None else self._read_validation(validation)
        cut = self._find_cut(rows)
        facts = self._choose(rows, fresh, cut)
        h = self.rule_.probability(signed, code)
        rates = measure_rates(h, code, weight, rows.n_groups)
        counts = np.bincount(code, minlength=rows.n_groups)
        self.result_ = {**facts, "rates": rates.tolist(), "rows": counts.tolist()}
        return self

    def _find_cut(self, rows: ScoredRows) -> float:
        """Return the score from which on decision 1 pays, c: 0 for the accuracy."""
        if self.objective == "accuracy":
            return 0.0
        y, chance = self._need_labels(rows.y, "objective"), (1.0 + rows.signed) / 2.0
        cut = 2.0 * choose_cut(chance, y, rows.weight, self.objective) - 1.0
        return min(max(cut, -MOST_CUT), MOST_CUT)

    def _choose(self, rows: ScoredRows, fresh: ScoredRows, cut: float) -> dict[str, Any]:
        """Set rule, width, rate and candidates, and return the facts of the solution."""
        # A row without weight is on no curve.
        fitted, judging = (part.drop_weightless() for part in (rows, fresh))
        if self.rate is not None:
            centre, rates = float(self.rate), [self.rate]
        else:
            centre = self.base_rate_
            if self.objective != "accuracy":
                centre = float(np.average(rows.signed >= cut, weights=rows.weight))
            rates = list_rates(centre, self.rate_offsets)
        solution, self.rate_, self.candidates_ = choose(
            fitted.problem(),
            judging.labelled() if self._chooses() else None,
            widths=list(self.width_grid) if self.width is None else [self.width],
            rates=rates,
            budget=self.budget,
            centre=centre,
            objective=self.objective,
            cut=cut,
        )
        self.rule_ = solution.rule
        self.width_ = solution.rule.width
        return {
            "objective": solution.objective,
            "duality_gap": solution.gap,
            "converged": solution.converged,
            "binding": solution.binding.tolist(),
        }

    def probability(self, signed: np.ndarray, code: np.ndarray) -> np.ndarray:
        """Return h for scores f ∈ [−1, 1] and codes of ``cells_``, float64, (n_samples,)."""
        return np.asarray(self.rule_.probability(self._calibrate(signed), code))

    def describe_rule(self) -> FittedRule:
        """Return the rule with its rates on the fitted rows; ConfigError for calibrated scores."""
        if self.calibration_ is not None:
            raise ConfigError(
                "A rulebook holds thresholds on scores as they are, not those of calibrated "
                "scores.",
                "Fit without calibrate.",
            )
        return FittedRule(self.rule_, self.result_, self.budget, rate=self.rate_)

    def _chooses(self) -> bool:
        return self.width is None or self.rate is None

    def _calibrate(self, signed: np.ndarray) -> np.ndarray:
        return signed if self.calibration_ is None else self.calibration_.apply(signed)

    def _need_labels(self, labels: np.ndarray | None, purpose: str) -> np.ndarray:
        if labels is None:
            raise InputError(
                f"{self.name} requires y to be passed, but the target y is None: labels are needed "
                f"for {purpose!r}.",
                "Pass y, or give both width and rate, the objective accuracy and no calibrate.",
            )
        return labels

    def _read_validation(self, part: Part) -> ScoredRows:
        fresh = ScoredRows(
            self._calibrate(self.validate_rows(part.X)),
            self.encode(part.groups),
            np.asarray(part.weight, dtype=np.float64),
            self.encode_labels(part.y),
            len(self.cells_),
        )
        self.require_weight(fresh.code, fresh.weight, part.name)
        return fresh

    def get_state(self) -> State:
        """Return the rule, the cells, the candidates and how scores are calibrated."""
        arrays = {"cells": self.cells_, "candidates": self.candidates_.to_numpy()}
        calibration = self.calibration_
        if calibration is not None:
            arrays |= {"place": calibration.knots, "value": calibration.values}
        facts = {
            "rule": self.rule_.to_json(),
            "width": self.width_,
            "rate": self.rate_,
            "base_rate": None if math.isnan(self.base_rate_) else self.base_rate_,
            "result": self.result_,
            "columns": list(self.candidates_.columns),
            "calibrated": None if calibration is None else calibration.kind,
        }
        return State(arrays=arrays, facts=facts)

    def set_state(self, state: State) -> None:
        """Restore them."""
        arrays, facts = state.arrays, state.facts
        self.rule_ = ThresholdRule.from_json(facts["rule"])
        self.cells_ = arrays["cells"]
        self.width_ = facts["width"]
        self.rate_ = facts["rate"]
        self.base_rate_ = math.nan if facts["base_rate"] is None else facts["base_rate"]
        self.result_ = facts["result"]
        self.candidates_ = pd.DataFrame(arrays["candidates"], columns=facts["columns"])
        calibrated = facts["calibrated"]
        self.calibration_ = (
            None
            if calibrated is None
            else Calibration(calibrated, arrays["place"], arrays["value"])
        )


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str) and len(value) > 0
