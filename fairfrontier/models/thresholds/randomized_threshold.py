"""Randomised thresholds by group: near-optimal debiasing of a trained model's scores.

Width and rate are chosen from the paper's grid; ε is traced.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Self, cast, get_args

import numpy as np
import pandas as pd

from fairfrontier.models.base import training_weight
from fairfrontier.models.group import Attributes, find_columns, read_groups
from fairfrontier.models.objective import Objective, choose_cut
from fairfrontier.models.persistence import State
from fairfrontier.models.registry import method
from fairfrontier.models.thresholds.base import PostProcessor, is_number
from fairfrontier.models.thresholds.calibration import KINDS, Calibration, Kind, fit_calibration
from fairfrontier.models.thresholds.curve import Objective as Served
from fairfrontier.models.thresholds.curve import weigh_objective
from fairfrontier.models.thresholds.ramp import (
    ACCURACY,
    Criterion,
    Lines,
    Rate,
    Solution,
    as_lines,
    draw_lines,
    judge_lines,
    propose_rates,
    solve,
    solve_exact,
)
from fairfrontier.models.thresholds.rule import (
    FittedRule,
    RampRule,
    Scale,
    ThresholdRule,
    measure_rates,
)
from fairfrontier.models.thresholds.sample import ScoredRows
from fairfrontier.models.thresholds.threshold import BINS, ThresholdProblem
from fairfrontier.prepare.split import Part, Split
from fairfrontier.runtime.errors import ConfigError, InputError

# The candidates' columns of rates.
NAMES: dict[Criterion, list[str]] = {
    "parity": ["rate"],
    "covariance": [],
    "equal_opportunity": ["rate"],
    "equalized_odds": ["tpr", "fpr"],
}

# γ ∈ {.01, .02, .05, .1, .2, …, 1} and ρ ∈ E[y] + {−.1, −.05, 0, .05, .1} (section 5).
WIDTHS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
RATE_OFFSETS = (-0.1, -0.05, 0.0, 0.05, 0.1)
# Accuracies that agree to this precision are equal: rounding must not decide.
DECIMALS = 9


def list_rates(base_rate: float, offsets: Sequence[float] = RATE_OFFSETS) -> list[float]:
    """Return the distinct values of ``base_rate`` + ``offsets``, cut to [0, 1], ascending."""
    shifted = np.clip(base_rate + np.asarray(offsets, dtype=np.float64), 0.0, 1.0)
    return [float(rate) for rate in np.unique(shifted)]


def choose_best(
    widths: np.ndarray,
    rates: np.ndarray,
    accuracy: np.ndarray,
    centre: float,
    met: np.ndarray | None = None,
) -> int:
    """Return the position of the most accurate candidate; all arrays have shape (n_candidates,).

    Among accuracies equal to nine decimals it is the smallest width, which draws least, then the
    rate nearest to ``centre``, then the lowest rate. Candidates that meet their criterion, by
    ``met``, come before all others.
    """
    unmet = np.zeros(len(widths)) if met is None else ~met
    apart = np.round(np.abs(rates - centre), DECIMALS)
    keys = (rates, apart, widths, -np.round(accuracy, DECIMALS), unmet)
    return int(np.lexsort(keys)[0])


def choose(
    problem: ThresholdProblem,
    labelled: ThresholdProblem | None,
    criterion: Criterion = "parity",
    *,
    widths: Sequence[float],
    rates: Sequence[Any],
    budget: float,
    centre: float | None = None,
    objective: Objective = "accuracy",
    cut: float = 0.0,
    merged: np.ndarray | None = None,
) -> tuple[Solution, Any, pd.DataFrame]:
    """Solve every pair of a width and a rate, and return the best by an objective with its rate.

    All candidates come from one sort. ``labelled`` has the rows that judge, by codes 2 k + y; None
    where there is one pair only. The frame lists the candidates' width, rates, accuracy (else
    objective) and gap; it is empty without a choice. See `choose_best` for ties: ``centre`` is by
    default the first rate, of two the second. For covariance ``merged`` has the code of every cell
    in the problem, and the solution's rule and rates are by cell.
    """
    tried = [(width, rate) for width in widths for rate in rates]
    width = np.array([pair[0] for pair in tried])
    judged = "accuracy" if objective == "accuracy" else "objective"
    columns = np.array([0.0 if pair[1] is None else pair[1] for pair in tried], dtype=np.float64)
    columns = columns.reshape(len(tried), -1)
    table = {"width": width, **dict(zip(NAMES[criterion], columns.T, strict=False))}
    best, lines = 0, None
    if len(tried) > 1 and labelled is not None:
        drawn = draw_lines(problem, criterion, width, columns, budget, cut)
        by_cell = drawn if merged is None else [drawn[code] for code in merged.tolist()]
        table[judged], table["gap"] = judge_lines(
            labelled, by_cell, weigh_labels(objective, labelled)
        )
        met = np.max([line.relaxed for line in drawn], axis=0) <= ACCURACY
        nearest = float(columns[0, -1]) if centre is None else centre
        best = choose_best(width, columns[:, -1], table[judged], nearest, met)
        lines = [Lines(*(each[[best]] for each in line)) for line in drawn]
    else:
        table = {name: np.zeros(0) for name in (*table, judged, "gap")}
    own, rate = tried[best]
    solution = solve(problem, criterion, own, rate, budget, cut, lines=lines)
    if merged is not None:
        rule = solution.rule
        by_code = RampRule(rule.centre[merged], rule.level[merged], rule.slope[merged])
        solution = replace(solution, rule=by_code, rate=solution.rate[merged])
    return solution, rate, pd.DataFrame(table)


def cross_subgroups(cells: np.ndarray) -> np.ndarray:
    """Return 2 · subgroup + member of every cell.

    ``cells``, (n_cells, n_attributes), have the members of S as 1 in their first column, and the
    subgroups in the others.
    """
    subgroup = np.zeros(len(cells), dtype=np.int64)
    if cells.shape[1] > 1:
        subgroup = np.unique(cells[:, 1:], axis=0, return_inverse=True)[1].reshape(-1)
    return 2 * subgroup + (cells[:, 0] > 0)


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


Solver = Literal["exact", "histogram"]
CRITERIA: tuple[Criterion, ...] = get_args(Criterion)
SOLVERS: tuple[Solver, ...] = get_args(Solver)
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
    criterion : {"parity", "covariance", "equal_opportunity", "equalized_odds"}
        What is equal over the groups: the rate of decision 1, as above; the covariance of decision
        and group inside every subgroup (``attributes`` is then one attribute of two levels); and,
        our additions, which rely on calibrated scores, the true positive rate, or the true and the
        false positive rate (with widths above 0). See `ramp`.
    within : int, list of int or None
        Columns whose cross product makes the subgroups of ``covariance``; None for one subgroup.
    budget : float
        ε ≥ 0: width of the interval that rates may lie in; for ``covariance`` its bound.
    width : float or None
        γ: 0 for a threshold with a coin at it, else at least 1e-6. None chooses.
    rate : float, pair of float, or None
        ρ: the rate of decision 1; under ``equal_opportunity`` the true positive rate, under
        ``equalized_odds`` the true and the false positive rate; ``covariance`` has none. None
        chooses.
    width_grid : sequence of float
        Widths to choose from; the paper's by default.
    rate_offsets : sequence of float
        Rates to choose from under parity, as differences from E[y] on the fitted rows, or with
        another objective than accuracy from E[1{f ≥ c}], cut to [0, 1]. The criteria on error
        rates choose from those of `ramp.propose_rates`.
    solver : {"exact", "histogram"}
        One sort; or counts in bins, for parity and widths above 0.
    bins : int
        Of ``histogram``: thresholds err by 1/bins at most, rates by 1/(bins · width).
    calibrate : {"isotonic", "sigmoid"} or None
        Calibrate the scores on the fitted rows first, which needs y.
    random_state : int
        Seed of the decisions that ``predict`` draws.

    Attributes
    ----------
    rule_ : ThresholdRule or RampRule
        h by code of ``cells_``.
    width_, rate_ : float
        γ and ρ, as given or chosen; ``rate_`` is a pair for equalised odds, None for covariance.
    base_rate_ : float
        E[y] on the fitted rows; NaN without y.
    cells_ : ndarray of int64, shape (n_cells, n_attributes)
        The groups; for covariance the attribute and then those of ``within``.
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
    smallest width, then the rate nearest to E[y] or E[1{f ≥ c}] (to the first of those proposed),
    then the lowest. Candidates that violate a criterion on error rates come last. With the
    objective accuracy and without a choice y is not needed.

    The guarantee holds on the fitted rows. On others rates differ by sampling error, and under the
    criteria on error rates also by that of the scores.

    References
    ----------
    I. Alabdulmohsin, M. Lucic. A near-optimal algorithm for debiasing trained machine learning
    models. NeurIPS 2021.
    """

    randomized: ClassVar[bool] = True
    # Of descents, which are now in the papers.
    retired: ClassVar[frozenset[str]] = frozenset({"batch_size", "learning_rate", "steps"})
    group_parameters: ClassVar[tuple[str, ...]] = ("attributes", "within")
    paper: ClassVar[str] = "Alabdulmohsin and Lucic, A near-optimal algorithm, NeurIPS 2021"
    example: ClassVar[Mapping[str, Any]] = {
        "attributes": 0,
        "width_grid": [0.1, 0.5],
        "rate_offsets": [-0.05, 0.0, 0.05],
    }

    rule_: ThresholdRule | RampRule = field(init=False)
    width_: float = field(init=False)
    rate_: Rate = field(init=False)
    base_rate_: float = field(init=False)
    result_: dict[str, Any] = field(init=False)
    candidates_: pd.DataFrame = field(init=False)
    calibration_: Calibration | None = field(init=False)

    attributes: Attributes = None
    objective: Objective = "accuracy"
    criterion: Criterion = "parity"
    within: Attributes = None
    budget: float = 0.0
    width: float | None = None
    rate: float | Sequence[float] | None = None
    width_grid: Sequence[float] = WIDTHS
    rate_offsets: Sequence[float] = RATE_OFFSETS
    solver: Solver = "exact"
    bins: int = BINS
    scale: Scale | None = "probability"
    calibrate: Kind | None = None
    random_state: int = 0

    def check(self) -> None:
        """Raise ConfigError for invalid parameters."""
        super().check()
        parity = self.criterion == "parity"
        self.check_objective()
        self.require("criterion", self.criterion in CRITERIA, f"one of {', '.join(CRITERIA)}")
        self.require("solver", self.solver in SOLVERS, f"one of {', '.join(SOLVERS)}")
        self.require("solver", parity or self.solver == "exact", "exact with this criterion")
        limit = self.solver == "exact" and self.criterion != "equalized_odds"
        wanted = "0, or a number from 1e-6" if limit else "a number from 1e-6"

        def is_width(value: Any) -> bool:
            return is_number(value) and (value >= LEAST_WIDTH or (value == 0 and limit))

        self.require("width", self.width is None or is_width(self.width), f"{wanted}, or null")
        grid = _is_list(self.width_grid) and all(map(is_width, self.width_grid))
        self.require("width_grid", grid, f"a list of at least one width, {wanted}")
        offsets = _is_list(self.rate_offsets) and all(map(is_number, self.rate_offsets))
        self.require("rate_offsets", offsets, "a list of at least one number")
        self.require("budget", is_number(self.budget) and self.budget >= 0, "a number from 0")
        self.require("rate", self.rate is None or self._takes_rate(), self._wanted_rate())
        covariance = self.criterion == "covariance"
        self.require("within", covariance or self.within is None, "null without covariance")
        whole = isinstance(self.bins, int) and not isinstance(self.bins, bool) and self.bins >= 1
        self.require("bins", whole, "a whole number from 1")
        self.require("calibrate", self.calibrate in (None, *KINDS), "isotonic, sigmoid or null")

    def supports(self, split: Split) -> str | None:
        """Return why it cannot be fitted on ``split``, or None when it can."""
        reason = super().supports(split)
        if reason is not None or self.criterion != "covariance":
            return reason
        column = int(self.cross(np.arange(len(split.train.attributes))[None, :])[0, 0])
        attribute, levels = list(split.train.attributes.items())[column]
        if len(levels) > 2:
            return (
                f"{self.name} bounds the covariance with an attribute of two levels, and "
                f"{attribute} has {len(levels)}."
            )
        return None

    def _takes_rate(self) -> bool:
        rate: Any = self.rate
        if self.criterion == "equalized_odds":
            return _is_list(rate) and len(rate) == 2 and all(map(_is_rate, rate))
        return self.criterion != "covariance" and _is_rate(rate)

    def _wanted_rate(self) -> str:
        if self.criterion == "covariance":
            return "null: covariance has no rate"
        if self.criterion == "equalized_odds":
            return "the true and the false positive rate as a list of two numbers, or null"
        return "a number from 0 to 1, or null"

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
        if self.criterion == "covariance" and self.cells_[:, 0].max(initial=0) > 1:
            raise ConfigError(
                f"{self.name} cannot bound the covariance with an attribute of more than two "
                "levels.",
                "Choose an attribute of two, or the criterion parity, which takes any number.",
            )
        self.require_weight(code, weight, "fitted")
        self.base_rate_ = math.nan if labels is None else float(np.average(labels, weights=weight))
        fresh = rows
        if self._chooses():
            self._need_labels(labels, "width" if self.width is None else "rate")
            fresh = rows if validation is None else self._read_validation(validation)
        cut = self._find_cut(rows)
        facts = self._choose(rows, fresh, cut)
        if "rates" not in facts:
            # Of bins or of a descent.
            h = self.rule_.probability(signed, code)
            facts |= {"rates": measure_rates(h, code, weight, rows.n_groups).tolist()}
        counts = np.bincount(code, minlength=rows.n_groups)
        self.result_ = {**facts, "rows": counts.tolist()}
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
        fixed: Any = tuple(self.rate) if isinstance(self.rate, Sequence) else self.rate
        merged, centre = None, None
        binned = self.solver == "histogram"
        # A row without weight is on no curve.
        fitted, judging = (
            part.count(self.bins) if binned else part.drop_weightless() for part in (rows, fresh)
        )
        if self.criterion == "covariance":
            merged = cross_subgroups(self.cells_)
        problem = fitted.problem(merged)
        rates: list[Any] = [fixed]
        if self.criterion == "parity":
            centre = self.base_rate_ if fixed is None else fixed
            if fixed is None and self.objective != "accuracy":
                centre = float(np.average(rows.signed >= cut, weights=rows.weight))
            rates = list_rates(centre, self.rate_offsets) if fixed is None else [fixed]
        elif fixed is None and self.criterion != "covariance":
            proposed = propose_rates(problem, self.criterion, cut=cut).tolist()
            rates = [tuple(row) if isinstance(row, list) else row for row in proposed]
        solution, self.rate_, self.candidates_ = choose(
            problem,
            judging.labelled() if self._chooses() else None,
            self.criterion,
            widths=list(self.width_grid) if self.width is None else [self.width],
            rates=rates,
            budget=self.budget,
            centre=centre,
            objective=self.objective,
            cut=cut,
            merged=merged,
        )
        self.rule_ = solution.rule
        self.width_ = solution.width
        return solution.describe()

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
        return FittedRule(self.rule_, self.result_, self.budget, self.criterion, self.rate_)

    def cross(self, groups: np.ndarray) -> np.ndarray:
        """Return the columns of ``groups`` whose cross product makes the groups."""
        if self.criterion != "covariance":
            return super().cross(groups)
        matrix = read_groups(groups)
        named = groups if groups.ndim == 2 else matrix
        within = [] if self.within is None else find_columns(named, self.within)
        chosen = [column for column in range(matrix.shape[1]) if column not in within]
        if self.attributes is not None:
            chosen = find_columns(named, self.attributes)
        if len(chosen) != 1:
            raise ConfigError(
                f"{self.name} cannot bound the covariance with the attributes {chosen} within "
                f"{within}, of {matrix.shape[1]} columns of sensitive features.",
                "Name one column in attributes, and others in within.",
            )
        return matrix[:, chosen + within]

    def _chooses(self) -> bool:
        return self.width is None or (self.rate is None and self.criterion != "covariance")

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
        kind = ThresholdRule if "thresholds" in facts["rule"] else RampRule
        self.rule_ = kind.from_json(facts["rule"])
        self.cells_ = arrays["cells"]
        self.width_ = facts["width"]
        rate = facts["rate"]
        self.rate_ = (rate[0], rate[1]) if isinstance(rate, list) else rate
        self.base_rate_ = math.nan if facts["base_rate"] is None else facts["base_rate"]
        self.result_ = facts["result"]
        self.candidates_ = pd.DataFrame(arrays["candidates"], columns=facts["columns"])
        calibrated = facts["calibrated"]
        self.calibration_ = (
            None
            if calibrated is None
            else Calibration(calibrated, arrays["place"], arrays["value"])
        )


def _is_rate(value: Any) -> bool:
    return is_number(value) and 0 <= value <= 1


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str) and len(value) > 0
