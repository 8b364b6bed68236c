"""Classifiers from noisy groups, one for each thing that may stand for the true groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Self

import numpy as np

from fairfrontier.prepare.split import Part
from fairfrontier.train.noisy.base import NoisyClassifier, Progress
from fairfrontier.train.noisy.lagrangian import Best
from fairfrontier.train.noisy.problem import Approach
from fairfrontier.train.registry import method


@method("noisy_unconstrained")
@dataclass(kw_only=True, eq=False, repr=False)
class NoisyUnconstrained(NoisyClassifier):
    """A classifier without constraints, beside which those on noisy groups are set.

    Its parameters and attributes are those of `NoisyClassifier`; of criterion and attribute the
    history makes use, which records what the groups differ by.

    References
    ----------
    Wang et al., Robust optimization for fairness with noisy protected groups, NeurIPS 2020.
    """

    approach: ClassVar[Approach] = "unconstrained"


@dataclass(kw_only=True, eq=False, repr=False)
class ConstrainedClassifier(NoisyClassifier):
    """Base of those with constraints, and with parameters that all of them have.

    Parameters
    ----------
    budget : float
        α ≥ 0, the allowed difference.
    slack : float or list of float
        β ≥ 0, added to α for hinges in training. With α + β < 1 no scores satisfy all hinge
        constraints, with α + β = 1 only scores within [−1, 1] do.
    radius : float
        R, the largest sum of multipliers.
    multiplier_rate : float or list of float
        Of Adam on λ.
    **others
        As `NoisyClassifier`.
    """

    budget: float = 0.05
    slack: float | Sequence[float] = 1.25
    radius: float = 1.0
    multiplier_rate: float | Sequence[float] = 0.5


@dataclass(kw_only=True, eq=False, repr=False)
class InformedClassifier(ConstrainedClassifier):
    """Base of those that make use of the true groups of training rows."""

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
        """Train on rows X with labels y of two classes, noisy groups, and true ones where known.

        Parameters
        ----------
        X, y, groups, sample_weight, validation, progress
            As in `NoisyClassifier.fit`.
        true_groups : ndarray of int64, shape (n_samples, n_attributes), optional
            Constrained by ``noisy_true_groups``, which takes the noisy ones when None; elsewhere
            only the noise model is estimated from them, unless it is given.
        """
        data = {
            "X": X,
            "y": y,
            "groups": groups,
            "true_groups": true_groups,
            "sample_weight": sample_weight,
            "validation": validation,
        }
        type(self).fit_batch([self], [data], progress=progress)
        return self


@method("noisy_true_groups")
@dataclass(kw_only=True, eq=False, repr=False)
class NoisyTrueGroups(InformedClassifier):
    """A classifier that is constrained on the true groups, which it is given.

    Parameters as `ConstrainedClassifier`, attributes as `NoisyClassifier`.

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
        Whose constraints choose among rates: the approach's own; or those on the true groups of
        the validation rows, which need not be known.
    **others
        As `ConstrainedClassifier`; attributes as `NoisyClassifier`.

    References
    ----------
    Wang et al., Robust optimization for fairness with noisy protected groups, NeurIPS 2020.
    """

    approach: ClassVar[Approach] = "naive"

    validation_groups: Literal["noisy", "true"] = "noisy"


@method("noisy_dro")
@dataclass(kw_only=True, eq=False, repr=False)
class NoisyDRO(InformedClassifier):
    """A classifier that is fair under the worst distributions near those of the noisy groups.

    Constraints on group j hold for every distribution within total variation γ_j of that of the
    rows with Ĝ = j.

    Parameters
    ----------
    level : float, list of float or None
        The noise: the share γ of rows that are in a wrong group, each other one being as likely;
        or a list of γ_j, one for each group. None: estimated from ``true_groups``.
    confusion : list of list of float, optional
        The noise, instead: P(Ĝ=k | G=j) in row j.
    tv : {"paper", "valid"}
        γ_j from a noise model: P(Ĝ≠j | G=j), which bounds the distance if P(G=j) = P(Ĝ=j); or
        max{P(Ĝ≠j | G=j), P(G≠j | Ĝ=j)}, which always does.
    inner : {"ascent", "exact"}
        How the worst case is found: by projected ascent, a step at a time (what the published
        numbers come from; its solutions need not be robust), or in closed form at every step.
    variant : {"paper", "authors"}
        Of the ascent. ``authors``, as their code: constraints as ratios of the adversary's masses,
        one p̃_j for all rates of a group, masses from 0 on, and rougher projections.
    inner_rate : float or list of float
        Of Adam on p̃, in the ascent.
    inner_steps : int
        Steps of ascent for each step of θ.
    validation_groups : {"noisy", "true"}
        As `NoisyNaive`.
    **others
        As `ConstrainedClassifier`; attributes as `NoisyClassifier`.

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

    level: float | Sequence[float] | None = None
    confusion: Sequence[Sequence[float]] | None = None
    tv: Literal["paper", "valid"] = "paper"
    inner: Literal["ascent", "exact"] = "ascent"
    variant: Literal["paper", "authors"] = "paper"
    inner_rate: float | Sequence[float] = 0.01
    inner_steps: int = 1
    validation_groups: Literal["noisy", "true"] = "noisy"


@method("noisy_soft_assignment")
@dataclass(kw_only=True, eq=False, repr=False)
class NoisySoftAssignment(InformedClassifier):
    """A classifier that is fair under the worst assignment of the rows to true groups.

    Constraints hold for every w(j | ŷ, y, k) that agrees with P(G=j | Ĝ=k).

    Parameters
    ----------
    level : float or None
        The noise: the share γ of rows that are in a wrong group, each other one being as likely.
        None: estimated from ``true_groups``.
    confusion : list of list of float, optional
        The noise, instead: P(Ĝ=k | G=j) in row j.
    inner : {"ascent", "exact", "joint"}
        How the worst case is found: by projected ascent, a step at a time (what the published
        numbers come from; its solutions need not be robust); in closed form at every step; or as
        one assignment for the sum of all constraints (HiGHS).
    variant : {"paper", "authors"}
        Of the ascent. ``authors``, as their code: constraints as ratios of the adversary's masses,
        masses from 0 on, and rougher projections.
    inner_rate : float or list of float
        Of Adam on w, in the ascent.
    inner_steps : int
        Steps of ascent for each step of θ.
    validation_groups : {"noisy", "true"}
        As `NoisyNaive`; the authors' code takes the true ones.
    **others
        As `ConstrainedClassifier`; attributes as `NoisyClassifier`.

    References
    ----------
    Wang et al., NeurIPS 2020, algorithm 4. N. Kallus, X. Mao, A. Zhou. Assessing algorithmic
    fairness with unobserved protected class using data combination. Management Science 68, 2022.
    """

    approach: ClassVar[Approach] = "soft_assignment"
    inners: ClassVar[tuple[str, ...]] = ("ascent", "exact", "joint")
    example: ClassVar[Mapping[str, Any]] = {**NoisyClassifier.example, "level": 0.05, "budget": 0.2}

    level: float | None = None
    confusion: Sequence[Sequence[float]] | None = None
    inner: Literal["ascent", "exact", "joint"] = "ascent"
    variant: Literal["paper", "authors"] = "paper"
    inner_rate: float | Sequence[float] = 0.01
    inner_steps: int = 5
    validation_groups: Literal["noisy", "true"] = "noisy"


@method("noisy_ideal")
@dataclass(kw_only=True, eq=False, repr=False)
class NoisyIdeal(InformedClassifier):
    """A mixture of classifiers, near-optimal and near-feasible under the worst soft assignments.

    The ideal algorithm on a finite class: the iterates of training with and without constraints,
    with shifted scores, and the two constant decisions. For small problems.

    Parameters
    ----------
    level, confusion
        As `NoisySoftAssignment`.
    response : {"exact", "nested"}
        Best responses: in closed form, or by algorithm 3.
    response_steps, game_steps : int
        Q of algorithm 3 and T of algorithm 1, whose radius is T^{1/4}.
    response_slack, response_tolerance, response_radius : float
        τ, κ and R' of algorithm 3; R' = B'/τ when None.
    validation_groups : {"noisy", "true"}
        As `NoisyNaive`.
    **others
        As `ConstrainedClassifier`, without ``best``; attributes as `NoisyClassifier`.

    References
    ----------
    Wang et al., NeurIPS 2020, algorithms 1 and 3.
    """

    approach: ClassVar[Approach] = "ideal"
    inners: ClassVar[tuple[str, ...]] = ("exact",)
    randomized: ClassVar[bool] = True
    example: ClassVar[Mapping[str, Any]] = {
        **NoisyClassifier.example,
        "level": 0.05,
        "budget": 0.2,
        "game_steps": 200,
    }

    best: Best = field(default="paper", init=False)
    level: float | None = None
    confusion: Sequence[Sequence[float]] | None = None
    validation_groups: Literal["noisy", "true"] = "noisy"
    response: Literal["exact", "nested"] = "exact"
    game_steps: int = 2000
    response_steps: int = 200
    response_slack: float = 0.01
    response_tolerance: float = 0.0
    response_radius: float | None = None
