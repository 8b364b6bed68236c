"""The frontier of any estimators on arrays and frames: members, rules behind them, and a choice."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd
from scipy.sparse import issparse
from scipy.special import ndtri
from sklearn.base import BaseEstimator, clone
from sklearn.compose import ColumnTransformer
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.model_selection import train_test_split
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils import _safe_indexing, check_consistent_length
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from fairfrontier.choose.select import Query, choose_best, compare, find_passed, read_query
from fairfrontier.frontier.candidate import Candidate, FrontierModel
from fairfrontier.metrics.statistic.interval import CONFIDENCE
from fairfrontier.metrics.verb import tabulate
from fairfrontier.models.base import Estimator, explaining, unit_weight
from fairfrontier.models.group import SensitiveFeatures, frame_features
from fairfrontier.models.objective import Objective, choose_cut, read_costs
from fairfrontier.models.prediction import Prediction
from fairfrontier.models.registry import METHODS, create
from fairfrontier.models.thresholds.base import PostProcessor
from fairfrontier.models.thresholds.group_thresholds import GroupThresholds
from fairfrontier.prepare.split import Part
from fairfrontier.runtime.errors import ConfigError, DataError, FairfrontierError, InputError
from fairfrontier.study.frontier import find_pareto, name_measures, orient, pivot_measures

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PARTS = ("train", "calibration", "validation", "test")
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
NAMED = ["method", "setting"]


@dataclass(frozen=True, eq=False)
class _Rows:
    """The rows of one part, as the user gave them, and as measures read them."""

    X: Any
    groups: pd.DataFrame
    part: Part

    @property
    def y(self) -> np.ndarray:
        return self.part.y

    @property
    def weight(self) -> np.ndarray:
        return self.part.weight


class Frontier(BaseEstimator):
    """The models worth choosing between, of any classifiers, on arrays or frames.

    Every member is trained on the train rows; behind each stand its best cut and the best
    thresholds by group (`GroupThresholds`) for every attribute, criterion and bound, fitted on the
    calibration rows. All are measured on validation rows, on which `select` chooses, and on test
    rows, on which what was chosen is reported.

    Parameters
    ----------
    members : sequence of str, estimator or (str, estimator)
        Registered methods, classifiers and pipelines of scikit-learn or of anybody who follows it,
        or these with a name. A fitted one is passed as ``FrozenEstimator``. Registered methods get
        text and categories in one-hot columns, and numbers standardised. Those with a ``bound``, as
        ``fair_gbm``, are trained once for each of ``bounds`` and attribute.
    objective : {"accuracy", "balanced_accuracy", "f1"} or {"costs": {...}}
        What cuts and thresholds maximise, and `select` by default; of costs see `GroupThresholds`.
    criteria : sequence of str
        Of the thresholds by group: ``parity``, ``equal_opportunity``, ``predictive_equality``,
        ``equalized_odds``.
    bounds : sequence of float
        Largest differences of the criterion's rates between groups.
    sizes : tuple of four floats
        Shares of train, calibration, validation and test rows.
    minimum : int
        Groups with fewer rows of a part are left out of differences there, and counted in
        ``left_out`` of ``results_``.
    pos_label : optional
        The favourable label; needed where the labels are not 0 and 1, −1 and 1, or false and true.
    random_state : int
        Of the parts, and of members with a ``random_state`` of None.
    n_jobs : int
        Members that are trained at a time, in threads.

    Attributes
    ----------
    results_ : DataFrame
        Tidy: method, setting, part, measure, group, value, n, low, high, left_out.
    price_ : DataFrame
        What each bound costs, by attribute and measure: the model that validation rows choose, its
        gap and objective on test rows, and by how much it is below the best model without a bound,
        with a paired 95% interval.
    candidates_ : tuple of Candidate
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
    One fit for every member, then O(n log n) for each of 1 + attributes × criteria × bounds rules,
    and O(n) for each measure. Memory is the rows, and the scores of every member.

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

    def __init__(
        self,
        members: Sequence[Any] = ("gbdt",),
        *,
        objective: Objective = "accuracy",
        criteria: Sequence[str] = ("parity", "equalized_odds"),
        bounds: Sequence[float] = (0.0, 0.01, 0.02, 0.05, 0.1, 0.15),
        sizes: tuple[float, float, float, float] = (0.5, 0.2, 0.15, 0.15),
        minimum: int = 10,
        pos_label: Any = None,
        random_state: int = 0,
        n_jobs: int = 1,
    ) -> None:
        self.members = members
        self.objective = objective
        self.criteria = criteria
        self.bounds = bounds
        self.sizes = sizes
        self.minimum = minimum
        self.pos_label = pos_label
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: Any, *, sensitive_features: Any, sample_weight: Any = None) -> Self:
        """Train, decide and measure on rows X with labels y and their sensitive features."""
        measure = name_objective(self.objective)
        if unknown := [each for each in self.criteria if each not in BOUNDED]:
            raise ConfigError(
                f"There is no criterion {unknown[0]!r}.", f"Give some of {', '.join(BOUNDED)}."
            )
        members = self._name_members()
        groups = frame_features(sensitive_features)
        with_labels = self._code_labels(y)
        with explaining():
            check_consistent_length(X, with_labels, groups)
        self.attributes_ = tuple(groups.columns)
        rows = self._split(X, with_labels, groups, sample_weight)
        trained = Parallel(n_jobs=self.n_jobs, prefer="threads")(
            delayed(self._train)(name, member, rows["train"]) for name, member in members
        )
        self.failed_: dict[str, str] = {}
        found: list[Candidate] = []
        tables: list[pd.DataFrame] = []
        self._decided: dict[tuple[str, str], np.ndarray] = {}
        for versions in trained:
            for version in versions:
                scores = {part: version.score(rows[part].X) for part in PARTS[1:]}
                for candidate in self._list_rules(version, scores["calibration"], rows):
                    found.append(candidate)
                    tables += self._measure(candidate, scores, rows, measure)
        if not found:
            raise ConfigError(
                "No member has a candidate: methods with a bound need one above 0.",
                "Give bounds and criteria that they take.",
            )
        self.candidates_ = tuple(found)
        self.results_ = pd.concat(tables, ignore_index=True)
        self._test = rows["test"]
        self.parts_ = {name: each.part.ids for name, each in rows.items()}
        self._measure_name = measure
        self.price_ = self._price()
        return self

    def frontier(self, measure: str, part: str = "validation") -> pd.DataFrame:
        """Return the candidates that none beats in objective and ``measure``, best first.

        ``measure`` is such as ``selection_rate_difference:sex``. Columns method, setting, the
        objective and the measure.
        """
        check_is_fitted(self)
        if part not in PARTS[2:]:
            raise ConfigError(f"There is no part {part!r}.", "Give validation or test.")
        table = self._pivot(part)
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

        With a ``confidence`` the bounds hold, all at once and for all candidates, with that
        probability on fresh rows; see `fairfrontier.select`. UnattainableError, a ConfigError, is
        raised where no candidate is within the bounds, or certainly so.
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
        own = self.results_.set_index(NAMED).sort_index().loc[[key]].reset_index(drop=True)
        test = own[own["part"] == "test"].assign(name=lambda rows: name_measures(rows))
        return FrontierModel(
            candidate, self.classes_, self.features_, own, find_passed(asked.bounds, test)
        )

    def plot(self, measure: str, ax: Axes | None = None) -> Axes:
        """Draw gap and objective of the candidates on test rows, and those that validation chose.

        The ring is the best model without a bound; the line joins the frontier of the validation
        rows, which others may beat on test rows by chance.
        """
        import matplotlib.pyplot as plt

        table = self._pivot("test")
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

    def _name_members(self) -> list[tuple[str, Any]]:
        """Return the members with names of their own."""
        listed: dict[str, Any] = {}
        if isinstance(self.members, str) or not isinstance(self.members, Sequence):
            raise ConfigError("members is no list.", "Give a list of estimators or methods.")
        for each in self.members:
            name, member = each if isinstance(each, tuple) else (None, each)
            if isinstance(member, str):
                method = METHODS.find(member)
                if "binary" not in method.task or issubclass(method, PostProcessor):
                    raise ConfigError(
                        f"The method {member!r} is no classifier of two classes.",
                        "Rules behind members are the frontier's criteria and bounds.",
                    )
                name = name or member
            elif not hasattr(member, "fit") or isinstance(member, type):
                raise ConfigError(
                    f"The member {member!r} is no estimator.",
                    "Give instances of classifiers, or names of registered methods.",
                )
            else:
                last = member.steps[-1][1] if isinstance(member, Pipeline) else member
                name = name or type(last).__name__
            free = (f"{name} #{k}" if k > 1 else name for k in range(1, len(listed) + 2))
            listed[next(each for each in free if each not in listed)] = member
        if not listed:
            raise ConfigError("A frontier needs a member.", "Give estimators or methods.")
        return list(listed.items())

    def _code_labels(self, y: Any) -> np.ndarray:
        """Return codes of the labels, and set ``classes_``, the favourable label last."""
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
                "Merge classes, or compare methods of several classes by a study.",
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

    def _split(
        self, X: Any, y: np.ndarray, groups: pd.DataFrame, sample_weight: Any
    ) -> dict[str, _Rows]:
        """Return the parts, drawn at random within the labels."""
        sizes = np.asarray(self.sizes, dtype=np.float64)
        if sizes.shape != (len(PARTS),) or not (sizes > 0).all():
            raise ConfigError(
                f"sizes are {self.sizes!r}.",
                f"Give four shares above 0, of {', '.join(PARTS)} rows.",
            )
        self.features_ = SensitiveFeatures.learn(groups)
        codes, levels = self.features_.number(groups)
        weight = unit_weight(sample_weight, len(y))
        left, parts = np.arange(len(y)), {}
        for k, name in enumerate(PARTS):
            taken = left
            if k + 1 < len(PARTS):
                taken, left = train_test_split(
                    left,
                    train_size=float(sizes[k] / sizes[k:].sum()),
                    random_state=self.random_state,
                    stratify=y[left],
                )
            taken = np.sort(taken)
            part = Part(
                dataset="the table",
                name=name,
                ids=taken,
                X=np.zeros((len(taken), 1)),
                y=y[taken],
                groups=codes[taken],
                protected=codes[taken].astype(np.float64),
                weight=weight[taken],
                attributes=levels,
                classes=tuple(map(str, self.classes_)),
            )
            parts[name] = _Rows(_safe_indexing(X, taken), groups.iloc[taken], part)
        return parts

    def _train(self, name: str, member: Any, rows: _Rows) -> list[Candidate]:
        """Return a fitted member, after it those that were trained for a bound."""
        bounded = isinstance(member, str) and "bound" in METHODS.find(member)().get_params()
        settings: list[tuple[str, dict[str, Any]]] = [("", {})]
        if bounded:
            settings = [
                (
                    f"{criterion} of {attribute} within {float(bound):.12g}",
                    {"attributes": [attribute], "criterion": criterion, "bound": bound},
                )
                for attribute in self.attributes_
                for criterion in dict.fromkeys(self.criteria)
                for bound in dict.fromkeys(self.bounds)
                if bound > 0 and _takes_criterion(member, criterion)
            ]
        fitted = []
        for setting, parameters in settings:
            estimator = self._build(member, parameters, rows.X)
            keywords = self._list_keywords(name, estimator, rows)
            try:
                estimator.fit(rows.X, self.classes_[rows.y], **keywords)
            except FairfrontierError as error:
                raise DataError(f"The member {name} failed: {error.fault}", error.mend) from error
            except (TypeError, ValueError) as error:
                text = " ".join(str(error).split())
                raise DataError(
                    f"The member {name} cannot be trained on these rows: {text}",
                    "Give it as a pipeline that encodes what the rows hold.",
                ) from error
            if {*np.asarray(estimator.classes_).tolist()} != {*self.classes_.tolist()}:
                raise ConfigError(
                    f"The member {name} knows the labels {list(estimator.classes_)}, and the rows "
                    f"have {self.classes_.tolist()}.",
                    "Give the labels that it was fitted on.",
                )
            fitted.append(Candidate(name, setting, estimator, self.classes_[1]))
        return fitted

    def _build(self, member: Any, parameters: Mapping[str, Any], X: Any) -> Any:
        """Return an unfitted copy of a member; of a registered method behind an encoder."""
        if not isinstance(member, str):
            model = clone(member)
            known = {} if isinstance(model, FrozenEstimator) else model.get_params()
            drawn = [
                name
                for name, value in known.items()
                if value is None and name.rpartition("__")[2] == "random_state"
            ]
            if drawn:
                model.set_params(**dict.fromkeys(drawn, self.random_state))
            return model
        return make_pipeline(make_encoder(X), create(member, **parameters))

    def _list_keywords(self, name: str, estimator: Any, rows: _Rows) -> dict[str, Any]:
        """Return what the fit of a member takes beside rows and labels."""
        last = estimator.steps[-1][1] if isinstance(estimator, Pipeline) else estimator
        prefix = f"{estimator.steps[-1][0]}__" if isinstance(estimator, Pipeline) else ""
        keywords: dict[str, Any] = {}
        if not (rows.weight == 1).all() and not isinstance(last, FrozenEstimator):
            taken = inspect.signature(last.fit).parameters.values()
            passes = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in taken)
            if not passes and not has_fit_parameter(last, "sample_weight"):
                raise ConfigError(
                    f"The member {name} takes no case weights.", "Leave it out, or the weights."
                )
            keywords[f"{prefix}sample_weight"] = rows.weight
        if isinstance(last, Estimator) and "sensitive_features" in last.fit_takes:
            keywords[f"{prefix}sensitive_features"] = rows.groups
        return keywords

    def _list_rules(
        self, version: Candidate, score: np.ndarray, rows: Mapping[str, _Rows]
    ) -> list[Candidate]:
        """Return a member at its best cut, and with the thresholds by group behind it."""
        own = rows["calibration"]
        cut = choose_cut(score, own.y, own.weight, self.objective)
        listed = [replace(version, cut=cut)]
        for attribute in self.attributes_ if not version.setting else ():
            for criterion in dict.fromkeys(self.criteria):
                for bound in dict.fromkeys(self.bounds):
                    setting = f"thresholds by {attribute}, {criterion} within {float(bound):.12g}"
                    rule = GroupThresholds(
                        attributes=[attribute],
                        objective=self.objective,  # type: ignore[arg-type]
                        criterion=criterion,  # type: ignore[arg-type]
                        bound=bound,
                        randomized=False,
                        unseen="pooled",
                    )
                    try:
                        rule.fit(
                            score, own.y, sensitive_features=own.groups, sample_weight=own.weight
                        )
                    except InputError as error:
                        self.failed_[f"{version.method}: {setting}"] = str(error)
                        continue
                    listed.append(replace(version, setting=setting, rule=rule))
        return listed

    def _measure(
        self,
        candidate: Candidate,
        scores: Mapping[str, np.ndarray],
        rows: Mapping[str, _Rows],
        objective: str,
    ) -> list[pd.DataFrame]:
        """Return the measures of a candidate on validation and test rows."""
        tables = []
        for part in PARTS[2:]:
            decision = candidate.decide(scores[part], rows[part].groups)
            if part == "test":
                self._decided[candidate.method, candidate.setting] = decision
            table = tabulate(
                Prediction(scores[part], decision),
                rows[part].part,
                tuple(dict.fromkeys([objective, *MEASURES])),
                minimum=self.minimum,
                costs=read_costs(self.objective),
            )
            table.insert(0, "part", part)
            table.insert(0, "setting", candidate.setting)
            table.insert(0, "method", candidate.method)
            tables.append(table)
        return tables

    @property
    def _keys(self) -> list[tuple[str, str]]:
        return [(each.method, each.setting) for each in self.candidates_]

    def _rows(self, part: str) -> pd.DataFrame:
        rows = self.results_[self.results_["part"] == part]
        return rows.assign(name=name_measures(rows))

    def _pivot(self, part: str) -> pd.DataFrame:
        return pivot_measures(self._rows(part), NAMED)

    def _require(self, measure: str, known: pd.Index[str]) -> None:
        if measure not in known:
            raise ConfigError(
                f"The frontier has no measure {measure!r}.",
                f"Give one such as {BOUNDED['parity']}:{self.attributes_[0]}.",
            )

    def _choose(self, measure: str, bounds: Mapping[str, float], confidence: float | None) -> int:
        """Return the position of the best candidate within bounds, on validation rows."""
        names = list(dict.fromkeys([measure, *bounds]))
        compared = compare(self._rows("validation"), "validation", names, bounds, confidence)
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
        for attribute in self.attributes_:
            for criterion in self.criteria:
                measure = f"{BOUNDED[criterion]}:{attribute}"
                if measure not in table.columns:
                    continue
                for bound in (None, *PRICED):
                    key = free
                    if bound is not None:
                        try:
                            at = self._choose(self._measure_name, {measure: bound}, None)
                        except ConfigError:
                            continue  # No model is within it, or its groups are too small.
                        key = self._keys[at]
                    cost, low, high = self._compare_paired(free, key)
                    rows.append(
                        {
                            "attribute": attribute,
                            "measure": BOUNDED[criterion],
                            "bound": np.nan if bound is None else bound,
                            "method": key[0],
                            "setting": key[1],
                            "gap": table.loc[key, measure],
                            self._measure_name: table.loc[key, self._measure_name],
                            "cost": cost,
                            "low": low,
                            "high": high,
                        }
                    )
        return pd.DataFrame(rows)

    def _compare_paired(
        self, free: tuple[str, str], key: tuple[str, str]
    ) -> tuple[float, float, float]:
        """Return by how much a model is worse than another on test rows, with a 95% interval.

        The objective is a mean over the rows but for F1, which is compared by its values alone.
        """
        part = self._test.part
        values = self._pivot("test")[self._measure_name]
        cost = float((values[free] - values[key]) * (-1 if self._is_cost() else 1))
        if self._measure_name == "f1":
            return cost, np.nan, np.nan
        gain = np.full(part.n_samples, 1.0)
        if self._measure_name == "balanced_accuracy":
            total = np.bincount(part.y, part.weight, minlength=2)
            gain = part.weight.sum() / (2 * total[part.y])
        elif self._is_cost():
            gain = np.asarray(read_costs(self.objective))[part.y]
        right = {each: (self._decided[each] == part.y).astype(float) for each in {free, key}}
        weight = part.weight / part.weight.sum()
        each = gain * (right[free] - right[key])
        spread = np.sqrt(np.sum(weight**2 * (each - np.sum(weight * each)) ** 2))
        reach = float(ndtri(0.5 + CONFIDENCE / 2) * spread)
        return cost, cost - reach, cost + reach

    def _is_cost(self) -> bool:
        return not isinstance(self.objective, str)


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


def make_encoder(X: Any) -> ColumnTransformer:
    """Return an unfitted encoder of a frame's or an array's columns as numbers.

    Text, categories and booleans become columns of 0 and 1, with none for unseen levels; numbers
    are standardised, and missing ones are medians.
    """
    if issparse(X):
        raise ConfigError(
            "Registered methods are given a sparse matrix.",
            "Give dense columns, or an estimator that takes it.",
        )
    frame = nw.from_native(X, eager_only=True, pass_through=True)
    named = isinstance(frame, nw.DataFrame) and all(isinstance(n, str) for n in frame.columns)
    if not isinstance(frame, nw.DataFrame):
        frame = nw.from_native(pd.DataFrame(np.asarray(X)).infer_objects(), eager_only=True)
    # Numbers are positions, whatever the columns are called.
    keys: list[Any] = frame.columns if named else [*range(len(frame.columns))]
    kinds = dict(zip(keys, frame.schema.dtypes(), strict=True))
    numeric = [key for key, kind in kinds.items() if kind.is_numeric()]
    other = [key for key in keys if key not in numeric]
    one_hot = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    numbers = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    return ColumnTransformer([("levels", one_hot, other), ("numbers", numbers, numeric)])


def _takes_criterion(method: str, criterion: str) -> bool:
    try:
        create(method, criterion=criterion)
    except ConfigError:
        return False
    return True
