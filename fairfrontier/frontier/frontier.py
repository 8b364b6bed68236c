"""The frontier of any estimators on arrays and frames: members, rules behind them, and a choice."""

from __future__ import annotations

import base64
import io
import itertools
import numbers
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import pandas as pd
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, clone
from sklearn.model_selection import StratifiedKFold, check_cv, train_test_split
from sklearn.utils import ClassifierTags, Tags, _safe_indexing, check_consistent_length, get_tags
from sklearn.utils._param_validation import Interval, InvalidParameterError
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from fairfrontier.deployment.estimator import Origin
from fairfrontier.frontier.candidate import Candidate, FrontierModel
from fairfrontier.frontier.training import (
    Fold,
    Table,
    Trainer,
    Trial,
    list_members,
    make_folds,
    measure_objective,
)
from fairfrontier.metrics.measure.registry import split_name
from fairfrontier.metrics.promise import Levels, count_crossed, count_rates, find_worst
from fairfrontier.metrics.statistic.interval import bonferroni, measure_reach
from fairfrontier.metrics.statistic.rate import NAMES, aggregate, count_cells, tabulate_rates
from fairfrontier.metrics.verb import tabulate
from fairfrontier.models.base import explaining, unit_weight
from fairfrontier.models.group import Codes, SensitiveFeatures, frame_features, number_cells
from fairfrontier.models.objective import Objective, read_costs
from fairfrontier.models.prediction import Prediction
from fairfrontier.models.thresholds.bound import Bound, read_bounds, require_groups
from fairfrontier.models.thresholds.group_thresholds import GroupThresholds
from fairfrontier.prepare.split import Part
from fairfrontier.runtime.errors import ConfigError, DataError, InputError, refuse_unknown
from fairfrontier.study.frontier import find_pareto, name_measures, orient, pivot_measures
from fairfrontier.study.query import (
    FITTED,
    Query,
    choose_best,
    compare,
    find_passed,
    read_query,
    state_bound,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# What each criterion of the rules bounds, as a measure.
BOUNDED = {
    "parity": "selection_rate_difference",
    "equal_opportunity": "tpr_difference",
    "predictive_equality": "fpr_difference",
    "equalized_odds": "gap_max",
}
PRICED = (0.1, 0.05, 0.02)
MEASURES = (
    "accuracy",
    "balanced_accuracy",
    "f1",
    "auc",
    *(
        f"{rate}{end}"
        for rate in ("selection_rate", "tpr", "fpr", "accuracy")
        for end in ("", "_difference", "_ratio", "_min", "_max")
        if rate + end != "accuracy"
    ),
    "tnr",
    "gap_max",
)
# The rates that criteria compare.
COMPARED = [NAMES.index(rate) for rate in ("selection_rate", "tpr", "fpr")]
NAMED = ["method", "setting"]
THRESHOLDS = "thresholds by"
# Of the validation rows: each is decided by rules of the other folds while candidates are compared.
FOLDS = 3
# With fewer rows than this beside the test rows, members are trained on folds.
FEW_ROWS = 2_000
SHARE = 0.35


class Frontier(BaseEstimator):
    """The models worth choosing between, of any classifiers, on arrays or frames.

    Every member is trained on the train rows, its parameters searched where it has a space. Behind
    each, and of registered methods that are searched behind the mean of the best five settings,
    too, stand its best cut and the best thresholds by group (`GroupThresholds`) for every
    attribute, criterion and bound, fitted on the validation rows. All are measured on these, where
    `select` chooses, and on test rows, where what was chosen is reported.

    Parameters
    ----------
    estimators : sequence of str, estimator or (str, estimator)
        Registered methods, classifiers and pipelines of scikit-learn or of anybody who follows it,
        or these with a name. A fitted one is passed as ``FrozenEstimator``, a column of scores as
        `Scores`. Registered methods get text and categories in one-hot columns, and numbers
        standardised. Those with a ``bound``, as ``fair_gbm``, are trained once for each of
        ``bounds`` and attribute.
    objective : {"accuracy", "balanced_accuracy", "f1"} or {"costs": {...}}
        What searches, cuts and thresholds maximise, and `select` by default; of costs see
        `GroupThresholds`.
    criteria : sequence of str
        Of the thresholds by group: ``parity``, ``equal_opportunity``, ``predictive_equality``,
        ``equalized_odds``.
    bounds : sequence of float or str
        Largest differences of the criteria's rates between groups; and bounds in words, each of
        which thresholds of its own keep, as ``"tpr_min:race >= 0.6"`` or, both at once,
        ``"selection_rate_ratio:sex >= 0.8 and selection_rate <= 0.3"``; see
        `fairfrontier.models.thresholds.bound`.
    spaces : mapping of str to mapping, optional
        Member -> parameter -> distribution (of Optuna, or of ``scipy.stats``) or list of values.
        Registered methods have spaces of their own, which an empty mapping closes; any other member
        without a space is one setting.
    trials : int
        Settings that are tried in all, shared out among the members with a space.
    minutes : float, optional
        In place of ``trials``, how long to search.
    cv : float, int, splitter or mapping, optional
        Which rows members are trained on: the share of validation rows beside the test rows; folds,
        or a splitter of scikit-learn's that makes them, so that every row is a validation row, of
        members that are then trained on all; or the positions of ``train``, ``validation`` and
        ``test`` rows. None is .35, or five folds of fewer than 2,000 rows.
    test_size : float
        Share of the rows on which nothing is chosen; 0 where `evaluate` is given them.
    minimum : int
        Groups with fewer rows of a part are left out of differences there, and counted in
        ``left_out`` of ``results_``.
    pos_label : optional
        The favourable label; needed where the labels are not 0 and 1, −1 and 1, or false and true.
    random_state : int
        Of the parts, the search, and members with a ``random_state`` of None.
    n_jobs : int
        Settings that are trained at a time, in threads; −1 is the number of cores. What is found
        does not depend on it.

    Attributes
    ----------
    results_ : DataFrame
        Tidy: method, setting, part, measure, group, value, n, low, high, left_out. On validation
        rows, thresholds are measured by rules of other folds of them.
    price_ : DataFrame
        What bounds of .1, .05 and .02 cost, by attribute and measure, where a candidate is within
        them: the model that validation rows choose, its
        gap and objective on test rows, and by how much it is below the best model without a bound,
        with a paired 95% interval. Empty before there are test rows.
    candidates_ : tuple of Candidate
        Those that no other beats in the objective and every gap, on validation rows, and each
        member at its best cut.
    trials_ : DataFrame
        Settings that were tried: method, setting, objective on validation rows (oriented so that
        more is better), seconds, parameters.
    parts_ : mapping of str to ndarray of int64
        The positions of the rows of every part.
    classes_ : ndarray of shape (2,)
        The labels; the last is the favourable one.
    failed_ : mapping of str to str
        Candidates that could not be fitted, and why.

    Raises
    ------
    ConfigError
        From ``fit``, for members, criteria or labels that cannot be used.
    DataError
        Where a member fails, by its name, or a part lacks a class.

    Notes
    -----
    A fit for every trial and fold, then O(n log n) for each of 1 + attributes × criteria × bounds
    rules behind the best trial of a member, and O(n) for each measure of the candidates. Memory is
    the rows, encoded once for registered methods, and the models of ``n_jobs`` trials.

    Examples
    --------
    >>> import numpy as np, fairfrontier as ff
    >>> from sklearn.linear_model import LogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> sex = rng.choice(["f", "m"], 2_000)
    >>> X = rng.normal(size=(2_000, 3)) + (sex == "m")[:, None]
    >>> y = (X.sum(axis=1) + rng.normal(size=2_000) > 1.5).astype(int)
    >>> frontier = ff.Frontier([LogisticRegression()]).fit(X, y, sensitive_features={"sex": sex})
    >>> model = frontier.select("max accuracy subject to selection_rate_difference:sex <= 0.1")
    >>> model.predict(X[:5], sensitive_features={"sex": sex[:5]}).shape
    (5,)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "trials": [Interval(numbers.Integral, 0, None, closed="left")],
        "minutes": [Interval(numbers.Real, 0, None, closed="left"), None],
        "test_size": [Interval(numbers.Real, 0, 1, closed="left")],
        "minimum": [numbers.Integral],
        "random_state": [numbers.Integral],
        "n_jobs": [
            Interval(numbers.Integral, 1, None, closed="left"),
            Interval(numbers.Integral, None, -1, closed="right"),
            None,
        ],
    }

    def __init__(
        self,
        estimators: Sequence[Any] = ("gbdt",),
        *,
        objective: Objective = "accuracy",
        criteria: Sequence[str] = ("parity", "equalized_odds"),
        bounds: Sequence[float | str] = (0.0, 0.01, 0.02, 0.05, 0.1, 0.15),
        spaces: Mapping[str, Mapping[str, Any]] | None = None,
        trials: int = 40,
        minutes: float | None = None,
        cv: Any = None,
        test_size: float = 0.2,
        minimum: int = 10,
        pos_label: Any = None,
        random_state: int = 0,
        n_jobs: int = -1,
    ) -> None:
        self.estimators = estimators
        self.objective = objective
        self.criteria = criteria
        self.bounds = bounds
        self.spaces = spaces
        self.trials = trials
        self.minutes = minutes
        self.cv = cv
        self.test_size = test_size
        self.minimum = minimum
        self.pos_label = pos_label
        self.random_state = random_state
        self.n_jobs = n_jobs

    def __sklearn_tags__(self) -> Tags:
        """Return scikit-learn's tags: members say what rows they take, labels are two."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags = ClassifierTags(multi_class=False)
        tags.target_tags.required = tags.no_validation = True
        # Registered methods are encoded, from dense rows.
        members = [each[1] if isinstance(each, tuple) else each for each in self.estimators]
        others = [get_tags(each).input_tags for each in members if not isinstance(each, str)]
        tags.input_tags.allow_nan = all(each.allow_nan for each in others)
        tags.input_tags.sparse = len(others) == len(members) and all(e.sparse for e in others)
        return tags

    def fit(self, X: Any, y: Any, *, sensitive_features: Any, sample_weight: Any = None) -> Self:
        """Train, decide and measure on rows X with labels y and their sensitive features."""
        self._measure_name = name_objective(self.objective)
        for name, kinds, what in (
            ("criteria", str, "names"),
            ("bounds", numbers.Real | str, "numbers from 0 to 1, or bounds in words"),
        ):
            given = getattr(self, name)
            listed = isinstance(given, Sequence) or np.ndim(given) == 1
            if not listed or isinstance(given, str) or any(not isinstance(e, kinds) for e in given):
                raise ConfigError(f"{name} is {given!r}.", f"Give a list of {what}.")
        refuse_unknown(self.criteria, BOUNDED, "There is no criterion")
        try:
            self._validate_params()
        except InvalidParameterError as error:
            raise ConfigError(str(error), "See help(Frontier).") from error
        groups = frame_features(sensitive_features)
        self.attributes_ = tuple(groups.columns)
        self._words = {
            text: read_bounds(text) for text in dict.fromkeys(self.bounds) if isinstance(text, str)
        }
        self._amounts = [b for b in dict.fromkeys(self.bounds) if not isinstance(b, str)]
        if not all(0 <= b <= 1 for b in self._amounts):
            raise ConfigError(
                f"The bounds are {self._amounts}.", "Give numbers from 0 to 1, or bounds in words."
            )
        for text, read in self._words.items():
            named, names = list_attributes(read), [each.name for each in read]
            if twice := [name for name in names if names.count(name) > 1]:
                raise ConfigError(f"{text!r} bounds {twice[0]} twice.", "Give one of them.")
            refuse_unknown(named or [""], self.attributes_, f"The bound {text!r} is of")
        members = list_members(
            self.estimators,
            self.spaces or {},
            self.attributes_,
            [*dict.fromkeys(self.criteria)],
            self._amounts,
        )
        labels = self._code_labels(y)
        with explaining():
            validate_data(self, X, skip_check_array=True)
            check_consistent_length(X, labels, groups)
        self.features_ = SensitiveFeatures.learn(groups)
        codes, self._levels = self.features_.number(groups)
        facts = {"objective": self.objective, "minimum": self.minimum}
        self._origin = Origin.learn(X, y, groups, self.features_, facts)
        X = X.tocsr() if issparse(X) else X  # Whose rows can be taken.
        table = Table(X, labels, groups, codes, unit_weight(sample_weight, len(labels)))
        folds, whole = self._divide(table)
        scored = table.take(self.parts_["validation"])
        self._reference = scored
        trainer = Trainer(
            folds,
            whole,
            scored,
            self.classes_,
            self.objective,
            random_state=self.random_state,
            n_jobs=self.n_jobs,
        )
        trained = trainer.search(members, self.trials, self.minutes)
        self.trials_ = pd.DataFrame(trainer.trials)
        self.failed_ = trainer.failed
        if not trained:
            raise ConfigError(
                "No member has a candidate: methods with a bound need one above 0.",
                "Give bounds and criteria that they take.",
            )
        self._counted: dict[str, dict[tuple[str, str], tuple[Levels, np.ndarray, float]]] = {}
        decided = [each for trial in trained for each in self._list_rules(trial, scored)]
        part = self._make_part("validation", scored, self.parts_["validation"])
        found, self._tried = self._sift(decided, part), len(decided)
        self._counted["validation"] = {}
        self.candidates_ = tuple(candidate for candidate, _, _ in found)
        self._validation = pd.concat(
            [self._tabulate(*each, part) for each in found], ignore_index=True
        )
        self.results_, self.price_ = self._validation, pd.DataFrame()
        if len(self.parts_["test"]):
            self._test(table.take(self.parts_["test"]), self.parts_["test"])
        return self

    def evaluate(
        self, X: Any, y: Any, *, sensitive_features: Any, sample_weight: Any = None
    ) -> pd.DataFrame:
        """Measure all candidates on fresh rows, which become the test rows.

        Returns the rows of part ``test`` of ``results_``; ``price_``, `plot` and what `select`
        reports are of them from now on.
        """
        check_is_fitted(self)
        groups = frame_features(sensitive_features, self.features_.names)
        with explaining():
            labels = column_or_1d(y)
            check_consistent_length(X, labels, groups)
        if unknown := {*labels.tolist()} - {*self.classes_.tolist()}:
            raise InputError(
                f"The label {min(unknown, key=str)!r} is none of those of the fit.",
                f"Give rows of {self.classes_[0]!r} and {self.classes_[1]!r}.",
            )
        codes = self._origin.number(groups, self.features_)
        coded = (labels == self.classes_[1]).astype(np.int64)
        rows = Table(X, coded, groups, codes, unit_weight(sample_weight, len(labels)))
        self._test(rows, np.arange(len(labels)))
        return self.results_[self.results_["part"] == "test"]

    def frontier(self, measure: str, part: str = "validation") -> pd.DataFrame:
        """Return the candidates that none beats in objective and ``measure``, best first.

        ``measure`` is such as ``selection_rate_difference:sex``. Columns method, setting, the
        objective and the measure.
        """
        check_is_fitted(self)
        refuse_unknown([part], ("validation", "test"), "There is no part")
        table = self._require_test() if part == "test" else self._pivot(part)
        self._require(measure, table.columns)
        table = table[list(dict.fromkeys([self._measure_name, measure]))].dropna()
        turned = np.column_stack(
            [orient(str(name), values.to_numpy()) for name, values in table.items()]
        )
        best = table[find_pareto(turned)]
        order = np.argsort(-orient(self._measure_name, best[self._measure_name].to_numpy()))
        return best.iloc[order].reset_index()

    def select(self, query: str | None = None, *, confidence: float | None = None) -> FrontierModel:
        """Choose on validation rows: ``max MEASURE subject to MEASURE:ATTRIBUTE <= NUMBER and …``.

        Thresholds are measured by rules of other folds, whose errors cancel in part: gaps of small
        groups are larger on fresh rows. With a ``confidence`` the bounds hold, all at once and for
        all candidates, with that probability on fresh rows; see `fairfrontier.select`.
        UnattainableError, a ConfigError, is raised where no candidate is within the bounds, or
        certainly so.
        """
        check_is_fitted(self)
        asked = read_query(query) if query else Query()
        if confidence is not None and not (0 < confidence < 1 and asked.bounds):
            raise ConfigError(
                f"confidence is {confidence!r}, of {len(asked.bounds)} bounds.",
                "Give a number in (0, 1), and bounds that are to hold.",
            )
        measure = asked.measure or self._measure_name
        position = self._choose(measure, asked.bounds, confidence)
        candidate = self.candidates_[position]
        key = (candidate.method, candidate.setting)
        own = self.results_.set_index(NAMED).sort_index().loc[[key]].reset_index()
        own = self._add_counted(_find_counted(asked.bounds), own).drop(columns=NAMED)
        test = own[own["part"] == "test"].assign(name=lambda rows: name_measures(rows))
        rows = (self._reference.X, self._reference.y, self._reference.groups)
        passed = find_passed(asked.bounds, test)
        return FrontierModel(
            candidate, self.classes_, self.features_, own, passed, self._origin, rows
        )

    def plot(self, measure: str, ax: Axes | None = None) -> Axes:
        """Draw gap and objective of the candidates on test rows, and those that validation chose.

        The ring is the best model without a bound; the line joins the frontier of the validation
        rows, which others may beat on test rows by chance.
        """
        import matplotlib.pyplot as plt

        table = self._require_test()
        self._require(measure, table.columns)
        chosen = self.frontier(measure).set_index(NAMED).index
        ax = plt.subplots(layout="constrained")[1] if ax is None else ax
        for method, rows in table.groupby(level="method"):
            ax.plot(rows[measure], rows[self._measure_name], ".", alpha=0.35, label=str(method))
        line = table.loc[chosen, [measure, self._measure_name]].sort_values(measure)
        ax.plot(line[measure], line[self._measure_name], "k-o", markersize=4, label="frontier")
        best = table.loc[[self._find_unbounded()]]
        ax.plot(
            best[measure],
            best[self._measure_name],
            "o",
            markersize=13,
            fillstyle="none",
            color="black",
            label="without a bound",
        )
        ax.set(xlabel=f"{measure}, test rows", ylabel=f"{self._measure_name}, test rows")
        ax.legend(frameon=False)
        return ax

    def _repr_html_(self) -> str:
        """Return the price list and the chart of its first line; before ``fit`` the parameters."""
        if not len(getattr(self, "price_", ())):
            return str(super()._repr_html_())
        import matplotlib.pyplot as plt

        drawn = io.BytesIO()
        measure = f"{self.price_['measure'].iloc[0]}:{self.price_['attribute'].iloc[0]}"
        figure, ax = plt.subplots(layout="constrained")
        self.plot(measure, ax)
        figure.savefig(drawn, format="png", dpi=90)
        plt.close(figure)
        table = self.price_.to_html(index=False, na_rep="", float_format="{:.3f}".format)
        encoded = base64.b64encode(drawn.getvalue()).decode()
        return f'{table}<img alt="{measure}" src="data:image/png;base64,{encoded}">'

    def _code_labels(self, y: Any) -> np.ndarray:
        """Return codes of the labels, and set ``classes_``, the favourable label last."""
        if y is None:
            raise InputError(
                "Frontier requires y to be passed, but the target y is None.", "Give y."
            )
        labels = np.asarray(y)
        if labels.ndim != 1 or pd.isna(labels).any():
            raise InputError(
                f"The labels have the shape {labels.shape}, or some are missing.",
                "Give one label for every row.",
            )
        classes = pd.unique(labels)
        if len(classes) != 2:
            raise InputError(
                f"The labels have {len(classes)} classes, and a frontier decides between two.",
                "Decide for the favourable ones or not, as by y = numpy.isin(y, [...]); bound the "
                "decisions for all of them by LinearPost(estimator), or compare methods of several "
                "classes by a study, which fairfrontier.init drafts.",
            )
        positive = self.pos_label
        if positive is None:
            known = ({0, 1}, {-1, 1}, {False, True})
            if set(classes.tolist()) not in known:
                raise ConfigError(
                    f"The labels are {classes[0]!r} and {classes[1]!r}; which is favourable?",
                    "Pass pos_label=.",
                )
            positive = max(classes)
        if positive not in classes:
            raise ConfigError(
                f"pos_label is {positive!r}, and the labels are {classes[0]!r} and {classes[1]!r}.",
                "Give one of them.",
            )
        other = classes[0] if classes[1] == positive else classes[1]
        self.classes_ = np.array([other, positive], dtype=labels.dtype)
        return np.asarray(labels == positive).astype(np.int64)

    def _divide(self, table: Table) -> tuple[list[Fold], Table | None]:
        """Set ``parts_``; return the folds, and where they are several the rows of the last fit."""
        rows, cv = np.arange(len(table.y)), self.cv
        if isinstance(cv, Mapping):
            self.parts_ = {
                name: np.asarray(cv.get(name, []), dtype=np.int64)
                for name in ("train", "validation", "test")
            }
            given = np.concatenate([*self.parts_.values()])
            beyond = len(given) and not 0 <= given.min() <= given.max() < len(rows)
            if beyond or len(np.unique(given)) != len(given) or not {*cv} <= {*self.parts_}:
                raise ConfigError(
                    "The parts of cv overlap, are no positions of rows, or have other names.",
                    "Give positions of train, validation and test rows.",
                )
            return self._fold(table, [(self.parts_["train"], self.parts_["validation"])]), None
        test = rows[:0]
        if self.test_size:
            rows, test = self._share_out(rows, table.y, self.test_size)
        if cv is None:
            cv = 5 if len(rows) < FEW_ROWS else SHARE
        if isinstance(cv, float):
            train, held_out = self._share_out(rows, table.y, cv)
            self.parts_ = {"train": train, "validation": held_out, "test": test}
            return self._fold(table, [(train, held_out)]), None
        self.parts_ = {"train": rows, "validation": rows, "test": test}
        with explaining():
            if isinstance(cv, numbers.Integral):
                cv = StratifiedKFold(int(cv), shuffle=True, random_state=self.random_state)
            cv = check_cv(cv)
            splits = [
                (rows[one], rows[other])
                for one, other in cv.split(np.zeros(len(rows)), table.y[rows])
            ]
        folds = self._fold(table, splits)
        self.parts_["validation"] = np.sort(np.concatenate([held for _, held in splits]))
        return folds, table.take(rows)

    def _fold(self, table: Table, splits: Sequence[tuple[np.ndarray, np.ndarray]]) -> list[Fold]:
        for rows in (each for split in splits for each in split):
            if len({*table.y[rows].tolist()}) < 2:
                raise InputError(
                    f"A part of {len(rows)} rows has one label only.",
                    "Give more rows, or a cv whose parts have both labels.",
                )
        return make_folds(table, splits)

    def _share_out(
        self, rows: np.ndarray, y: np.ndarray, share: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows that are left and a share of them, drawn within the labels."""
        with explaining():
            left, taken = train_test_split(
                rows, test_size=share, random_state=self.random_state, stratify=y[rows]
            )
        return np.sort(left), np.sort(taken)

    def _make_part(self, name: str, rows: Table, ids: np.ndarray) -> Part:
        return Part(
            dataset="the table",
            name=name,
            ids=ids,
            X=np.zeros((len(ids), 1)),
            y=rows.y,
            groups=rows.codes,
            protected=rows.codes.astype(np.float64),
            weight=rows.weight,
            attributes=self._levels,
            classes=tuple(map(str, self.classes_)),
        )

    def _list_rules(
        self, trial: Trial, rows: Table
    ) -> list[tuple[Candidate, np.ndarray, np.ndarray]]:
        """Return a member at its best cut, and with the thresholds by group behind it.

        Each with its scores and its decisions on validation rows.
        """
        score, version = trial.score, trial.version
        listed = [(version, score, (score >= version.cut).astype(np.float64))]
        weight = None if (rows.weight == 1).all() else rows.weight

        def decide(setting: str, attributes: list[str], asked: dict[str, Any]) -> tuple[Any, ...]:
            rule = GroupThresholds(
                attributes=attributes,
                objective=self.objective,  # type: ignore[arg-type]
                randomized=False,
                unseen="pooled",
                **asked,
            )
            try:
                groups = rows.groups[attributes]
                rule.fit(score, rows.y, sensitive_features=groups, sample_weight=weight)
                return setting, rule, self._decide_by_folds(rule, score, rows, weight)
            except (InputError, DataError, ConfigError) as error:
                return setting, None, str(error)

        compared = [name for name, levels in self._levels.items() if len(levels) > 1]
        asked: list[tuple[str, list[str], dict[str, Any]]] = []
        if not version.setting:
            asked += [
                (
                    f"{THRESHOLDS} {attribute}, {criterion} within {float(bound):.12g}",
                    [attribute],
                    {"criterion": criterion, "bound": bound},
                )
                for attribute, criterion, bound in itertools.product(
                    compared, dict.fromkeys(self.criteria), self._amounts
                )
            ]
            asked += [
                (f"{THRESHOLDS} {text}", list_attributes(read), {"bounds": [*map(str, read)]})
                for text, read in self._words.items()
            ]
        found = Parallel(n_jobs=self.n_jobs, prefer="threads")(
            delayed(decide)(*each) for each in asked
        )
        for setting, rule, decision in found:
            if rule is None:
                self.failed_[f"{version.method}: {setting}"] = decision
            else:
                listed.append((replace(version, setting=setting, rule=rule), score, decision))
        return listed

    def _decide_by_folds(
        self, rule: GroupThresholds, score: np.ndarray, rows: Table, weight: np.ndarray | None
    ) -> np.ndarray:
        """Return decisions on the rows of a rule's fit, each by a rule of other folds."""
        names = [*map(str, rule.attributes)]  # type: ignore[arg-type]
        columns = rows.codes[:, [self.attributes_.index(name) for name in names]]
        _, group = number_cells(columns)
        # Bounds in words name levels; codes are faster.
        given = rows.groups[names] if rule.bounds else Codes.of(columns, tuple(names))
        _, cell = number_cells(np.column_stack([group, rows.y]))
        # Every group and label is spread over the folds, as evenly as its rows allow.
        order = np.random.default_rng(0).permutation(len(cell))
        fold = np.empty(len(cell), dtype=np.int64)
        fold[order[np.argsort(cell[order], kind="stable")]] = np.arange(len(cell)) % FOLDS
        decision = np.empty(len(score))
        for k in range(FOLDS):
            held_out, others = fold == k, (fold != k) & (rows.weight > 0)
            counts = np.bincount(2 * group[others] + rows.y[others], minlength=2 * group.max() + 2)
            # Groups that lack a label among the other folds are decided as unseen ones.
            whole = np.asarray((counts.reshape(-1, 2) > 0).all(axis=1))
            others &= whole[group]
            part = clone(rule).fit(
                score[others],
                rows.y[others],
                sensitive_features=_safe_indexing(given, others),
                sample_weight=None if weight is None else weight[others],
            )
            decision[held_out] = part.predict(
                score[held_out], sensitive_features=_safe_indexing(given, held_out)
            )
        return decision

    def _sift(
        self, decided: Sequence[tuple[Candidate, np.ndarray, np.ndarray]], part: Part
    ) -> list[tuple[Candidate, np.ndarray, np.ndarray]]:
        """Return those that none beats in the objective and a gap, and members at their cuts."""
        values = [
            measure_objective(decision, part.y, part.weight, self.objective)
            for _, _, decision in decided
        ]
        asked = {"", *(f"{THRESHOLDS} {text}" for text in self._words)}
        kept = np.array([candidate.setting in asked for candidate, _, _ in decided])
        gaps = np.array([list_gaps(*each[1:], part, self.minimum) for each in decided])
        for gap in gaps.T:
            kept |= find_pareto(np.column_stack([values, -gap]))
        return [each for each, chosen in zip(decided, kept, strict=True) if chosen]

    def _tabulate(
        self, candidate: Candidate, score: np.ndarray, decision: np.ndarray, part: Part
    ) -> pd.DataFrame:
        """Return the measures of a candidate on a part."""
        table = tabulate(
            Prediction(score, decision),
            part,
            tuple(dict.fromkeys([self._measure_name, *MEASURES])),
            minimum=self.minimum,
            costs=read_costs(self.objective),
        )
        counted = count_crossed(part, decision)
        self._counted[part.name][candidate.method, candidate.setting] = counted
        table.insert(0, "part", part.name)
        table.insert(0, "setting", candidate.setting)
        table.insert(0, "method", candidate.method)
        named = [each for read in self._words.values() for each in read]
        return self._add_counted(named, table)

    def _add_counted(self, bounds: Iterable[Bound], table: pd.DataFrame) -> pd.DataFrame:
        """Add what bounds in words are of to a table of measures, where it lacks."""
        known, made = {*name_measures(table)}, []
        for bound in {each.name: each for each in bounds if each.name not in known}.values():
            measure, group = split_name(bound.name)
            for key, rows in table.groupby([*NAMED, "part"], sort=False):
                method, setting, part = map(str, key)
                levels, counts, _ = self._counted[part][method, setting]
                if part == "validation":
                    require_groups([bound], levels)
                made.append(
                    {
                        "method": method,
                        "setting": setting,
                        "part": part,
                        "measure": measure,
                        "group": group,
                        "value": bound.value(counts, levels),
                        "n": rows["n"].max(),
                        "left_out": 0,
                    }
                )
        return pd.concat([table, pd.DataFrame(made)], ignore_index=True) if made else table

    def _test(self, rows: Table, ids: np.ndarray) -> None:
        """Measure all candidates on test rows, and what bounds cost there."""
        self._part, self._counted["test"] = self._make_part("test", rows, ids), {}
        self._reference = rows
        scores: dict[int, np.ndarray] = {}
        self._decided: dict[tuple[str, str], np.ndarray] = {}
        tables = [self._validation]
        for candidate in self.candidates_:
            key = id(candidate.estimator)
            if key not in scores:
                scores[key] = candidate.score(rows.X)
            score = scores[key]
            decision = candidate.decide(score, rows.groups)
            self._decided[candidate.method, candidate.setting] = decision
            tables.append(self._tabulate(candidate, score, decision, self._part))
        self.results_ = pd.concat(tables, ignore_index=True)
        self.price_ = self._price()

    @property
    def _keys(self) -> list[tuple[str, str]]:
        return [(each.method, each.setting) for each in self.candidates_]

    def _rows(self, part: str) -> pd.DataFrame:
        rows = self.results_[self.results_["part"] == part]
        return rows.assign(name=name_measures(rows))

    def _pivot(self, part: str) -> pd.DataFrame:
        return pivot_measures(self._rows(part), NAMED)

    def _require_test(self) -> pd.DataFrame:
        if "test" not in set(self.results_["part"]):
            raise ConfigError("There are no test rows.", "Pass them to evaluate.")
        return self._pivot("test")

    def _require(self, measure: str, known: pd.Index[str]) -> None:
        if measure not in known:
            raise ConfigError(
                f"The frontier has no measure {measure!r}.",
                f"Give one such as {BOUNDED['parity']}:{self.attributes_[0]}.",
            )

    def _choose(self, measure: str, bounds: Mapping[str, Bound], confidence: float | None) -> int:
        """Return the position of the best candidate within bounds, on validation rows."""
        names = list(dict.fromkeys([measure, *bounds]))
        in_words = _find_counted(bounds)
        rows = self._add_counted(in_words, self._rows("validation")).assign(name=name_measures)
        if confidence is None and {*names} <= {*rows["name"]}:
            rows = rows[rows["name"].isin(names)]
        fitted = {key for key in self._keys if key[1].startswith(THRESHOLDS)}
        counted = {
            bound.name: {
                key: partial(_find_worst, bound, *each, FITTED if key in fitted else 1.0)
                for key, each in self._counted["validation"].items()
            }
            for bound in in_words
        }
        compared = compare(
            rows, "validation", names, bounds, confidence, fitted, self._tried, counted
        )
        key = compared.table.index[choose_best(compared, measure, bounds, confidence)]
        return self._keys.index(key)

    def _find_unbounded(self) -> tuple[str, str]:
        """Return the best candidate without rule or bound, on validation rows, if there is one."""
        values = self._pivot("validation")[self._measure_name]
        plain = [key for key in self._keys if not key[1]] or self._keys
        return plain[int(np.argmax(orient(self._measure_name, values[plain].to_numpy())))]

    def _price(self) -> pd.DataFrame:
        """Return what bounds cost on test rows, against the best model without one."""
        free = self._find_unbounded()
        table, rows = self._pivot("test"), []
        values = table[self._measure_name]
        listed: list[tuple[str, tuple[Bound, ...], str | None]] = [
            (name, () if bound is None else (state_bound(name, bound),), None)
            for attribute, criterion in itertools.product(
                self.attributes_, dict.fromkeys(self.criteria)
            )
            if (name := f"{BOUNDED[criterion]}:{attribute}") in table.columns
            for bound in (None, *PRICED)
        ]
        listed += [
            (each.name, read, f"{THRESHOLDS} {text}")
            for text, read in self._words.items()
            for each in read
        ]
        for name, bounds, asked_for in listed:
            key, asked = free, {each.name: each for each in bounds}
            if bounds:
                try:
                    key = self._keys[self._choose(self._measure_name, asked, None)]
                except ConfigError:
                    # No model is within it, or its groups are too small; what was asked for stays.
                    own = [each for each in self._keys if each[1] == asked_for]
                    if not own:
                        continue
                    key = own[0]
            cost, low, high = self._compare_paired(values, free, key)
            measure, group = split_name(name)
            rows.append(
                {
                    "attribute": group,
                    "measure": measure,
                    "bound": asked[name].limit if bounds else np.nan,
                    "method": key[0],
                    "setting": key[1],
                    "gap": table.loc[key, name],
                    self._measure_name: values[key],
                    "cost": cost,
                    "low": low,
                    "high": high,
                }
            )
        return pd.DataFrame(rows)

    def _compare_paired(
        self, values: pd.Series, free: tuple[str, str], key: tuple[str, str]
    ) -> tuple[float, float, float]:
        """Return by how much a model is worse than another on test rows, with a 95% interval.

        The objective is a mean over the rows but for F1, which is compared by its values alone.
        """
        part = self._part
        of_costs = self._measure_name == "error_cost"
        cost = float((values[free] - values[key]) * (-1 if of_costs else 1))
        if self._measure_name == "f1":
            return cost, np.nan, np.nan
        gain = np.full(part.n_samples, 1.0)
        if self._measure_name == "balanced_accuracy":
            total = np.bincount(part.y, part.weight, minlength=2)
            gain = part.weight.sum() / (2 * total[part.y])
        elif of_costs:
            gain = np.asarray(read_costs(self.objective))[part.y]
        right = {each: (self._decided[each] == part.y).astype(float) for each in {free, key}}
        weight = part.weight / part.weight.sum()
        reach = measure_reach(gain * (right[free] - right[key]), weight)
        return cost, cost - reach, cost + reach


def list_attributes(bounds: Iterable[Bound]) -> list[str]:
    """Return the attributes and strata that bounds name."""
    return [*dict.fromkeys(name for each in bounds for name in each.attributes + each.strata)]


def _find_counted(bounds: Mapping[str, Bound]) -> list[Bound]:
    """Return the bounds whose measure is counted from crossed groups: those on rates in words."""
    return [bound for bound in bounds.values() if bound.rates]


def _find_worst(
    bound: Bound, levels: Levels, counts: np.ndarray, rows: float, share: float, error: float
) -> float:
    """Return what a bound's measure is at worst with an error, from a share of the rows.

    ``rows`` is how many rows a unit of weight stands for.
    """
    reach = bonferroni(error / 2.0, max(count_rates(bound, levels), 1))
    worst = find_worst(bound, counts * (rows * share), levels, reach)
    return worst / (rows * share) if bound.form == "selected" else worst


def name_objective(objective: Objective) -> str:
    """Return the measure of an objective; ConfigError for one that no cut serves."""
    if read_costs(objective) is not None:
        return "error_cost"
    if objective not in GroupThresholds.objectives:
        raise ConfigError(
            f"The objective is {objective!r}.",
            f"Give one of {', '.join(GroupThresholds.objectives)}, or costs.",
        )
    return str(objective)


def list_gaps(score: np.ndarray, decision: np.ndarray, part: Part, minimum: int) -> list[float]:
    """Return, by attribute, the differences that criteria bound, without groups of few rows."""
    cells = count_cells(Prediction(score, decision), part)
    gaps: list[float] = []
    for attribute in part.attributes:
        made = aggregate(tabulate_rates(cells[attribute], minimum))
        gaps += [*made["difference"][COMPARED].tolist(), float(made["gap_max"])]
    return gaps
