"""The bundle: a chosen model that answers raw rows, in a folder without pickle."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin

from fairfrontier.deployment.estimator import FrameEstimator
from fairfrontier.metrics.measure.registry import MEASURES, split_name
from fairfrontier.metrics.statistic.rate import TNR, TPR
from fairfrontier.models.group import number_cells
from fairfrontier.models.persistence import MANIFEST as MODEL_MANIFEST
from fairfrontier.models.persistence import read_manifest, reading
from fairfrontier.models.registry import load_model
from fairfrontier.models.thresholds.base import GroupRule, PostProcessor
from fairfrontier.models.thresholds.bound import Bound
from fairfrontier.models.thresholds.places import Amounts, Places, fill_places, find_bounded
from fairfrontier.prepare.config.dataset import WORDS
from fairfrontier.prepare.embedding.encoder import TOKENIZER
from fairfrontier.prepare.row import EncodedRows, RowEncoder
from fairfrontier.prepare.table.column import Cells, as_levels
from fairfrontier.prepare.table.frame import to_pandas
from fairfrontier.prepare.table.rows import used_columns
from fairfrontier.runtime.errors import ConfigError, DataError, StoreError, refuse_unknown
from fairfrontier.runtime.option import BUNDLE_FILE, DECIDED, SIGNATURE
from fairfrontier.runtime.secret import find_key, sign
from fairfrontier.runtime.seeds import derive_integer, uniforms
from fairfrontier.runtime.store import canonical_json, hash_file
from fairfrontier.runtime.text_file import read_json, read_numbers, write_json
from fairfrontier.runtime.writer import replacing, restore
from fairfrontier.similarity.fair_metric import FairMetric
from fairfrontier.study.frontier import AGGREGATES, TOLERANCE, find_rates, is_linear

# What a chosen model, or a mixture of two, answers to rows, in any batch and order.

MIXTURE = "mixture.json"
COMPONENT, COMPONENT_RULE = "model", "post_processor"
COMPONENTS = ("first", "second")
# Smaller shares of one model decide next to nothing: such a mixture is one model.
LEAST_SHARE = 1e-6


class Mixture:
    """Two models of which one, drawn for every row, decides.

        P(decision = 1 | x) = (1 − share) h₁(x) + share h₂(x)

    with h the decision of a model, or its probability where that is random. Every rate is then the
    same mean of the two models' rates, in expectation: a mixture attains every point between them.

    Parameters
    ----------
    first, second : estimator
        Fitted on the same two classes and features.
    share : float
        The probability that ``second`` decides, in [0, 1].
    random_state : int, default 0
        Seed of the draws.

    Raises
    ------
    ConfigError
        For another share, or models of other classes or of more than two.

    Notes
    -----
    Which model decides on a row depends on (``random_state``, row id) alone: the same row is
    decided by the same model in any batch or order. Prediction costs what both models cost.
    """

    randomized = True

    def __init__(self, first: Any, second: Any, share: float, random_state: int = 0) -> None:
        if not 0.0 <= share <= 1.0:
            raise ConfigError(f"The share of the second model is {share}.", "Give 0 to 1.")
        if len(first.classes_) != 2 or not np.array_equal(first.classes_, second.classes_):
            raise ConfigError(
                "Models of a mixture decide between the same two classes.",
                "Mix models of two classes that were fitted on the same labels.",
            )
        self.first, self.second = first, second
        self.share, self.random_state = float(share), int(random_state)

    @property
    def classes_(self) -> np.ndarray:
        """The labels in ascending order; the last one is the positive one."""
        return np.asarray(self.first.classes_)

    @property
    def feature_names_in_(self) -> np.ndarray:
        """The names of the first model's features; AttributeError where it has none."""
        names: np.ndarray = self.first.feature_names_in_
        return names

    @property
    def predict_needs(self) -> frozenset[str]:
        """Keywords of ``predict_proba``: those of both models."""
        return frozenset(self.first.predict_needs | self.second.predict_needs)

    def predict_proba(
        self,
        X: np.ndarray,
        *,
        sensitive_features: np.ndarray | None = None,
        ids: np.ndarray | None = None,
    ) -> np.ndarray:
        """Return the exact probabilities of the decisions 0 and 1, float64, (n_samples, 2)."""
        groups = np.zeros((len(X), 0)) if sensitive_features is None else sensitive_features
        chance = judge(self, X, groups, np.arange(len(X)) if ids is None else ids).probability
        return np.column_stack([1.0 - chance, chance])

    def predict(
        self, X: np.ndarray, *, ids: np.ndarray, sensitive_features: np.ndarray | None = None
    ) -> np.ndarray:
        """Return decisions as labels, shape (n_samples,), drawn by the rows' ``ids``, integers."""
        groups = np.zeros((len(X), 0)) if sensitive_features is None else sensitive_features
        return np.asarray(self.classes_[judge(self, X, groups, ids).decision])

    def draw(self, ids: np.ndarray) -> np.ndarray:
        """Return for which rows the second model decides, bool of shape (n_samples,)."""
        # Models that draw by the same seed must not draw with the same numbers.
        drawn = uniforms(derive_integer("mixture", self.random_state), ids)
        return np.asarray(drawn < self.share)

    def save(self, folder: str | Path) -> Path:
        """Write both models and the share to a new folder, without pickle.

        Raises
        ------
        StoreError
            When the folder is not empty or cannot be written.
        """
        folder = Path(folder)
        for name, model in zip(COMPONENTS, (self.first, self.second), strict=True):
            _save_chain(model, folder / name / COMPONENT, folder / name / COMPONENT_RULE)
        # Last, so that a folder with this file is complete.
        write_json({"share": self.share, "random_state": self.random_state}, folder / MIXTURE)
        return folder

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Read what ``save`` wrote; nothing is unpickled.

        Raises
        ------
        StoreError
            When a file is missing, or one of a model was altered.
        """
        folder = Path(folder)
        with reading(folder, "Name a folder that Mixture.save() wrote."):
            facts = read_json(folder / MIXTURE)
            models = []
            for name in COMPONENTS:
                model, rule = folder / name / COMPONENT, folder / name / COMPONENT_RULE
                models.append(load_chain(model, rule if rule.is_dir() else None))
            return cls(models[0], models[1], facts["share"], facts["random_state"])


def _save_chain(model: Any, folder: Path, rule: Path) -> None:
    """Save a model, and the rule behind it, if there is one, to a folder of its own."""
    if isinstance(model, GroupRule):
        model.rule.save(rule)
        model = model.estimator_
    model.save(folder)


def load_chain(folder: Path, rule: Path | None, trusted: Collection[str] = ()) -> Any:
    """Load a model, with the rule behind it where a folder of one is named."""
    own = read_manifest(folder)["method"] == FrameEstimator.name
    model: Any = (FrameEstimator.load if own else load_model)(folder, trusted=trusted)
    return model if rule is None else cast("GroupRule", load_model(rule)).behind(model)


def list_margins(wanted: Bound, values: pd.DataFrame) -> np.ndarray:
    """Return numbers linear in the decision rule, all ≥ 0 where a measure keeps its bound.

    ``values`` is as for `find_rates`; the result has shape (n_settings, n_margins). ConfigError for
    a measure that no finite number of linear ones bounds.
    """
    name, bound = wanted.name, wanted.limit
    measure, group = split_name(name)
    direction = MEASURES.find(measure).direction
    if is_linear(name):
        value = values[[name]].to_numpy(dtype=np.float64)
        if wanted.form == "distance":
            return np.hstack([value + bound, bound - value])
        return np.asarray(-wanted.exceeds(value))
    aggregation, position = AGGREGATES.get(measure, ("", None))
    kept = [TNR, TPR] if position is None else [position]
    rates = find_rates(values, group)[..., kept]
    rates = rates[:, ~np.isnan(rates).any(axis=(0, 2))]
    first, second = rates[:, :, None], rates[:, None]
    match aggregation, direction:
        case ("difference" | "gap_max", _):
            margins = bound - (first - second)
        case ("ratio", _):
            margins = first - bound * second
        case ("max", "lower"):
            margins = bound - rates
        case ("min", "higher"):
            margins = rates - bound
        case _:
            raise ConfigError(
                f"A mixture of two settings cannot be bounded in {name}.",
                "Bound rates, or their largest difference, smallest ratio, maximum or minimum.",
            )
    return np.asarray(margins.reshape(len(values), -1))


def find_mixture(objective: np.ndarray, margins: np.ndarray) -> tuple[int, int, float] | None:
    """Return the best mixture of two settings: the first, the second and its share.

        maximise (1 − p) s_i + p s_j   subject to   (1 − p) m_i + p m_j >= 0

    ``objective``, shape (n_settings,), and ``margins``, (n_settings, n_margins), are linear in the
    decision rule, so that for each pair the shares that meet the bounds are an interval. A share of
    0 is the first setting alone, and 1 the second; those between are at least `LEAST_SHARE` away
    from both. None where no pair meets the bounds. O(n_settings² n_margins).
    """
    margins = margins + TOLERANCE
    best, found = -np.inf, None
    for first, start in enumerate(margins):
        step = margins - start
        with np.errstate(divide="ignore", invalid="ignore"):
            root = -start / step
        least = np.where(step > 0, root, 0.0).max(axis=1, initial=0.0)
        most = np.where(step < 0, root, 1.0).min(axis=1, initial=1.0)
        # The second alone does not meet the bounds where the largest share is below 1.
        most = np.where(most < 1.0, np.minimum(most, 1.0 - LEAST_SHARE), 1.0)
        most = np.where((most >= 0.0) & (most < LEAST_SHARE), 0.0, most)
        feasible = (least <= most) & ~((step == 0) & (start < 0)).any(axis=1)
        # The order of a pair in which the second is better stands for both.
        feasible &= objective >= objective[first]
        value = objective[first] + np.maximum(most, 0.0) * (objective - objective[first])
        value = np.where(feasible, value, -np.inf)
        second = int(value.argmax())
        if value[second] > best + TOLERANCE:
            best, found = value[second], (first, second, float(most[second]))
    return found


# Rows are predicted in blocks of this many: sums of matrix products depend on a matrix's shape.
BLOCK_ROWS = 1 << 12
Block = Callable[[np.ndarray, np.ndarray, np.ndarray], tuple[np.ndarray, ...]]


@dataclass(frozen=True, eq=False)
class Judgement:
    """What a model of two classes makes of rows.

    Attributes
    ----------
    score : ndarray of float64, shape (n_samples,)
        P(Y=1|x).
    probability : ndarray of float64, shape (n_samples,)
        The probability of deciding 1; 0 or 1 where nothing is drawn.
    decision : ndarray of int64, shape (n_samples,)
        0 or 1; drawn by row id where it is random.
    """

    score: np.ndarray
    probability: np.ndarray
    decision: np.ndarray


@dataclass(frozen=True, eq=False)
class OneClass:
    """A model of several classes as one of two: whether it decides for the class ``code``."""

    model: Any
    code: int
    n_classes: int
    randomized: ClassVar[bool] = False

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        """Return the probabilities of the other classes and of this one, (n_samples, 2)."""
        one = _classify_block(self.model, self.n_classes, X, np.zeros((len(X), 0)), np.zeros(0))
        return np.column_stack([1.0 - one[:, self.code], one[:, self.code]])


@dataclass(frozen=True, eq=False)
class Above:
    """A regression as a model of two classes: whether it predicts more than ``cut``.

    The score is the expected prediction, in the units of the model as ``cut`` is.
    """

    model: Any
    cut: float

    @property
    def randomized(self) -> bool:
        """Whether predictions are drawn."""
        return find_chance(self.model).size > 1


def judge(model: Any, X: np.ndarray, groups: np.ndarray, ids: np.ndarray) -> Judgement:
    """Return the scores and decisions of a model of two classes on rows.

    ``X`` is float64 (n_samples, n_features), ``groups`` int64 (n_samples, n_attributes) and ``ids``
    are integers, (n_samples,).
    """
    judged = _run_blocks(lambda *rows: _judge_block(model, *rows), 3, X, groups, ids)
    score, probability, decision = judged
    return Judgement(score, probability, decision.astype(np.int64))


def classify(
    model: Any, X: np.ndarray, groups: np.ndarray, ids: np.ndarray, n_classes: int
) -> np.ndarray:
    """Return P(Y=k|x) of a model of several classes, float64, shape (n_samples, n_classes)."""
    run = lambda *rows: (_classify_block(model, n_classes, *rows),)  # noqa: E731
    return _run_blocks(run, 1, X, groups, ids)[0].reshape(-1, n_classes)


def predict_numbers(
    model: Any, X: np.ndarray, groups: np.ndarray, ids: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return what a regression may predict, with which probabilities, and what it predicts.

    Of shape (n_samples, K), (K,) and (n_samples,), float64. The last is drawn by row id where K is
    more than 1, as `MixtureEstimator.sample` draws.
    """
    chance = _read_chance(model)
    components, drawn = _run_blocks(lambda *rows: _predict_block(model, *rows), 2, X, groups, ids)
    return components.reshape(-1, chance.size)[:, chance > 0], find_chance(model), drawn


def find_chance(model: Any) -> np.ndarray:
    """Return the probabilities, above 0, of what a regression may predict, shape (K,)."""
    chance = _read_chance(model)
    return chance[chance > 0]


def list_components(model: Any) -> Iterator[Any]:
    """Yield the models of a mixture, or the model itself."""
    if isinstance(model, Mixture):
        yield from (model.first, model.second)
    else:
        yield model


def find_unfitted(model: Any, groups: np.ndarray) -> np.ndarray:
    """Return which rows are of a combination of groups that a rule was fitted without, bool."""
    unfitted = np.zeros(len(groups), dtype=bool)
    for component in list_components(model):
        if isinstance(component, GroupRule) and not component.takes_unseen:
            cells, code = number_cells(component.cross(groups))
            known = set(map(tuple, component.cells_.tolist()))
            unknown = np.array([tuple(cell) not in known for cell in cells.tolist()], dtype=bool)
            unfitted |= unknown[code]
    return unfitted


def _run_blocks(
    run: Block, arrays: int, X: np.ndarray, groups: np.ndarray, ids: np.ndarray
) -> tuple[np.ndarray, ...]:
    """Return the ``arrays`` that ``run`` makes of rows in blocks of ``BLOCK_ROWS``.

    The last block is filled up with rows from the start.
    """
    n = len(X)
    if not n:
        return (np.empty(0),) * arrays
    rows = np.resize(np.arange(n), -(-n // BLOCK_ROWS) * BLOCK_ROWS)
    found = [run(X[block], groups[block], ids[block]) for block in rows.reshape(-1, BLOCK_ROWS)]
    return tuple(np.concatenate(each)[:n] for each in zip(*found, strict=True))


def _give(model: Any, groups: np.ndarray, ids: np.ndarray) -> dict[str, np.ndarray]:
    """Return the keywords that a model's predictions need."""
    keywords = {"sensitive_features": groups, "ids": ids}
    return {name: keywords[name] for name in model.predict_needs}


def _classify_block(
    model: Any, n_classes: int, X: np.ndarray, groups: np.ndarray, ids: np.ndarray
) -> np.ndarray:
    """Return P(Y=k|x); a class without training rows has 0."""
    probability = np.zeros((len(X), n_classes))
    probability[:, model.classes_] = model.predict_proba(X, **_give(model, groups, ids))
    return probability.clip(0.0, 1.0)


def _read_chance(model: Any) -> np.ndarray:
    """Return the probabilities of a regression's regressors, of which it may have one."""
    drawn = hasattr(model, "predict_components")
    return np.asarray(model.probability_ if drawn else [1.0], dtype=np.float64)


def _predict_block(
    model: Any, X: np.ndarray, groups: np.ndarray, ids: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the predictions of every regressor, and of the drawn one."""
    given = _give(model, groups, ids)
    if not hasattr(model, "predict_components"):
        predicted = np.asarray(model.predict(X, **given), dtype=np.float64)
        return predicted[:, None], predicted
    components = np.asarray(model.predict_components(X, **given), dtype=np.float64)
    steps = np.cumsum(_read_chance(model))[:-1]
    drawn = np.searchsorted(steps, uniforms(model.random_state, ids), side="right")
    return components, components[np.arange(len(X)), drawn]


def _judge_block(
    model: Any, X: np.ndarray, groups: np.ndarray, ids: np.ndarray
) -> tuple[np.ndarray, ...]:
    """Return score, probability and decision."""
    if isinstance(model, OneClass):
        classes = _classify_block(model.model, model.n_classes, X, groups, ids)
        chosen = classes.argmax(axis=1) == model.code
        return classes[:, model.code], chosen.astype(np.float64), chosen
    if isinstance(model, Above):
        components, drawn = _predict_block(model.model, X, groups, ids)
        chance = _read_chance(model.model)
        above = ((components > model.cut) @ chance).clip(0.0, 1.0)
        return components @ chance, above, drawn > model.cut
    if isinstance(model, Mixture):
        first, second = (_judge_block(each, X, groups, ids) for each in list_components(model))
        score, probability = (
            (1.0 - model.share) * one + model.share * other
            for one, other in zip(first[:2], second[:2], strict=True)
        )
        return score, probability, np.where(model.draw(ids), second[2], first[2])
    if isinstance(model, PostProcessor):
        processor = model.rule
        score = _judge_block(model.estimator_, X, groups, ids)[0]
        # A rule refuses to decide on rows any of which has no score; that row alone is refused.
        taken = np.where(np.isfinite(score), score, 0.5)
        # It reads the chance of its favourable label.
        taken = 1.0 - taken if processor.turned_ else taken
        chance = processor.predict_proba(taken, sensitive_features=groups)[:, 1]
        decision = processor.predict(taken, sensitive_features=groups, ids=ids)
        chosen = np.asarray(decision == processor.classes_[-1])
        if processor.rescores:
            score = np.where(np.isfinite(score), chance, np.nan)
        return score, chance if processor.randomized else chosen.astype(np.float64), chosen
    given = _give(model, groups, ids)
    score = np.asarray(model.predict_proba(X, **given), dtype=np.float64)[:, 1]
    if model.randomized:
        decision = model.predict(X, **{**given, "ids": ids})
        return score, score, np.asarray(decision == model.classes_[-1])
    chosen = score >= model.cut_
    return score, chosen.astype(np.float64), chosen


FORMAT = 2
MANIFEST, REFERENCE, METRIC = BUNDLE_FILE, "reference.json", "metric.npz"
MODEL, RULE = "model", "rule"
ARRAYS = ("sigma", "basis", "directions")
MEND = "Export it again, or restore the folder from where it was copied."
ID, REFUSED = DECIDED
WAITING = "waiting"
# They are read into memory; sparse files claim any size.
MOST_BYTES = 2**34


@dataclass(kw_only=True, eq=False, repr=False)
class Bundle(BaseEstimator):
    """A chosen model that answers raw rows: a scikit-learn estimator on data frames.

    A row that cannot be used is refused: `decide` says why, and the predictions of scikit-learn
    raise.

    Parameters
    ----------
    model : estimator or Mixture
        What decides.
    encoder : RowEncoder
        How raw rows become arrays.
    manifest : mapping
        What bundle.json says beside the digests: ``study``, ``models`` (method, setting and
        probability of each), ``seed``, ``objective``, ``row_id`` and so on.
    reference : mapping
        What is known of the test rows in counts; see `describe_reference`.
    metric : FairMetric, optional
        The fair metric of the study, by which audits find similar rows.

    Attributes
    ----------
    feature_names_in_ : ndarray of str
        The raw columns that a frame has to have, in any order and among others.

    Notes
    -----
    Where answers are random, draws depend on the row id alone: the column ``row_id`` where the
    bundle names one, else the index of the frame, in a table the number of the row. Every row is
    answered by itself, so that neither order nor batches matter.
    """

    model: Any
    encoder: RowEncoder
    manifest: Mapping[str, Any]
    reference: Mapping[str, Any]
    metric: FairMetric | None = None

    # The column of `decide` that `predict` returns, and those of numbers before it.
    answer: ClassVar[str]
    scores: ClassVar[tuple[str, ...]]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of `decide`."""
        return (ID, *self.scores, self.answer, REFUSED)

    @property
    @abstractmethod
    def randomized(self) -> bool:
        """Whether answers are drawn."""

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of the classes, in the order of their codes; empty for a regression."""
        return self.encoder.classes

    @property
    def row_id(self) -> str | None:
        """The column of row ids."""
        name: str | None = self.manifest["row_id"]
        return name

    @cached_property
    def needed_groups(self) -> tuple[str, ...]:
        """The attributes that the rule looks at, beside the features, in their order."""
        names, needed = self.encoder.names, set[int]()
        for component in list_components(self.model):
            if isinstance(component, GroupRule):
                needed |= set(component.cross(np.arange(len(names))[None, :])[0])
        return tuple(name for position, name in enumerate(names) if position in needed)

    @property
    def feature_names_in_(self) -> np.ndarray:
        """The raw columns that are needed."""
        grouped = self.encoder.find_columns(self.needed_groups)
        return np.array(list(dict.fromkeys((*self.encoder.features, *grouped))), dtype=object)

    @property
    def n_features_in_(self) -> int:
        """Number of raw columns that are needed."""
        return len(self.feature_names_in_)

    def __sklearn_is_fitted__(self) -> bool:
        """Return True: there is nothing to fit."""
        return True

    def __sklearn_clone__(self) -> Self:
        """Return itself, as a frozen estimator does."""
        return self

    def fit(self, X: Any = None, y: Any = None) -> Self:  # noqa: ARG002
        """Return itself unchanged."""
        return self

    def decide(
        self,
        frame: Any,
        row_id: str | None = None,
        *,
        places: int | None = None,
        floor: Amounts | None = None,
        ceiling: Amounts | None = None,
    ) -> pd.DataFrame:
        """Answer raw rows, each by itself, or give the rows that are not refused so many places.

        Parameters
        ----------
        frame : DataFrame or object with ``__arrow_c_stream__``
            Raw columns, as in the table of the study; others are not looked at. Of pandas, polars,
            Arrow and so on; without an index rows are numbered.
        row_id : str, optional
            The column of row ids, in place of the bundle's.
        places : int, optional
            How many rows get the favourable decision, by their scores and not by the rule; see
            `fill_places`. Of several classes by those of the favourable one, and of a regression
            by the prediction, larger ones first.
        floor, ceiling : mapping of str to float or int, optional
            ATTRIBUTE=LEVEL -> the least or most places of a group, as a share or a number of them.
            Rows of no known group count for none.

        Returns
        -------
        DataFrame
            With the index of ``frame`` and the ``columns`` of the bundle: ``id``, those of its
            kind, and ``refused``, the reason, empty where there is an answer. A refused row has
            missing values. With ``places`` they are those of a bundle of two classes, with the
            position on the ``waiting`` list, Int64, before the last; missing for a place.

        Raises
        ------
        ConfigError
            When a column is missing, or the places cannot be given so.
        DataError
            When an id is missing, or neither a whole number nor text.

        Notes
        -----
        O(n) calls of the model, in blocks; memory is a few copies of the encoded rows.
        """
        frame = to_pandas(frame)
        needed = find_bounded(self.encoder.names, places, floor, ceiling)
        view = self if places is None else view_binary(self)
        view.encoder.check_columns(frame.columns, needed)
        rows = view.encode(frame)
        decided = view.judge_rows(frame, rows, row_id)
        if places is None:
            return decided
        words = read_ids(frame, row_id or view.row_id)[1]
        asked = {"places": places, "floor": floor, "ceiling": ceiling}
        return give_places(view, decided, words, rows.groups, **asked)[0]

    def encode(self, frame: pd.DataFrame) -> EncodedRows:
        """Return raw rows as arrays, with the reasons for which rows are refused."""
        rows = self.encoder.encode(frame, self.needed_groups)
        if self.needed_groups:
            reason = "the rule was fitted on no row of this combination of groups"
            rows.refusals.add(find_unfitted(self.model, rows.groups), reason)
        return rows

    def judge_rows(
        self, frame: pd.DataFrame, rows: EncodedRows, row_id: str | None = None
    ) -> pd.DataFrame:
        """Return what `decide` does, of a frame that is encoded."""
        names, words = read_ids(frame, row_id or self.row_id)
        accepted = rows.refusals.accepted
        answers = self._answer(rows.X[accepted], rows.groups[accepted], words[accepted])
        numbers = [column for column in answers.values() if column.dtype.kind == "f"]
        kept = rows.refusals.add_infinite(np.stack(numbers, axis=1))
        accepted = rows.refusals.accepted
        values = {name: _spread(column[kept], accepted) for name, column in answers.items()}
        decided = {ID: names, **values, REFUSED: rows.refusals.reasons}
        return pd.DataFrame(decided, index=frame.index).astype({REFUSED: "str"})

    @abstractmethod
    def _answer(
        self, X: np.ndarray, groups: np.ndarray, ids: np.ndarray
    ) -> Mapping[str, np.ndarray]:
        """Return the columns of `decide` between ``id`` and ``refused``, of rows not refused."""

    def _require(self, X: Any) -> pd.DataFrame:
        """Return the decisions on rows none of which may be refused."""
        decided = self.decide(X)
        refused = decided[REFUSED].to_numpy() != ""
        if refused.any():
            row = int(refused.argmax())
            raise DataError(
                f"Row {decided.index[row]} is refused: {decided[REFUSED].iloc[row]}.",
                "Leave it out, or call decide(), which gives the reason of every refused row.",
            )
        return decided

    def write(self, folder: str | Path) -> Path:
        """Write the bundle to a new or empty folder, all at once; StoreError where it cannot be."""
        folder = Path(folder)
        with replacing(folder, what="bundle", mend="Give a folder that can be written.") as work:
            self.fill(work)
        return folder

    def fill(self, folder: Path) -> None:
        """Write the files of the bundle into an empty folder."""
        _save_chain(self.model, folder / MODEL, folder / RULE)
        self.encoder.save(folder)
        write_json(self.reference, folder / REFERENCE)
        if self.metric is not None:
            self.metric.save(folder / METRIC)
        manifest = {**self.manifest, "files": _digest_files(folder)}
        digest, key = _digest(manifest), find_key()
        signed = {} if key is None else {SIGNATURE: sign(key, digest.encode()).hex()}
        write_json({**manifest, "sha256": digest, **signed}, folder / MANIFEST)
        try:
            for name in (MANIFEST, *manifest["files"]):
                if name.endswith(".json") and not name.endswith(TOKENIZER):
                    read_json(folder / name)
        except ValueError as error:
            raise ConfigError(
                f"The bundle cannot be exported: {error}.",
                "Leave columns, attributes or levels of them out of the dataset.",
            ) from None


class ClassifierBundle(ClassifierMixin, Bundle):  # type: ignore[misc]
    """A bundle of a classifier.

    Of two classes decisions are 0 and 1; 1 is the positive class of the dataset's label. `decide`
    gives ``score``, P(Y=1|x); ``probability``, that of deciding 1, which is 0 or 1 unless decisions
    are drawn; and ``decision``, Int8. Of several classes it gives P(Y=k|x) as ``score:NAME`` of
    every class, and as ``decision`` the name of the class with the largest.

    Attributes
    ----------
    classes_ : ndarray
        0 and 1, whose names are ``class_names``; of several classes their names.
    """

    answer: ClassVar[str] = "decision"

    @property
    def favourable(self) -> int | None:
        """The code of the favourable class; None where none of several is named so."""
        return self.encoder.config.label.find_favourable(self.class_names)

    @property
    def several(self) -> bool:
        """Whether there are more classes than two."""
        return len(self.class_names) > 2

    @property
    def classes_(self) -> np.ndarray:
        """The decisions."""
        return np.array(self.class_names, dtype=object) if self.several else np.arange(2)

    @property
    def scores(self) -> tuple[str, ...]:  # type: ignore[override]
        """The columns of scores, and of two classes that of the probability of deciding 1."""
        if not self.several:
            return ("score", "probability")
        return tuple(f"score:{name}" for name in self.class_names)

    @property
    def randomized(self) -> bool:
        """Whether decisions are drawn."""
        return bool(self.model.randomized)

    def predict(self, X: Any) -> np.ndarray:
        """Return decisions, shape (n_samples,): int64 0 and 1, or the names of several classes.

        DataError for a refused row.
        """
        decided = self._require(X)[self.answer]
        return decided.to_numpy(dtype=object if self.several else np.int64)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return P(Y=k|x), float64, (n_samples, n_classes); DataError for a refused row.

        These are scores; what `decide` calls ``probability`` is that of the decision.
        """
        decided = self._require(X)
        if self.several:
            return decided[list(self.scores)].to_numpy(dtype=np.float64)
        score = decided["score"].to_numpy(dtype=np.float64)
        return np.column_stack([1.0 - score, score])

    def _answer(
        self, X: np.ndarray, groups: np.ndarray, ids: np.ndarray
    ) -> Mapping[str, np.ndarray]:
        if self.several:
            chance = classify(self.model, X, groups, ids, len(self.class_names))
            decision = np.array(self.class_names, dtype=object)[chance.argmax(axis=1)]
            return {**dict(zip(self.scores, chance.T, strict=True)), self.answer: decision}
        judged = judge(self.model, X, groups, ids)
        decision = judged.decision.astype(np.int8)
        return {"score": judged.score, "probability": judged.probability, self.answer: decision}


class RegressorBundle(RegressorMixin, Bundle):  # type: ignore[misc]
    """A bundle of a regression, which predicts in the units of the label's column.

    `decide` gives ``prediction``, drawn by row id where the model draws one of several regressors,
    and ``score``, its expectation.
    """

    answer: ClassVar[str] = "prediction"
    scores: ClassVar[tuple[str, ...]] = ("score",)

    @property
    def randomized(self) -> bool:
        """Whether predictions are drawn."""
        return find_chance(self.model).size > 1

    def predict(self, X: Any) -> np.ndarray:
        """Return predictions, float64, shape (n_samples,); DataError for a refused row."""
        return self._require(X)[self.answer].to_numpy(dtype=np.float64)

    def _answer(
        self, X: np.ndarray, groups: np.ndarray, ids: np.ndarray
    ) -> Mapping[str, np.ndarray]:
        values, chance, drawn = predict_numbers(self.model, X, groups, ids)
        unscale = self.encoder.unscale
        # A product of matrices would add in an order that depends on the number of rows.
        mean = np.sum(np.ascontiguousarray(values) * chance, axis=1)
        return {"score": unscale(mean), self.answer: unscale(drawn)}


def make_bundle(
    model: Any,
    encoder: RowEncoder,
    manifest: Mapping[str, Any],
    reference: Mapping[str, Any] | None = None,
    metric: FairMetric | None = None,
) -> Bundle:
    """Return the bundle of a model, of the kind that the encoder's label asks for."""
    kind = ClassifierBundle if encoder.classes else RegressorBundle
    found = {} if reference is None else reference
    return kind(model=model, encoder=encoder, manifest=manifest, reference=found, metric=metric)


def load_bundle(folder: str | Path, *, trusted: Collection[str] = ()) -> Bundle:
    """Load a bundle, a scikit-learn estimator on raw data frames; nothing is unpickled.

    Parameters
    ----------
    folder : str or Path
        What `Choice.export`, `FrontierModel.save` or ``fairfrontier select`` wrote.
    trusted : collection of str
        Types in an estimator of yours that fairfrontier does not know, as those named when it was
        saved: to load them runs their code, with what the file says.

    Raises
    ------
    StoreError
        When a file is missing, was added, altered or is too large, or the bundle is of another
        format. Digests protect against accidents, not against those who may write to the folder:
        native code believes what a model's files say, so load bundles of those whom you trust.
    """
    folder = Path(folder)
    path = folder / MANIFEST
    restore(folder)
    with reading(folder, "Name the folder of a bundle, with its file bundle.json.", "bundle"):
        manifest = read_json(path)
        found = _digest_files(folder)
        if manifest["format"] != FORMAT:
            raise StoreError(
                f"{folder} is a bundle of format {manifest['format']}, and this version reads "
                f"{FORMAT}.",
                "Export it again with this version of fairfrontier.",
            )
        manifest.pop(SIGNATURE, None)
        if manifest.pop("sha256") != _digest(manifest):
            raise StoreError(f"The file {path} is not what was exported.", MEND)
        files = manifest.pop("files")
    with reading(folder, MEND, "bundle"):
        if altered := {*files.items()} ^ {*found.items()}:
            name, _ = min(altered)
            raise StoreError(f"The file {folder / name} is not what was exported.", MEND)
        encoder = RowEncoder.load(folder)
        if f"{MODEL}/{MIXTURE}" in files:
            model: Any = Mixture.load(folder / MODEL)
        else:
            ruled = f"{RULE}/{MODEL_MANIFEST}" in files
            model = load_chain(folder / MODEL, folder / RULE if ruled else None, trusted)
        reference = read_json(folder / REFERENCE)
        metric = FairMetric(*read_numbers(folder / METRIC, *ARRAYS)) if METRIC in files else None
        return make_bundle(model, encoder, manifest, reference, metric)


def list_facts(bundle: Bundle) -> dict[str, Any]:
    """Return what bundle.json says of the encoder and the model, for readers of it alone."""
    return {
        "classes": list(bundle.encoder.classes),
        "label": bundle.encoder.config.label.column,
        "randomized": bundle.randomized,
        "features": list(bundle.encoder.features),
        "groups": list(bundle.encoder.grouped),
        # The attributes that the rule looks at, beside the features.
        "needed_groups": list(bundle.needed_groups),
    }


def give_places(
    bundle: Any, decided: pd.DataFrame, words: np.ndarray, groups: np.ndarray, **asked: Any
) -> tuple[pd.DataFrame, Places]:
    """Return what a bundle of two classes decides on a batch, with places in place of decisions.

    ``words`` are those of `read_ids`, ``groups`` int64 codes, (n_samples, n_attributes), and
    ``asked`` what `fill_places` is asked for.
    """
    accepted = (decided[REFUSED] == "").to_numpy()
    score = decided["score"].to_numpy(dtype=np.float64, na_value=np.nan)[accepted]
    known = {
        attribute.name: pd.Series(pd.Categorical.from_codes(code, pd.Index(attribute.names)))
        for attribute, code in zip(bundle.encoder.attributes, groups[accepted].T, strict=True)
    }
    score = score if bundle.favourable else -score
    found = fill_places(score, sensitive_features=known, ids=words[accepted], **asked)
    decision = found.decision if bundle.favourable else 1 - found.decision
    made = decided.assign(
        probability=_spread(decision.astype(np.float64), accepted),
        decision=_spread(decision.astype(np.int8), accepted),
    )
    waiting = pd.Series(_spread(found.waiting, accepted), index=made.index)
    made.insert(len(made.columns) - 1, WAITING, waiting.mask(waiting == 0))
    return made, found


def read_ids(frame: pd.DataFrame, column: str | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the ids of rows as they are written, and the words that seed their draws.

    They are those of a column, else the index; see `Cells.ids`.
    """
    if column is not None and column not in frame:
        raise ConfigError(
            f"The table has no column {column!r} of row ids.",
            "Add it: draws belong to row ids. Or name another one with row_id (--row-id).",
        )
    values = frame.index.to_series(name="index") if column is None else frame[column]
    return Cells(values, "row-id", "The table").ids()


def _spread(values: np.ndarray, accepted: np.ndarray) -> Any:
    """Return the values of accepted rows among all rows, the others missing."""
    if values.dtype.kind == "i":
        code = np.zeros(accepted.size, dtype=values.dtype)
        code[accepted] = values
        return pd.arrays.IntegerArray(code, ~accepted)
    whole = np.full(accepted.size, None if values.dtype.kind == "O" else np.nan, values.dtype)
    whole[accepted] = values
    return pd.array(whole, dtype="str") if values.dtype.kind == "O" else whole


def _digest(manifest: Mapping[str, Any]) -> str:
    return hashlib.sha256(canonical_json(manifest).encode()).hexdigest()


def _digest_files(folder: Path) -> dict[str, str]:
    """Return file -> sha256 of all files in a folder but the manifest."""
    return {name: hash_file(folder / name) for name in _list_files(folder)}


def _list_files(folder: Path) -> list[str]:
    """Return the files in a folder but the manifest; StoreError for a link, a size and so on."""
    paths, size = sorted(folder.rglob("*")), 0
    for path in paths:
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise StoreError(f"{path} is a link or no file, which no bundle holds.", MEND)
        size += path.stat().st_size
    if size > MOST_BYTES:
        raise StoreError(f"{folder} holds {size:,} bytes, more than any bundle may.", MEND)
    files = [path for path in paths if path.is_file() and path != folder / MANIFEST]
    return [path.relative_to(folder).as_posix() for path in files]


# A bundle as one of two classes, and in counts the rows that later ones are compared with.

# The most bins of a feature, of the scores, and the most levels that are counted by name.
FEATURE_BINS, SCORE_BINS, LEVELS = 10, 50, 100
OTHER = "other"


def describe_rows(
    encoder: RowEncoder, rows: EncodedRows, decided: pd.DataFrame, labels: np.ndarray, minimum: int
) -> dict[str, Any]:
    """Count rows by decision, label, group, score and feature, as plain values.

    Parameters
    ----------
    encoder : RowEncoder
        What encoded them.
    rows : EncodedRows
        The rows.
    decided : DataFrame
        What `Bundle.decide` returns of them.
    labels : ndarray of float64, shape (n_samples,)
        1, 0, or NaN where unknown.
    minimum : int
        Rows that a level or a bin needs to be counted by itself.

    Returns
    -------
    dict
        - ``rows``, ``refused``: numbers of rows, the latter by reason. All below is of the others;
        - ``counts``: see `count_decisions`; ``groups``: attribute -> level -> the same, where
          levels of fewer than ``minimum`` rows, rows of no group, and a level of that name, are
          one, ``other``;
        - ``score``: a histogram; ``features``: column -> a histogram, see `describe_column`.
    """
    kept = decided["refused"].to_numpy() == ""
    probability = decided["probability"].to_numpy(dtype=np.float64)[kept]
    labels, groups = labels[kept], rows.groups[kept]
    numbers = {*used_columns(encoder.config)[0], WORDS}
    described: dict[str, dict[str, Any]] = {}
    for position, attribute in enumerate(encoder.attributes):
        codes = groups[:, position]
        sizes = np.bincount(codes[codes >= 0], minlength=len(attribute.names))
        small = np.append(sizes < minimum, True)[codes]
        levels = {
            name: codes == code
            for code, name in enumerate(attribute.names)
            if sizes[code] >= minimum
        }
        if small.any():
            levels[OTHER] = small | levels.get(OTHER, False)
        described[attribute.name] = {
            name: count_decisions(probability[mask], labels[mask]) for name, mask in levels.items()
        }
    score = pd.Series(decided["score"].to_numpy(dtype=np.float64)[kept])
    return {
        "rows": len(decided),
        "refused": {
            str(reason): int(count)
            for reason, count in decided["refused"].value_counts().items()
            if reason
        },
        "counts": count_decisions(probability, labels),
        "groups": described,
        "score": describe_column(score, True, minimum, SCORE_BINS),
        "features": {
            name: describe_column(rows.columns.loc[kept, name], name in numbers, minimum)
            for name in encoder.described
        },
    }


def count_decisions(probability: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Count rows, decisions and labels.

    ``probability`` is that of deciding 1: ``selected``, ``true_positive`` and ``false_positive``
    are expected numbers of rows, whole where nothing is drawn. ``labelled`` rows have a label,
    ``positive`` ones 1.
    """
    known = ~np.isnan(labels)
    chance, label = probability[known], labels[known]
    return {
        "rows": int(probability.size),
        "selected": float(probability.sum()),
        "labelled": int(known.sum()),
        "positive": int(label.sum()),
        "true_positive": float(chance[label == 1].sum()),
        "false_positive": float(chance[label == 0].sum()),
    }


def describe_column(
    column: pd.Series, numeric: bool, minimum: int, bins: int = FEATURE_BINS
) -> dict[str, Any]:
    """Return the histogram of a column, with what `count_column` needs to count another one by it.

    Numbers are cut at quantiles: bin k is [edge k−1, edge k), and holds about as many rows as the
    others, at least ``minimum``. Levels of fewer rows, and those after the ``LEVELS`` most
    frequent, are counted as one.
    """
    if numeric:
        values = column.to_numpy(dtype=np.float64)
        values = values[~np.isnan(values)]
        parts = max(1, min(bins, values.size // max(1, minimum)))
        inner = np.quantile(values, np.linspace(0, 1, parts + 1)[1:-1]) if values.size else []
        # An edge at the least value would leave the bin below it empty.
        edges = [float(edge) for edge in np.unique(inner) if edge > values.min()]
        described: dict[str, Any] = {"edges": edges}
    else:
        counts = as_levels(column).value_counts()
        named = [str(level) for level in counts.index[counts >= minimum][:LEVELS]]
        described = {"levels": sorted(named)}
    return {**described, "counts": count_column(column, described).tolist()}


def count_column(column: pd.Series, described: Mapping[str, Any]) -> np.ndarray:
    """Count the rows of a column in the bins of a histogram, int64.

    ``described`` has the ``edges`` of numbers or the ``levels``. The bins come first, in order;
    behind those of levels comes the count of all other levels; missing cells are last.
    """
    if "edges" in described:
        values = column.to_numpy(dtype=np.float64)
        missing = np.isnan(values)
        size = len(described["edges"]) + 1
        codes = np.searchsorted(np.asarray(described["edges"]), values[~missing], side="right")
    else:
        levels = as_levels(column)
        missing = levels.isna().to_numpy()
        size = len(described["levels"]) + 1
        codes = pd.Index(described["levels"]).get_indexer(pd.Index(levels[~missing]))
        codes = np.where(codes < 0, size - 1, codes)
    return np.append(np.bincount(codes, minlength=size), missing.sum()).astype(np.int64)


# What differs between the classes in the reference of a bundle.
OF_CLASS = ("counts", "groups", "score")


def view_binary(bundle: Bundle, accepted: str | None = None) -> ClassifierBundle:
    """Return a bundle as one of two classes, of which ``accepted`` is the favourable one.

    By default it is the dataset's. Of several classes, whether a row is decided it. Of a
    regression, whether more is predicted than the median prediction of the test rows; labels are
    cut there, too.

    Raises
    ------
    ConfigError
        When there is no such class, or none, and when nothing says which of several is favourable.
    """
    if not isinstance(bundle, ClassifierBundle):
        if accepted is not None:
            raise ConfigError(
                "--accepted names a class, and the bundle is of a regression.", "Leave it out."
            )
        return _view_above(bundle, float(bundle.reference["cut"]))
    names = bundle.class_names
    asked = () if accepted is None else (accepted,)
    refuse_unknown(asked, names, "The bundle has no class", " (--accepted)")
    if bundle.several:
        code = bundle.favourable if accepted is None else names.index(accepted)
        if code is None:
            raise ConfigError(
                f"The bundle decides between {', '.join(names)}, and nothing says which of them is "
                "good for the person.",
                "Name it with --accepted, or as label.favourable in the dataset's YAML before "
                "choosing.",
            )
        return _view_class(bundle, names[code])
    if accepted is None:
        return bundle
    config = bundle.encoder.config
    label = config.label.model_copy(update={"favourable": accepted})
    encoder = replace(bundle.encoder, config=config.model_copy(update={"label": label}))
    view = copy(bundle)
    view.encoder = encoder
    return view


def describe_reference(
    bundle: Bundle, frame: pd.DataFrame, rows: EncodedRows, minimum: int
) -> dict[str, Any]:
    """Count raw rows as `describe_rows` does, as what later rows are compared with.

    Of several classes ``counts``, ``groups`` and ``score`` are those of each class, in ``classes``.
    Of a regression rates are of predictions above ``cut``, in the units of the model.
    """

    def describe(view: Bundle) -> dict[str, Any]:
        decided, labels = view.judge_rows(frame, rows), view.encoder.read_labels(frame)
        return describe_rows(view.encoder, rows, decided, labels, minimum)

    if isinstance(bundle, RegressorBundle):
        accepted = rows.refusals.accepted
        # Nothing that is drawn is looked at.
        ids = np.zeros(int(accepted.sum()), dtype=np.int64)
        values, chance, _ = predict_numbers(
            bundle.model, rows.X[accepted], rows.groups[accepted], ids
        )
        cut = float(np.median(values @ chance))
        return {**describe(_view_above(bundle, cut)), "cut": cut}
    if not isinstance(bundle, ClassifierBundle) or not bundle.several:
        return describe(bundle)
    by_class = {name: describe(_view_class(bundle, name)) for name in bundle.class_names}
    first = next(iter(by_class.values()))
    shared = {name: value for name, value in first.items() if name not in OF_CLASS}
    classes = {name: {key: each[key] for key in OF_CLASS} for name, each in by_class.items()}
    return {**shared, "classes": classes}


def _view_class(bundle: ClassifierBundle, name: str) -> ClassifierBundle:
    """Return whether a row is decided one class, as a bundle."""
    code = bundle.class_names.index(name)
    model = OneClass(bundle.model, code, len(bundle.class_names))
    shared = {key: value for key, value in bundle.reference.items() if key != "classes"}
    own = bundle.reference.get("classes", {}).get(name, {})
    return _view(bundle, model, {"positive": (name,)}, name, {**shared, **own})


def _view_above(bundle: Bundle, cut: float) -> ClassifierBundle:
    """Return whether more is predicted than a cut, as a bundle."""
    label, value = bundle.encoder.config.label, float(bundle.encoder.unscale(np.array(cut)))
    # What is scaled remains known.
    positive = {"above": value, "range": label.range} if label.positive is None else {}
    model = Above(bundle.model, cut)
    return _view(bundle, model, positive, f"above {value:.6g}", bundle.reference)


def _view(
    bundle: Bundle, model: Any, positive: Mapping[str, Any], name: str, reference: Mapping[str, Any]
) -> ClassifierBundle:
    config = bundle.encoder.config
    update = {"task": "binary", "favourable": None, "range": None, "clip": False, **positive}
    label = config.label.model_copy(update=update)
    encoder = replace(
        bundle.encoder,
        config=config.model_copy(update={"label": label}),
        classes=(f"not {name}", name),
    )
    parts = (model, encoder, bundle.manifest, reference, bundle.metric)
    return cast("ClassifierBundle", make_bundle(*parts))
