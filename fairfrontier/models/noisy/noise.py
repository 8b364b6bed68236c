"""Models of noisy groups: P(Ĝ | G), P(G | Ĝ), what they imply, and estimates of them.

The worst distribution of a group within a total variation ball around its noisy rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import array_api_compat
import numpy as np
from scipy.special import betaincinv

from fairfrontier.models.noisy.rate import RateCells, sum_cells
from fairfrontier.runtime.arrays import array_namespace
from fairfrontier.runtime.errors import ConfigError, DataError

ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class NoiseInterval:
    """Clopper and Pearson's limits of an estimated noise model, each ndarray of float64.

    ``posterior`` holds low and high limits of P(G=j | Ĝ=k), shape (m̂, m), ``level`` those of γ_j =
    P(Ĝ≠j | G=j), shape (m,). ``valid_level_limit``, shape (m,), is a one-sided upper limit of the
    always valid level: the larger of the limits of two shares, as only that of the larger share has
    to hold.
    """

    posterior: tuple[np.ndarray, np.ndarray]
    level: tuple[np.ndarray, np.ndarray]
    valid_level_limit: np.ndarray


@dataclass(frozen=True, eq=False)
class NoiseModel:
    """The joint distribution of true and noisy groups: see ``from_confusion`` and ``from_table``.

    Attributes
    ----------
    joint : ndarray of float64, shape (m, m̂)
        P(G=j, Ĝ=k); every group of either kind has positive probability.
    names, noisy_names : tuple of str
        Of the true and the noisy groups, by code.
    counts : ndarray of int64, shape (m, m̂), or None
        The rows of the auxiliary table it was estimated from.
    """

    joint: np.ndarray
    names: tuple[str, ...]
    noisy_names: tuple[str, ...]
    counts: np.ndarray | None = None

    def __post_init__(self) -> None:
        if (self.joint < 0).any() or abs(self.joint.sum() - 1) > 1e-6:
            raise ConfigError(
                "The joint probabilities of true and noisy groups do not sum to 1.",
                "Give P(G=j, Ĝ=k) for all j and k.",
            )
        for axis, kind, names in ((1, "true", self.names), (0, "noisy", self.noisy_names)):
            empty = self.joint.sum(axis=axis) <= 0
            if len(names) != empty.size or empty.any():
                named = names[int(empty.argmax())] if len(names) == empty.size else "?"
                raise DataError(
                    f"The {kind} group {named!r} never occurs under the noise model.",
                    "Leave it out or merge it with another: it has no rates.",
                )

    @classmethod
    def from_confusion(
        cls,
        confusion: Sequence[Sequence[float]] | np.ndarray,
        *,
        prior: Sequence[float] | np.ndarray | None = None,
        noisy_prior: Sequence[float] | np.ndarray | None = None,
        names: Sequence[str] | None = None,
        noisy_names: Sequence[str] | None = None,
    ) -> NoiseModel:
        """Return the model with the given P(Ĝ=k | G=j) and shares of the groups.

        Parameters
        ----------
        confusion : array of float, shape (m, m̂)
            P(Ĝ=k | G=j), rows summing to 1.
        prior : array of float, shape (m,), optional
            P(G=j).
        noisy_prior : array of float, shape (m̂,), optional
            P(Ĝ=k), in place of ``prior``, which then solves Σ_j P(G=j) P(Ĝ=k | G=j) = P(Ĝ=k).
        names, noisy_names : sequence of str, optional
            Group names; the codes by default. Noisy groups are named like the true ones when there
            are as many.

        Raises
        ------
        ConfigError
            When a row does not sum to 1, a probability lies outside [0, 1], not exactly one of
            both priors is given, or the noisy shares cannot arise from this confusion.
        """
        table = np.asarray(confusion, dtype=np.float64)
        if table.ndim != 2 or table.size == 0 or not np.isfinite(table).all():
            raise ConfigError(
                "The confusion matrix is not a table of numbers.",
                "Give one row of the same length per true group.",
            )
        titles = _names(names, table.shape[0])
        for j, row in enumerate(table):
            if (row < 0).any() or abs(row.sum() - 1) > 1e-6:
                raise ConfigError(
                    f"Row {titles[j]!r} of the confusion matrix sums to {row.sum():g} or has a "
                    "negative number.",
                    "Give in each row the probabilities of all noisy groups, P(Ĝ=k | G=j).",
                )
        if (prior is None) == (noisy_prior is None):
            raise ConfigError(
                "A confusion matrix alone does not determine how large the groups are.",
                "Give prior, P(G=j), or noisy_prior, P(Ĝ=k): one of the two.",
            )
        if noisy_prior is not None:
            shares = _invert(table, _shares(noisy_prior, table.shape[1], "noisy_prior"))
        else:
            shares = _shares(prior, table.shape[0], "prior")
        square = table.shape[0] == table.shape[1]
        seen = titles if noisy_names is None and square else _names(noisy_names, table.shape[1])
        joint = shares[:, None] * table
        return cls(joint / joint.sum(), titles, seen)

    @classmethod
    def from_table(
        cls,
        true: np.ndarray,
        noisy: np.ndarray,
        *,
        names: Sequence[str] | None = None,
        noisy_names: Sequence[str] | None = None,
    ) -> NoiseModel:
        """Estimate the model from the codes of both groups, shape (n,), in an auxiliary table.

        Names are the codes that occur by default; noisy groups are named like the true ones when
        only those are named. DataError when the table is empty, its columns differ in length, a
        code lies outside the names, or a group never occurs.
        """
        true, noisy = np.asarray(true), np.asarray(noisy)
        if true.shape != noisy.shape or true.ndim != 1 or true.size == 0:
            raise DataError(
                f"The auxiliary table has {true.size} true and {noisy.size} noisy groups.",
                "Give one of each for every row, and at least one row.",
            )
        if names is None and noisy_names is None:
            # Without names both columns have the codes of the same groups.
            size = int(max(true.max(), noisy.max())) + 1
            titles = seen = _names(None, size)
        else:
            titles = _names(names, int(true.max()) + 1)
            seen = titles if noisy_names is None else tuple(noisy_names)
        for codes, known, kind in ((true, titles, "true"), (noisy, seen, "noisy")):
            if codes.min() < 0 or codes.max() >= len(known):
                raise DataError(
                    f"The auxiliary table has codes of {kind} groups outside 0 to "
                    f"{len(known) - 1}.",
                    "Give a name to every group.",
                )
        pair = true.astype(np.int64) * len(seen) + noisy.astype(np.int64)
        counts = np.bincount(pair, minlength=len(titles) * len(seen))
        counts = counts.reshape(len(titles), len(seen))
        return cls(counts / counts.sum(), titles, seen, counts)

    @property
    def prior(self) -> np.ndarray:
        """P(G=j), shape (m,)."""
        return np.asarray(self.joint.sum(axis=1))

    @property
    def noisy_prior(self) -> np.ndarray:
        """P(Ĝ=k), shape (m̂,)."""
        return np.asarray(self.joint.sum(axis=0))

    @property
    def confusion(self) -> np.ndarray:
        """P(Ĝ=k | G=j), shape (m, m̂), rows summing to 1."""
        return np.asarray(self.joint / self.prior[:, None])

    @property
    def posterior(self) -> np.ndarray:
        """P(G=j | Ĝ=k), shape (m̂, m), rows summing to 1."""
        return np.asarray((self.joint / self.noisy_prior).T)

    @property
    def centre(self) -> tuple[int, ...]:
        """The noisy group at the centre of each true group's ball.

        The group of the same name where both kinds of groups have the same names; else the one with
        the smallest always valid level (appendix B.4).
        """
        if self.names == self.noisy_names:
            return tuple(range(len(self.names)))
        return tuple(np.argmin(self._far(), axis=1).tolist())

    @property
    def level(self) -> np.ndarray:
        """γ_j = P(Ĝ≠j | G=j), the paper's bound of TV(p_j, p̂_j), shape (m,); see ``premise``."""
        return np.asarray(1 - self._at_centre(self.confusion))

    @property
    def valid_level(self) -> np.ndarray:
        """max{P(Ĝ≠j | G=j), P(G≠j | Ĝ=j)}, shape (m,): a bound of TV(p_j, p̂_j) in all cases.

        Both conditional distributions share P(G=j, Ĝ=j) / max{P(G=j), P(Ĝ=j)}, and they may be
        disjoint elsewhere: no smaller bound follows from these two groups alone.
        """
        return self._at_centre(self._far())

    @property
    def premise(self) -> np.ndarray:
        """Whether lemma 1's premise P(G=j) = P(Ĝ=j) holds, bool of shape (m,)."""
        return np.asarray(np.abs(self.prior - self.noisy_prior[list(self.centre)]) <= ROUNDING)

    @property
    def level_holds(self) -> np.ndarray:
        """Whether the paper's γ_j bounds TV(p_j, p̂_j), bool of shape (m,).

        It does under lemma 1's premise, and also where P(G=j) > P(Ĝ=j).
        """
        return np.asarray(self.level >= self.valid_level - ROUNDING)

    def interval(self, confidence: float = 0.95, at_once: int = 1) -> NoiseInterval:
        """Return limits of the estimated probabilities (Clopper and Pearson, Biometrika 26, 1934).

        ``at_once`` says how many of the limits are to hold together with this confidence
        (Bonferroni). They are exact for an auxiliary table of independent rows of the same
        population; from one drawn by true group only P(Ĝ | G) can be estimated, and P(G | Ĝ) from
        one drawn by noisy group. DataError for a model that was not estimated, ConfigError for a
        confidence outside (0, 1).
        """
        if self.counts is None:
            raise DataError(
                "The noise model was not estimated, so it has no confidence limits.",
                "Estimate one by NoiseModel.from_table.",
            )
        if not 0 < confidence < 1:
            raise ConfigError(f"The confidence is {confidence}.", "Give one in (0, 1), as 0.95.")
        error = (1 - confidence) / max(at_once, 1)
        true, noisy = self.counts.sum(axis=1), self.counts.sum(axis=0)
        agree, near = self._at_centre(self.counts), noisy[list(self.centre)]
        leaving = limit_share(true - agree, true, 2 * error)[1]
        entering = limit_share(near - agree, near, 2 * error)[1]
        return NoiseInterval(
            posterior=limit_share(self.counts.T, noisy[:, None], error),
            level=limit_share(true - agree, true, error),
            valid_level_limit=np.maximum(leaving, entering),
        )

    def _far(self) -> np.ndarray:
        """Return max{P(Ĝ≠k | G=j), P(G≠j | Ĝ=k)}, shape (m, m̂)."""
        return np.asarray(np.maximum(1 - self.confusion, 1 - self.posterior.T))

    def _at_centre(self, table: np.ndarray) -> np.ndarray:
        return np.asarray(table[np.arange(len(table)), list(self.centre)])


def limit_share(count: np.ndarray, n: np.ndarray, error: float) -> tuple[np.ndarray, np.ndarray]:
    """Return Clopper and Pearson's limits of a share, error/2 beyond each; 0 and 1 without rows.

    ``error`` lies in (0, 2): beyond 1 the limits mean little.
    """
    count, n = np.broadcast_arrays(count, n)
    with np.errstate(invalid="ignore"):
        low = betaincinv(np.maximum(count, 1), n - count + 1, error / 2)
        high = betaincinv(count + 1, np.maximum(n - count, 1), 1 - error / 2)
    return np.where(count > 0, low, 0.0), np.where(count < n, high, 1.0)


def _names(names: Sequence[str] | None, n: int) -> tuple[str, ...]:
    return tuple(str(code) for code in range(n)) if names is None else tuple(names)


def _shares(values: Sequence[float] | np.ndarray | None, n: int, what: str) -> np.ndarray:
    shares = np.asarray(values, dtype=np.float64)
    if shares.shape != (n,) or not (shares >= 0).all() or abs(shares.sum() - 1) > 1e-6:
        raise ConfigError(
            f"{what} is {np.asarray(values).tolist()}, instead of {n} shares that sum to 1.",
            "Give the share of each group among all rows.",
        )
    return shares


def _invert(confusion: np.ndarray, noisy: np.ndarray) -> np.ndarray:
    """Return the P(G=j) for which this confusion results in the noisy shares."""
    if np.linalg.matrix_rank(confusion) < len(confusion):
        raise ConfigError(
            "Under this confusion different shares of true groups result in the same noisy shares.",
            "Give prior, the shares of the true groups.",
        )
    prior = np.linalg.lstsq(confusion.T, noisy, rcond=None)[0]
    if prior.min() < -ROUNDING or np.abs(prior @ confusion - noisy).max() > 1e-6:
        raise ConfigError(
            "The noisy shares cannot arise from this confusion: some true group would need a "
            f"share of {prior.min():.4f}.",
            "Correct either, or give prior, the shares of the true groups.",
        )
    prior = np.maximum(prior, 0.0)
    return np.asarray(prior / prior.sum())


Array = Any
# Dinkelbach's steps reach the next linear piece each time; there are few pieces.
MOST_RATIOS = 200


@dataclass(frozen=True, eq=False)
class BallMaximum:
    """The worst p̃_j of every group of every model, as a change of p̂_j.

    Rows of the noisy group with h below ``cut`` lose all mass, rows at ``cut`` keep the share
    ``kept``, rows above it keep all; the row ``target``, shape (M,), which has the largest h, gains
    what is ``moved``, at most γ_j. ``value`` is max_p̃ Σ_i p̃_i h_i. These are of shape (M, m);
    ``centre`` holds the noisy group at the centre of each ball.
    """

    value: Array
    moved: Array
    cut: Array
    kept: Array
    target: Array
    centre: tuple[int, ...]

    def combine(self, multiplier: Array, h: Array, codes: Array, weight: Array) -> Array:
        """Return Σ_j λ_j p̃_j, the row weights of a gradient, shape (M, n), for λ of shape (M, m).

        ``h``, ``codes`` and ``weight`` are those of the maximum. By the envelope theorem ∇_θ Σ_j
        λ_j max_p̃ Σ_i p̃_i h_i(θ) = Σ_i (Σ_j λ_j p̃_ji) ∇_θ h_i wherever the maximiser is unique;
        elsewhere it is a subgradient of a function that is convex in h.
        """
        xp = array_namespace(h)
        weight = xp.astype(weight, h.dtype)
        total, gain = xp.zeros_like(h), 0.0 * multiplier[:, :1]
        for j, noisy in enumerate(self.centre):
            factor = multiplier[:, j : j + 1]
            own = xp.astype(codes == noisy, h.dtype) * weight
            factor_own = factor / xp.sum(own, axis=-1, keepdims=True)
            cut, kept = self.cut[:, j : j + 1], self.kept[:, j : j + 1]
            share = xp.where(h > cut, factor_own, xp.where(h == cut, factor_own * kept, 0.0))
            total = total + own * share
            gain = gain + factor * self.moved[:, j : j + 1]
        rows = xp.arange(h.shape[-1], dtype=self.target.dtype, device=array_api_compat.device(h))
        return total + xp.where(rows == self.target[:, None], gain, 0.0)


def maximise_over_ball(
    h: Array, codes: Array, level: Array, weight: Array, centre: Sequence[int] | None = None
) -> BallMaximum:
    """Solve the inner problem of distributionally robust constraints, for every group.

    max_p̃ Σ_i p̃_i h_i  s.t.  p̃ ≥ 0, Σ p̃ = 1, ‖p̃ − p̂_j‖₁ ≤ 2γ_j, p̃ ≪ p

    where p̂_j is the distribution on the rows with Ĝ = j. Mass γ_j moves from the rows of Ĝ = j with
    the smallest h to the row with the largest h of all, never from rows that have it already.

    Parameters
    ----------
    h : float array, shape (M, n)
        What each row contributes, per model.
    codes : integer array, shape (n,)
        Noisy groups.
    level : float array, shape (m,) or (M, m)
        γ_j ≥ 0; from 1 on all mass may move.
    weight : float array, shape (n,)
        Case weights ≥ 0; p is supported where they are positive.
    centre : sequence of int, optional
        Noisy group at the centre of each true group's ball; the group's own by default, which
        needs as many noisy groups as true ones (appendix B.4 for other numbers). DataError when no
        row of positive weight has it.

    Notes
    -----
    O(n log n) per model and group, by a sort. Ties
    at the cut share the loss evenly. Exact up to rounding. Wang et al., NeurIPS 2020, equations 3,
    9.
    """
    xp = array_namespace(h)
    centres = _find_centres(centre, level)
    weight = xp.astype(weight, h.dtype)
    members = [(codes == k) & (weight > 0) for k in centres]
    for k, own in zip(centres, members, strict=True):
        _refuse_absent(k, own)
    models = int(h.shape[0])
    level = xp.broadcast_to(xp.astype(level, h.dtype), (models, len(centres)))
    supported = xp.where(weight > 0, h, -xp.inf * xp.ones_like(h))
    target = xp.argmax(supported, axis=-1)
    top = xp.max(supported, axis=-1)
    moves = [
        _move(h[model, :][own], weight[own], level[model, j], top[model])
        for model in range(models)
        for j, own in enumerate(members)
    ]
    value, moved, cut, kept = (
        xp.reshape(xp.stack(arrays), (models, len(centres))) for arrays in zip(*moves, strict=True)
    )
    return BallMaximum(value, moved, cut, kept, target, centres)


def bound_rate_of_cells(
    cells: Array, level: Array, rate: RateCells, centre: Sequence[int] | None = None
) -> tuple[Array, Array]:
    """Return the smallest and largest rate of groups over their balls, for deterministic decisions.

    Mass moves from good to bad rows, or back, and the denominator stays: with a = P(good | Ĝ=j)
    and b = P(bad | Ĝ=j) the rate lies between max(0, a − γ)/(a + b) and min(1, (a + γ)/(a + b)).

    ``cells``, (..., m̂, 4), is from ``count_cells``; ``level``, (..., m), is γ_j; ``centre`` is as
    in ``maximise_over_ball``. Both limits have shape (..., m), NaN where no p̃ in the ball has a row
    of the denominator. For randomised decisions, whose rows differ within a cell,
    ``bound_rate_over_ball`` is exact and this is the looser bound of theorem 1, cut to [0, 1].
    """
    xp = array_namespace(cells)
    centres = _find_centres(centre, level)
    good_all = xp.sum(sum_cells(cells, rate.good), axis=-1)[..., None]
    bad_all = xp.sum(sum_cells(cells, rate.bad), axis=-1)[..., None]
    share = cells / xp.sum(cells, axis=-1, keepdims=True)
    good = xp.stack([sum_cells(share[..., k, :], rate.good) for k in centres], axis=-1)
    bad = xp.stack([sum_cells(share[..., k, :], rate.bad) for k in centres], axis=-1)
    total = good + bad
    among = xp.where(total > 0, total, xp.ones_like(total))
    nan = xp.nan * total
    one = xp.ones_like(total)
    reach = level > 0
    low = xp.where(total > 0, xp.maximum(good - level, 0.0) / among, xp.where(reach, 0 * one, nan))
    high = xp.where(total > 0, xp.minimum((good + level) / among, 1.0), xp.where(reach, one, nan))
    # Without any bad row every rate is 1, and without a good one 0.
    defined = (total > 0) | (reach & (good_all + bad_all > 0))
    low = xp.where(bad_all > 0, low, xp.where(defined, one, nan))
    high = xp.where(good_all > 0, high, xp.where(defined, 0 * one, nan))
    return low, high


def bound_rate_over_ball(
    outcome: Array,
    among: Array,
    codes: Array,
    level: Array,
    weight: Array,
    centre: Sequence[int] | None = None,
) -> tuple[Array, Array]:
    """Return the smallest and largest rate of every group over its ball, for any decisions.

    min and max over p̃ of  Σ_i p̃_i d_i a_i / Σ_i p̃_i d_i

    Parameters
    ----------
    outcome : float array, shape (n,)
        a ∈ [0, 1], how much a row counts in the numerator (the probability of the decision).
    among : bool array, shape (n,)
        d, whether it counts in the denominator.
    codes, level, weight, centre
        As in ``maximise_over_ball``, for one model.

    Returns
    -------
    low, high : float array, shape (m,)
        NaN where no p̃ in the ball has a row of the denominator.

    Notes
    -----
    Dinkelbach's iteration (Management Science 13, 1967): the rate ρ is least when max_p̃ Σ p̃_i d_i
    (ρ − a_i) = 0, and each step lowers ρ to the rate of the maximiser. A few steps of
    ``maximise_over_ball``'s cost.
    """
    low = _least_rate(outcome, among, codes, level, weight, centre)
    high = 1.0 - _least_rate(1.0 - outcome, among, codes, level, weight, centre)
    return low, high


def _least_rate(
    outcome: Array,
    among: Array,
    codes: Array,
    level: Array,
    weight: Array,
    centre: Sequence[int] | None,
) -> Array:
    xp = array_namespace(outcome)
    mass = xp.astype(weight, outcome.dtype)
    counts = xp.astype(among, outcome.dtype)
    outcomes = outcome[among & (mass > 0)]
    rates = []
    for j, k in enumerate(_find_centres(centre, level)):
        own = (codes == k) & (mass > 0)
        _refuse_absent(k, own)
        share = mass[own] / xp.sum(mass[own])
        a, d = outcome[own], counts[own]
        below = xp.sum(share * d)
        if int(outcomes.shape[0]) == 0 or (float(below) == 0 and float(level[j]) <= 0):
            rates.append(xp.nan * below)
            continue
        least = xp.min(outcomes)
        start = xp.sum(share * d * a) / below if float(below) > 0 else least
        rates.append(_divide_least(a, d, share, level[j], least, start))
    return xp.stack(rates)


def _divide_least(
    a: Array, d: Array, share: Array, level: Array, least: Array, rate: Array
) -> Array:
    """Return the least ratio of one group, starting from the ratio ``rate`` of one of its p̃."""
    xp = array_namespace(a)
    for _ in range(MOST_RATIOS):
        values = d * (rate - a)
        top = xp.maximum(rate - least, 0.0 * rate)
        value, moved, cut, kept = _move(values, share, level, top)
        keep = share * xp.where(values > cut, 1.0 + 0.0 * a, xp.where(values == cut, kept, 0.0 * a))
        # The mass goes to a row of the denominator with the least outcome.
        gained = moved if float(rate) > float(least) else 0.0 * moved
        below = xp.sum(keep * d) + gained
        if float(value) <= 0 or float(below) <= 0:
            break
        new = (xp.sum(keep * d * a) + gained * least) / below
        if float(new) >= float(rate):
            break
        rate = new
    return rate


def _move(
    values: Array, mass: Array, level: Array, top: Array
) -> tuple[Array, Array, Array, Array]:
    """Move ``level`` from the least values of one group to a row of value ``top``.

    Returns value, moved, cut and kept, as in `BallMaximum`.
    """
    xp = array_namespace(values)
    n = int(values.shape[0])
    level = xp.clip(level, 0.0, 1.0)
    share = mass / xp.sum(mass)
    order = xp.argsort(values)
    passed = xp.cumulative_sum(xp.take(share, order)) <= level
    cut = values[order[min(int(xp.count_nonzero(passed)), n - 1)]]
    zero = xp.zeros_like(values)
    lost = xp.sum(xp.where(values < cut, share, zero))
    tied = xp.sum(xp.where(values == cut, share, zero))
    kept = xp.clip(1.0 - (level - lost) / tied, 0.0, 1.0)
    kept = xp.where(cut >= top, xp.ones_like(kept), kept)
    moved = lost + tied * (1.0 - kept)
    remaining = xp.where(values > cut, share * values, zero)
    value = xp.sum(remaining) + tied * kept * cut + moved * top
    return value, moved, cut, kept


def _find_centres(centre: Sequence[int] | None, level: Array) -> tuple[int, ...]:
    """Return the noisy group at the centre of every ball: by default the group's own."""
    return tuple(range(int(level.shape[-1]))) if centre is None else tuple(map(int, centre))


def _refuse_absent(group: int, rows: Array) -> None:
    if not bool(array_namespace(rows).any(rows)):
        raise DataError(
            f"No row has the noisy group {group}.",
            "Merge it with another group, or leave it out of the constraints.",
        )
