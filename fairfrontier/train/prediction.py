"""What a fitted model says about the rows of a part and about their counterfactual versions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from fairfrontier.prepare.split import Part, Task
from fairfrontier.runtime.errors import DataError

Variants = tuple[tuple[str, np.ndarray], ...]
Scores = tuple[np.ndarray, ...]


@dataclass(frozen=True, eq=False)
class Prediction:
    """Scores and decisions of one model on one part.

    Attributes
    ----------
    score : ndarray of float64, shape (n_samples,) or (n_samples, n_classes)
        P(Y=1|x) of a binary task, the value of a regression, (n, K) for K > 2 classes.
    decision : ndarray of float64, shape (n_samples,)
        Probability that the decision is 1: 0.0 or 1.0 for deterministic rules, anything between
        for randomised ones. Class codes for K > 2 classes, the value for a regression.
    counterfactuals : mapping of str to tuple of (str, ndarray)
        Name of a counterfactual set -> (variant name, decision on that variant), in order. Where
        the set says which rows have versions, of these rows only.
    components : ndarray of float64, shape (n_samples, n_components), or None
        Of a randomised regression: what each of its regressors says. Of targets the score is their
        mean; of two classes it is P(Y=1|x), and these are the numbers u behind it.
    probability : ndarray of float64, shape (n_components,), or None
        Probability that a regressor answers, the same in every row; above 0, adding up to 1.
    counterfactual_scores : mapping of str to tuple of ndarray of float64
        Name of a set that says which rows have versions -> the score on each of its variants, in
        order, of these rows: (n_rows,) or (n_rows, n_classes), rounded to 32 bits.
    """

    score: np.ndarray
    decision: np.ndarray
    counterfactuals: Mapping[str, Variants] = field(default_factory=lambda: MappingProxyType({}))
    components: np.ndarray | None = None
    probability: np.ndarray | None = None
    counterfactual_scores: Mapping[str, Scores] = field(
        default_factory=lambda: MappingProxyType({})
    )

    @property
    def outcomes(self) -> tuple[np.ndarray, np.ndarray]:
        """The values that a regression may give every row, (n, K), and their probabilities, (K,).

        One value, the score, with probability 1 where nothing is drawn.
        """
        if self.components is None or self.probability is None:
            return self.score[:, None], np.ones(1)
        return self.components, self.probability


def task_of(part: Part) -> Task:
    """Return the task that the labels of ``part`` pose."""
    if not part.classes:
        return "regression"
    return "binary" if len(part.classes) <= 2 else "multiclass"


def predict_part(model: Any, part: Part) -> Prediction:
    """Ask a fitted model about a part and about every variant of its counterfactual sets.

    Parameters
    ----------
    model : estimator
        Scikit-learn shaped. For classes ``predict_proba`` is asked, or ``predict`` where there
        is none (its codes then serve as scores); for a regression ``predict``. ``groups=`` and
        ``ids=`` are passed when its attribute ``predict_needs`` names them. With the
        attribute ``randomized = True`` the probabilities are those of the decision itself. A
        regression that draws one of K regressors for every answer has ``predict_components``,
        which gives (n_samples, K), and ``probability_``, shape (K,).
    part : Part
        Rows with their counterfactual sets.

    Returns
    -------
    Prediction
        Arrays in the order of the part's rows.

    Raises
    ------
    DataError
        When the model's answer has the wrong shape, is not finite, is no probability, or names
        classes that the part does not have; when a regression is asked about classes.

    Notes
    -----
    Variants are made and asked one at a time: memory is one copy of X, whatever their number.
    Rows that a set leaves as they are, are not asked again.
    A rule that depends on groups gets the variant's groups, so its thresholds follow the flip.
    Regressors that are never drawn are left out of ``components``.
    """
    components, probability = _ask_components(model, part)
    if task_of(part) == "regression" and components is not None:
        score = decision = components @ probability
    else:
        score, decision = _ask(model, part, part.X, part.groups)
    if probability.size == 1 and task_of(part) == "regression":
        components = None
    variants, scores = predict_variants(model, part)
    if components is None:
        return Prediction(score, decision, variants, counterfactual_scores=scores)
    return Prediction(score, decision, variants, components, probability, scores)


def predict_variants(model: Any, part: Part) -> tuple[Mapping[str, Variants], Mapping[str, Scores]]:
    """Return a model's decisions on every variant of a part, and scores; see ``predict_part``.

    Returns
    -------
    counterfactuals : mapping of str to tuple of (str, ndarray)
    counterfactual_scores : mapping of str to tuple of ndarray
        Of the sets that say which rows have versions; as in ``Prediction``.
    """
    counterfactuals: dict[str, Variants] = {}
    scores: dict[str, Scores] = {}
    for name, variants in part.counterfactuals.items():
        asked = part if variants.rows is None else part.take(variants.rows)
        decided: list[tuple[str, np.ndarray]] = []
        scored: list[np.ndarray] = []
        for each in asked.counterfactuals[name]:
            score, decision = _ask(model, asked, each.X, each.groups)
            decided.append((each.name, decision))
            if variants.rows is not None:
                scored.append(_round(score))
        counterfactuals[name] = tuple(decided)
        if variants.rows is not None:
            scores[name] = tuple(scored)
    return MappingProxyType(counterfactuals), MappingProxyType(scores)


def _round(score: np.ndarray) -> np.ndarray:
    """Round to 32 bits: what is measured at once is what is stored and measured later."""
    return score.astype(np.float32).astype(np.float64)


def _ask_components(model: Any, part: Part) -> tuple[np.ndarray | None, np.ndarray]:
    """Return what each regressor of a model says that draws among some, and how often it does."""
    if task_of(part) == "multiclass" or not hasattr(model, "predict_components"):
        return None, np.ones(1)
    probability = np.asarray(model.probability_, dtype=np.float64)
    components = np.asarray(
        model.predict_components(part.X, **_keywords(model, part, part.groups)), dtype=np.float64
    )
    _check(model, part, components, (part.n_samples, probability.size))
    if not (probability >= 0).all() or abs(probability.sum() - 1) > 1e-9:
        raise DataError(
            f"The probabilities of the regressors of {type(model).__name__} are no distribution.",
            "Let them be 0 or more and add up to 1.",
        )
    drawn = np.flatnonzero(probability)
    return components[:, drawn], probability[drawn]


def _keywords(model: Any, part: Part, groups: np.ndarray) -> dict[str, np.ndarray]:
    """Return what a model needs to be told beside the features."""
    needs: frozenset[str] = getattr(model, "predict_needs", frozenset())
    offered = {"groups": groups, "ids": part.ids}
    return {key: offered[key] for key in offered if key in needs}


def _ask(
    model: Any, part: Part, X: np.ndarray, groups: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return (score, decision) of the model on one version of the part's rows."""
    keywords = _keywords(model, part, groups)
    task = task_of(part)
    if task != "regression" and getattr(model, "task", None) == frozenset({"regression"}):
        raise DataError(
            f"{type(model).__name__} is a regression, and the label of {part.dataset} has classes: "
            "its values are no decisions.",
            "Give the dataset a label with task: regression, as adult-regression has.",
        )
    if task == "regression" or not hasattr(model, "predict_proba"):
        answer = np.asarray(model.predict(X, **keywords), dtype=np.float64)
        _check(model, part, answer, (X.shape[0],))
        if task == "regression":
            return answer, answer
        probability = _one_hot(model, part, answer)
    else:
        answer = np.asarray(model.predict_proba(X, **keywords), dtype=np.float64)
        codes = _codes(model, part, answer)
        _check(model, part, answer, (X.shape[0], codes.size))
        if answer.size and (answer.min() < -1e-9 or answer.max() > 1 + 1e-9):
            raise DataError(
                f"{type(model).__name__}.predict_proba gives values outside 0 to 1 "
                f"on {part.dataset}/{part.name}.",
                "Return probabilities of the classes, in the order of their codes.",
            )
        probability = np.zeros((X.shape[0], max(2, len(part.classes))))
        probability[:, codes] = np.clip(answer, 0.0, 1.0)
    randomized = bool(getattr(model, "randomized", False))
    if task == "multiclass":
        if randomized:
            raise DataError(
                f"{type(model).__name__} is randomised, and {part.dataset} has "
                f"{len(part.classes)} classes.",
                "Randomised rules are for two classes: choose a deterministic method.",
            )
        return probability, np.argmax(probability, axis=1).astype(np.float64)
    score = np.ascontiguousarray(probability[:, 1])
    return score, score if randomized else (score >= 0.5).astype(np.float64)


def _codes(model: Any, part: Part, answer: np.ndarray) -> np.ndarray:
    """Return the class code of each column of ``answer``: a fit may have seen fewer classes."""
    n_classes = max(2, len(part.classes))
    codes = np.asarray(getattr(model, "classes_", np.arange(n_classes)))
    if codes.dtype.kind in "OU" and np.isin(codes, part.classes).all():
        # Fitted on the names of the classes.
        codes = np.asarray([part.classes.index(each) for each in codes.tolist()])
    if not np.issubdtype(codes.dtype, np.number) or not np.isin(codes, np.arange(n_classes)).all():
        raise DataError(
            f"{type(model).__name__} was fitted on labels {codes.tolist()[:5]}, and "
            f"{part.dataset} codes its classes 0 to {n_classes - 1}.",
            "Fit it on the y of the same split.",
        )
    if answer.ndim == 2 and codes.size != answer.shape[1]:
        return np.arange(n_classes)
    return codes.astype(np.int64)


def _one_hot(model: Any, part: Part, answer: np.ndarray) -> np.ndarray:
    """Return class codes as probabilities 0 and 1."""
    n_classes = max(2, len(part.classes))
    if not np.isin(answer, np.arange(n_classes)).all():
        raise DataError(
            f"{type(model).__name__}.predict gives values that are no class codes of "
            f"{part.dataset} (0 to {n_classes - 1}).",
            "Give the model a predict_proba, or choose a classifier.",
        )
    return np.asarray(answer[:, None] == np.arange(n_classes), dtype=np.float64)


def _check(model: Any, part: Part, answer: np.ndarray, shape: tuple[int, ...]) -> None:
    """Refuse an answer of the wrong shape or with values that are not finite."""
    where = f"on {part.dataset}/{part.name}"
    if answer.shape != shape:
        raise DataError(
            f"{type(model).__name__} answers with shape {answer.shape} {where}, "
            f"where {shape} was due.",
            "Return one row for each row asked, and one column for each class.",
        )
    if not np.isfinite(answer).all():
        raise DataError(
            f"{type(model).__name__} answers with NaN or infinities {where}.",
            "Look at its training: it diverged, or it was given values out of range.",
        )
