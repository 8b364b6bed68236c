"""What every estimator of the house is: scikit-learn shaped, saved without pickle."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator

from fairfrontier.prepare.split import Split, Task
from fairfrontier.runtime.errors import ConfigError, DataError
from fairfrontier.train.persistence import State, read_state, restoring, write_state


class Estimator(BaseEstimator):
    """Base of the registered methods.

    ``__init__`` stores its arguments; ``fit(X, y, *, ...)`` takes those of ``groups``,
    ``metric``, ``sample_weight``, ``validation``, ``counterfactuals``, ``true_groups``,
    ``client`` and ``progress`` that ``fit_takes`` declares; fitted attributes end in ``_``.

    Attributes
    ----------
    name : str
        Registered short name.
    task : frozenset of str
        The tasks it learns: ``binary``, ``multiclass``, ``regression``.
    fit_needs, fit_takes : frozenset of str
        Keywords of ``fit`` that are required, and all that are understood.
    predict_needs : frozenset of str
        Keywords of ``predict`` that are required: ``groups``, ``ids``.
    group_parameters : tuple of str
        Parameters that name a group attribute; a name is turned into the column of ``groups``.
    randomized : bool
        Whether decisions are random; then ``predict_proba`` is their exact probability.
    weights_are_counts : bool
        Whether a row with weight 2 equals that row twice, up to rounding.
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
    report_ : dict
        Of methods that have one after ``fit``: plain numbers and lists of them about the training
        itself (steps, calls, seconds), which a stored fit keeps in its ``fit.json``.
    infeasible_ : str or None
        Of methods that have one after ``fit``: a sentence that says why there is no model, and that
        the row of a study is skipped with; None where there is one.

    Notes
    -----
    A regression that draws one of K regressors for every answer has ``predict_components``, which
    gives float64 (n_samples, K), and ``probability_``, shape (K,); its ``predict`` is their mean.
    """

    name: ClassVar[str] = ""
    task: ClassVar[frozenset[Task]] = frozenset({"binary"})
    fit_needs: ClassVar[frozenset[str]] = frozenset()
    fit_takes: ClassVar[frozenset[str]] = frozenset({"sample_weight"})
    predict_needs: ClassVar[frozenset[str]] = frozenset()
    group_parameters: ClassVar[tuple[str, ...]] = ()
    randomized: ClassVar[bool] = False
    weights_are_counts: ClassVar[bool] = True
    backends: ClassVar[tuple[str, ...]] = ("numpy",)
    distributed: ClassVar[bool] = False
    batched: ClassVar[bool] = False
    across_splits: ClassVar[bool] = True
    paper: ClassVar[str] = ""
    example: ClassVar[Mapping[str, Any]] = {}

    n_features_in_: int

    if TYPE_CHECKING:
        # Each method's own keywords: a common signature would forbid those that it requires.
        fit: Any

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        """Return class probabilities, float64, shape (n_samples, n_classes)."""
        raise NotImplementedError

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Return class codes, int64, shape (n_samples,); a tie at one half is class 1."""
        probability = self.predict_proba(X)
        if probability.shape[1] == 2:
            return (probability[:, 1] >= 0.5).astype(np.int64)
        codes: np.ndarray = np.argmax(probability, axis=1)
        return codes

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
        return write_state(Path(folder), self.name, self.get_params(deep=False), self.get_state())

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
            model.set_state(state)
        return model

    def get_state(self) -> State:
        """Return the fitted attributes as arrays, boosters and plain values."""
        raise NotImplementedError

    def set_state(self, state: State) -> None:
        """Restore the fitted attributes from what ``get_state`` returned."""
        raise NotImplementedError


def unit_weight(sample_weight: np.ndarray | None, n_samples: int) -> np.ndarray:
    """Return the case weights as float64, ones where there are none.

    Raises
    ------
    DataError
        For weights that are negative or not finite.
    """
    if sample_weight is None:
        return np.ones(n_samples)
    weight = np.asarray(sample_weight, dtype=np.float64)
    if not (np.isfinite(weight).all() and (weight >= 0).all()):
        raise DataError(
            "The case weights are not all finite and 0 or more.",
            "Give every row a weight that is; one of 0 leaves the row out.",
        )
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
