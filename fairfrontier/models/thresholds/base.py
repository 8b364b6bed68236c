"""The base of post-processors: estimators whose one feature is the score of another model."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np
from scipy.special import expit
from sklearn.utils.validation import check_consistent_length

from fairfrontier.models.base import (
    FEATURES,
    TRIED,
    Classifier,
    TrainingWarning,
    explaining,
    training_weight,
)
from fairfrontier.models.group import Attributes, Codes, choose_columns, number_cells
from fairfrontier.models.thresholds.rule import FittedRule, measure_rates
from fairfrontier.prepare.split import Part, Split
from fairfrontier.runtime.arrays import to_numpy
from fairfrontier.runtime.errors import ConfigError, DataError, GroupError
from fairfrontier.runtime.seeds import uniforms

Scale = Literal["probability", "margin", "signed"]
SCALES = ("probability", "margin", "signed")
# What rules of tables take beside: scores by their order, as knots of a score and f.
Points = Literal["points"]
Knots = Sequence[tuple[float, float]]

# Closer to −1 or 1 nobody tells scores apart.
SATURATED = 1e-6
# Standard errors of an AUC below ½ that are no chance.
DOUBT = 3.0
TURN = (
    "Turn them around if lower scores mean that label 1 is more likely (1 - score of "
    "probabilities, else -score), or name the other level as the positive one."
)


class PostProcessor(Classifier):
    """Base of the methods that turn scores into decisions, by group.

    ``fit(X, y, *, sensitive_features, sample_weight=None, validation=None)`` and ``predict_proba(X,
    *, sensitive_features)`` take the scores of a trained model as X, shape (n_samples,) or
    (n_samples, 1); ``validation`` is a Part whose X holds scores likewise. A subclass implements
    ``fit`` and ``probability``.

    Parameters
    ----------
    attributes : int, list of int or None
        Columns of ``sensitive_features`` whose cross product makes the groups; None crosses all.
    scale : {"probability", "margin", "signed"}
        What the scores are: P(Y=1|x), log odds, or f ∈ [−1, 1]; 1 is the last of the two labels.
    random_state : int
        Seed of the draws of ``predict``; no effect where nothing is random.

    Attributes
    ----------
    cells_ : ndarray of int64, shape (n_groups, n_attributes)
        The combinations of codes that make the groups, in ascending order.

    Notes
    -----
    Scores of rows that the model was trained on are overconfident: fit on other rows.
    """

    group_parameters: ClassVar[tuple[str, ...]] = ("attributes",)

    # Whether its probabilities are a corrected P(Y=1|x), and not those of a decision.
    rescores: ClassVar[bool] = False
    # Whether P(decision = 1) rises with the score in every group.
    monotone: ClassVar[bool] = False

    attributes: Attributes
    scale: Scale
    random_state: int
    cells_: np.ndarray

    @property
    def takes_unseen(self) -> bool:
        """Whether it decides on groups that no row of the fit had."""
        return False

    @property
    def mend_unseen(self) -> str:
        """What to do about such groups."""
        policy = " or with unseen: pooled" if hasattr(self, "unseen") else ""
        return (
            f"Fit the rule on rows of every group{policy}, or merge small groups in the dataset's "
            "YAML."
        )

    def check(self) -> None:
        """Raise ConfigError for invalid parameters."""
        self.require("scale", self.scale in SCALES, "probability, margin or signed")

    def __sklearn_tags__(self) -> Any:
        """Return scikit-learn's tags: X may be one-dimensional."""
        tags = super().__sklearn_tags__()
        tags.input_tags.one_d_array = True
        return tags

    def validate_training(
        self, X: Any, y: Any, *aligned: Any, sample_weight: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the scores of a fit as f ∈ [−1, 1], and its labels as codes of ``classes_``.

        A TrainingWarning is given for scores that predict the opposite of the labels.
        """
        rows, codes = super().validate_training(as_column(X), y, *aligned)
        signed = read_scores(rows, self.scale, self.name)
        if self.scale == "margin" and 2 * count_saturated(np.ravel(rows), signed) > signed.size:
            raise refuse_saturated(self.name)
        weight = training_weight(sample_weight, signed.size)
        if found := find_backward(signed, codes, weight):
            warnings.warn(
                f"The scores that {self.name} got {found} {TURN}", TrainingWarning, stacklevel=3
            )
        return signed, codes

    def validate_rows(self, X: Any) -> np.ndarray:
        """Return the scores of a prediction as f ∈ [−1, 1], float64, (n_samples,)."""
        return read_scores(super().validate_rows(as_column(X)), self.scale, self.name)

    def learn_target(self, y: np.ndarray) -> np.ndarray:
        """Set ``classes_`` and return the labels' codes; a sample may lack one of 0 and 1."""
        if y.dtype.kind in "iuf" and ((y == 0) | (y == 1)).all():
            self.classes_ = np.arange(2, dtype=y.dtype)
            return y.astype(np.int64)
        return super().learn_target(y)

    def supports(self, split: Split) -> str | None:
        """Return why it cannot be fitted on ``split``, whose one feature must be a score."""
        if len(split.feature_names) != 1:
            return f"{self.name} decides from scores: put it behind a method, as then: {self.name}."
        return super(Classifier, self).supports(split)

    def predict(  # type: ignore[override]
        self, X: np.ndarray, *, sensitive_features: Any, ids: np.ndarray | None = None
    ) -> np.ndarray:
        """Return decisions as labels, shape (n_samples,).

        ``sensitive_features`` has shape (n_samples, n_attributes). Randomised rules need the row
        ``ids``, since a draw depends on (``random_state``, row id): ConfigError without them.
        """
        probability = self.predict_proba(X, sensitive_features=sensitive_features)[:, 1]
        if not self.randomized:
            return self.classes_[(probability >= self.cut_).astype(np.int64)]
        if ids is None:
            raise ConfigError(
                f"{self.name} draws its decisions by row id, but got no ids.",
                "Pass ids=part.ids, or use predict_proba, which is exact.",
            )
        return self.classes_[(uniforms(self.random_state, ids) < probability).astype(np.int64)]

    def predict_proba(  # type: ignore[override]
        self, X: np.ndarray, *, sensitive_features: Any
    ) -> np.ndarray:
        """Return the exact probabilities of the decisions 0 and 1, float64, (n_samples, 2)."""
        rows = self.validate_rows(X)
        with explaining():
            check_consistent_length(rows, sensitive_features)
        chance = self.probability(rows, self.encode(sensitive_features))
        return np.column_stack([1.0 - chance, chance])

    def score(  # type: ignore[override]
        self,
        X: np.ndarray,
        y: np.ndarray,
        sample_weight: np.ndarray | None = None,
        *,
        sensitive_features: Any,
    ) -> float:
        """Return the accuracy of the decisions, or its expectation where they are random."""
        positive = self.predict_proba(X, sensitive_features=sensitive_features)[:, 1]
        if not self.randomized:
            positive = (positive >= self.cut_).astype(np.float64)
        correct = np.where(self.encode_labels(y) == 1, positive, 1.0 - positive)
        return float(np.average(correct, weights=sample_weight))

    def probability(self, signed: np.ndarray, code: np.ndarray) -> np.ndarray:
        """Return P(decision = 1) for scores f ∈ [−1, 1] and codes of ``cells_``, float64."""
        raise NotImplementedError

    def describe_rule(self) -> FittedRule | None:
        """Return thresholds by group that decide alike; None where the rule is of another kind.

        Its facts are of the fit, as `count_rates` makes them. ConfigError says why this fit has
        none, or none on scores as they are.
        """
        return None

    def count_rates(self, h: np.ndarray, code: np.ndarray, weight: np.ndarray) -> dict[str, Any]:
        """Return the ``rows`` of every group and its ``rates`` E[h | group], as plain lists.

        ``h``, codes of ``cells_`` and weights have shape (n_samples,); every group has weight.
        """
        size = len(self.cells_)
        rows, rates = np.bincount(code, minlength=size), measure_rates(h, code, weight, size)
        return {"rows": rows.tolist(), "rates": rates.tolist()}

    def try_prediction(self) -> None:
        """Decide on scores of zero in every group."""
        count, columns = len(self.cells_), self.columns
        known = vars(self).get(FEATURES)
        width = len(known.levels) if known else max(columns) + 1
        groups = Codes.of(
            np.zeros((count + TRIED, width), dtype=np.int64), known.names if known else ()
        )
        groups[:, columns] = self.cells_[np.arange(len(groups)) % count]
        score, ids = np.zeros(len(groups)), np.arange(len(groups))
        decision, chance = (
            self.predict(score, sensitive_features=groups, ids=ids),
            self.predict_proba(score, sensitive_features=groups),
        )
        if decision.shape != score.shape or chance.shape != (*score.shape, 2):
            raise ValueError("it has not one decision for every row")

    @property
    def columns(self) -> list[int]:
        """The columns of ``sensitive_features`` whose cross product made the groups of the fit."""
        given = vars(self).get(FEATURES)
        if given is None:
            named = [getattr(self, name) for name in self.group_parameters]
            last = max((max(np.ravel(each)) for each in named if each is not None), default=0)
            numbers = np.arange(max(self.cells_.shape[1], last + 1))[None, :]
        else:
            numbers = Codes.of(np.arange(len(given.levels))[None, :], given.names)
        columns: list[int] = self.cross(numbers)[0].tolist()
        return columns

    def learn_cells(self, groups: np.ndarray) -> np.ndarray:
        """Set ``cells_`` from the rows of a fit and return their codes, int64, (n_samples,)."""
        self.cells_, codes = number_cells(self.cross(groups))
        return codes

    def cross(self, groups: np.ndarray) -> np.ndarray:
        """Return the columns of ``groups`` whose cross product makes the groups."""
        return choose_columns(groups, self.attributes)

    def name_cell(
        self, cell: np.ndarray, attributes: Mapping[str, Sequence[str]]
    ) -> dict[str, str]:
        """Return attribute -> level of one of ``cells_``, from all attributes and their levels."""
        items = list(attributes.items())
        columns = self.cross(np.arange(len(items))[None, :])[0]
        chosen = [items[column] for column in columns.tolist()]
        return {name: levels[code] for (name, levels), code in zip(chosen, cell, strict=True)}

    def refuse_cell(self, cell: np.ndarray, fault: str, mend: str) -> GroupError:
        """Return an error about a combination of codes, which ``fault`` calls ``{group}``."""
        return GroupError(fault, mend, dict(zip(self.columns, cell.tolist(), strict=True)))

    def require_weight(self, code: np.ndarray, weight: np.ndarray, rows: str) -> None:
        """Raise GroupError where a group has no weight."""
        lacking = np.bincount(code, weights=weight, minlength=len(self.cells_)) == 0
        if lacking.any():
            raise self.refuse_cell(
                self.cells_[lacking][0],
                f"No {rows} row with weight is of the group {{group}}, which {self.name} needs.",
                "Merge small groups in the dataset's YAML, or give that part more rows.",
            )

    def encode(self, groups: np.ndarray) -> np.ndarray:
        """Return the codes of ``groups`` among ``cells_``, int64, (n_samples,).

        A combination that no row of the fit had is a GroupError, or has the code ``len(cells_)``
        where the rule ``takes_unseen`` ones.
        """
        present, inverse = number_cells(self.cross(groups))
        known = {tuple(cell): code for code, cell in enumerate(self.cells_.tolist())}
        codes = [known.get(tuple(cell), len(known)) for cell in present.tolist()]
        if len(known) in codes and not self.takes_unseen:
            raise self.refuse_cell(
                present[codes.index(len(known))],
                f"{self.name} cannot decide: it was fitted without a row of the group {{group}}.",
                self.mend_unseen,
            )
        numbered: np.ndarray = np.asarray(codes, dtype=np.int64)[inverse]
        return numbered


def is_number(value: Any) -> bool:
    """Return whether a parameter is a finite number, and no truth value."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def as_column(X: Any) -> Any:
    """Return scores as one column; a matrix is returned unchanged."""
    scores = X if hasattr(X, "ndim") else np.asarray(X)
    return to_numpy(scores)[:, None] if scores.ndim == 1 else scores


def read_scores(X: np.ndarray, scale: Scale | Points, name: str, knots: Knots = ()) -> np.ndarray:
    """Return scores as f(x) ∈ [−1, 1], an estimate of 2 P(Y=1|x) − 1, shape (n_samples,).

    X has shape (n_samples,) or (n_samples, 1): a probability p becomes 2p − 1, a margin m (log
    odds) tanh(m/2), and points are read off ``knots``, ascending pairs of a score and f. DataError,
    about ``name``, is raised for another shape, NaN, or values outside the scale.
    """
    score = np.asarray(X, dtype=np.float64)
    score = score[:, 0] if score.ndim == 2 and score.shape[1] == 1 else score
    if score.ndim != 1:
        raise DataError(
            f"{name} got scores of shape {score.shape}.",
            "Give one score per row: predict_proba(X)[:, 1], for example.",
        )
    if not np.isfinite(score).all():
        raise DataError(f"{name} got scores that are not finite.", "Leave such rows out.")
    if scale == "margin":
        return np.asarray(2.0 * expit(score) - 1.0)
    if scale == "points":
        return np.asarray(np.interp(score, *np.array(knots).T))
    low = 0.0 if scale == "probability" else -1.0
    if score.size and (score.min() < low - 1e-9 or score.max() > 1.0 + 1e-9):
        raise DataError(
            f"{name} got scores from {score.min():.3g} to {score.max():.3g} as "
            f"{scale}, which lie in {low:g} to 1.",
            "Set scale to what they are: probability, margin or signed.",
        )
    score = np.clip(score, low, 1.0)
    return 2.0 * score - 1.0 if scale == "probability" else score


def count_saturated(score: np.ndarray, signed: np.ndarray) -> int:
    """Return how many rows of different scores are all but −1 or 1, where their order is lost."""
    ends = np.abs(signed) > 1.0 - SATURATED
    return int(ends.sum()) if np.unique(score[ends]).size > 2 else 0


def refuse_saturated(name: str) -> DataError:
    """Return an error about log odds most of which are as good as certain."""
    return DataError(
        f"Most scores of {name} are a probability of 0 or 1 as log odds, which they hardly are.",
        "Say what they are: for `fairfrontier debias --scale points` only their order counts.",
    )


def find_backward(
    signed: np.ndarray, y: np.ndarray, weight: np.ndarray, size: float | None = None
) -> str:
    """Return what scores do by which rows of label 0 are surely above those of label 1; else "".

    That is where the AUC is more than ``DOUBT`` standard errors below ½, by the variance that it
    has by chance, (n_0 + n_1 + 1)/(12 n_0 n_1). ``size`` is how many rows there are, by default
    (Σw)²/Σw². O(n log n).
    """
    _, rank = np.unique(signed, return_inverse=True)
    positive, negative = (np.bincount(rank, weight * (y == label)) for label in (1, 0))
    total = weight.sum()
    if not (positive.sum() > 0 and negative.sum() > 0):
        return ""
    below = np.cumsum(negative) - negative / 2
    auc = float((positive * below).sum() / (positive.sum() * negative.sum()))
    size = float(total**2 / (weight**2).sum()) if size is None else size
    ones, zeros = size * positive.sum() / total, size * negative.sum() / total
    if auc >= 0.5 - DOUBT * math.sqrt((ones + zeros + 1) / (12 * ones * zeros)):
        return ""
    return f"predict the opposite of the labels: their AUC is {auc:.2f}, below 0.50."


def rescale(signed: float, scale: Scale | Points, knots: Knots = ()) -> float | None:
    """Return a point of [−1, 1] on the scale of the scores; None outside."""
    if not -1.0 <= signed <= 1.0:
        return None
    if scale == "probability":
        return (signed + 1.0) / 2.0
    if scale == "points":
        score, f = np.array(knots).T
        return float(np.interp(signed, f, score)) if f[0] <= signed <= f[-1] else None
    if scale == "margin":
        return None if abs(signed) == 1.0 else 2.0 * math.atanh(signed)
    return signed


def score_part(part: Part, score: np.ndarray) -> Part:
    """Return a part whose one feature is a score, without counterfactuals."""
    X = np.asarray(score, dtype=np.float64)[:, None]
    return replace(part, X=X, counterfactuals={}, feature_names=("score",))
