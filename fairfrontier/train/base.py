"""What every estimator of the house is: scikit-learn's, saved without pickle."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, validate_data

from fairfrontier.prepare.split import Split, Task
from fairfrontier.runtime.errors import ConfigError, DataError, InputError
from fairfrontier.train.convention import UnfittedError, explaining, read_keywords
from fairfrontier.train.persistence import State, read_state, restoring, write_state

# What scikit-learn calls the attributes that a saved model keeps beside its own.
SHAPE, NAMES, CLASSES = "n_features_in_", "feature_names_in_", "classes_"


class Estimator(BaseEstimator):
    """Base of `Classifier` and `Regressor`, and so of the registered methods.

    ``__init__`` stores its arguments; fitted attributes end in ``_``. ``fit(X, y, *, ...)`` names
    those of ``groups``, ``metric``, ``sample_weight``, ``validation``, ``counterfactuals``,
    ``true_groups``, ``client`` and ``progress`` that it takes, and no others; scikit-learn's
    metadata routing reads them from the same signature. ``fit`` passes its rows and labels through
    ``validate_training`` and each prediction its rows through ``validate_rows``.

    Attributes
    ----------
    name : str
        Registered short name.
    task : frozenset of str
        The tasks it learns: ``binary``, ``multiclass``, ``regression``.
    fit_needs, fit_takes : frozenset of str
        Keywords of ``fit`` that are required, and all that it has: from its signature.
    predict_needs : frozenset of str
        Keywords of predictions that are required, ``groups`` or ``ids``: from their signatures.
    group_parameters : tuple of str
        Parameters that name a group attribute; a name is turned into the column of ``groups``.
    randomized : bool
        Whether decisions are random; then ``predict_proba`` is their exact probability.
    weights_are_counts : bool
        Whether a row with weight 2 equals that row twice, up to rounding.
    takes_missing : bool
        Whether features may be NaN.
    backends : tuple of str
        Array backends it computes with.
    distributed : bool
        Whether a fit of a study is spread over the cluster, which it then has to itself. Methods
        that take ``client`` for Dask arrays alone leave it: a study's tables are in memory, it has
        more fits than workers as a rule, and its points must not differ by the cluster's size.
    batched : bool
        Whether several models train at once by ``fit_batch``, those of one ``structure()``.
    across_splits : bool
        Whether that pays for models of different splits, too.
    paper : str
        Authors, title, year.
    example : mapping
        Parameters of a fit that takes a moment, for the contract tests.
    n_features_in_ : int
        Features of the rows of the fit.
    feature_names_in_ : ndarray of str, shape (n_features_in_,)
        Their names, where the rows of the fit had some.
    report_ : dict
        Of methods that have one after ``fit``: plain numbers and lists of them about the training
        itself (steps, calls, seconds), which a stored fit keeps in its ``fit.json``.
    infeasible_ : str or None
        Of methods that have one after ``fit``: a sentence that says why there is no model, and that
        the row of a study is skipped with; None where there is one.
    """

    name: ClassVar[str] = ""
    task: ClassVar[frozenset[Task]] = frozenset()
    fit_needs: ClassVar[frozenset[str]] = frozenset()
    fit_takes: ClassVar[frozenset[str]] = frozenset()
    predict_needs: ClassVar[frozenset[str]] = frozenset()
    group_parameters: ClassVar[tuple[str, ...]] = ()
    randomized: ClassVar[bool] = False
    weights_are_counts: ClassVar[bool] = True
    takes_missing: ClassVar[bool] = False
    backends: ClassVar[tuple[str, ...]] = ("numpy",)
    distributed: ClassVar[bool] = False
    batched: ClassVar[bool] = False
    across_splits: ClassVar[bool] = True
    paper: ClassVar[str] = ""
    example: ClassVar[Mapping[str, Any]] = {}

    n_features_in_: int
    feature_names_in_: np.ndarray

    if TYPE_CHECKING:
        # Each method's own keywords: a common signature would forbid those that it requires.
        fit: Any

    def __init_subclass__(cls, **keywords: Any) -> None:
        """Read from the signatures what ``fit`` takes and what predictions need."""
        super().__init_subclass__(**keywords)
        cls.fit_takes, cls.fit_needs = read_keywords(cls, "fit")
        cls.predict_needs = (
            read_keywords(cls, "predict")[1] | read_keywords(cls, "predict_proba")[1]
        )

    def __sklearn_tags__(self) -> Any:
        """Return scikit-learn's tags: labels are required, and which tables and tasks it takes."""
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.allow_nan = self.takes_missing
        return tags

    def validate_training(self, X: Any, y: Any, *aligned: Any) -> tuple[np.ndarray, np.ndarray]:
        """Check the table of a fit, learn its columns, and return it as arrays.

        Parameters
        ----------
        X : array or frame, shape (n_samples, n_features)
        y : array, shape (n_samples,)
        *aligned : array or None
            What else has one entry for each row: weights, groups.

        Returns
        -------
        X : ndarray of float64 or float32, shape (n_samples, n_features)
            The same object where it is such an array already.
        y : ndarray, shape (n_samples,)
            float64, or for a classifier codes of ``classes_``, int64.

        Raises
        ------
        InputError
            For tables that are not numbers, not finite, of different lengths, and so on.
        """
        with explaining():
            given = validate_data(self, X, y, **self._table_rules(), y_numeric=self._is_numeric())
            rows: np.ndarray = given[0]
            check_consistent_length(rows, *aligned)
        return rows, self.learn_target(given[1])

    def validate_rows(self, X: Any) -> np.ndarray:
        """Check the rows of a prediction against those of the fit, and return them as an array.

        Returns
        -------
        ndarray of float64 or float32, shape (n_samples, n_features)
            The same object where it is such an array already.

        Raises
        ------
        UnfittedError
            Before ``fit``.
        InputError
            For rows that are not numbers, or have other features than those of the fit.
        """
        if not hasattr(self, SHAPE):
            raise UnfittedError(f"This {type(self).__name__} is not fitted yet.", "Call fit first.")
        with explaining():
            rules = {**self._table_rules(), "ensure_min_samples": 0}
            rows: np.ndarray = validate_data(self, X, reset=False, **rules)
        return rows

    def learn_target(self, y: np.ndarray) -> np.ndarray:
        """Return the labels of a fit as the method learns them, and keep what they were."""
        raise NotImplementedError

    def _table_rules(self) -> dict[str, Any]:
        return {
            "dtype": (np.float64, np.float32),
            "ensure_all_finite": "allow-nan" if self.takes_missing else True,
        }

    def _is_numeric(self) -> bool:
        return False

    def structure(self) -> tuple[Any, ...]:
        """Return what models must share to be trained at once; of use to batched methods."""
        return ()

    @classmethod
    def fit_batch(
        cls,
        models: Sequence[Self],
        data: Sequence[Mapping[str, Any]],
        *,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        """Fit every model on its own data; batched methods do it in one program.

        Parameters
        ----------
        models : sequence of estimators
            Of one ``structure()``.
        data : sequence of mapping
            X, y and the keywords of ``fit``, one mapping per model.
        progress : callable, optional
            Called with (steps done, steps) by methods that take it.
        """
        for model, keywords in zip(models, data, strict=True):
            told = {"progress": progress} if "progress" in cls.fit_takes and progress else {}
            model.fit(**keywords, **told)

    def check(self) -> None:
        """Raise ConfigError for parameters that cannot be, before anything is computed."""

    def require(self, name: str, held: bool, wanted: str) -> None:
        """Raise ConfigError unless what is required of the parameter ``name`` is held."""
        if not held:
            raise ConfigError(
                f"The parameter {name!r} of {self.name!r} is {getattr(self, name)!r}.",
                f"Give {wanted}.",
            )

    def supports(self, split: Split) -> str | None:
        """Return why this method cannot be trained on ``split``, or None when it can."""
        if split.task not in self.task:
            return f"{self.name} learns {' and '.join(sorted(self.task))}, not {split.task}."
        if "groups" in self.fit_needs and not split.train.attributes:
            return f"{self.name} needs groups, and {split.dataset} declares none."
        # What a fair metric is learnt from.
        sources = split.protected_kinds or split.train.counterfactuals
        if "metric" in self.fit_needs and not sources:
            return (
                f"{self.name} needs a fair metric, and {split.dataset} protects no attribute and "
                "declares no counterfactuals."
            )
        return None

    def save(self, folder: str | Path) -> Path:
        """Write the fitted model to a new folder: JSON, npz and XGBoost UBJ with their digests.

        Parameters
        ----------
        folder : path
            Created where absent; must hold nothing yet.

        Returns
        -------
        Path
            The folder.

        Raises
        ------
        StoreError
            When the folder is not empty or cannot be written.
        """
        parameters, state = self.get_params(deep=False), self.pack_state()
        return write_state(Path(folder), self.name, parameters, state)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Read what ``save`` wrote, checking every digest; nothing is unpickled.

        Raises
        ------
        StoreError
            When a file is missing or altered, or the folder holds another method or version.
        """
        parameters, state = read_state(Path(folder), cls.name)
        with restoring(Path(folder)):
            model = cls(**parameters)
            model.unpack_state(state)
        return model

    def pack_state(self) -> State:
        """Return the method's state with the attributes that every estimator has."""
        state = self.get_state()
        kept = {key: vars(self)[key] for key in (NAMES, CLASSES) if key in vars(self)}
        # Strings of Python's in object arrays would be pickled.
        arrays = {key: np.asarray(value.tolist()) for key, value in kept.items()}
        return replace(
            state,
            arrays={**state.arrays, **arrays},
            facts={**state.facts, SHAPE: self.n_features_in_},
        )

    def unpack_state(self, state: State) -> None:
        """Restore what ``pack_state`` returned."""
        arrays, facts = dict(state.arrays), dict(state.facts)
        self.n_features_in_ = facts.pop(SHAPE)
        for key in (NAMES, CLASSES):
            if key in arrays:
                setattr(self, key, arrays.pop(key))
        if NAMES in vars(self):
            self.feature_names_in_ = self.feature_names_in_.astype(object)
        self.set_state(replace(state, arrays=arrays, facts=facts))

    def get_state(self) -> State:
        """Return the method's own fitted attributes as arrays, boosters and plain values."""
        raise NotImplementedError

    def set_state(self, state: State) -> None:
        """Restore the fitted attributes from what ``get_state`` returned."""
        raise NotImplementedError


class Classifier(ClassifierMixin, Estimator):
    """Base of the methods that learn classes; ``fit`` and ``predict_proba`` are the method's.

    Labels are strings, booleans or numbers; the method sees their codes 0, …, K − 1 in ascending
    order, and answers with their probabilities in that order.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels in ascending order; the last of two is the positive one.
    """

    task: ClassVar[frozenset[Task]] = frozenset({"binary"})

    classes_: np.ndarray

    def __sklearn_tags__(self) -> Any:
        """Return scikit-learn's tags, with whether there may be more than two classes."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = "multiclass" in self.task
        return tags

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        """Return class probabilities, float64, shape (n_samples, n_classes)."""
        raise NotImplementedError

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Return labels, shape (n_samples,); of two classes a tie at one half is the second."""
        probability = self.predict_proba(X)
        if probability.shape[1] == 2:
            codes = (probability[:, 1] >= 0.5).astype(np.int64)
        else:
            codes = np.argmax(probability, axis=1)
        labels: np.ndarray = self.classes_[codes]
        return labels

    def encode_labels(self, y: Any) -> np.ndarray:
        """Return the codes of labels among ``classes_``, int64, shape (n_samples,).

        Raises
        ------
        InputError
            For a label that no row of the fit had.
        """
        labels = np.asarray(y)
        codes = np.searchsorted(self.classes_, labels).clip(max=self.classes_.size - 1)
        known = self.classes_[codes] == labels
        if not known.all():
            raise InputError(
                f"{self.name} was fitted without the label {labels[~known][0]!s}.",
                f"Give labels among {', '.join(map(str, self.classes_.tolist()))}.",
            )
        found: np.ndarray = codes.astype(np.int64, copy=False)
        return found

    def supports(self, split: Split) -> str | None:
        """Return why this method cannot be trained on ``split``, or None when it can."""
        reason = super().supports(split)
        if reason is None and np.ptp(split.train.y) == 0:
            return f"{self.name} tells classes apart, and {split.dataset} trains on one class."
        return reason

    def learn_target(self, y: np.ndarray) -> np.ndarray:
        """Set ``classes_`` from the labels of a fit and return their codes.

        Returns
        -------
        ndarray of int64, shape (n_samples,)

        Raises
        ------
        InputError
            For labels that are no classes, of one class only, or of more than the method learns.
        """
        with explaining():
            check_classification_targets(y)
            self.classes_, codes = np.unique(y, return_inverse=True)
        if self.classes_.size < 2:
            raise InputError(
                f"{self.name} was given rows of one class only, {self.classes_[0]!s}.",
                "Give it rows of two classes at least.",
            )
        if self.classes_.size > 2 and "multiclass" not in self.task:
            raise InputError(
                f"{self.name} was given {self.classes_.size} classes. Only binary classification "
                "is supported.",
                "Choose a method that learns several, or merge classes into two.",
            )
        return codes.astype(np.int64, copy=False)


class Regressor(RegressorMixin, Estimator):
    """Base of the methods that learn numbers; ``fit`` and ``predict`` are the method's.

    Notes
    -----
    A method that draws one of K regressors for every answer has ``predict_components``, which
    gives float64 (n_samples, K), and ``probability_``, shape (K,); its ``predict`` is their mean.
    """

    task: ClassVar[frozenset[Task]] = frozenset({"regression"})

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Return predictions, float64, shape (n_samples,)."""
        raise NotImplementedError

    def learn_target(self, y: np.ndarray) -> np.ndarray:
        """Return the targets as float64."""
        return np.asarray(y, dtype=np.float64)

    def _is_numeric(self) -> bool:
        return True


def unit_weight(sample_weight: np.ndarray | None, n_samples: int) -> np.ndarray:
    """Return the case weights as float64, ones where there are none.

    Raises
    ------
    InputError
        For weights that are negative or not finite, or not one for each row.
    """
    if sample_weight is None:
        return np.ones(n_samples)
    weight = np.asarray(sample_weight, dtype=np.float64)
    if weight.shape != (n_samples,):
        raise InputError(
            f"There are {n_samples} rows, and case weights of shape {weight.shape}.",
            "Give sample_weight one number for each row.",
        )
    if not (np.isfinite(weight).all() and (weight >= 0).all()):
        raise InputError(
            "The case weights are not all finite and 0 or more.",
            "Give every row a weight that is; one of 0 leaves the row out.",
        )
    return weight


def training_weight(sample_weight: np.ndarray | None, n_samples: int) -> np.ndarray:
    """Return the case weights of a fit as ``unit_weight`` does; InputError where all are zero."""
    weight = unit_weight(sample_weight, n_samples)
    if n_samples and not weight.any():
        raise InputError("All case weights are zero.", "Give some rows a weight above 0.")
    return weight


def take_attribute(groups: np.ndarray, attribute: int) -> np.ndarray:
    """Return the codes of one attribute, shape (n_samples,), from a column per attribute.

    Raises
    ------
    ConfigError
        When there is no such column.
    """
    groups = np.asarray(groups)
    known = groups.shape[1] if groups.ndim == 2 else 0
    if not -known <= attribute < known:
        raise ConfigError(
            f"The attribute is column {attribute} of groups of shape {groups.shape}.",
            "Give groups a column per attribute, and the number of one of them, from 0.",
        )
    codes: np.ndarray = groups[:, attribute]
    return codes


def require_binary(y: np.ndarray, name: str) -> None:
    """Raise DataError for labels other than 0 and 1, which the method ``name`` learns."""
    values = np.unique(y)
    if not np.isin(values, (0, 1)).all():
        raise DataError(
            f"The labels are {values.tolist()[:5]}, and {name} learns 0 and 1.",
            "Choose a dataset with two classes.",
        )
