"""The base of post-processors: estimators whose one feature is the score of another model."""

from __future__ import annotations

import math
import warnings
from collections.abc import Collection, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, get_args

import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd
from scipy.sparse import issparse
from scipy.special import expit
from sklearn.utils.validation import _num_samples, check_consistent_length

from fairfrontier.models.base import (
    FEATURES,
    NAMES,
    SHAPE,
    TRIED,
    Classifier,
    Estimator,
    TrainingWarning,
    UnfittedError,
    explaining,
    training_weight,
)
from fairfrontier.models.group import (
    Attributes,
    Codes,
    SensitiveFeatures,
    choose_columns,
    number_cells,
    read_groups,
)
from fairfrontier.models.persistence import State, write_state
from fairfrontier.models.registry import load_model
from fairfrontier.models.response import (
    choose_response,
    name_estimator,
    score_rows,
    score_training,
    unfreeze,
)
from fairfrontier.models.thresholds.rule import (
    UNSEEN,
    FittedRule,
    Knots,
    MixtureRule,
    Scale,
    measure_rates,
    rescale,
)
from fairfrontier.prepare.split import Part, Split
from fairfrontier.runtime.arrays import to_numpy
from fairfrontier.runtime.errors import ConfigError, DataError, GroupError, InputError, StoreError
from fairfrontier.runtime.seeds import uniforms

if TYPE_CHECKING:
    from fairfrontier.models.thresholds.rulebook import Rulebook

SCALES: tuple[Scale, ...] = get_args(Scale)
# Columns of a rule's frame that are scores.
SCORED = ["threshold", "zero_up_to", "one_from"]
# The folder or learner of a saved rule's estimator.
BEHIND = "estimator"
# Ranks at which points are read off: enough for a curve, few enough for a rulebook.
KNOTS = 257
# Closer to −1 or 1 nobody tells scores apart.
SATURATED = 1e-6
# Standard errors of an AUC below ½ that are no chance.
DOUBT = 3.0
TURN = (
    "Turn them around if lower scores mean that label 1 is more likely (1 - score of "
    "probabilities, else -score), or name the other level as the positive one."
)


@dataclass(kw_only=True, eq=False, repr=False)
class GroupRule(Estimator):
    """Base of what changes scores or predictions by group: behind an estimator, or by themselves.

    Parameters
    ----------
    estimator : estimator or None
        None where its scores or predictions are given in place of rows, (n_samples,) or (n_samples,
        1).
    prefit : bool
        Whether the estimator is fitted, so that the rows of ``fit`` are for the rule alone.
    cv : int, splitter or iterable of splits, optional
        Else the folds whose other rows the models were fitted on that the rule learns from.
    attributes : int, str, list of these or None
        Columns of ``sensitive_features`` whose cross product makes the groups; None crosses all.

    Attributes
    ----------
    estimator_ : estimator
        The fitted estimator, where there is one.
    cells_ : ndarray of int64, shape (n_groups, n_attributes)
        The combinations of codes that make the groups, in ascending order.
    """

    group_parameters: ClassVar[tuple[str, ...]] = ("attributes",)

    # Whether it corrects the score itself: P(Y=1|x), or a number.
    rescores: ClassVar[bool] = False
    # Whether P(decision = 1) rises with the score in every group.
    monotone: ClassVar[bool] = False

    estimator_: Any = field(init=False)
    cells_: np.ndarray = field(init=False)

    estimator: Any = field(default=None, kw_only=False)
    prefit: bool = False
    cv: Any = None
    attributes: Attributes = None

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

    def __sklearn_tags__(self) -> Any:
        """Return scikit-learn's tags: rows are the estimator's, or scores in one dimension."""
        tags = super().__sklearn_tags__()
        tags.input_tags.one_d_array = self.estimator is None
        return tags

    def supports(self, split: Split) -> str | None:
        """Return why it cannot be fitted on ``split``, whose one feature must be a score."""
        if len(split.feature_names) != 1:
            return f"{self.name} decides from scores: put it behind a method, as then: {self.name}."
        return Estimator.supports(self, split)

    def from_scores(self, scores: Any, y: Any = None, **keywords: Any) -> Self:
        """Fit the rule on scores that the fitted estimator gave to rows, and labels of these.

        ``keywords`` are those of ``fit``. Predictions ask the estimator, if there is one.
        """
        estimator, self.estimator = self.estimator, None
        try:
            self.fit(scores, y, **keywords)
        finally:
            self.estimator = estimator
        if estimator is not None:
            self._stand_behind(estimator)
        return self

    def behind(self, model: Any) -> Self:
        """Return this fitted rule behind a model that gives such scores.

        ConfigError is raised where it was fitted on probabilities and the model has none, or on
        other scores and the model has a ``predict_proba``, which is what would be asked.
        """
        rule = copy(self)
        rule._stand_behind(model)
        return rule

    @property
    def rule(self) -> Self:
        """The fitted rule on scores, without the estimator."""
        rule = copy(self)
        rule.estimator = None
        rule.__dict__.pop("estimator_", None)
        rule.__dict__.pop(NAMES, None)
        rule.n_features_in_ = 1
        return rule

    def _stand_behind(self, model: Any, label: Any = None) -> None:
        """Let a model give the scores, of whose labels ``label`` is the favourable one."""
        self.estimator_, self.asked_ = model, label
        for name in (SHAPE, NAMES):
            self.__dict__.pop(name, None)
            if hasattr(model, name):
                setattr(self, name, getattr(model, name))

    def save(self, folder: str | Path) -> Path:
        """Write the fitted rule to a new folder, and the estimator, where it can be read again.

        Estimators of this library are, and those of types that skops trusts; of others the rule is
        written alone, with a UserWarning: it decides from scores, or `behind` the estimator.
        """
        if "cells_" not in vars(self):
            raise UnfittedError(f"This {type(self).__name__} is not fitted yet.", "Call fit first.")
        rule, estimator = self.rule, unfreeze(vars(self).get("estimator_"))
        state = rule.pack_state()

        def write(**learners: Any) -> Path:
            parameters, whole = rule.list_parameters(), replace(state, learners=learners)
            return write_state(Path(folder), self.name, parameters, whole, self.trusted)

        if estimator is None or isinstance(estimator, Estimator):
            written = write()
        else:
            try:
                written = write(**{BEHIND: estimator})
            except StoreError as error:
                written = write()
                warnings.warn(
                    f"The rule is saved without its estimator. {error.fault}", stacklevel=2
                )
        if isinstance(estimator, Estimator):
            estimator.save(written / BEHIND)
        return written

    @classmethod
    def load(cls, folder: str | Path, *, trusted: Collection[str] = ()) -> Self:
        """Read what ``save`` wrote; see `Estimator.load`."""
        rule = super().load(folder, trusted=trusted)
        if (Path(folder) / BEHIND).is_dir():
            model = load_model(Path(folder) / BEHIND, trusted=trusted)
            rule._stand_behind(model, vars(rule).get("asked_"))
        return rule

    def unpack_state(self, state: State) -> None:
        """Restore what ``pack_state`` returned, and the estimator behind which the rule stands."""
        learners = dict(state.learners)
        estimator = learners.pop(BEHIND, None)
        super().unpack_state(replace(state, learners=learners))
        if estimator is not None:
            self._stand_behind(estimator, vars(self).get("asked_"))

    def list_tried(self) -> tuple[np.ndarray, Codes]:
        """Return scores of zero in every group, and the groups, by which a saved rule is tried."""
        count, columns = len(self.cells_), self.columns
        known = vars(self).get(FEATURES)
        width = len(known.levels) if known else max(columns) + 1
        groups = Codes.of(
            np.zeros((count + TRIED, width), dtype=np.int64), known.names if known else ()
        )
        groups[:, columns] = self.cells_[np.arange(len(groups)) % count]
        return np.zeros(len(groups)), groups

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
        numbers = Codes.of(np.arange(len(items))[None, :], tuple(attributes))
        chosen = [items[column] for column in self.cross(numbers)[0].tolist()]
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


@dataclass(kw_only=True, eq=False, repr=False)
class PostProcessor(GroupRule, Classifier):
    """Base of the rules that decide from scores, by group: behind an estimator, or from scores.

    With an ``estimator`` the rule is a classifier on its rows: ``fit(X, y, *, sensitive_features,
    sample_weight=None)``, ``predict`` and ``predict_proba(X, *, sensitive_features)``. Without one
    X holds scores, shape (n_samples,) or (n_samples, 1), higher ones of rows whose label is more
    likely the favourable one. ``validation`` of a fit is a Part with such an X.

    A subclass implements ``fit``, which passes its rows through ``validate_training``, and
    ``probability``.

    Parameters
    ----------
    estimator : estimator or None
        A classifier of two classes with a ``predict_proba``, or else a ``decision_function``. None
        where scores are given.
    prefit : bool
        Whether the estimator is fitted, so that the rows of ``fit`` are for the rule alone; it
        should not have been trained on them. A ``FrozenEstimator`` is, too, and stays so when the
        rule is cloned, as by ``cross_validate``. Else the rule is fitted on scores of models that
        were fitted on other folds (``cv``), and the estimator on all rows.
    cv : int, splitter or iterable of splits, optional
        Those folds; by default five, stratified by label.
    pos_label : optional
        The favourable label; by default the last in order, as in scikit-learn.
    attributes : int, str, list of these or None
        Columns of ``sensitive_features`` whose cross product makes the groups; None crosses all.
    scale : {"probability", "margin", "signed", "points"}
        What given scores are: P(favourable), log odds, f ∈ [−1, 1], or numbers of which only the
        order counts, as points, deciles or distances. Of an estimator's scores probabilities are
        known as such, and those of a decision function are points unless this says margin.
    random_state : int
        Seed of the draws of ``predict``; no effect where nothing is random.

    Attributes
    ----------
    estimator_ : estimator
        The fitted estimator, where there is one.
    classes_ : ndarray of shape (2,)
        The labels, in order; ``favourable`` is the one of decision 1.
    cells_ : ndarray of int64, shape (n_groups, n_attributes)
        The combinations of codes that make the groups, in ascending order.
    scale_ : str
        What the scores of the fit were.
    knots_ : tuple of (float, float)
        Of points, pairs of a score and f, by which f is read; empty for other scales.

    Notes
    -----
    One fit of the estimator for each fold and one more, unless it is fitted. Scores of rows that a
    model was trained on are overconfident: whoever gives scores gives those of other rows.
    """

    scale_: Scale = field(init=False)
    knots_: Knots = field(init=False)
    # Whether the first of classes_ is the favourable label.
    turned_: bool = field(init=False)

    pos_label: Any = None
    scale: Scale | None = "probability"
    random_state: int = 0

    @property
    def favourable(self) -> Any:
        """The label of decision 1: ``pos_label``, or the last of ``classes_``."""
        return self.classes_[1 - self.turned_]

    def check(self) -> None:
        """Raise ConfigError for invalid parameters."""
        chosen = self.scale in SCALES or self.scale is type(self).scale is None
        self.require("scale", chosen, ", ".join(SCALES))
        known = self.estimator is None or not isinstance(self.estimator, type)
        self.require("estimator", known, "an instance, fitted or not, or None for scores")

    def _stand_behind(self, model: Any, label: Any = None) -> None:
        """Let a model give the scores, of whose labels ``label`` is the favourable one."""
        known = choose_response(model, name_estimator(model)) == "predict_proba"
        scale = vars(self).get("scale_", self.scale)
        if known != (scale == "probability"):
            read = "probabilities" if known else "a decision function"
            raise ConfigError(
                f"{self.name} was fitted on scores as {scale}, and of "
                f"{type(unfreeze(model)).__name__} it would read {read}.",
                "Fit it on what predict_proba gives, or else decision_function.",
            )
        super()._stand_behind(model, label)

    def validate_training(
        self, X: Any, y: Any, *aligned: Any, sample_weight: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the scores of a fit as f ∈ [−1, 1], and its labels as codes of ``classes_``.

        An estimator is fitted first where it is not, or else asked for its scores of X. The first
        of ``aligned`` are sensitive features. Without labels y the classes are 0 and 1. A
        TrainingWarning is given for scores that predict the opposite of the labels.
        """
        with explaining():
            check_consistent_length(X, y, *aligned, sample_weight)
            labels = np.zeros(_num_samples(X)) if y is None else y
        scores, scale = X, self.scale
        self.__dict__.pop("estimator_", None)
        if self.estimator is not None:
            scored = score_training(self, X, y, aligned[0], sample_weight)
            self.estimator_, scores = scored.estimator, scored.score
            if scored.probability or scale != "margin":
                scale = "probability" if scored.probability else "points"
        rows, codes = super().validate_training(as_column(scores), labels, *aligned)
        weight = training_weight(sample_weight, len(codes))
        if rows.ndim != 1 and rows.shape[1] != 1:
            raise refuse_shape(rows, self.name)
        if scale is None:
            whole = not rows.size or (rows.min() >= 0 and rows.max() <= 1)
            scale = "probability" if whole or y is None else "points"
        self.scale_, self.knots_ = scale, ()
        if scale == "points":
            if y is None:
                raise ConfigError(f"{self.name} reads points by labels.", "Pass y.")
            some = weight > 0
            self.knots_ = rank_points(np.ravel(rows)[some], codes[some], weight[some])
        signed = read_scores(rows, scale, self.name, self.knots_)
        if scale == "margin" and 2 * count_saturated(np.ravel(rows), signed) > signed.size:
            raise refuse_saturated(self.name)
        if hasattr(self, "estimator_"):
            self._stand_behind(self.estimator_)
        flips = getattr(self, "flip", None)
        if y is not None and not flips and (found := find_backward(signed, codes, weight)):
            mend = TURN if flips is None else f"{TURN} With flip=True low scores may decide, too."
            warnings.warn(
                f"The scores that {self.name} got {found} {mend}", TrainingWarning, stacklevel=3
            )
        return signed, codes

    def validate_rows(self, X: Any) -> np.ndarray:
        """Return the scores of a prediction as f ∈ [−1, 1], float64, (n_samples,)."""
        if hasattr(self, "estimator_"):
            name = name_estimator(self.estimator_)
            asked = vars(self).get("asked_")
            positive = self.favourable if asked is None else asked
            rows, _ = score_rows(self.estimator_, X, positive, name)
        else:
            rows = super().validate_rows(as_column(X))
        return read_scores(rows, self.scale_, self.name, self.knots_)

    def learn_target(self, y: np.ndarray) -> np.ndarray:
        """Set ``classes_`` and return codes, 1 of the favourable label; 0 or 1 may be lacking."""
        self.turned_ = False
        if y.dtype.kind in "iuf" and ((y == 0) | (y == 1)).all():
            self.classes_, codes = np.arange(2, dtype=y.dtype), y.astype(np.int64)
        else:
            codes = super().learn_target(y)
        if self.pos_label is not None and self.pos_label != self.classes_[1]:
            if self.pos_label != self.classes_[0]:
                raise ConfigError(
                    f"pos_label is {self.pos_label!r}, and the labels are "
                    f"{' and '.join(map(str, self.classes_))}.",
                    "Give one of them.",
                )
            self.turned_, codes = True, 1 - codes
        return codes

    def encode_labels(self, y: Any) -> np.ndarray:
        """Return 1 for the favourable label and 0 for the other, int64."""
        codes = super().encode_labels(y)
        return 1 - codes if self.turned_ else codes

    def supports(self, split: Split) -> str | None:
        """Return why it cannot be fitted on ``split``, whose one feature must be a score."""
        if self.pos_label not in (None, 1):
            return f"pos_label is {self.pos_label!r}, and scores of a split are of its class 1."
        return super().supports(split)

    def predict(  # type: ignore[override]
        self, X: np.ndarray, *, sensitive_features: Any, ids: np.ndarray | None = None
    ) -> np.ndarray:
        """Return decisions as labels, shape (n_samples,).

        ``sensitive_features`` has shape (n_samples, n_attributes). A draw depends on
        (``random_state``, row id). Without ``ids``, which are whole numbers, rows of an estimator
        are told apart by what they hold, so that equal rows are decided alike, in any batch, with a
        UserWarning where so many are equal that a group's rate is far from the rule's;
        ConfigError is raised where the rows are but scores.
        """
        probability = self._find_chance(X, sensitive_features)
        if not self.randomized:
            return self._label(probability >= self.cut_)
        drawn = ids is None and hasattr(self, "estimator_")
        if drawn:
            ids = hash_rows(X)
        if ids is None:
            raise ConfigError(
                f"{self.name} draws its decisions by row id, but got no ids.",
                "Pass ids=part.ids, or use predict_proba, which is exact.",
            )
        ids = to_numpy(ids)
        if ids.shape != probability.shape or ids.dtype.kind not in "iu":
            raise InputError(
                f"There are {len(probability)} rows, and ids of shape {ids.shape} and type "
                f"{ids.dtype}.",
                "Give one whole number per row.",
            )
        decision = uniforms(self.random_state, ids) < probability
        if drawn and (found := find_uneven(decision, probability, sensitive_features, ids)):
            warnings.warn(
                f"Rows that hold the same are decided alike: {found} Pass ids=, one for each row.",
                stacklevel=3,
            )
        return self._label(decision)

    def predict_proba(  # type: ignore[override]
        self, X: np.ndarray, *, sensitive_features: Any
    ) -> np.ndarray:
        """Return the exact probabilities of deciding ``classes_``, float64, (n_samples, 2)."""
        chance = self._find_chance(X, sensitive_features)
        both = np.column_stack([1.0 - chance, chance])
        return both[:, ::-1] if self.turned_ else both

    def _find_chance(self, X: Any, groups: Any) -> np.ndarray:
        """Return P(decision = favourable) of rows."""
        rows = self.validate_rows(X)
        with explaining():
            check_consistent_length(rows, groups)
        return self.probability(rows, self.encode(groups))

    def _label(self, decision: np.ndarray) -> np.ndarray:
        return np.asarray(self.classes_[(decision != self.turned_).astype(np.int64)])

    def score(  # type: ignore[override]
        self,
        X: np.ndarray,
        y: np.ndarray,
        sample_weight: np.ndarray | None = None,
        *,
        sensitive_features: Any,
    ) -> float:
        """Return the accuracy of the decisions, or its expectation where they are random."""
        positive = self._find_chance(X, sensitive_features)
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

    @property
    def thresholds_(self) -> pd.DataFrame:
        """The rule by group, on the scale of the scores, as a tidy frame.

        One row for each group and threshold: the group's levels, ``threshold`` and the ``share``
        with which it is drawn; 1 is decided above it, or where ``above`` is false up to it. Of
        ramps and coins instead the scores up to which h is 0 and from which it is 1, and h at a
        single threshold. A decision function is read with its sign turned where the favourable
        label is the estimator's first, and so are its thresholds. AttributeError before a fit, and
        for rules of another kind.
        """
        described = self.describe_rule() if hasattr(self, "cells_") else None
        if described is None:
            raise AttributeError(f"This {type(self).__name__} has no thresholds by group.")
        groups = [self.name_cell(cell, self._describe_groups()) for cell in self.cells_]
        if self.takes_unseen:
            groups.append(dict.fromkeys(groups[0], UNSEEN))
        rows = [
            {**group, **row}
            for code, group in enumerate(groups)
            for row in described.rule.list_thresholds(code)
        ]
        table = pd.DataFrame(rows)
        for name in table.columns.intersection(SCORED):
            places = [(each, rescale(each, self.scale_, self.knots_)) for each in table[name]]
            table[name] = [np.copysign(np.inf, f) if at is None else at for f, at in places]
        return table

    def _describe_groups(self) -> Mapping[str, Sequence[str]]:
        """Return the levels of the sensitive features of the fit, which are codes if need be."""
        known = vars(self).get(FEATURES)
        coded = SensitiveFeatures((), (None,) * (max(self.columns) + 1))
        return (known or coded).describe()

    def to_rulebook(
        self,
        split: Split | None = None,
        *,
        score: str = "score",
        ids: str | None = "id",
        unseen: str | None = None,
    ) -> Rulebook:
        """Return the fitted rule as a document, which `fairfrontier debias --apply` reads.

        It gives a table the decisions of ``predict`` where its column ``score`` holds the scores
        that the rule takes, ``ids`` the row ids, and one column for each of the rule's attributes
        their levels' names.

        Parameters
        ----------
        split : Split, optional
            The one that it was fitted on, where that was with its codes: it names the levels.
        score, ids : str
            Names of the columns of scores and row ids.
        unseen : str, optional
            What becomes of groups without a threshold: ``refuse``, ``pooled`` (for thresholds
            fitted with it), or the group by whose threshold they are decided, such as
            ``Female×White``. By default what the thresholds were fitted with.

        Raises
        ------
        ConfigError
            When the rule is of another kind, was fitted on other groups than those of the split, or
            has no threshold for ``unseen``.
        """
        from fairfrontier.models.thresholds.rulebook import make_rulebook

        described = self.describe_rule()
        if described is None:
            raise ConfigError(
                f"A rulebook holds thresholds by group, but {self.name} has another rule.",
                "Post-process with randomized_threshold, group_thresholds, hardt or reject_option.",
            )
        if isinstance(described.rule, MixtureRule) and described.rule.turned:
            raise ConfigError(
                f"A rulebook decides 1 above thresholds, but this {self.name} flips decisions.",
                "Fit without flip.",
            )
        if (facts := described.facts) is None:
            raise ConfigError(
                f"A rulebook states the rates of the groups, which this {self.name} was saved "
                "without.",
                "Fit it again.",
            )
        attributes = self._describe_groups() if split is None else split.train.attributes
        try:
            cells = [self.name_cell(cell, attributes) for cell in self.cells_]
        except IndexError:
            where = "the split" if split is None else split.dataset
            raise ConfigError(
                f"The thresholds were fitted on other groups than those of {where}.",
                "Pass the split that they were fitted on.",
            ) from None
        names, counts, rates = [tuple(c.values()) for c in cells], facts["rows"], facts["rates"]
        if self.takes_unseen:
            names, counts = [*names, (UNSEEN,) * len(names[0])], [*counts, 0]
            rates = [*rates, float(np.average(rates, weights=counts[:-1]))]
        return make_rulebook(
            described.rule,
            score=score,
            scale=self.scale_,
            knots=self.knots_,
            columns=tuple(cells[0]),
            cells=tuple(names),
            counts=np.array(counts),
            rates=np.array(rates),
            rate=described.rate,
            budget=described.budget,
            criterion=described.criterion,
            unseen=unseen or ("pooled" if self.takes_unseen else "refuse"),
            seed=int(self.random_state),
            ids=ids,
            file="arrays" if split is None else split.dataset,
            sha256="" if split is None else split.digest,
            rows=sum(facts["rows"]),
        )

    def count_rates(self, h: np.ndarray, code: np.ndarray, weight: np.ndarray) -> dict[str, Any]:
        """Return the ``rows`` of every group and its ``rates`` E[h | group], as plain lists.

        ``h``, codes of ``cells_`` and weights have shape (n_samples,); every group has weight.
        """
        size = len(self.cells_)
        rows, rates = np.bincount(code, minlength=size), measure_rates(h, code, weight, size)
        return {"rows": rows.tolist(), "rates": rates.tolist()}

    def pack_state(self) -> State:
        """Return the rule's state with what scores are."""
        state = super().pack_state()
        kept = {name: getattr(self, f"{name}_") for name in ("scale", "knots", "turned")}
        kept["asked"] = np.asarray(vars(self).get("asked_")).tolist()
        return replace(state, facts={**state.facts, **kept})

    def unpack_state(self, state: State) -> None:
        """Restore what ``pack_state`` returned, and the estimator behind which the rule stands."""
        facts = dict(state.facts)
        self.scale_ = facts.pop("scale", self.scale)
        self.turned_, self.asked_ = facts.pop("turned", False), facts.pop("asked", None)
        self.knots_ = tuple(tuple(pair) for pair in facts.pop("knots", ()))
        super().unpack_state(replace(state, facts=facts))

    def try_prediction(self) -> None:
        """Decide on scores of zero in every group."""
        score, groups = self.list_tried()
        ids = np.arange(len(groups))
        decision, chance = (
            self.predict(score, sensitive_features=groups, ids=ids),
            self.predict_proba(score, sensitive_features=groups),
        )
        if decision.shape != score.shape or chance.shape != (*score.shape, 2):
            raise ValueError("it has not one decision for every row")


def is_number(value: Any) -> bool:
    """Return whether a parameter is a finite number, and no truth value."""
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def as_column(X: Any) -> Any:
    """Return scores as one column; a matrix is returned unchanged."""
    scores = X if hasattr(X, "ndim") else np.asarray(X)
    return to_numpy(scores)[:, None] if scores.ndim == 1 else scores


def read_scores(X: np.ndarray, scale: Scale, name: str, knots: Knots = ()) -> np.ndarray:
    """Return scores as f(x) ∈ [−1, 1], an estimate of 2 P(Y=1|x) − 1, shape (n_samples,).

    X has shape (n_samples,) or (n_samples, 1): a probability p becomes 2p − 1, a margin m (log
    odds) tanh(m/2), and points are read off ``knots``, ascending pairs of a score and f. DataError,
    about ``name``, is raised for another shape, NaN, or values outside the scale.
    """
    score = np.asarray(X, dtype=np.float64)
    score = score[:, 0] if score.ndim == 2 and score.shape[1] == 1 else score
    if score.ndim != 1:
        raise refuse_shape(score, name)
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
            "Set scale to what they are: probability, margin, signed or points.",
        )
    score = np.clip(score, low, 1.0)
    return 2.0 * score - 1.0 if scale == "probability" else score


def rank_points(
    score: np.ndarray, y: np.ndarray | None, weight: np.ndarray, rate: float | None = None
) -> Knots:
    """Return knots by which scores of any scale are f ∈ [−1, 1], from their ranks.

    f is 0 at the cut by which decisions agree most with the labels ``y``, or where the share
    ``rate`` of the rows is decided 1 without labels, and beside it in proportion to the share of
    rows between, down to −1 and up to 1. Arrays have shape (n,), and weights are > 0. O(n log n).
    """
    order = np.argsort(score, kind="stable")
    levels, first = np.unique(score[order], return_index=True)
    if levels.size < 2:
        raise DataError(
            f"All scores are {levels[0]:g}.", "Name a column of scores that differ between rows."
        )
    mass = np.add.reduceat(weight[order], first)
    share = (np.cumsum(mass) - mass / 2) / mass.sum()
    if y is not None:
        # What is gained by deciding a level 1, from the highest on.
        gain = np.add.reduceat((weight * (2.0 * y - 1.0))[order], first)
        cut = levels.size - 1 - int(np.cumsum(gain[::-1]).argmax())
    else:
        cut = min(int(np.searchsorted(share, 1.0 - float(rate or 0.0))), levels.size - 1)
    low, high = share[[0, -1]]
    below, above = max(share[cut] - low, 1e-9), max(high - share[cut], 1e-9)
    f = (share - share[cut]) / np.where(share < share[cut], below, above)
    kept = np.unique(np.searchsorted(share, np.linspace(low, high, KNOTS)).clip(0, levels.size - 1))
    kept = np.union1d(kept, cut)
    return tuple(zip(levels[kept].tolist(), f[kept].tolist(), strict=True))


def refuse_shape(score: np.ndarray, name: str) -> DataError:
    """Return an error about scores that are no column."""
    return DataError(
        f"{name} got scores of shape {score.shape}.",
        "Give one score per row, predict_proba(X)[:, 1] for example, or rows with estimator=.",
    )


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


def find_uneven(decision: np.ndarray, chance: np.ndarray, groups: Any, ids: np.ndarray) -> str:
    """Return what is drawn of a group with equal rows that independent draws would hardly be.

    That is a rate more than four standard errors from the mean of ``chance``; else "".
    """
    _, code = number_cells(read_groups(groups))
    for each in np.unique(code):
        rows = code == each
        size, expected = int(rows.sum()), chance[rows]
        error = 4.0 * math.sqrt((expected * (1.0 - expected)).sum()) / size
        rates = decision[rows].mean(), expected.mean()
        if np.unique(ids[rows]).size < size and abs(rates[0] - rates[1]) > error + 1e-9:
            return f"of a group {rates[0]:.3g} are drawn, where the rule says {rates[1]:.3g}."
    return ""


def hash_rows(X: Any) -> np.ndarray:
    """Return a number for each row of a frame or array that depends on what it holds, uint64.

    A cell counts as the number that it is or spells, a fraction as its nearest float32, and all
    else as text, whatever its column holds in other rows. ConfigError for sparse rows.
    """
    if issparse(X):
        raise ConfigError("Decisions are drawn by row id, but got no ids.", "Pass ids=.")
    native = nw.from_native(X, eager_only=True, pass_through=True)
    table = native.to_pandas() if isinstance(native, nw.DataFrame) else pd.DataFrame(np.asarray(X))
    columns = {}
    for k in range(table.shape[1]):
        column = table.iloc[:, k]
        lacking = column.isna().to_numpy()
        if pd.api.types.is_numeric_dtype(column):
            number, text = column.to_numpy(np.float64, na_value=np.nan), np.full(len(column), "")
        else:
            cells = column.astype(object).tolist()
            number = np.array([_read_number(cell) for cell in cells], dtype=np.float64)
            none = lacking | ~np.isnan(number)
            text = np.array(["" if no else str(cell) for no, cell in zip(none, cells, strict=True)])
        with np.errstate(over="ignore", invalid="ignore"):
            near = number.astype(np.float32).astype(np.float64)
        number = np.where(number == np.trunc(number), number, near) + 0.0
        number[np.isnan(number)] = np.nan
        columns[f"{k}"], columns[f"{k} text"] = number, text.astype(object)
    return pd.util.hash_pandas_object(pd.DataFrame(columns), index=False).to_numpy(np.uint64)


def _read_number(cell: Any) -> float:
    try:
        return float(cell)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def score_part(part: Part, score: np.ndarray) -> Part:
    """Return a part whose one feature is a score, without counterfactuals."""
    X = np.asarray(score, dtype=np.float64)[:, None]
    return replace(part, X=X, counterfactuals={}, feature_names=("score",))
