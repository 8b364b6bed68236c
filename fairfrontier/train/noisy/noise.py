"""Models of noisy groups: P(Ĝ | G), P(G | Ĝ), what they imply, and estimates of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import betaincinv

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
