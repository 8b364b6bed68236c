"""Shift inference: scores corrected to a common base rate of all groups."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

import numpy as np

from fairfrontier.models.base import TrainingWarning, training_weight
from fairfrontier.models.group import Attributes
from fairfrontier.models.objective import RANKED, Objective, read_costs
from fairfrontier.models.persistence import State
from fairfrontier.models.registry import method
from fairfrontier.models.thresholds.base import PostProcessor
from fairfrontier.models.thresholds.rule import Scale
from fairfrontier.prepare.split import Part


def estimate_priors(
    posterior: np.ndarray,
    code: np.ndarray,
    weight: np.ndarray,
    prior: float,
    *,
    tolerance: float = 1e-9,
    max_iterations: int = 10_000,
) -> tuple[np.ndarray, int, bool]:
    """Estimate every group's base rate from posteriors that assume another, by EM.

    maximise over π_k ∈ [0, 1]   Σ_{i in k} s_i log( π_k/π · p_i + (1 − π_k)/(1 − π) · (1 − p_i) )

    for posteriors p ∈ [0, 1] under the base rate π = ``prior`` ∈ (0, 1) and case weights s. The
    features are assumed to be distributed alike within each class, in every group. E step: the
    posterior of each row under π_k; M step: π_k is its mean. Returns π_k, (n_groups,), the number
    of steps, and whether the last one moved no π_k by more than the tolerance.

    The likelihood is concave. Where its slope shows that the maximum is at 0 or 1, which EM would
    approach slowly, that is the answer; elsewhere EM climbs. O(n) a step.

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
    priors = np.full(len(total), prior)
    # The slope at an end is the mean ratio less 1, outwards.
    priors[np.bincount(code, weights=share * _ratio(ones, zeros)) <= 1.0] = 0.0
    priors[np.bincount(code, weights=share * _ratio(zeros, ones)) <= 1.0] = 1.0
    change, step = np.inf, 0
    while change > tolerance and step < max_iterations:
        own = priors[code]
        likely = own * ones
        membership = likely / (likely + (1.0 - own) * zeros)
        moved = np.bincount(code, weights=share * membership)
        change = float(np.abs(moved - priors).max())
        priors, step = moved, step + 1
    return np.clip(priors, 0.0, 1.0), step, change <= tolerance


def _ratio(top: np.ndarray, bottom: np.ndarray) -> np.ndarray:
    """Return top / bottom, infinite where that divides by zero."""
    return np.asarray(np.divide(top, bottom, out=np.full(len(top), np.inf), where=bottom > 0))


@method("shift_inference")
class ShiftInference(PostProcessor):
    """Every group's scores, corrected to the base rate of all groups.

    logit P(y=1 | x, k) = logit p(x) + logit π − logit π_k

    with p the model's score and π, π_k the base rates of all rows and of group k. This is Bayes'
    rule for a population in which group k had the base rate π. The groups' rates of decision 1 come
    closer, but need not become equal.

    Parameters
    ----------
    attributes, scale, random_state
        As in `PostProcessor`.
    objective : str, mapping or None
        What P(y=1 | x, k) is cut for on ``validation``, or else the fitted rows: an objective of
        `choose_cut`. None decides at one half, as published.
    priors : {"labels", "em"}
        Where π_k comes from: the labels of the fitted rows, or their scores alone, by EM
        (``estimate_priors``). EM assumes scores calibrated for the base rate π in every group;
        scores that depend on the group, directly or by proxy, already contain π_k, and EM then
        overstates how the groups differ.

    Attributes
    ----------
    prior_ : float
        π, from labels, weighted.
    priors_ : ndarray of float64, shape (n_groups,)
        π_k.

    Raises
    ------
    InputError
        From ``fit``, when π_k is 0 or 1, where the correction would be infinite.

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
    objectives: ClassVar[tuple[str, ...]] = RANKED
    paper: ClassVar[str] = "Saerens et al., Adjusting to new a priori probabilities, 2002"
    example: ClassVar[Mapping[str, Any]] = {"attributes": 0}

    prior_: float
    priors_: np.ndarray

    def __init__(
        self,
        *,
        attributes: Attributes = None,
        scale: Scale = "probability",
        objective: Objective | None = None,
        priors: Literal["labels", "em"] = "labels",
        random_state: int = 0,
    ) -> None:
        self.attributes = attributes
        self.scale = scale
        self.objective = objective
        self.priors = priors
        self.random_state = random_state

    def check(self) -> None:
        """Raise ConfigError for invalid parameters."""
        super().check()
        if self.objective is not None:
            read_costs(self.objective)
        self.require("priors", self.priors in ("labels", "em"), "labels or em")

    def fit(
        self,
        X: np.ndarray,
        y: np.ndarray,
        *,
        sensitive_features: np.ndarray,
        sample_weight: np.ndarray | None = None,
        validation: Part | None = None,
    ) -> Self:
        """Estimate the base rates from scores X, labels y and group codes, and choose the cut."""
        self.check()
        signed, y = self.validate_training(X, y, sensitive_features, sample_weight=sample_weight)
        posterior = (1.0 + signed) / 2.0
        code = self.learn_cells(sensitive_features)
        weight = training_weight(sample_weight, len(y))
        self.require_weight(code, weight, "fitted")
        total = np.bincount(code, weights=weight)
        positive = np.bincount(code, weights=weight * (y == 1))
        prior = float(positive.sum() / total.sum())
        priors = positive / total
        if self.priors == "em" and 0.0 < prior < 1.0:
            priors, steps, converged = estimate_priors(posterior, code, weight, prior)
            if not converged:
                warnings.warn(
                    f"{self.name} stopped EM after {steps} steps, before the base rates converged. "
                    "Their likelihood is flat: set priors to labels.",
                    TrainingWarning,
                    stacklevel=2,
                )
        certain = (priors <= 0.0) | (priors >= 1.0)
        if certain.any():
            raise self.refuse_cell(
                self.cells_[certain][0],
                f"{self.name} finds the base rate {priors[certain][0]:g} in the group {{group}}, "
                "whose rows are of one class.",
                "Merge small groups in the dataset's YAML, or choose fewer attributes."
                if self.priors == "labels"
                else "Set priors to labels, for scores that already depend on the group.",
            )
        self.prior_, self.priors_, self.cut_ = prior, priors, 0.5
        if self.objective is not None:
            if validation is not None:
                signed, y = self.validate_rows(validation.X), self.encode_labels(validation.y)
                code, weight = self.encode(validation.groups), validation.weight
            self.tune_cut(self.probability(signed, code), y, weight, self.objective)
        return self

    def probability(self, signed: np.ndarray, code: np.ndarray) -> np.ndarray:
        """Return the corrected P(Y=1|x) for scores f ∈ [−1, 1] and codes of ``cells_``."""
        posterior = (1.0 + signed) / 2.0
        own = self.priors_[code]
        # Odds instead of logits: scores of 0 and 1 do not change.
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
