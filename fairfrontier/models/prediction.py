"""Predictions of a fitted model for the rows of a part and their counterfactual versions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from fairfrontier.prepare.split import Part, Task
from fairfrontier.runtime.errors import DataError, GroupError

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
        Probability that the decision is 1, for deterministic rules 0.0 or 1.0; class codes for
        K > 2 classes, the value for a regression.
    counterfactuals : mapping of str to tuple of (str, ndarray)
        Name of a counterfactual set -> (variant name, decision on that variant), in order. Where
        the set says which rows have versions, of these rows only.
    components : ndarray of float64, shape (n_samples, n_components), or None
        Predictions of each regressor of a randomised regression. For targets the score is their
        mean; for two classes it is P(Y=1|x), derived from these numbers u.
    probability : ndarray of float64, shape (n_components,), or None
        Probability of each regressor, the same in every row; above 0, adding up to 1.
    counterfactual_scores : mapping of str to tuple of ndarray of float64
        Name of a counterfactual set -> the score on each of its variants, in order, of the rows
        that have versions: (n_rows,) or (n_rows, n_classes), rounded to 32 bits.
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
        """The possible values of a regression, (n, K), and their probabilities, (K,).

        The score alone, with probability 1, for deterministic models.
        """
        if self.components is None or self.probability is None:
            return self.score[:, None], np.ones(1)
        return self.components, self.probability


def task_of(part: Part) -> Task:
    """Return the task that belongs to the labels of ``part``."""
    if not part.classes:
        return "regression"
    return "binary" if len(part.classes) <= 2 else "multiclass"


def predict_part(model: Any, part: Part) -> Prediction:
    """Return the predictions for a part and for every variant of its counterfactual sets.

    Parameters
    ----------
    model : estimator
        Fitted, of any library. For classes ``predict_proba`` is called, or else ``predict`` (its
        codes then serve as scores); for a regression ``predict``. ``sensitive_features=`` and
        ``ids=`` are passed when its attribute ``predict_needs`` names them. With the attribute
        ``randomized = True`` the probabilities are those of the decision itself. A regression that
        draws one of K regressors for every prediction has ``predict_components``, which returns
        (n_samples, K), and ``probability_``, shape (K,).
    part : Part
        Rows with their counterfactual sets.

    Raises
    ------
    DataError
        When predictions have the wrong shape, are not finite or no probabilities, or name classes
        that the part does not have; for a regression on labels that are classes; when the model was
        fitted on other features than the part has, or on the same in another order.

    Notes
    -----
    Variants are made one at a time: memory is one copy of X, whatever their number. Rows that a set
    does not change are not predicted again. A rule that depends on groups gets the variant's
    groups. Regressors with probability 0 are omitted from ``components``.
    """
    check_features(model, part)
    components, probability = _predict_components(model, part)
    if task_of(part) == "regression" and components is not None:
        score = decision = components @ probability
    else:
        score, decision = predict_rows(model, part, part.X, part.groups)
    if probability.size == 1 and task_of(part) == "regression":
        components = None
    variants, scores = predict_variants(model, part)
    if components is None:
        return Prediction(score, decision, variants, counterfactual_scores=scores)
    return Prediction(score, decision, variants, components, probability, scores)


def check_features(model: Any, part: Part) -> None:
    """Raise DataError unless a part has the features that a model was fitted on, in their order."""
    count = getattr(model, "n_features_in_", part.X.shape[1])
    fitted = [str(name) for name in getattr(model, "feature_names_in_", part.feature_names)]
    names = part.feature_names or fitted
    differing = next(
        (pair for pair in zip(fitted, names, strict=False) if len(set(pair)) > 1), None
    )
    if count != part.X.shape[1]:
        difference = f"takes {count} features, and {part.dataset} has {part.X.shape[1]}"
    elif differing:
        order = "in another order than" if sorted(fitted) == sorted(names) else "that are not"
        difference = (
            f"was fitted on features {order} those of {part.dataset}: {differing[0]!r} stood where "
            f"{differing[1]!r} stands"
        )
    else:
        return
    raise DataError(
        f"This {type(model).__name__} {difference}.",
        "Name the dataset that it was trained on, or train it again on this one.",
    )


def predict_variants(model: Any, part: Part) -> tuple[Mapping[str, Variants], Mapping[str, Scores]]:
    """Return ``counterfactuals`` and ``counterfactual_scores`` of the `Prediction` for a part."""
    counterfactuals: dict[str, Variants] = {}
    scores: dict[str, Scores] = {}
    for name, variants in part.counterfactuals.items():
        rows = part if variants.rows is None else part.take(variants.rows)
        decided: list[tuple[str, np.ndarray]] = []
        scored: list[np.ndarray] = []
        for variant in rows.counterfactuals[name]:
            score, decision = predict_rows(model, rows, variant.X, variant.groups)
            decided.append((variant.name, decision))
            # Rounded as they are stored, so that they are measured alike now and later.
            scored.append(score.astype(np.float32).astype(np.float64))
        counterfactuals[name], scores[name] = tuple(decided), tuple(scored)
    return MappingProxyType(counterfactuals), MappingProxyType(scores)


def _predict_components(model: Any, part: Part) -> tuple[np.ndarray | None, np.ndarray]:
    """Return the predictions and probabilities of a randomised model's regressors."""
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
    """Return the keywords that the model's predictions need."""
    needs: frozenset[str] = getattr(model, "predict_needs", frozenset())
    keywords = {"sensitive_features": groups, "ids": part.ids}
    return {key: value for key, value in keywords.items() if key in needs}


@contextmanager
def _naming(part: Part) -> Iterator[None]:
    """Name the group that an error is about."""
    try:
        yield
    except GroupError as error:
        raise error.name(part.attributes) from None


def predict_rows(
    model: Any, part: Part, X: np.ndarray, groups: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return (score, decision) of the model on one version of the part's rows."""
    keywords = _keywords(model, part, groups)
    task = task_of(part)
    if task != "regression" and getattr(model, "task", None) == frozenset({"regression"}):
        raise DataError(
            f"{type(model).__name__} is a regression, and the label of {part.dataset} has classes: "
            "its values are not decisions.",
            "Give the dataset a label with task: regression, as adult-regression has.",
        )
    if task == "regression" or not hasattr(model, "predict_proba"):
        with _naming(part):
            output = np.asarray(model.predict(X, **keywords), dtype=np.float64)
        _check(model, part, output, (X.shape[0],))
        if task == "regression":
            return output, output
        probability = _one_hot(model, part, output)
    else:
        with _naming(part):
            output = np.asarray(model.predict_proba(X, **keywords), dtype=np.float64)
        codes = _codes(model, part, output)
        _check(model, part, output, (X.shape[0], codes.size))
        if output.size and (output.min() < -1e-9 or output.max() > 1 + 1e-9):
            raise DataError(
                f"{type(model).__name__}.predict_proba returns values outside 0 to 1 "
                f"on {part.dataset}/{part.name}.",
                "Return probabilities of the classes, in the order of their codes.",
            )
        probability = np.zeros((X.shape[0], max(2, len(part.classes))))
        probability[:, codes] = np.clip(output, 0.0, 1.0)
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
    cut = getattr(model, "cut_", 0.5)
    return score, score if randomized else (score >= cut).astype(np.float64)


def _codes(model: Any, part: Part, output: np.ndarray) -> np.ndarray:
    """Return the class code of each column of ``output``: a fit may have seen fewer classes."""
    n_classes = max(2, len(part.classes))
    codes = np.asarray(getattr(model, "classes_", np.arange(n_classes)))
    if codes.dtype.kind in "OU" and np.isin(codes, part.classes).all():
        # Fitted on the names of the classes.
        codes = np.asarray([part.classes.index(name) for name in codes.tolist()])
    if not np.issubdtype(codes.dtype, np.number) or not np.isin(codes, np.arange(n_classes)).all():
        raise DataError(
            f"{type(model).__name__} was fitted on labels {codes.tolist()[:5]}, and "
            f"{part.dataset} codes its classes 0 to {n_classes - 1}.",
            "Fit it on the y of the same split.",
        )
    if output.ndim == 2 and codes.size != output.shape[1]:
        return np.arange(n_classes)
    return codes.astype(np.int64)


def _one_hot(model: Any, part: Part, output: np.ndarray) -> np.ndarray:
    """Return class codes as probabilities 0 and 1."""
    n_classes = max(2, len(part.classes))
    if not np.isin(output, np.arange(n_classes)).all():
        raise DataError(
            f"{type(model).__name__}.predict returns values that are no class codes of "
            f"{part.dataset} (0 to {n_classes - 1}).",
            "Give the model a predict_proba, or choose a classifier.",
        )
    return np.asarray(output[:, None] == np.arange(n_classes), dtype=np.float64)


def _check(model: Any, part: Part, output: np.ndarray, shape: tuple[int, ...]) -> None:
    """Raise DataError for predictions of the wrong shape or with values that are not finite."""
    where = f"on {part.dataset}/{part.name}"
    if output.shape != shape:
        raise DataError(
            f"{type(model).__name__} returns shape {output.shape} {where}, not {shape}.",
            "Return one row for each row of X, and one column for each class.",
        )
    if not np.isfinite(output).all():
        raise DataError(
            f"{type(model).__name__} returns NaN or infinities {where}.",
            "Check its training: it diverged, or got values out of range.",
        )
