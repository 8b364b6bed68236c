"""The scores of any classifier, and what its fit takes beside rows and labels."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn import get_config
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import Pipeline
from sklearn.utils.metadata_routing import get_routing_for_object
from sklearn.utils.validation import has_fit_parameter, validate_data

from fairfrontier.models.base import Estimator, UnfittedError, explaining, training_weight
from fairfrontier.runtime.arrays import to_host
from fairfrontier.runtime.errors import ConfigError, FairfrontierError, InputError, InputTypeError


def score_rows(estimator: Any, X: Any, positive: Any, name: str) -> tuple[np.ndarray, bool]:
    """Return the scores that a fitted classifier gives to rows, and whether they are probabilities.

    Parameters
    ----------
    estimator : estimator
        Of any library: its ``predict_proba`` is asked, else its ``decision_function``, which of two
        classes is turned around where ``positive`` is the first of its labels.
    X : array or frame
        As the estimator takes it.
    positive : object or ndarray
        The one of two labels that larger scores make more likely, or three labels or more.
    name : str
        What errors call the estimator, such as "The member gbdt".

    Returns
    -------
    score : ndarray of float64, shape (n_samples,) or (n_samples, n_labels)
    probability : bool
        Whether a score is P(Y = positive | x); else only the order counts.

    Raises
    ------
    ConfigError
        For an estimator with neither, or that does not know these labels.
    InputError
        For rows that it refuses, and scores that are no numbers. UnfittedError, if it is not
        fitted.
    """
    method = choose_response(estimator, name)
    try:
        output = getattr(estimator, method)(X)
    except NotFittedError as error:
        raise UnfittedError(
            f"{name} is not fitted.", "Fit it first, or let it be fitted: prefit=False."
        ) from error
    except FairfrontierError:
        raise
    except (TypeError, ValueError) as error:
        text = " ".join(str(error).split())
        raise InputError(
            f"{name} refuses these rows: {text}", "Give rows as those that it was fitted on."
        ) from error
    known = method == "predict_proba"
    # Probabilities without names are those of the labels in order.
    unnamed = positive if np.ndim(positive) else [None, positive]
    classes = getattr(estimator, "classes_", unnamed if known else [])
    return take_response(output, np.asarray(classes), positive, name), known


def score_as_probability(estimator: Any, X: Any, positive: Any, name: str) -> np.ndarray:
    """Return P(Y = positive | x), float64 (n_samples,); of a margin m, (1 + m / (1 + |m|)) / 2.

    See `score_rows` for what is refused.
    """
    score, known = score_rows(estimator, X, positive, name)
    # Unlike the logistic function it does not saturate.
    return score if known else 0.5 + 0.5 * score / (1.0 + np.abs(score))


def choose_response(estimator: Any, name: str) -> str:
    """Return the method that gives an estimator's scores; ConfigError where it has none."""
    for method in ("predict_proba", "decision_function"):
        if hasattr(estimator, method):
            return method
    raise ConfigError(
        f"{name} has neither predict_proba nor decision_function.",
        "Thresholds need scores: wrap it in CalibratedClassifierCV, for example.",
    )


def take_response(output: Any, classes: np.ndarray, positive: Any, name: str) -> np.ndarray:
    """Return the scores of one of two labels, or of several, from an estimator's output."""
    known, several = classes.tolist(), np.ndim(positive) > 0
    asked = np.asarray(positive).tolist() if several else [positive]
    size = len(asked) if several else 2
    if len(known) != size or not set(asked) <= set(known):
        among = f"among {'two' if size == 2 else size} labels"
        raise ConfigError(
            f"{name} knows the labels {', '.join(map(str, known)) or 'of no classes'}, and scores "
            f"of {', '.join(map(str, asked))} {among} are asked for.",
            f"Give a classifier of {'two' if size == 2 else size} classes, and the labels that it "
            "was fitted on.",
        )
    columns, table = [known.index(each) for each in asked], np.asarray(output, dtype=np.float64)
    if several:
        score = table[:, columns]
    else:
        score = table[:, columns[0]] if table.ndim == 2 else table if columns[0] else -table
    if not np.isfinite(score).all():
        raise InputError(
            f"{name} has no finite score for {np.count_nonzero(~np.isfinite(score))} rows.",
            "Let it handle what those rows hold.",
        )
    return score


def choose_asked(rule: Any) -> Any:
    """Return the label of which a rule needs a score, its favourable one; of several all."""
    if rule.classes_.size > 2:
        return rule.classes_
    return getattr(rule, "favourable", rule.classes_[1])


def unfreeze(estimator: Any) -> Any:
    """Return the estimator that a frozen one holds."""
    while isinstance(estimator, FrozenEstimator):
        estimator = estimator.estimator
    return estimator


def name_estimator(estimator: Any) -> str:
    """Return what errors call an estimator: its class, of a pipeline that of the last step."""
    last = unfreeze(estimator)
    while isinstance(last, Pipeline):
        last = unfreeze(last.steps[-1][1])
    return f"The estimator {type(last).__name__}"


@dataclass(frozen=True, eq=False)
class Scored:
    """The fitted estimator of a rule, and what it says of the rows of the rule's fit.

    ``score`` are those of models that were not trained on the row, ``probability`` says what they
    are. ``codes`` are 1 of the favourable label; of several classes they are those of all labels.
    """

    estimator: Any
    score: np.ndarray
    probability: bool
    codes: np.ndarray


def score_training(rule: Any, X: Any, y: Any, groups: Any, sample_weight: Any) -> Scored:
    """Fit the ``estimator`` of a rule, where it is not fitted, and return its scores of the rows.

    The rule's ``classes_`` are learnt first. Of one that is fitted, by ``prefit`` or as a
    ``FrozenEstimator``, all rows are scored; else they are cross-fitted by ``cv``.
    """
    name = name_estimator(rule.estimator)
    if y is None:
        raise InputError(
            f"{rule.name} requires y to be passed, but the target y is None.",
            "Pass labels, or scores without an estimator.",
        )
    with explaining():
        labels = validate_data(rule, y=to_host(y))
        codes = rule.learn_target(labels)
    weight = None if sample_weight is None else training_weight(sample_weight, len(codes))
    positive, fitted = choose_asked(rule), rule.estimator
    if rule.prefit or isinstance(fitted, FrozenEstimator):
        score, known = score_rows(fitted, X, positive, name)
    else:
        method = choose_response(fitted, name)
        keywords = list_fit_keywords(fitted, name, sample_weight=weight, sensitive_features=groups)
        fitted, output = cross_fit(fitted, X, labels, method, rule.cv, keywords)
        score = take_response(output, np.unique(labels), positive, name)
        known = method == "predict_proba"
    return Scored(fitted, score, known, codes)


def cross_fit(
    estimator: Any, X: Any, y: np.ndarray, method: str, cv: Any, keywords: Mapping[str, Any]
) -> tuple[Any, np.ndarray]:
    """Return a copy that is fitted on all rows, and what those of other folds say of each row."""
    name = name_estimator(estimator)
    try:
        output = cross_val_predict(estimator, X, y, cv=cv, method=method, params=dict(keywords))
        return clone(estimator).fit(X, y, **keywords), np.asarray(output)
    except FairfrontierError as error:
        raise InputError(f"{name} failed: {error.fault}", error.mend) from error
    except (TypeError, ValueError) as error:
        text = " ".join(str(error).split())
        kind = InputTypeError if isinstance(error, TypeError) else InputError
        raise kind(
            f"{name} cannot be trained on these rows: {text}",
            "Give it as a pipeline that encodes what the rows hold.",
        ) from error


def list_fit_keywords(
    estimator: Any, name: str, *, sample_weight: np.ndarray | None, sensitive_features: Any
) -> dict[str, Any]:
    """Return which of the two the fit of an estimator takes, by its names for them.

    By scikit-learn's metadata routing, where that is enabled, what the estimator requests; else
    weights go to its last step, and sensitive features to registered methods that take them.
    ConfigError is raised for weights other than 1 that it does not take.
    """
    given = {"sample_weight": sample_weight, "sensitive_features": sensitive_features}
    given = {key: value for key, value in given.items() if value is not None}
    prefix, last = "", estimator
    while isinstance(last, Pipeline):
        step, last = last.steps[-1]
        prefix += f"{step}__"
    weighted = sample_weight is not None and not (sample_weight == 1).all()
    if get_config()["enable_metadata_routing"]:
        consumed = get_routing_for_object(estimator).consumes("fit", given)
        asked = getattr(get_routing_for_object(last), "fit", None)
        unsaid = asked is not None and asked.requests.get("sample_weight", "") is None
        if weighted and unsaid and not isinstance(last, FrozenEstimator):
            raise ConfigError(
                f"{name} does not say whether it takes case weights.",
                "Call its set_fit_request(sample_weight=True), or False to leave them out.",
            )
        return {key: given[key] for key in consumed}
    if isinstance(last, FrozenEstimator):
        return {}
    taken: dict[str, Any] = {}
    if weighted:
        parameters = inspect.signature(last.fit).parameters.values()
        passes = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters)
        if not passes and not has_fit_parameter(last, "sample_weight"):
            raise ConfigError(f"{name} takes no case weights.", "Leave it out, or the weights.")
        taken[f"{prefix}sample_weight"] = sample_weight
    if isinstance(last, Estimator) and "sensitive_features" in last.fit_takes:
        taken[f"{prefix}sensitive_features"] = sensitive_features
    return taken
