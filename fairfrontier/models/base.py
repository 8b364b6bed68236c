"""The base of all estimators: scikit-learn's conventions, and saving without pickle."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import asdict, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils import get_tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, validate_data

from fairfrontier.models.group import Codes, SensitiveFeatures, frame_features, is_coded
from fairfrontier.models.objective import Objective, choose_cut, read_costs
from fairfrontier.models.persistence import State, read_state, restoring, write_state
from fairfrontier.prepare.split import Split, Task
from fairfrontier.runtime.arrays import to_host, to_numpy
from fairfrontier.runtime.cluster.executor import is_collection, read_columns
from fairfrontier.runtime.errors import (
    ConfigError,
    FairfrontierError,
    GroupError,
    InputError,
    InputTypeError,
)
from fairfrontier.runtime.registry import Registry

# scikit-learn's attributes that a saved model keeps beside its own.
SHAPE, NAMES, CLASSES = "n_features_in_", "feature_names_in_", "classes_"
CUT = "cut_"
SENSITIVE, TRUE, FEATURES = "sensitive_features", "true_groups", "sensitive_features_in_"
UNSAVED = ("estimator", "prefit", "cv")
MOST_FEATURES = 10_000_000
# Rows that a restored model predicts: a number that is rarely that of features or classes.
TRIED = 7


class UnfittedError(FairfrontierError, NotFittedError):  # type: ignore[misc]
    """Prediction with a model that is not fitted."""


def read_keywords(cls: type, method: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the keywords of a method of a class: all, and those that are required."""
    function = getattr(cls, method, None)
    if function is None:
        return frozenset(), frozenset()
    keywords = {
        key: parameter.default
        for key, parameter in inspect.signature(function).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }
    needed = (key for key, value in keywords.items() if value is inspect.Parameter.empty)
    return frozenset(keywords), frozenset(needed)


def coding(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the method with sensitive features of any kind, whose codes ``function`` is given.

    ``fit`` learns their names and levels; the other methods code theirs by these.
    """
    default = inspect.signature(function).parameters[SENSITIVE].default
    needed = default is inspect.Parameter.empty

    @wraps(function)
    def coded(self: Estimator, *args: Any, **keywords: Any) -> Any:
        if "groups" in keywords:
            raise InputTypeError(
                f"{function.__name__} has no groups=, which are folds of scikit-learn's splitters.",
                f"Pass the attributes whose groups are compared as {SENSITIVE}=.",
            )
        given = keywords.get(SENSITIVE)
        within = given is None and needed
        if within:
            X = args[0] if args else keywords.get("X")
            given = keywords[SENSITIVE] = self.find_sensitive(X, function.__name__)
        if given is None or isinstance(given, Codes) or is_collection(given):
            # Nothing to code, or it is done.
            return function(self, *args, **keywords)
        if function.__name__ == "fit":
            self.__dict__.pop(FEATURES, None)
        true = keywords.get(TRUE)
        plain = is_coded(given) and (true is None or is_coded(true))
        if FEATURES not in vars(self) and plain:
            return function(self, *args, **keywords)
        if function.__name__ == "fit":
            self.sensitive_features_in_ = replace(SensitiveFeatures.learn(given), within=within)
        # A fit on codes has no levels: those of later rows are not theirs.
        known = vars(self).get(FEATURES) or SensitiveFeatures.learn(given).forget_levels()
        unseen = bool(getattr(self, "takes_unseen", False))
        for keyword in (SENSITIVE, TRUE):
            if keywords.get(keyword) is not None:
                keywords[keyword] = known.code(keywords[keyword], unseen=unseen)
        try:
            return function(self, *args, **keywords)
        except GroupError as error:
            raise error.name(known.describe()) if known.names else error from None

    return coded


@contextmanager
def explaining() -> Iterator[None]:
    """Turn scikit-learn's errors into errors with a fault and a mend."""
    try:
        yield
    except FairfrontierError:
        raise
    except (TypeError, ValueError) as error:
        kind = InputTypeError if isinstance(error, TypeError) else InputError
        raise kind(
            " ".join(str(error).split()),
            "Give a table of numbers, and one label, weight, sensitive feature and so on per row.",
        ) from error


class TrainingWarning(UserWarning):
    """A fit that ended without achieving its aim, according to its history."""


class Estimator(BaseEstimator):
    """Base of `Classifier` and `Regressor`, and so of the registered methods.

    ``__init__`` stores its arguments; fitted attributes end in ``_``. ``fit(X, y, *, ...)`` names
    exactly those of ``sensitive_features``, ``metric``, ``sample_weight``, ``validation``,
    ``counterfactuals``, ``true_groups``, ``client``, ``progress`` and ``unit`` that it takes;
    scikit-learn's metadata routing reads the same signature. ``fit`` passes its rows and labels
    through ``validate_training``, and predictions their rows through ``validate_rows``.

    Attributes
    ----------
    name : str
        Registered short name.
    task : frozenset of str
        The tasks it learns: ``binary``, ``multiclass``, ``regression``.
    fit_needs, fit_takes : frozenset of str
        Keywords of ``fit`` that are required, and all that it has: from its signature.
    predict_needs : frozenset of str
        Keywords of predictions that are required, ``sensitive_features`` or ``ids``: from their
        signatures.
    group_parameters : tuple of str
        Parameters that name a group attribute; a name is turned into the column of
        ``sensitive_features``.
    libraries : tuple of str
        Distributions that a fit depends on beside those of all methods: parts of its key.
    learner_parameter : str or None
        Parameter that names another registered method, whose source the key of a fit covers, too.
    solvers : Registry or None
        Where what the parameter ``solver_parameter`` names is registered; the key covers its
        source, too.
    randomized : bool
        Whether decisions are random; then ``predict_proba`` is their exact probability.
    weights_are_counts : bool
        Whether a row with weight 2 equals that row twice, up to rounding.
    takes_missing : bool
        Whether features may be NaN.
    backends : tuple of str
        Array backends it computes with.
    distributed : bool
        Whether a fit of a study uses the whole cluster alone; not where only Dask arrays need it.
    takes_blocks : bool
        Whether ``fit`` takes X, and the rows of ``validation``, as Dask arrays, whose rows stay in
        blocks; see `needs_all_rows` for settings that do not.
    needs_workers : bool
        Whether it trains on blocks that workers hold alone.
    batched, across_splits : bool
        Whether models of one ``structure()`` train together by ``fit_batch``, and whether that also
        pays for models of different splits.
    state_arrays, state_facts : tuple of str
        Fitted arrays and plain values that ``save`` writes, without the underscore at the end.
    trusted : tuple of str
        Further classes of scikit-learn that its learners are made of, as `load` takes them.
    plain : str
        The method that is left without what makes it fair, of which a study expects less fairness.
    paper : str
        Authors, title, year.
    example : mapping
        Parameters of a fast fit, for the contract tests.
    n_features_in_, feature_names_in_
        As in scikit-learn.
    sensitive_features_in_ : SensitiveFeatures, optional
        Names and levels of the sensitive features of the fit, where these were no array of codes.
    report_ : dict, optional
        Plain numbers and lists of them about the training itself (steps, calls, seconds), which a
        stored fit keeps in its ``fit.json``.
    infeasible_ : str or None, optional
        Why there is no model, with which the row of a study is skipped; None where there is one.
    """

    name: ClassVar[str] = ""
    task: ClassVar[frozenset[Task]] = frozenset()
    fit_needs: ClassVar[frozenset[str]] = frozenset()
    fit_takes: ClassVar[frozenset[str]] = frozenset()
    predict_needs: ClassVar[frozenset[str]] = frozenset()
    group_parameters: ClassVar[tuple[str, ...]] = ()
    libraries: ClassVar[tuple[str, ...]] = ()
    learner_parameter: ClassVar[str | None] = None
    solvers: ClassVar[Registry[Any] | None] = None
    solver_parameter: ClassVar[str] = "solver"
    randomized: ClassVar[bool] = False
    weights_are_counts: ClassVar[bool] = True
    takes_missing: ClassVar[bool] = False
    backends: ClassVar[tuple[str, ...]] = ("numpy",)
    distributed: ClassVar[bool] = False
    takes_blocks: ClassVar[bool] = False
    needs_workers: ClassVar[bool] = False
    batched: ClassVar[bool] = False
    across_splits: ClassVar[bool] = True
    state_arrays: ClassVar[tuple[str, ...]] = ()
    state_facts: ClassVar[tuple[str, ...]] = ()
    trusted: ClassVar[tuple[str, ...]] = ()
    # Parameters of former versions, which saved models may name and none needs.
    retired: ClassVar[frozenset[str]] = frozenset()
    plain: ClassVar[str] = ""
    paper: ClassVar[str] = ""
    example: ClassVar[Mapping[str, Any]] = {}

    n_features_in_: int
    feature_names_in_: np.ndarray
    sensitive_features_in_: SensitiveFeatures

    if TYPE_CHECKING:
        # Each method's own keywords: a common signature would forbid those that it requires.
        fit: Any

    def __init_subclass__(cls, **keywords: Any) -> None:
        """Read from the signatures what ``fit`` takes and what predictions need."""
        super().__init_subclass__(**keywords)
        for name, function in list(vars(cls).items()):
            if inspect.isfunction(function) and SENSITIVE in inspect.signature(function).parameters:
                setattr(cls, name, coding(function))
        cls.fit_takes, cls.fit_needs = read_keywords(cls, "fit")
        cls.predict_needs = (
            read_keywords(cls, "predict")[1] | read_keywords(cls, "predict_proba")[1]
        )

    def __sklearn_tags__(self) -> Any:
        """Return scikit-learn's tags: labels are required, and which tables and tasks it takes."""
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.allow_nan = self.takes_missing
        estimator = vars(self).get("estimator")
        # What is no estimator of scikit-learn, as a wrapper of ONNX, says nothing of its rows.
        if hasattr(estimator, "__sklearn_tags__"):
            tags.input_tags = get_tags(estimator).input_tags
        return tags

    def find_sensitive(self, X: Any, method: str) -> Any:
        """Return the sensitive features that a method needs and is not given: columns of a frame.

        In a fit they are named in ``attributes``, and predictions look for them if the fit found
        them there; InputTypeError is raised where there are none.
        """
        if method == "fit":
            names = [str(name) for name in np.ravel(vars(self).get("attributes") or []).tolist()]
        else:
            known = vars(self).get(FEATURES)
            names = list(known.names) if known and known.within else []
        # A table of Arrow has its columns' names elsewhere.
        if names and {*names} <= {*getattr(X, "column_names", getattr(X, "columns", ()))}:
            return frame_features(X, names)
        raise InputTypeError(
            f"{method} of {type(self).__name__} is given no {SENSITIVE}.",
            f"Pass {SENSITIVE}=, the attributes whose groups are compared, or a frame X with the "
            "columns that attributes name.",
        )

    def validate_training(self, X: Any, y: Any, *aligned: Any) -> tuple[np.ndarray, np.ndarray]:
        """Check the table of a fit, learn its columns, and return it as arrays.

        X becomes float64 or float32, without a copy where it is that already; y becomes float64, or
        for a classifier int64 codes of ``classes_``. ``aligned`` are further arrays with one entry
        per row, or None. What is on a device is copied from it. InputError is raised for tables
        that are not numeric, not finite, of different lengths, and so on.
        """
        with explaining():
            rules = {**self._table_rules(), "y_numeric": self._is_numeric()}
            rows, target = validate_data(self, to_host(X), to_host(y), **rules)
            check_consistent_length(rows, *aligned)
        return rows, self.learn_target(target)

    def read_training(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        sensitive_features: Any = None,
        client: Any = None,
    ) -> tuple[Any, np.ndarray, np.ndarray, Any]:
        """Return X, y and sensitive_features of a fit, checked, and its case weights.

        Those in memory are checked as by `validate_training`. X may also be a Dask array, whose
        rows are not looked at; labels, weights and sensitive_features, if they are Dask arrays, are
        computed by the ``client``, or here without one. ConfigError is raised where
        `needs_all_rows` says why.
        """
        if is_collection(X):
            given = {
                "y": y,
                "sample_weight": sample_weight,
                "sensitive_features": sensitive_features,
            }
            X, y, sample_weight, sensitive_features = read_columns(client, X, **given)
            self.n_features_in_ = int(X.shape[1])
            target = self.learn_target(to_numpy(y))
            n_classes = len(vars(self).get(CLASSES, ()))
            reason = self.needs_all_rows(X.shape[0], X.shape[1], n_classes)
            if reason is not None:
                raise ConfigError(reason, "Change that, or compute the arrays.")
            if self.needs_workers and client is None:
                raise ConfigError(
                    f"{self.name} is given Dask arrays without a client.",
                    "Pass client=, for the cluster whose workers are to hold the rows.",
                )
        else:
            X, target = self.validate_training(X, y, sensitive_features)
        return X, target, training_weight(sample_weight, len(target)), sensitive_features

    def needs_all_rows(self, n_samples: int, n_features: int, n_classes: int) -> str | None:  # noqa: ARG002
        """Return why this method, as it is set, cannot train on rows in blocks; None if it can.

        ``n_classes`` is 0 for numbers.
        """
        if self.takes_blocks:
            return None
        return f"{self.name} needs all rows in one process's memory, and these stay in partitions."

    def validate_rows(self, X: Any) -> np.ndarray:
        """Check the rows of a prediction against those of the fit; return as `validate_training`.

        UnfittedError is raised before ``fit``, InputError for rows that are not numeric or have
        other features: another number of columns, or columns of other names or in another order.
        An array has no names, and is taken to have the columns of the fit.
        """
        if not hasattr(self, SHAPE):
            raise UnfittedError(f"This {type(self).__name__} is not fitted yet.", "Call fit first.")
        fitted = self
        if NAMES in vars(self) and not hasattr(X, "columns"):
            # Studies train and predict on arrays whose names are known; scikit-learn would warn.
            fitted = copy(self)
            delattr(fitted, NAMES)
        with explaining():
            rules = {**self._table_rules(), "ensure_min_samples": 0, "reset": False}
            rows: np.ndarray = validate_data(fitted, to_host(X), **rules)
        return rows

    def learn_target(self, y: np.ndarray) -> np.ndarray:
        """Return the labels of a fit as the method learns them."""
        raise NotImplementedError

    def _table_rules(self) -> dict[str, Any]:
        return {
            "dtype": (np.float64, np.float32),
            "ensure_all_finite": "allow-nan" if self.takes_missing else True,
        }

    def _is_numeric(self) -> bool:
        return False

    def structure(self) -> tuple[Any, ...]:
        """Return what models must have in common to be trained together by a batched method."""
        return ()

    @classmethod
    def fit_batch(
        cls,
        models: Sequence[Self],
        data: Sequence[Mapping[str, Any]],
        *,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        """Fit models of one ``structure()`` on their own data; batched methods do it at once.

        ``data`` has X, y and the keywords of ``fit`` of each model. ``progress`` is called with
        (steps done, steps) by methods that take it.
        """
        extra = {"progress": progress} if "progress" in cls.fit_takes and progress else {}
        for model, keywords in zip(models, data, strict=True):
            model.fit(**keywords, **extra)

    def check(self) -> None:
        """Raise ConfigError for invalid parameters, before anything is computed."""

    def require(self, name: str, valid: bool, wanted: str) -> None:
        """Raise ConfigError, asking for ``wanted``, unless the parameter ``name`` is valid."""
        if not valid:
            raise ConfigError(
                f"The parameter {name!r} of {self.name!r} is {getattr(self, name)!r}.",
                f"Give {wanted}.",
            )

    def supports(self, split: Split) -> str | None:
        """Return why this method cannot be trained on ``split``, or None when it can."""
        if split.task not in self.task:
            return f"{self.name} learns {' and '.join(sorted(self.task))}, not {split.task}."
        if "sensitive_features" in self.fit_needs and not split.train.attributes:
            return f"{self.name} needs groups, and {split.dataset} declares none."
        # What a fair metric is learnt from.
        sources = split.protected_kinds or split.train.counterfactuals
        if "metric" in self.fit_needs and not sources:
            return (
                f"{self.name} needs a fair metric, but {split.dataset} protects no attribute and "
                "declares no counterfactuals."
            )
        return None

    def save(self, folder: str | Path) -> Path:
        """Write the fitted model to a new folder: JSON, npz and XGBoost UBJ with their digests.

        Raises
        ------
        StoreError
            When the folder is not empty or cannot be written, or a learner would not be read again.
        """
        if not hasattr(self, SHAPE):
            raise UnfittedError(f"This {type(self).__name__} is not fitted yet.", "Call fit first.")
        parameters, state = self.list_parameters(), self.pack_state()
        return write_state(Path(folder), self.name, parameters, state, self.trusted)

    def list_parameters(self) -> dict[str, Any]:
        """Return the parameters that are saved: not those of the fit of an estimator within."""
        known = self.get_params(deep=False)
        return {
            name: value.item() if isinstance(value, np.generic) else value
            for name, value in known.items()
            if name not in UNSAVED
        }

    @classmethod
    def load(cls, folder: str | Path, *, trusted: Collection[str] = ()) -> Self:
        """Read what ``save`` wrote, checking every digest; nothing is unpickled.

        ``trusted`` names further classes of scikit-learn, as ``sklearn.svm._classes.SVR``; their
        native code believes the file, so name those of your own models only.

        Raises
        ------
        StoreError
            When a file is missing or altered, or it holds another method, version or learner.
        """
        parameters, state = read_state(Path(folder), cls.name, {*cls.trusted, *trusted})
        with restoring(Path(folder)):
            model = cls(**{k: v for k, v in parameters.items() if k not in cls.retired})
            model.unpack_state(state)
        return model

    def pack_state(self) -> State:
        """Return the method's state with the attributes that every estimator has."""
        state = self.get_state()
        kept = {key: vars(self)[key] for key in (NAMES, CLASSES) if key in vars(self)}
        # Object arrays of Python strings would be pickled.
        arrays = {key: np.asarray(value.tolist()) for key, value in kept.items()}
        return replace(
            state,
            arrays={**state.arrays, **arrays},
            facts={
                **state.facts,
                SHAPE: self.n_features_in_,
                **{key: value for key, value in vars(self).items() if key == CUT},
                **({FEATURES: asdict(vars(self)[FEATURES])} if FEATURES in vars(self) else {}),
            },
        )

    def unpack_state(self, state: State) -> None:
        """Restore what ``pack_state`` returned, and try a prediction; any exception is a fault."""
        arrays, facts = dict(state.arrays), dict(state.facts)
        self.n_features_in_ = facts.pop(SHAPE)
        if type(self.n_features_in_) is not int or not 0 < self.n_features_in_ <= MOST_FEATURES:
            raise ValueError(f"it cannot have {self.n_features_in_} features")
        if CUT in facts:
            self.cut_ = float(facts.pop(CUT))
        if FEATURES in facts:
            self.sensitive_features_in_ = SensitiveFeatures.restore(**facts.pop(FEATURES))
        for key in (NAMES, CLASSES):
            if key in arrays:
                setattr(self, key, arrays.pop(key))
        if NAMES in vars(self):
            self.feature_names_in_ = self.feature_names_in_.astype(object)
            if self.feature_names_in_.shape != (self.n_features_in_,):
                raise ValueError("it has not one name for every feature")
        self.set_state(replace(state, arrays=arrays, facts=facts))
        if getattr(self, "infeasible_", None) is None:
            self.try_prediction()

    def try_prediction(self) -> None:
        """Predict rows of zeros, which refuses restored attributes that do not fit each other."""
        predicted = self.predict(np.zeros((TRIED, self.n_features_in_)))
        if predicted.shape != (TRIED,):
            raise ValueError("it has not one prediction for every row")

    def get_state(self) -> State:
        """Return the method's own fitted attributes as arrays, boosters and plain values."""
        return State(
            arrays={name: getattr(self, f"{name}_") for name in self.state_arrays},
            facts={name: getattr(self, f"{name}_") for name in self.state_facts},
        )

    def set_state(self, state: State) -> None:
        """Restore the fitted attributes from what ``get_state`` returned."""
        for name in self.state_arrays:
            setattr(self, f"{name}_", state.arrays[name])
        for name in self.state_facts:
            setattr(self, f"{name}_", state.facts[name])


class Classifier(ClassifierMixin, Estimator):
    """Base of the methods that learn classes; they implement ``fit`` and ``predict_proba``.

    Labels are strings, booleans or numbers; the method gets their codes 0, …, K − 1 in ascending
    order, and returns probabilities in that order.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels in ascending order; the last of two is the positive one.
    cut_ : float
        Of two classes the least P(Y=1|x) that is decided 1; 1/2 unless `tune_cut` chose another.
    """

    task: ClassVar[frozenset[Task]] = frozenset({"binary"})

    # Whether ``fit`` constrains the decisions at 1/2, so that another cut would break what it kept.
    constrains_decisions: ClassVar[bool] = False
    # The objectives with a name that its parameter ``objective`` takes, where it has one.
    objectives: ClassVar[tuple[str, ...]] = ("accuracy", "balanced_accuracy")

    classes_: np.ndarray
    cut_: float = 0.5

    def __sklearn_tags__(self) -> Any:
        """Return scikit-learn's tags, which say whether more than two classes are allowed."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = "multiclass" in self.task
        return tags

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        """Return class probabilities, float64, shape (n_samples, n_classes)."""
        raise NotImplementedError

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Return labels, shape (n_samples,); of two classes a tie at the cut is the second."""
        probability = self.predict_proba(X)
        if probability.shape[1] == 2:
            codes = (probability[:, 1] >= self.cut_).astype(np.int64)
        else:
            codes = np.argmax(probability, axis=1)
        labels: np.ndarray = self.classes_[codes]
        return labels

    def check_objective(self) -> None:
        """Raise ConfigError for an ``objective`` that the method cannot serve."""
        objective: Any = vars(self)["objective"]
        known = not isinstance(objective, str) or objective in self.objectives
        self.require("objective", known, f"{', '.join(self.objectives)} or costs")
        read_costs(objective)

    def tune_cut(
        self, score: np.ndarray, y: np.ndarray, weight: np.ndarray, objective: Objective
    ) -> Self:
        """Set ``cut_`` to the best one on rows that were not trained on; see `choose_cut`."""
        self.cut_ = choose_cut(score, y, weight, objective)
        return self

    def try_prediction(self) -> None:
        """Predict rows of zeros, with a probability for every class."""
        super().try_prediction()
        probability = self.predict_proba(np.zeros((TRIED, self.n_features_in_)))
        if probability.shape != (TRIED, *self.classes_.shape):
            raise ValueError("it has not a probability for every class")

    def encode_labels(self, y: Any) -> np.ndarray:
        """Return the codes of labels among ``classes_``, int64; InputError for unknown labels."""
        labels = to_numpy(y)
        order = np.argsort(self.classes_)
        place = np.searchsorted(self.classes_, labels, sorter=order)
        codes = order[place.clip(max=self.classes_.size - 1)]
        known = self.classes_[codes] == labels
        if not known.all():
            raise InputError(
                f"{self.name} was fitted without the label {labels[~known][0]!s}.",
                f"Give labels among {', '.join(map(str, self.classes_.tolist()))}.",
            )
        return np.asarray(codes, dtype=np.int64)

    def supports(self, split: Split) -> str | None:
        """Return why this method cannot be trained on ``split``, or None when it can."""
        reason = super().supports(split)
        if reason is None and np.ptp(split.train.y) == 0:
            return f"{self.name} needs two classes, and {split.dataset} has one in training."
        return reason

    def learn_target(self, y: np.ndarray) -> np.ndarray:
        """Set ``classes_`` from the labels of a fit and return their codes, int64.

        InputError is raised for labels that are not classes, or are one or too many classes.
        """
        with explaining():
            check_classification_targets(y)
            self.classes_, codes = np.unique(y, return_inverse=True)
        if self.classes_.size < 2:
            only = ", ".join(map(str, self.classes_))
            raise InputError(
                f"{self.name} was given rows of one class only, {only}.",
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
    """Base of the methods that learn numbers; they implement ``fit`` and ``predict``.

    A method that draws one of K regressors for every prediction has ``predict_components``, which
    returns float64 (n_samples, K), and ``probability_``, shape (K,); its ``predict`` is their mean.
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
    """Return the case weights as float64, by default ones; InputError for invalid weights."""
    if sample_weight is None:
        return np.ones(n_samples)
    weight = to_numpy(sample_weight).astype(np.float64, copy=False)
    if weight.shape != (n_samples,):
        raise InputError(
            f"There are {n_samples} rows, and case weights of shape {weight.shape}.",
            "Give sample_weight one number per row.",
        )
    if not (np.isfinite(weight).all() and (weight >= 0).all()):
        raise InputError(
            "The case weights are not all finite and 0 or more.",
            "Give every row a finite weight from 0; a weight of 0 leaves the row out.",
        )
    return weight


def training_weight(sample_weight: np.ndarray | None, n_samples: int) -> np.ndarray:
    """Return the case weights of a fit as ``unit_weight`` does; InputError where all are zero."""
    weight = unit_weight(sample_weight, n_samples)
    if n_samples and not weight.any():
        raise InputError("All case weights are zero.", "Give some rows a weight above 0.")
    return weight
