"""What can be said of the rates of true groups when only noisy groups are seen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import combinations
from typing import Literal

import numpy as np
import pandas as pd

from fairfrontier.prepare.split import Part
from fairfrontier.runtime.errors import ConfigError, DataError, nearest
from fairfrontier.train.noisy.ambiguity import bound_rate_over_ball
from fairfrontier.train.noisy.assignment import bound_rates
from fairfrontier.train.noisy.noise import NoiseModel
from fairfrontier.train.noisy.rate import RATE_CELLS, RateCells, count_cells, find_rate, sum_cells
from fairfrontier.train.prediction import Prediction, task_of

Verdict = Literal["below", "above", "within", "open"]
RATES = tuple(RATE_CELLS)
# A difference this small is rounding.
ROUNDING = 1e-12


@dataclass(frozen=True)
class RateBound:
    """Where the rate of a true group lies.

    Attributes
    ----------
    measure : str
        The rate.
    group : str
        The true group; "" for all rows.
    bound : {"overall", "assignment", "ball", "theorem_1", "theorem_3"}
        What bounds it; see ``audit_decisions``.
    noise : {"", "model", "paper", "limit"}
        Which noise: the model's probabilities; lemma 1's level P(Ĝ≠j | G=j), where it is not the
        model's; or the confidence limits of an estimated model.
    level : float
        γ_j of a ball; NaN elsewhere.
    value : float
        The rate of the noisy group that stands for it.
    n : int
        Rows of that noisy group in the rate's denominator.
    low, high : float
        The bounds; NaN where the group may have no row of the denominator.
    guaranteed : bool
        Whether the true rate lies between them under the noise model, with the stated confidence
        for limits. Lemma 1's level is no bound of the total variation where its premise fails.
    """

    measure: str
    group: str
    bound: str
    noise: str
    level: float
    value: float
    n: int
    low: float
    high: float
    guaranteed: bool


@dataclass(frozen=True)
class Conclusion:
    """How the rate of a true group compares under every assignment that the noise model allows.

    Attributes
    ----------
    measure, group : str
    other : str
        The true group it is compared with; "" for all rows.
    noise : {"model", "limit"}
    low, high : float
        Range of the difference, group minus other: every value in it is reached by some assignment.
    verdict : {"below", "above", "within", "open"}
        What holds for all of them: lower by more than the margin, higher by more, equal up to the
        margin, or none of these. The margin is the budget α against all rows and 0 between groups.
    """

    measure: str
    group: str
    other: str
    noise: str
    low: float
    high: float
    verdict: Verdict


@dataclass(frozen=True)
class NoisyAudit:
    """Bounds and conclusions; ``tabulate_audit`` and ``tabulate_conclusions`` make tables."""

    bounds: tuple[RateBound, ...]
    conclusions: tuple[Conclusion, ...]


@dataclass(frozen=True, eq=False)
class _Rows:
    """The rows that are audited."""

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


def audit(
    prediction: Prediction,
    part: Part,
    noise: NoiseModel,
    *,
    attribute: str | None = None,
    rates: Sequence[str] = RATES,
    budget: float = 0.0,
    confidence: float = 0.95,
) -> NoisyAudit:
    """Audit a fitted model's decisions on a part whose groups are noisy.

    Parameters
    ----------
    prediction : Prediction
        Its decisions, whole or randomised.
    part : Part
        Labels, weights and noisy groups.
    noise : NoiseModel
        How they relate to the true groups; ``NoiseModel.from_table`` estimates one.
    attribute : str, optional
        The noisy attribute; needed when the part has several.
    rates, budget, confidence
        See ``audit_decisions``.

    Returns
    -------
    NoisyAudit

    Raises
    ------
    ConfigError
        When the part has no such attribute, or several and none is named.
    DataError
        When the label is not binary, or the part's groups are not the model's noisy groups.
    """
    if task_of(part) != "binary":
        raise DataError(
            f"{part.dataset} has no binary label, and rates are of decisions 0 and 1.",
            "Audit a dataset with two classes.",
        )
    name = _choose(attribute, part)
    levels = tuple(part.attributes[name])
    counted = tuple(str(code) for code in range(len(levels)))
    if noise.noisy_names not in (levels, counted):
        raise DataError(
            f"The noise model is about the noisy groups {', '.join(noise.noisy_names)}, and "
            f"{name!r} of {part.dataset}/{part.name} has {', '.join(levels)}.",
            "Give the noise model the same groups in the same order.",
        )
    names = levels if noise.names == counted else noise.names
    return audit_decisions(
        prediction.decision,
        part.y,
        part.group(name),
        noise,
        weight=part.weight,
        names=names,
        rates=rates,
        budget=budget,
        confidence=confidence,
    )


def audit_decisions(
    decision: np.ndarray,
    y: np.ndarray,
    codes: np.ndarray,
    noise: NoiseModel,
    *,
    weight: np.ndarray | None = None,
    names: Sequence[str] | None = None,
    rates: Sequence[str] = RATES,
    budget: float = 0.0,
    confidence: float = 0.95,
) -> NoisyAudit:
    """Bound the rates of true groups from decisions, labels and noisy groups.

    Five kinds of rows come out for each rate r and true group j, with Ĝ=k the noisy group that
    stands for j, γ_j a bound of TV(p_j, p̂_k), and D the rows of the rate's denominator:

    - ``overall``: the rate of all rows.
    - ``assignment``: min and max of r_j over W(θ), the soft assignments w(j | ŷ, y, k) that agree
      with P(G=j | Ĝ=k) (Kallus et al.). They use all of the noise model and are tight: with whole
      decisions and whole numbers n_k P(G=j | Ĝ=k), assignments of each row to one group reach them.
    - ``ball``: min and max of r_j over all p̃ with TV(p̃, p̂_k) ≤ γ_j on these rows.
    - ``theorem_1``: r̂_k ± γ_j / P(D | Ĝ=k), cut to [0, 1]: theorem 1, which bounds means by γ_j, in
      units of the rate. It holds the ball's bounds, and equals them for whole decisions as long as
      some row can take the mass.
    - ``theorem_3``: r̂_k ± s γ_j / P(D | Ĝ=k), cut to what decisions in D allow, with s the largest
      minus the smallest decision in D: theorem 3 with the metric c = s 1{(x, y) ≠ (x', y')}, in
      units of the rate. For whole decisions of both kinds s = 1, and it is theorem 1.

    Parameters
    ----------
    decision : ndarray of float64, shape (n,)
        Probability that the decision is 1; 0 and 1 for deterministic rules.
    y : ndarray of int, shape (n,)
        Labels 0 and 1.
    codes : ndarray of int, shape (n,)
        Noisy groups, codes of ``noise.noisy_names``.
    noise : NoiseModel
        The level used is the always valid one; lemma 1's level gets rows of its own where it
        differs, marked as to whether it is a bound. An estimated model gets rows with the
        confidence limits of its probabilities too.
    weight : ndarray of float64, shape (n,), optional
        Case weights ≥ 0.
    names : sequence of str, optional
        Names of the true groups in the result; ``noise.names`` by default.
    rates : sequence of str
        Of tpr, fpr, selection_rate and accuracy.
    budget : float
        α ≥ 0: margin of the comparisons with all rows.
    confidence : float
        Of each statement about a group or a pair of groups, where the model was estimated. The
        audited rows themselves are taken as the population: their own sampling error is not in it.

    Returns
    -------
    NoisyAudit

    Raises
    ------
    ConfigError
        When a rate is unknown, or the budget or confidence is out of range.
    DataError
        When arrays differ in length, a decision is no probability, a label is not 0 or 1, or a
        code is not one of the noisy groups.

    Notes
    -----
    O(n) for the cells, then O(1) for the assignments; a few passes over the rows for each ball.
    Randomised decisions count in cells by expectation; the coin may then depend on the true group
    in W(θ), which makes the bounds wide but never wrong. In a ball a row keeps its own probability.

    Theorem 3 replaces the total variation by a Wasserstein distance W_c for an h that is Lipschitz
    in a metric c on (x, y). Of h = 1{D} (a − ρ), with a the decision and ρ a candidate for the
    bound, nothing is known but its range, and the least metric in which it is Lipschitz whatever x
    is the discrete one times s; there W_c = s TV ≤ s γ_j. Other metrics would need a table that
    holds G and x, and an h that is smooth in x, which decisions are not: nothing is offered.

    References
    ----------
    S. Wang, W. Guo, H. Narasimhan, A. Cotter, M. Gupta, M. I. Jordan. Robust optimization for
    fairness with noisy protected groups. NeurIPS 2020, theorems 1 and 3, lemma 1, equation 5 and
    appendix A.2. N. Kallus, X. Mao, A. Zhou. Assessing algorithmic fairness with unobserved
    protected class using data combination. Management Science 68, 2022.
    """
    if not budget >= 0:
        raise ConfigError(f"The audit's budget is {budget}.", "Give 0 or more.")
    chosen = [find_rate(name) for name in rates]
    rows = _check(decision, y, codes, noise, weight)
    titles = tuple(noise.names if names is None else names)
    levels = {"model": noise.valid_level}
    posteriors: dict[str, tuple[np.ndarray, np.ndarray] | None] = {"model": None}
    if noise.counts is not None:
        levels["limit"] = noise.interval(confidence).valid_level_limit
        # A statement about two groups rests on a share of each in every noisy group.
        posteriors["limit"] = noise.interval(confidence, 2 * len(noise.noisy_names)).posterior
    bounds: list[RateBound] = []
    conclusions: list[Conclusion] = []
    for rate in chosen:
        total = rows.cells.sum(axis=0)
        among = float(sum_cells(total, rate.among))
        overall = float(sum_cells(total, rate.good)) / among if among > 0 else np.nan
        counted = int(rows.outcome(rate)[1].sum())
        bounds.append(
            RateBound(
                rate.name, "", "overall", "", np.nan, overall, counted, overall, overall, True
            )
        )
        ranges = {
            kind: bound_rates(rows.cells, noise.posterior, rate, limits)
            for kind, limits in posteriors.items()
        }
        bounds.extend(_bound(rate, rows, noise, levels, titles, ranges))
        for kind, (low, high) in ranges.items():
            conclusions.extend(_conclude(rate.name, kind, low, high, overall, titles, budget))
    return NoisyAudit(tuple(bounds), tuple(conclusions))


def tabulate_audit(audited: NoisyAudit) -> pd.DataFrame:
    """Return the bounds as a table, one row each.

    Columns measure, group, bound, noise, level, value, n, low, high, guaranteed: see ``RateBound``.
    """
    return pd.DataFrame([asdict(each) for each in audited.bounds])


def tabulate_conclusions(audited: NoisyAudit) -> pd.DataFrame:
    """Return the conclusions as a table, one row each.

    Columns measure, group, other, noise, low, high, verdict: see ``Conclusion``.
    """
    return pd.DataFrame([asdict(each) for each in audited.conclusions])


def tabulate_noise(noise: NoiseModel, confidence: float = 0.95) -> pd.DataFrame:
    """Return what the noise model says of each true group, with limits where it was estimated.

    Columns group, centre (the noisy group that stands for it), share P(G=j), noisy_share, level γ_j
    of lemma 1 with low and high, premise (whether P(G=j) = P(Ĝ=j)), level_holds (whether γ_j bounds
    the total variation), valid_level and its one-sided upper limit. NaN without an auxiliary table.
    """
    m = len(noise.names)
    nan = np.full(m, np.nan)
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
    levels: dict[str, np.ndarray],
    names: tuple[str, ...],
    ranges: dict[str, tuple[np.ndarray, np.ndarray]],
) -> Iterator[RateBound]:
    """Yield the bounds of one rate for every true group."""
    outcome, among = rows.outcome(rate)
    offered = outcome[among & (rows.weight > 0)]
    for j, (name, k) in enumerate(zip(names, noise.centre, strict=True)):
        own = rows.codes == k
        n = int((own & among).sum())
        mass, part = float(rows.weight[own].sum()), float(rows.weight[own & among].sum())
        value = float(rows.weight[own & among] @ outcome[own & among]) / part if part else np.nan

        row = partial(RateBound, measure=rate.name, group=name, value=value, n=n)
        for kind, (low, high) in ranges.items():
            low_j, high_j = float(low[j]), float(high[j])
            yield row(
                bound="assignment",
                noise=kind,
                level=np.nan,
                low=low_j,
                high=high_j,
                guaranteed=True,
            )
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
            for bound, (low_j, high_j) in limits.items():
                yield row(
                    bound=bound, noise=kind, level=level, low=low_j, high=high_j, guaranteed=holds
                )


def _conclude(
    measure: str,
    kind: str,
    low: np.ndarray,
    high: np.ndarray,
    overall: float,
    names: tuple[str, ...],
    budget: float,
) -> Iterator[Conclusion]:
    """Yield the comparisons of every group with all rows, and of every pair of groups."""
    for j, name in enumerate(names):
        below, above = float(low[j] - overall), float(high[j] - overall)
        yield Conclusion(measure, name, "", kind, below, above, judge(below, above, budget))
    for i, j in combinations(range(len(names)), 2):
        # Opposite extremes of two groups are reached by one assignment, see ``bound_rates``.
        below, above = float(low[i] - high[j]), float(high[i] - low[j])
        verdict = judge(below, above, 0.0)
        yield Conclusion(measure, names[i], names[j], kind, below, above, verdict)


def judge(low: float, high: float, margin: float) -> Verdict:
    """Return what holds for every difference between low and high; NaN leaves it open."""
    if high < -margin - ROUNDING:
        return "below"
    if low > margin + ROUNDING:
        return "above"
    if low >= -margin - ROUNDING and high <= margin + ROUNDING:
        return "within"
    return "open"


def _choose(attribute: str | None, part: Part) -> str:
    known = list(part.attributes)
    if attribute is None and len(known) == 1:
        return known[0]
    if attribute is None or attribute not in known:
        raise ConfigError(
            f"{part.dataset} has no single noisy attribute to audit."
            if attribute is None
            else f"{part.dataset} has no group attribute {attribute!r}.",
            nearest(attribute or "", known),
        )
    return attribute


def _check(
    decision: np.ndarray,
    y: np.ndarray,
    codes: np.ndarray,
    noise: NoiseModel,
    weight: np.ndarray | None,
) -> _Rows:
    """Return the rows, or say what is wrong with them."""
    decision, y, codes = np.asarray(decision, dtype=np.float64), np.asarray(y), np.asarray(codes)
    mass = np.ones(y.shape) if weight is None else np.asarray(weight, dtype=np.float64)
    if y.ndim != 1 or {decision.shape, codes.shape, mass.shape} != {y.shape} or not y.size:
        raise DataError(
            f"There are {decision.size} decisions, {y.size} labels, {codes.size} groups and "
            f"{mass.size} weights.",
            "Give one of each for every row, and at least one row.",
        )
    if not ((decision >= 0) & (decision <= 1)).all():
        raise DataError(
            "A decision lies outside 0 to 1 or is missing.",
            "Give 0 or 1, or the probability that the decision is 1.",
        )
    if not np.isin(y, (0, 1)).all():
        raise DataError("A label is neither 0 nor 1.", "Give 1 for the positive class.")
    if not np.isin(codes, np.arange(len(noise.noisy_names))).all():
        raise DataError(
            f"A group code lies outside 0 to {len(noise.noisy_names) - 1}, the noisy groups of the "
            "noise model.",
            "Give codes in the order of its noisy groups.",
        )
    if not (mass >= 0).all() or not mass.sum() > 0:
        raise DataError("A weight is negative, or all are 0.", "Give weights of 0 or more.")
    y, codes = y.astype(np.int64), codes.astype(np.int64)
    cells = count_cells(decision, y, codes, len(noise.noisy_names), mass)
    return _Rows(decision, y, codes, mass, np.asarray(cells))
