"""What every post-processor is: an estimator whose one feature is the score of another model."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np
from scipy.special import expit

from fairfrontier.prepare.split import Part, Split
from fairfrontier.runtime.errors import ConfigError, DataError
from fairfrontier.runtime.seeds import uniforms
from fairfrontier.train.base import Classifier

Scale = Literal["probability", "margin", "signed"]
SCALES = ("probability", "margin", "signed")

# Combinations of levels up to which groups are numbered by counting.
MOST_CELLS = 1 << 20


class PostProcessor(Classifier):
    """Base of the methods that turn scores into decisions, by group.

    ``fit(X, y, *, groups, sample_weight=None, validation=None)`` and ``predict_proba(X, *,
    groups)`` take as X the scores of a trained model, shape (n_samples,) or (n_samples, 1), on the
    parameter ``scale``: probabilities P(Y=1|x), log odds, or [−1, 1], where 1 is the last of the
    two labels. ``attributes`` names the columns of ``groups`` whose cross product makes the groups;
    None crosses all of them. ``validation`` is a Part whose X holds scores likewise. A subclass
    brings ``fit`` and ``probability``.

    Attributes
    ----------
    cells_ : ndarray of int64, shape (n_groups, n_attributes)
        The combinations of codes that make the groups, in ascending order.

    Notes
    -----
    What is fitted on rows that the model was trained on inherits its overconfidence there: fit on
    a fresh sample.
    """

    group_parameters: ClassVar[tuple[str, ...]] = ("attributes",)

    # Whether its probabilities are P(Y=1|x) corrected, and not those of a decision.
    rescores: ClassVar[bool] = False

    attributes: int | list[int] | None
    scale: Scale
    random_state: int
    cells_: np.ndarray

    def check(self) -> None:
        """Raise ConfigError for parameters that cannot be."""
        self.require("scale", self.scale in SCALES, "probability, margin or signed")

    def __sklearn_tags__(self) -> Any:
        """Return scikit-learn's tags: its rows are numbers."""
        tags = super().__sklearn_tags__()
        tags.input_tags.one_d_array = True
        return tags

    def validate_training(self, X: Any, y: Any, *aligned: Any) -> tuple[np.ndarray, np.ndarray]:
        """Check the scores and labels of a fit.

        Returns
        -------
        signed : ndarray of float64, shape (n_samples,)
            f ∈ [−1, 1]; see ``read_scores``.
        y : ndarray of int64, shape (n_samples,)
            Codes of ``classes_``.
        """
        rows, codes = super().validate_training(as_column(X), y, *aligned)
        return read_scores(rows, self.scale, self.name), codes

    def validate_rows(self, X: Any) -> np.ndarray:
        """Check the scores of a prediction and return f ∈ [−1, 1], float64, (n_samples,)."""
        return read_scores(super().validate_rows(as_column(X)), self.scale, self.name)

    def learn_target(self, y: np.ndarray) -> np.ndarray:
        """Set ``classes_`` and return the labels' codes; a sample may lack one of 0 and 1."""
        if y.dtype.kind in "iuf" and np.isin(y, (0, 1)).all():
            self.classes_ = np.arange(2, dtype=y.dtype)
            return y.astype(np.int64)
        return super().learn_target(y)

    def supports(self, split: Split) -> str | None:
        """Return why it cannot be fitted on ``split``, whose one feature must be a score."""
        if len(split.feature_names) != 1:
            return f"{self.name} decides from scores: put it behind a method, as then: {self.name}."
        return super(Classifier, self).supports(split)

    def predict(  # type: ignore[override]
        self, X: np.ndarray, *, groups: np.ndarray, ids: np.ndarray | None = None
    ) -> np.ndarray:
        """Return decisions as labels, shape (n_samples,).

        Parameters
        ----------
        X : ndarray, shape (n_samples,) or (n_samples, 1)
            Scores.
        groups : ndarray of int64, shape (n_samples, n_attributes)
            Group codes.
        ids : ndarray of int64, shape (n_samples,), optional
            Row ids; needed by randomised rules, whose draw belongs to (``random_state``, row id).

        Raises
        ------
        ConfigError
            When a randomised rule is given no ids.
        """
        probability = self.predict_proba(X, groups=groups)[:, 1]
        if not self.randomized:
            return self.classes_[(probability >= 0.5).astype(np.int64)]
        if ids is None:
            raise ConfigError(
                f"{self.name} draws its decisions by row id, and was given no ids.",
                "Pass ids=part.ids, or use predict_proba, which is exact.",
            )
        return self.classes_[(uniforms(self.random_state, ids) < probability).astype(np.int64)]

    def predict_proba(  # type: ignore[override]
        self, X: np.ndarray, *, groups: np.ndarray
    ) -> np.ndarray:
        """Return the exact probabilities of the decisions 0 and 1, float64, (n_samples, 2)."""
        chance = self.probability(self.validate_rows(X), self.encode(groups))
        return np.column_stack([1.0 - chance, chance])

    def score(  # type: ignore[override]
        self,
        X: np.ndarray,
        y: np.ndarray,
        sample_weight: np.ndarray | None = None,
        *,
        groups: np.ndarray,
    ) -> float:
        """Return the accuracy of the decisions, its expectation where they are drawn."""
        positive = self.predict_proba(X, groups=groups)[:, 1]
        if not self.randomized:
            positive = (positive >= 0.5).astype(np.float64)
        right = np.where(self.encode_labels(y) == 1, positive, 1.0 - positive)
        return float(np.average(right, weights=sample_weight))

    def probability(self, signed: np.ndarray, code: np.ndarray) -> np.ndarray:
        """Return P(decision = 1) for scores f ∈ [−1, 1] and codes of ``cells_``, float64."""
        raise NotImplementedError

    def learn_cells(self, groups: np.ndarray) -> np.ndarray:
        """Set ``cells_`` from the rows of a fit and return their codes, int64, (n_samples,)."""
        self.cells_, codes = number_cells(self.cross(groups))
        return codes

    def cross(self, groups: np.ndarray) -> np.ndarray:
        """Return the columns of ``groups`` whose combinations are told apart."""
        return choose_columns(groups, self.attributes, self.name)

    def name_cell(
        self, cell: np.ndarray, attributes: Mapping[str, Sequence[str]]
    ) -> dict[str, str]:
        """Return attribute -> level of one of ``cells_``, from all attributes and their levels."""
        named = list(attributes.items())
        columns = self.cross(np.arange(len(named))[None, :])[0]
        chosen = [named[column] for column in columns.tolist()]
        return {name: levels[code] for (name, levels), code in zip(chosen, cell, strict=True)}

    def encode(self, groups: np.ndarray) -> np.ndarray:
        """Return the codes of ``groups`` among ``cells_``, int64, (n_samples,).

        Raises
        ------
        DataError
            For a combination that no row of the fit had.
        """
        present, inverse = number_cells(self.cross(groups))
        places = {tuple(cell): code for code, cell in enumerate(self.cells_.tolist())}
        codes = [places.get(tuple(cell), -1) for cell in present.tolist()]
        if -1 in codes:
            cell = present[codes.index(-1)].tolist()
            raise DataError(
                f"{self.name} was fitted without a row of the group {cell}, which it is asked "
                "to decide on.",
                "Fit it on rows of every group, or merge small groups in the dataset's YAML.",
            )
        numbered: np.ndarray = np.asarray(codes, dtype=np.int64)[inverse]
        return numbered


def as_column(X: Any) -> Any:
    """Return scores in one column; what has columns stays as it is."""
    scores = X if hasattr(X, "ndim") else np.asarray(X)
    return np.asarray(scores)[:, None] if scores.ndim == 1 else scores


def choose_columns(groups: np.ndarray, attributes: int | list[int] | None, name: str) -> np.ndarray:
    """Return the chosen columns of ``groups`` as a matrix; None chooses all."""
    matrix = np.asarray(groups)
    matrix = matrix[:, None] if matrix.ndim == 1 else matrix
    if attributes is None:
        return matrix
    columns = list(attributes) if isinstance(attributes, list | tuple) else [attributes]
    if any(isinstance(each, str) for each in columns):
        raise ConfigError(
            f"{name} knows groups by their columns, and attributes is {attributes!r}.",
            "Give the column's number, or let post_process(model, split, ...) look names up.",
        )
    if not columns or max(columns) >= matrix.shape[1] or min(columns) < 0:
        raise ConfigError(
            f"{name} is to use the columns {columns} of groups, which has {matrix.shape[1]}.",
            "Name columns from 0, or leave attributes out to cross them all.",
        )
    return matrix[:, columns]


def number_cells(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct rows of a matrix of codes in ascending order, and which one each row is.

    Parameters
    ----------
    matrix : ndarray of int64, shape (n_samples, n_attributes)

    Returns
    -------
    cells : ndarray of int64, shape (n_cells, n_attributes)
    codes : ndarray of int64, shape (n_samples,)

    Notes
    -----
    O(n) where the attributes' levels combine to ``MOST_CELLS`` at most, by counting; else a sort.
    """
    if matrix.shape[0] and matrix.min() >= 0:
        sizes = tuple(int(size) + 1 for size in matrix.max(axis=0))
        if math.prod(sizes) <= MOST_CELLS:
            flat = np.ravel_multi_index(tuple(matrix.T), sizes)
            held = np.bincount(flat, minlength=math.prod(sizes)) > 0
            cells = np.column_stack(np.unravel_index(np.flatnonzero(held), sizes))
            return cells, (np.cumsum(held) - 1)[flat]
    cells, codes = np.unique(matrix, axis=0, return_inverse=True)
    return cells, codes.reshape(-1).astype(np.int64)


def read_scores(X: np.ndarray, scale: Scale, name: str) -> np.ndarray:
    """Return scores as f(x) ∈ [−1, 1], an estimate of 2 P(Y=1|x) − 1, shape (n_samples,).

    Parameters
    ----------
    X : ndarray, shape (n_samples,) or (n_samples, 1)
        A probability p becomes 2p − 1, a margin m (log odds) tanh(m/2), a signed score stays.
    scale : {"probability", "margin", "signed"}
        What X holds.
    name : str
        Whose scores, for the message.

    Raises
    ------
    DataError
        For another shape, NaN, or values outside the scale.
    """
    score = np.asarray(X, dtype=np.float64)
    score = score[:, 0] if score.ndim == 2 and score.shape[1] == 1 else score
    if score.ndim != 1:
        raise DataError(
            f"{name} was given scores of shape {score.shape}.",
            "Give one score a row: predict_proba(X)[:, 1], for example.",
        )
    if not np.isfinite(score).all():
        raise DataError(f"{name} was given scores that are not finite.", "Leave such rows out.")
    if scale == "margin":
        return np.asarray(2.0 * expit(score) - 1.0)
    low = 0.0 if scale == "probability" else -1.0
    if score.size and (score.min() < low - 1e-9 or score.max() > 1.0 + 1e-9):
        raise DataError(
            f"{name} was given scores from {score.min():.3g} to {score.max():.3g} as "
            f"{scale}, which lie in {low:g} to 1.",
            "Say what they are: scale: probability, margin or signed.",
        )
    score = np.clip(score, low, 1.0)
    return 2.0 * score - 1.0 if scale == "probability" else score


def score_part(part: Part, score: np.ndarray) -> Part:
    """Return a part whose one feature is a score, without counterfactuals."""
    return replace(part, X=np.asarray(score, dtype=np.float64)[:, None], counterfactuals={})
