"""Shift inference: scores without what the group says about the label."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np

from fairfrontier.runtime.errors import InputError
from fairfrontier.train.base import training_weight
from fairfrontier.train.neural.estimator import TrainingWarning
from fairfrontier.train.persistence import State
from fairfrontier.train.postprocess.base import PostProcessor, Scale
from fairfrontier.train.registry import method


@dataclass(frozen=True, eq=False)
class PriorEstimate:
    """Base rates that were estimated without labels.

    Attributes
    ----------
    prior : ndarray of float64, shape (n_groups,)
        π_k.
    iterations : int
        Steps of EM.
    converged : bool
        Whether the last step moved every π_k by no more than the tolerance.
    """

    prior: np.ndarray
    iterations: int
    converged: bool


def estimate_priors(
    posterior: np.ndarray,
    code: np.ndarray,
    weight: np.ndarray,
    prior: float,
    *,
    tolerance: float = 1e-9,
    max_iterations: int = 10_000,
) -> PriorEstimate:
    """Estimate every group's base rate from posteriors that assume another, by EM.

    maximise over π_k ∈ [0, 1]   Σ_{i in k} s_i log( π_k/π · p_i + (1 − π_k)/(1 − π) · (1 − p_i) )

    The features are taken to be distributed alike within each class, in every group. E step: the
    posterior that each row has under π_k; M step: π_k is its mean.

    Parameters
    ----------
    posterior : ndarray of float64, shape (n_samples,)
        p, in [0, 1].
    code : ndarray of int64, shape (n_samples,)
        Groups 0, …, K − 1, none of them empty.
    weight : ndarray of float64, shape (n_samples,)
        s, case weights.
    prior : float
        π, the base rate that the posteriors assume, in (0, 1).
    tolerance : float
        Largest change of a π_k in the last step.
    max_iterations : int
        Steps at most.

    Returns
    -------
    PriorEstimate

    Notes
    -----
    The likelihood is concave. Where its slope shows that the maximum is at 0 or 1, that is the
    answer, which EM would only creep up to; elsewhere EM climbs. O(n) a step.

    References
    ----------
    M. Saerens, P. Latinne, C. Decaestecker. Adjusting the outputs of a classifier to new a priori
    probabilities: a simple procedure. Neural Computation 14, 2002, equation 2.9.
    """
    rows = weight > 0
    posterior, code, weight = posterior[rows], code[rows], weight[rows]
    total = np.bincount(code, weights=weight)
    share = weight / total[code]
    ones, zeros = posterior / prior, (1.0 - posterior) / (1.0 - prior)
    found = np.full(len(total), prior)
    # The slope at an end is the mean ratio less 1, outwards.
    found[np.bincount(code, weights=share * _ratio(ones, zeros)) <= 1.0] = 0.0
    found[np.bincount(code, weights=share * _ratio(zeros, ones)) <= 1.0] = 1.0
    change, step = np.inf, 0
    while change > tolerance and step < max_iterations:
        own = found[code]
        likely = own * ones
        membership = likely / (likely + (1.0 - own) * zeros)
        moved = np.bincount(code, weights=share * membership)
        change = float(np.abs(moved - found).max())
        found, step = moved, step + 1
    return PriorEstimate(np.clip(found, 0.0, 1.0), step, change <= tolerance)


def _ratio(top: np.ndarray, bottom: np.ndarray) -> np.ndarray:
    """Return top / bottom, infinite where that divides by zero."""
    found: np.ndarray = np.divide(top, bottom, out=np.full(len(top), np.inf), where=bottom > 0)
    return found


@method("shift_inference")
class ShiftInference(PostProcessor):
    """Every group's scores, corrected to the base rate of all groups.

    logit P(y=1 | x, k) = logit p(x) + logit π − logit π_k,   decided at one half

    with p the model's score and π, π_k the base rates of all rows and of group k. This is Bayes'
    rule for a population in which group k had the base rate π. The decisions of the groups come
    nearer to each other; nothing makes them equal.

    Parameters
    ----------
    attributes : int, list of int or None
        Columns of ``groups`` whose cross product makes the groups; None crosses all.
    scale : {"probability", "margin", "signed"}
        What the scores are.
    priors : {"labels", "em"}
        Where π_k comes from: the labels of the fitted rows, or their scores alone, by EM
        (``estimate_priors``). That assumes scores which are calibrated for the base rate π in every
        group; scores that know the group, by it or by what goes with it, have π_k in them already,
        and EM overstates how the groups differ.
    random_state : int
        Of no effect: nothing is random.

    Attributes
    ----------
    prior_ : float
        π, from labels, weighted.
    priors_ : ndarray of float64, shape (n_groups,)
        π_k.

    Raises
    ------
    InputError
        From ``fit``, when π_k is 0 or 1: no correction is finite then.

    Notes
    -----
    O(n), and O(n) a step of EM.

    References
    ----------
    M. Saerens, P. Latinne, C. Decaestecker. Adjusting the outputs of a classifier to new a priori
    probabilities: a simple procedure. Neural Computation 14, 2002, equations 2.4 and 2.9.
    Z. Wang et al. Towards fairness in visual recognition: effective strategies for bias mitigation.
    CVPR 2020, section 4.2 (prior shift inference).
    """

    rescores: ClassVar[bool] = True
    paper: ClassVar[str] = "Saerens et al., Adjusting to new a priori probabilities, 2002"
    example: ClassVar[Mapping[str, Any]] = {"attributes": 0}

    prior_: float
    priors_: np.ndarray

    def __init__(
        self,
        *,
        attributes: int | list[int] | None = None,
        scale: Scale = "probability",
        priors: Literal["labels", "em"] = "labels",
        random_state: int = 0,
    ) -> None:
        self.attributes = attributes
        self.scale = scale
        self.priors = priors
        self.random_state = random_state

    def check(self) -> None:
        """Raise ConfigError for parameters that cannot be."""
        super().check()
        self.require("priors", self.priors in ("labels", "em"), "labels or em")

    def fit(
        self,
        X: np.ndarray,
        y: np.ndarray,
        *,
        groups: np.ndarray,
        sample_weight: np.ndarray | None = None,
    ) -> Self:
        """Take the base rates from scores X, labels y and group codes."""
        self.check()
        signed, y = self.validate_training(X, y, groups)
        posterior = (1.0 + signed) / 2.0
        code = self.learn_cells(groups)
        weight = training_weight(sample_weight, len(y))
        total = np.bincount(code, weights=weight)
        positive = np.bincount(code, weights=weight * (y == 1))
        prior = float(positive.sum() / total.sum())
        found = positive / total
        if self.priors == "em" and 0.0 < prior < 1.0:
            estimate = estimate_priors(posterior, code, weight, prior)
            found = estimate.prior
            if not estimate.converged:
                warnings.warn(
                    f"{self.name} stopped EM after {estimate.iterations} steps, before the base "
                    "rates came to rest. Their likelihood is flat: rely on labels.",
                    TrainingWarning,
                    stacklevel=2,
                )
        certain = (found <= 0.0) | (found >= 1.0)
        if certain.any():
            raise InputError(
                f"{self.name} finds the base rate {found[certain][0]:g} in the group "
                f"{self.cells_[certain][0].tolist()}, rows of one class, which no correction can "
                "reach.",
                "Merge small groups in the dataset's YAML, or choose fewer attributes."
                if self.priors == "labels"
                else "Take priors: labels, for scores that know the group already.",
            )
        self.prior_, self.priors_ = prior, found
        return self

    def probability(self, signed: np.ndarray, code: np.ndarray) -> np.ndarray:
        """Return the corrected P(Y=1|x) for scores f ∈ [−1, 1] and codes of ``cells_``."""
        posterior = (1.0 + signed) / 2.0
        own = self.priors_[code]
        # Odds instead of logits: scores of 0 and 1 stay what they are.
        one = posterior * (self.prior_ / own)
        zero = (1.0 - posterior) * ((1.0 - self.prior_) / (1.0 - own))
        corrected: np.ndarray = one / (one + zero)
        return corrected

    def get_state(self) -> State:
        """Return the base rates."""
        return State(
            arrays={"cells": self.cells_, "priors": self.priors_}, facts={"prior": self.prior_}
        )

    def set_state(self, state: State) -> None:
        """Restore the base rates."""
        self.cells_, self.priors_ = state.arrays["cells"], state.arrays["priors"]
        self.prior_ = state.facts["prior"]
