"""The common use of XGBoost: parameters, trees on rows wherever they are, and margins."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Literal, Self

import numpy as np
import xgboost
from scipy.special import expit, softmax

from fairfrontier.models.base import Classifier, Estimator
from fairfrontier.models.persistence import State
from fairfrontier.prepare.split import Split, Task
from fairfrontier.runtime.cluster.executor import Block, Rows, fit_rows
from fairfrontier.runtime.errors import ConfigError

TREE_METHODS = ("hist", "exact", "approx")
# Parameters that are XGBoost's by the same name.
OWN_NAMES = (
    "max_depth",
    "learning_rate",
    "reg_lambda",
    "min_child_weight",
    "tree_method",
    "base_score",
    "max_bin",
    "colsample_bytree",
)
PositiveWeight = float | Literal["balanced"]


def positive_weight(scale: PositiveWeight, y: np.ndarray, weight: np.ndarray) -> float:
    """Return scale_pos_weight; ``"balanced"`` is the weight of 0s over 1s, or 1 for one class."""
    if scale != "balanced":
        return float(scale)
    zeros, ones = (float(weight[y == label].sum()) for label in (0, 1))
    return zeros / ones if min(zeros, ones) > 0 else 1.0


def balance_classes(y: np.ndarray, weight: np.ndarray, n_classes: int) -> np.ndarray:
    """Return factors that give every class the weight of the first one, float64 (n_classes,).

    A class without rows keeps 1.
    """
    total = np.bincount(y, weights=weight, minlength=n_classes)
    factor = np.ones(n_classes)
    present = total > 0
    factor[present] = total[present][0] / total[present]
    return factor


def scale_classes(model: Any, y: np.ndarray, weight: np.ndarray, n_classes: int) -> np.ndarray:
    """Return the factor on every class's weights by ``scale_pos_weight``, float64 (n_classes,).

    ConfigError is raised for a factor on class 1 where there are more than two classes.
    """
    scale = model.scale_pos_weight
    if n_classes == 2:
        return np.array([1.0, positive_weight(scale, y, weight)])
    if scale == "balanced":
        return balance_classes(y, weight, n_classes)
    if scale != 1:
        raise ConfigError(
            f"scale_pos_weight is {scale!r}, but there are {n_classes} classes and no positive "
            "one.",
            "Give balanced or 1.",
        )
    return np.ones(n_classes)


def refuse_scale(model: Any, split: Split) -> str | None:
    """Return why ``scale_pos_weight`` does not suit a split of several classes, or None."""
    if split.task == "multiclass" and model.scale_pos_weight not in (1, "balanced"):
        return f"{model.name}'s scale_pos_weight beyond two classes is balanced or 1."
    return None


def tree_parameters(model: Any, **further: Any) -> dict[str, Any]:
    """Return XGBoost's native parameters for a binary logistic task, from a model's attributes.

    Without a ``base_score`` XGBoost estimates the intercept from the labels, as it does since
    version 2; one half is the margin 0 that the published runs start from. ``further`` ones take
    precedence.
    """
    own = {name: getattr(model, name, None) for name in OWN_NAMES}
    return {
        "objective": "binary:logistic",
        "max_bin": 256,
        "nthread": model.n_jobs,
        "seed": model.random_state,
        "disable_default_eval_metric": 1,
        **{name: value for name, value in own.items() if value is not None},
        **further,
    }


def grow(
    rows: Rows, parameters: Mapping[str, Any], rounds: int, *, label: str = "y"
) -> xgboost.Booster:
    """Boost on rows with the columns ``weight`` and ``label``, by XGBoost's native parameters.

    Workers boost in step, each with the bins of its rows, n d bytes over all of them; rows that are
    computed at every pass are read some times, and their bins held here. The trees are those of the
    rows in one block to rounding where no feature has more than ``max_bin`` values; else the bins
    are approximate quantiles that depend on the blocks.
    """
    booster: xgboost.Booster = rows.together(_grow, dict(parameters), rounds, label)[0]
    return booster


def _grow(
    blocks: Iterable[Block], parameters: Mapping[str, Any], rounds: int, label: str
) -> xgboost.Booster:
    return xgboost.train(dict(parameters), bin_rows(blocks, parameters, label), rounds)


def bin_rows(
    blocks: Iterable[Block], parameters: Mapping[str, Any], label: str | None = "y"
) -> xgboost.DMatrix:
    """Return the bins of blocks with the column ``weight`` and a label; X alone without a label.

    One block in one process is XGBoost's plain matrix, which any tree method takes.
    """
    from xgboost.collective import get_world_size

    def read(block: Block) -> dict[str, Any]:
        weighed = {} if label is None else {"label": block[label], "weight": block["weight"]}
        return {"data": block.X, **weighed}

    threads = parameters["nthread"]
    if isinstance(blocks, list) and len(blocks) == 1 and get_world_size() == 1:
        return xgboost.DMatrix(**read(blocks[0]), nthread=threads)
    batches = Batches(lambda: map(read, blocks))
    return xgboost.QuantileDMatrix(batches, max_bin=parameters["max_bin"], nthread=threads)


class Batches(xgboost.DataIter):
    """What XGBoost bins, one batch after the other, as often as it asks."""

    def __init__(self, make: Callable[[], Iterator[Mapping[str, Any]]]) -> None:
        super().__init__(release_data=True)
        self.make = make
        self.batches = make()

    def next(self, input_data: Callable[..., Any]) -> bool:
        """Hand over the next batch, if there is one."""
        batch = next(self.batches, None)
        if batch is not None:
            input_data(**batch)
        return batch is not None

    def reset(self) -> None:
        """Begin anew."""
        self.batches = self.make()


def predict_margins(booster: xgboost.Booster, X: np.ndarray, n_jobs: int) -> np.ndarray:
    """Return margins, float64, shape (n_samples,), or (n_samples, K) of K > 2 classes."""
    booster.set_param({"nthread": n_jobs})
    margin = booster.predict(xgboost.DMatrix(X, nthread=n_jobs), output_margin=True)
    return np.asarray(margin, dtype=np.float64)


def probabilities(booster: xgboost.Booster, X: np.ndarray, n_jobs: int) -> np.ndarray:
    """Return class probabilities, float64, shape (n_samples, n_classes)."""
    margin = predict_margins(booster, X, n_jobs)
    if margin.ndim == 2:
        probability: np.ndarray = softmax(margin, axis=1)
        return probability
    positive = expit(margin)
    return np.stack([1.0 - positive, positive], axis=1)


def check_trees(model: Any) -> None:
    """Raise ConfigError for invalid parameters of boosting."""
    balance = getattr(model, "scale_pos_weight", 1.0)
    model.require("n_estimators", model.n_estimators >= 1, "1 or more")
    model.require("max_depth", model.max_depth >= 0, "0 (no limit) or more")
    model.require("learning_rate", model.learning_rate > 0, "a number above 0")
    model.require("reg_lambda", model.reg_lambda >= 0, "0 or more")
    children = getattr(model, "min_child_weight", 0.0)
    model.require("min_child_weight", children >= 0, "0 or more")
    model.require("max_bin", getattr(model, "max_bin", 2) >= 2, "2 or more")
    share = getattr(model, "colsample_bytree", 1.0)
    model.require("colsample_bytree", 0 < share <= 1, "a number above 0, at most 1")
    model.require("tree_method", model.tree_method in TREE_METHODS, " or ".join(TREE_METHODS))
    model.require(
        "scale_pos_weight",
        balance == "balanced" or (not isinstance(balance, str) and balance > 0),
        "a number above 0, or balanced",
    )


@dataclass(kw_only=True, eq=False, repr=False)
class TreesOfBlocks(Estimator):
    """Base of what boosts on rows in blocks, too, unless its tree method is not ``hist``.

    Parameters
    ----------
    n_estimators : int
        Boosting rounds.
    max_depth, learning_rate, reg_lambda, min_child_weight, tree_method, max_bin, colsample_bytree
        As XGBoost's, with its defaults.
    base_score : float or None
        What boosting starts from, of classes a probability; None lets XGBoost estimate it.
    n_jobs : int
        Threads.
    random_state : int
        Draws the features of each tree where ``colsample_bytree`` leaves some out.

    Attributes
    ----------
    booster_ : xgboost.Booster
        The trees.
    """

    takes_blocks: ClassVar[bool] = True
    takes_missing: ClassVar[bool] = True
    weights_are_counts: ClassVar[bool] = False  # weights move hist's quantile sketch
    example: ClassVar[Mapping[str, Any]] = {"n_estimators": 5, "max_depth": 3}

    booster_: xgboost.Booster = field(init=False)

    n_estimators: int = 100
    max_depth: int = 6
    learning_rate: float = 0.3
    reg_lambda: float = 1.0
    min_child_weight: float = 1.0
    base_score: float | None = None
    tree_method: str = "hist"
    max_bin: int = 256
    colsample_bytree: float = 1.0
    n_jobs: int = 1
    random_state: int = 0

    def check(self) -> None:
        """Raise ConfigError for invalid parameters."""
        check_trees(self)
        score = self.base_score
        chance = not isinstance(self, Classifier) or score is None or 0 < score < 1
        self.require("base_score", chance, "a number in (0, 1), or null")

    def needs_all_rows(self, n_samples: int, n_features: int, n_classes: int) -> str | None:
        """Return why rows in blocks do not suit the parameters; see `Estimator`."""
        if self.tree_method != "hist":
            return (
                f"{self.name}'s tree method {self.tree_method} takes no rows in partitions: set "
                "tree_method: hist."
            )
        return super().needs_all_rows(n_samples, n_features, n_classes)

    def _boost(
        self, X: Any, y: np.ndarray, weight: np.ndarray, client: Any, **parameters: Any
    ) -> Self:
        """Boost on validated rows; further parameters are XGBoost's."""
        native = tree_parameters(self, **parameters)
        self.booster_ = fit_rows(
            partial(grow, parameters=native, rounds=self.n_estimators),
            X,
            client=client,
            name=self.name,
            prepare=self._prepare,
            dtype=np.float32,
            y=y,
            weight=weight,
        )
        return self

    def _prepare(self, block: Block) -> Block:
        """Return the block that trees are grown on."""
        return replace(block, X=self._project(block.X))

    def _project(self, X: np.ndarray) -> np.ndarray:
        """Return the trees' inputs for these rows."""
        return X

    def get_state(self) -> State:
        """Return the trees, and the attributes that the class names."""
        return replace(super().get_state(), boosters={"trees": self.booster_})

    def set_state(self, state: State) -> None:
        """Restore them."""
        super().set_state(state)
        self.booster_ = state.boosters["trees"]


@dataclass(kw_only=True, eq=False, repr=False)
class BoostedTrees(TreesOfBlocks, Classifier):
    """Base of the methods that boost classes, on weighted or transformed rows.

    With K > 2 classes a round has K trees, one for each margin of the softmax, and a ``base_score``
    starts all classes alike.

    Parameters
    ----------
    scale_pos_weight : float or "balanced"
        Factor on the weights of class 1; ``"balanced"`` is the weight of class 0 over class 1, and
        of several classes, which have no factor else, gives every one the same weight.
    **parameters
        Those of `TreesOfBlocks`.

    Attributes
    ----------
    booster_ : xgboost.Booster
        The trees.
    """

    task: ClassVar[frozenset[Task]] = frozenset({"binary", "multiclass"})
    plain: ClassVar[str] = "gbdt"

    scale_pos_weight: PositiveWeight = 1.0

    def _classify(self, X: Any, codes: np.ndarray, weight: np.ndarray, client: Any) -> Self:
        """Boost on validated rows with codes 0, …, K − 1."""
        self.check()
        n_classes = self.classes_.size
        if n_classes > 2:
            weight = weight * scale_classes(self, codes, weight, n_classes)[codes]
            several = {"objective": "multi:softprob", "num_class": n_classes}
            return self._boost(X, codes, weight, client, **several)
        factor = positive_weight(self.scale_pos_weight, codes, weight)
        return self._boost(X, codes, weight, client, scale_pos_weight=factor)

    def supports(self, split: Split) -> str | None:
        """Return why this method cannot be trained on ``split``, or None when it can."""
        return super().supports(split) or refuse_scale(self, split)

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        """Return class probabilities, float64, shape (n_samples, n_classes)."""
        rows = self._project(self.validate_rows(X))
        return probabilities(self.booster_, rows, self.n_jobs)
