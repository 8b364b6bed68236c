"""Classifiers trained on noisy groups, one for each way to stand in for the true groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np

from fairfrontier.prepare.split import Part
from fairfrontier.train.noisy.base import NoisyClassifier, Progress
from fairfrontier.train.noisy.problem import Approach
from fairfrontier.train.registry import method


@method("noisy_unconstrained")
@dataclass(kw_only=True, eq=False, repr=False)
class NoisyUnconstrained(NoisyClassifier):
    """A classifier without constraints, as a baseline for those on noisy groups.

    Parameters and attributes are those of `NoisyClassifier`. The criterion and the attribute only
    determine what the history records.

    References
    ----------
    Wang et al., Robust optimization for fairness with noisy protected groups, NeurIPS 2020.
    """

    approach: ClassVar[Approach] = "unconstrained"


@dataclass(kw_only=True, eq=False, repr=False)
class ConstrainedClassifier(NoisyClassifier):
    """Base of the classifiers with constraints.

    Parameters
    ----------
    budget : float
        α ≥ 0, the allowed difference.
    slack : float or list of float
        β ≥ 0, added to α for the hinges in training. With α + β < 1 no scores satisfy all hinge
        constraints, with α + β = 1 only scores within [−1, 1] do.
    radius : float
        R, the largest sum of multipliers.
    multiplier_rate : float or list of float
        Learning rate of Adam on λ.
    **others
        As in `NoisyClassifier`.
    """

    constrains_decisions: ClassVar[bool] = True

    budget: float = 0.05
    slack: float | Sequence[float] = 1.25
    radius: float = 1.0
    multiplier_rate: float | Sequence[float] = 0.5


@dataclass(kw_only=True, eq=False, repr=False)
class InformedClassifier(ConstrainedClassifier):
    """Base of the classifiers that use the true groups of training rows where these are known."""

    def fit(  # type: ignore[override]
        self,
        X: np.ndarray,
        y: np.ndarray,
        *,
        groups: np.ndarray,
        true_groups: np.ndarray | None = None,
        sample_weight: np.ndarray | None = None,
        validation: Part | None = None,
        progress: Progress | None = None,
    ) -> Self:
        """Train as `NoisyClassifier.fit` does.

        ``true_groups``, int64 of the shape of ``groups``, are constrained by ``noisy_true_groups``,
        which falls back on the noisy ones. The other methods only estimate the noise model from
        them, unless it is given.
        """
        return self._fit_alone(
            progress,
            X=X,
            y=y,
            groups=groups,
            true_groups=true_groups,
            sample_weight=sample_weight,
            validation=validation,
        )


@method("noisy_true_groups")
@dataclass(kw_only=True, eq=False, repr=False)
class NoisyTrueGroups(InformedClassifier):
    """A classifier that is constrained on the true groups, which it is given.

    Parameters as in `ConstrainedClassifier`, attributes as in `NoisyClassifier`.

    References
    ----------
    Wang et al., Robust optimization for fairness with noisy protected groups, NeurIPS 2020.
    """

    approach: ClassVar[Approach] = "true_groups"


@method("noisy_naive")
@dataclass(kw_only=True, eq=False, repr=False)
class NoisyNaive(ConstrainedClassifier):
    """A classifier that is constrained on the noisy groups as if they were the true ones.

    Parameters
    ----------
    validation_groups : {"noisy", "true"}
        Whose constraints choose among listed rates: the approach's own; or those on the true groups
        of the validation rows, which in practice need not be known.
    **others
        As in `ConstrainedClassifier`; attributes as in `NoisyClassifier`.

    References
    ----------
    Wang et al., Robust optimization for fairness with noisy protected groups, NeurIPS 2020.
    """

    approach: ClassVar[Approach] = "naive"

    validation_groups: Literal["noisy", "true"] = "noisy"


@dataclass(kw_only=True, eq=False, repr=False)
class RobustClassifier(InformedClassifier):
    """Base of the classifiers that satisfy their constraints in the worst case under a noise model.

    Parameters
    ----------
    level : float or None
        The noise: the share γ of rows that are in a wrong group, all others being equally likely.
        None: the noise is estimated from ``true_groups``.
    confusion : list of list of float, optional
        The noise, instead of a level: P(Ĝ=k | G=j) in row j.
    validation_groups : {"noisy", "true"}
        As in `NoisyNaive`.
    **others
        As in `ConstrainedClassifier`; attributes as in `NoisyClassifier`.
    """

    level: float | Sequence[float] | None = None
    confusion: Sequence[Sequence[float]] | None = None
    validation_groups: Literal["noisy", "true"] = "noisy"


@method("noisy_dro")
@dataclass(kw_only=True, eq=False, repr=False)
class NoisyDRO(RobustClassifier):
    """A classifier that is fair under the worst distributions near those of the noisy groups.

    Constraints on group j hold for every distribution within total variation γ_j of that of the
    rows with Ĝ = j.

    Parameters
    ----------
    level : float, list of float or None
        As in `RobustClassifier`, or a list of γ_j, one for each group.
    tv : {"paper", "valid"}
        γ_j from a noise model: P(Ĝ≠j | G=j), which bounds the distance if P(G=j) = P(Ĝ=j); or
        max{P(Ĝ≠j | G=j), P(G≠j | Ĝ=j)}, which always does.
    inner : {"ascent", "exact"}
        How the worst case is found: by projected ascent (which the published numbers come from; its
        solutions need not be robust), or in closed form at every step.
    variant : {"paper", "authors"}
        Of the ascent. ``authors``, as in their code: constraints are ratios of the adversary's
        masses, one p̃_j serves all rates of a group, masses start at 0, and projections are rougher.
    inner_rate : float or list of float
        Learning rate of Adam on p̃, in the ascent.
    inner_steps : int
        Steps of ascent for each step of θ.
    **others
        As in `RobustClassifier`.

    References
    ----------
    Wang et al., NeurIPS 2020, algorithm 2.
    """

    approach: ClassVar[Approach] = "dro"
    inners: ClassVar[tuple[str, ...]] = ("ascent", "exact")
    example: ClassVar[Mapping[str, Any]] = {
        **NoisyClassifier.example,
        "level": 0.1,
        "tv": "valid",
        "budget": 0.2,
    }

    tv: Literal["paper", "valid"] = "paper"
    inner: Literal["ascent", "exact"] = "ascent"
    variant: Literal["paper", "authors"] = "paper"
    inner_rate: float | Sequence[float] = 0.01
    inner_steps: int = 1


@method("noisy_soft_assignment")
@dataclass(kw_only=True, eq=False, repr=False)
class NoisySoftAssignment(RobustClassifier):
    """A classifier that is fair under the worst assignment of the rows to true groups.

    Constraints hold for every w(j | ŷ, y, k) that agrees with P(G=j | Ĝ=k).

    Parameters
    ----------
    inner : {"ascent", "exact", "joint"}
        As in `NoisyDRO`; ``joint`` finds one assignment for the sum of all constraints (HiGHS).
    variant : {"paper", "authors"}
        Of the ascent. ``authors``, as in their code: constraints are ratios of the adversary's
        masses, masses start at 0, and projections are rougher. Their code also sets
        ``validation_groups`` to ``true``.
    inner_rate, inner_steps
        As in `NoisyDRO`, for w.
    **others
        As in `RobustClassifier`.

    References
    ----------
    Wang et al., NeurIPS 2020, algorithm 4. N. Kallus, X. Mao, A. Zhou. Assessing algorithmic
    fairness with unobserved protected class using data combination. Management Science 68, 2022.
    """

    approach: ClassVar[Approach] = "soft_assignment"
    inners: ClassVar[tuple[str, ...]] = ("ascent", "exact", "joint")
    example: ClassVar[Mapping[str, Any]] = {**NoisyClassifier.example, "level": 0.05, "budget": 0.2}

    inner: Literal["ascent", "exact", "joint"] = "ascent"
    variant: Literal["paper", "authors"] = "paper"
    inner_rate: float | Sequence[float] = 0.01
    inner_steps: int = 5
