"""What can be said of the rates of true groups when only noisy groups are seen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from fairfrontier.models.noisy.assignment import bound_rates
from fairfrontier.models.noisy.noise import NoiseModel, bound_rate_over_ball
from fairfrontier.models.noisy.rate import RATE_CELLS, RateCells, count_cells, find_rate, sum_cells

Verdict = Literal["below", "above", "within", "open"]
RATES = tuple(RATE_CELLS)
# A difference this small is rounding.
ROUNDING = 1e-12
KEYS = ["measure", "group"]
BOUND_COLUMNS = [*KEYS, "bound", "noise", "level", "value", "n", "low", "high", "guaranteed"]
CONCLUSION_COLUMNS = [*KEYS, "other", "noise", "low", "high", "verdict"]
Limits = tuple[np.ndarray, np.ndarray]


class NoisyAudit(NamedTuple):
    """What is known of the rates of true groups.

    Attributes
    ----------
    bounds : DataFrame
        Where the rate ``measure`` of a true ``group`` ("" for all rows) lies: ``low`` and ``high``,
        NaN where the group may have no row of the denominator. ``bound`` is what bounds it, see
        `audit_decisions`. ``noise`` is "model" for the model's probabilities, "paper" for lemma 1's
        level P(Ĝ≠j | G=j) where it is not the model's, "limit" for the confidence limits of an
        estimated model. ``level`` is γ_j, NaN but for balls; ``value`` the rate of the noisy group
        that represents it, and ``n`` its rows in the denominator. ``guaranteed`` says whether the
        true rate lies within the bounds under the noise model, for limits with the stated
        confidence: lemma 1's level does not bound the total variation where its premise fails.
    conclusions : DataFrame
        ``low`` and ``high`` of the difference between the rates ``measure`` of a true ``group`` and
        of the ``other`` one ("" for all rows) over all assignments that ``noise`` ("model" or
        "limit") allows; every value between is attained by one. ``verdict`` is what holds for all
        of them: below or above by more than the margin, within it, or open. The margin is the
        budget α against all rows, and 0 between groups.
    """

    bounds: pd.DataFrame
    conclusions: pd.DataFrame


@dataclass(frozen=True, eq=False)
class _Rows:
    """The rows that are audited, and their cells: shape (n_noisy_groups, 4)."""

    decision: np.ndarray
    y: np.ndarray
    codes: np.ndarray
    weight: np.ndarray
    cells: np.ndarray

    def outcome(self, rate: RateCells) -> tuple[np.ndarray, np.ndarray]:
        """Return how much each row counts in the numerator, and whether in the denominator."""
        good = np.array([[float(2 * d + y in rate.good) for d in (0, 1)] for y in (0, 1)])
        among = np.array([y in {cell % 2 for cell in rate.among} for y in (0, 1)])
        value = good[self.y, 0] * (1 - self.decision) + good[self.y, 1] * self.decision
        return value, among[self.y]


def audit_decisions(
    decision: np.ndarray,
    y: np.ndarray,
    codes: np.ndarray,
    noise: NoiseModel,
    *,
    weight: np.ndarray | None = None,
    rates: Sequence[str] = RATES,
    budget: float = 0.0,
    confidence: float = 0.95,
) -> NoisyAudit:
    """Bound the rates of true groups from decisions, labels and noisy groups.

    There are five kinds of bounds of each rate r and true group j, with Ĝ=k the noisy group that
    represents j, γ_j a bound of TV(p_j, p̂_k), and D the rows of the rate's denominator:

    - ``overall``: the rate of all rows.
    - ``assignment``: min and max of r_j over W(θ), the soft assignments w(j | ŷ, y, k) that agree
      with P(G=j | Ĝ=k) (Kallus et al.). They use all of the noise model and are tight: with
      deterministic decisions and integers n_k P(G=j | Ĝ=k), assignments of each row to one group
      attain them.
    - ``ball``: min and max of r_j over all p̃ with TV(p̃, p̂_k) ≤ γ_j on these rows.
    - ``theorem_1``: r̂_k ± γ_j / P(D | Ĝ=k), cut to [0, 1]: theorem 1, which bounds means by γ_j, in
      units of the rate. It contains the ball's bounds, and equals them for deterministic decisions
      as long as some row can take the mass.
    - ``theorem_3``: r̂_k ± s γ_j / P(D | Ĝ=k), cut to what decisions in D allow, with s the largest
      minus the smallest decision in D: theorem 3 with the metric c = s 1{(x, y) ≠ (x', y')}, in
      units of the rate. With both deterministic decisions s = 1, and it is theorem 1.

    Parameters
    ----------
    decision : ndarray of float64, shape (n,)
        Probability that the decision is 1; 0 and 1 for deterministic rules.
    y : ndarray of int, shape (n,)
        Labels 0 and 1.
    codes : ndarray of int, shape (n,)
        Noisy groups, codes of ``noise.noisy_names``.
    noise : NoiseModel
        Its always valid level is used. Lemma 1's level gets separate rows where it differs, and an
        estimated model further rows for the confidence limits of its probabilities.
    weight : ndarray of float64, shape (n,), optional
        Case weights ≥ 0.
    rates : sequence of str
        Of tpr, fpr, selection_rate and accuracy.
    budget : float
        α ≥ 0: margin of the comparisons with all rows.
    confidence : float
        Of each statement about a group or a pair of groups, where the model was estimated. The
        audited rows are taken as the population: their sampling error is not included.

    Raises
    ------
    ConfigError
        When a rate is unknown.

    Notes
    -----
    O(n) for the cells, then O(1) for the assignments; a few passes over the rows for each ball.
    Randomised decisions count in cells by expectation; the coin may then depend on the true group
    in W(θ), so that the bounds are wide but valid. In a ball a row keeps its probability.

    Theorem 3 replaces the total variation by a Wasserstein distance W_c for an h that is Lipschitz
    in a metric c on (x, y). Of h = 1{D} (a − ρ), with a the decision and ρ a candidate for the
    bound, only the range is known, and the least metric in which it is Lipschitz whatever x
    is the discrete one times s, for which W_c = s TV ≤ s γ_j. Other metrics would need a table with
    G and x, and an h that is smooth in x, which decisions are not.

    References
    ----------
    S. Wang, W. Guo, H. Narasimhan, A. Cotter, M. Gupta, M. I. Jordan. Robust optimization for
    fairness with noisy protected groups. NeurIPS 2020, theorems 1 and 3, lemma 1, equation 5 and
    appendix A.2. N. Kallus, X. Mao, A. Zhou. Assessing algorithmic fairness with unobserved
    protected class using data combination. Management Science 68, 2022.
    """
    chosen = [find_rate(name) for name in rates]
    mass = np.ones(y.shape) if weight is None else weight
    cells = count_cells(decision, y, codes, len(noise.noisy_names), mass)
    rows = _Rows(decision, y, codes, mass, np.asarray(cells))
    levels = {"model": noise.valid_level}
    posteriors: dict[str, Limits | None] = {"model": None}
    if noise.counts is not None:
        levels["limit"] = noise.interval(confidence).valid_level_limit
        # A statement about two groups depends on a share of each in every noisy group.
        posteriors["limit"] = noise.interval(confidence, 2 * len(noise.noisy_names)).posterior
    bounds: list[tuple[Any, ...]] = []
    conclusions: list[tuple[Any, ...]] = []
    total = rows.cells.sum(axis=0)
    for rate in chosen:
        among = float(sum_cells(total, rate.among))
        overall = float(sum_cells(total, rate.good)) / among if among > 0 else np.nan
        n = int(rows.outcome(rate)[1].sum())
        bounds.append((rate.name, "", "overall", "", np.nan, overall, n, overall, overall, True))
        ranges = {
            kind: bound_rates(rows.cells, noise.posterior, rate, limits)
            for kind, limits in posteriors.items()
        }
        bounds.extend(_bound(rate, rows, noise, levels, ranges))
        for kind, (low, high) in ranges.items():
            conclusions.extend(_compare(rate.name, kind, low, high, overall, noise.names, budget))
    return NoisyAudit(
        pd.DataFrame(bounds, columns=BOUND_COLUMNS),
        pd.DataFrame(conclusions, columns=CONCLUSION_COLUMNS),
    )


def tabulate_noise(noise: NoiseModel, confidence: float = 0.95) -> pd.DataFrame:
    """Return a noise model as a table, a row for each true group, with limits if it was estimated.

    Columns group, centre (the noisy group that represents it), share P(G=j), noisy_share, level γ_j
    of lemma 1 with low and high, premise (whether P(G=j) = P(Ĝ=j)), level_holds (whether γ_j bounds
    the total variation), valid_level and its one-sided upper limit. NaN without an auxiliary table.
    """
    nan = np.full(len(noise.names), np.nan)
    centre = list(noise.centre)
    interval = noise.interval(confidence) if noise.counts is not None else None
    return pd.DataFrame(
        {
            "group": noise.names,
            "centre": [noise.noisy_names[k] for k in centre],
            "share": noise.prior,
            "noisy_share": noise.noisy_prior[centre],
            "level": noise.level,
            "low": nan if interval is None else interval.level[0],
            "high": nan if interval is None else interval.level[1],
            "premise": noise.premise,
            "level_holds": noise.level_holds,
            "valid_level": noise.valid_level,
            "valid_level_limit": nan if interval is None else interval.valid_level_limit,
        }
    )


def _bound(
    rate: RateCells,
    rows: _Rows,
    noise: NoiseModel,
    levels: Mapping[str, np.ndarray],
    ranges: Mapping[str, Limits],
) -> Iterator[tuple[Any, ...]]:
    """Yield the bounds of one rate for every true group."""
    outcome, among = rows.outcome(rate)
    offered = outcome[among & (rows.weight > 0)]
    for j, (name, k) in enumerate(zip(noise.names, noise.centre, strict=True)):
        own = rows.codes == k
        mass, part = float(rows.weight[own].sum()), float(rows.weight[own & among].sum())
        value = float(rows.weight[own & among] @ outcome[own & among]) / part if part else np.nan
        n = int((own & among).sum())
        for kind, (low, high) in ranges.items():
            ends = (float(low[j]), float(high[j]))
            yield (rate.name, name, "assignment", kind, np.nan, value, n, *ends, True)
        used = {kind: (float(level[j]), True) for kind, level in levels.items()}
        if abs(noise.level[j] - noise.valid_level[j]) > ROUNDING:
            used["paper"] = (float(noise.level[j]), bool(noise.level_holds[j]))
        for kind, (level, holds) in used.items():
            limits = dict.fromkeys(("ball", "theorem_1", "theorem_3"), (np.nan, np.nan))
            if mass > 0:
                least, most = bound_rate_over_ball(
                    outcome, among, rows.codes, np.array([level]), weight=rows.weight, centre=(k,)
                )
                limits["ball"] = (float(least[0]), float(most[0]))
            if part > 0:
                reach = level * mass / part
                limits["theorem_1"] = (max(0.0, value - reach), min(1.0, value + reach))
                least, most = float(offered.min()), float(offered.max())
                reach *= most - least
                limits["theorem_3"] = (max(least, value - reach), min(most, value + reach))
            for bound, ends in limits.items():
                yield (rate.name, name, bound, kind, level, value, n, *ends, holds)


def _compare(
    measure: str,
    kind: str,
    low: np.ndarray,
    high: np.ndarray,
    overall: float,
    names: tuple[str, ...],
    budget: float,
) -> Iterator[tuple[Any, ...]]:
    """Yield the comparisons of every group with all rows, and of every pair of groups."""
    for j, name in enumerate(names):
        below, above = float(low[j] - overall), float(high[j] - overall)
        yield (measure, name, "", kind, below, above, judge(below, above, budget))
    for i, j in combinations(range(len(names)), 2):
        # One assignment attains opposite extremes of two groups, see `bound_rates`.
        below, above = float(low[i] - high[j]), float(high[i] - low[j])
        yield (measure, names[i], names[j], kind, below, above, judge(below, above, 0.0))


def judge(low: float, high: float, margin: float) -> Verdict:
    """Return what holds for every difference between low and high; "open" if they are NaN."""
    if high < -margin - ROUNDING:
        return "below"
    if low > margin + ROUNDING:
        return "above"
    if low >= -margin - ROUNDING and high <= margin + ROUNDING:
        return "within"
    return "open"
