"""Training the members of a frontier: on the train rows, or on folds, with a search."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd
from scipy.sparse import issparse
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils import _safe_indexing
from sklearn.utils.parallel import Parallel, delayed

from fairfrontier.frontier.candidate import Candidate
from fairfrontier.frontier.scores import Scores
from fairfrontier.models.base import explaining
from fairfrontier.models.baseline.ensemble import MEMBERS, Ensemble, explain_refusal
from fairfrontier.models.objective import Objective, choose_cut, read_costs
from fairfrontier.models.registry import METHODS, create
from fairfrontier.models.response import list_fit_keywords
from fairfrontier.models.space import Sampler
from fairfrontier.models.thresholds.base import PostProcessor
from fairfrontier.runtime.errors import ConfigError, DataError, FairfrontierError, refuse_unknown
from fairfrontier.runtime.thread import count_cores, limited_threads

# Settings of a member that are tried at a time: a constant, so that none depends on the machine.
BATCH = 4
# Of a column that registered methods are given; rarer ones are one level.
MOST_LEVELS = 50


@dataclass(frozen=True, eq=False)
class Table:
    """Rows as the user gave them, with labels as codes 0 and 1."""

    X: Any
    y: np.ndarray
    groups: pd.DataFrame
    codes: np.ndarray
    weight: np.ndarray

    def take(self, rows: np.ndarray) -> Table:
        """Return some of the rows, by position."""
        return Table(
            _safe_indexing(self.X, rows),
            self.y[rows],
            self.groups.iloc[rows],
            self.codes[rows],
            self.weight[rows],
        )


@dataclass(frozen=True, eq=False)
class Member:
    """An estimator or registered method, and where its parameters are searched.

    ``versions`` are parameters that it is trained with beside, each under a name: bounds.
    """

    name: str
    estimator: Any
    space: Mapping[str, Any]
    versions: Sequence[tuple[str, Mapping[str, Any]]] = (("", {}),)


@dataclass(frozen=True, eq=False)
class Trial:
    """A member at some parameters: scores of the validation rows, and the objective there."""

    version: Candidate
    parameters: Mapping[str, Any]
    score: np.ndarray
    value: float
    seconds: float


@dataclass(frozen=True, eq=False)
class Fold:
    """Rows that a member is trained on, and rows that it then scores."""

    train: Table
    held_out: Table
    # Where the latter are among all that are scored.
    at: np.ndarray

    @cached_property
    def encoded(self) -> tuple[ColumnTransformer, np.ndarray, np.ndarray]:
        """The encoder of registered methods, and what it makes of the rows."""
        encoder = make_encoder(self.train.X)
        with explaining():
            made = encoder.fit_transform(self.train.X), encoder.transform(self.held_out.X)
        return encoder, *made


class Trainer:
    """Trains members on folds, and searches their parameters for the objective.

    Parameters
    ----------
    folds : sequence of Fold
        One, of train and validation rows; or several, whose rows held out are the validation rows.
    whole : Table or None
        What the chosen setting is trained on in the end; None for the rows of the only fold.
    scored : Table
        The validation rows.
    classes : ndarray of shape (2,)
        The labels, the favourable one last.
    objective : str or mapping
        What a setting is chosen by, at its best cut on the validation rows.
    """

    def __init__(
        self,
        folds: Sequence[Fold],
        whole: Table | None,
        scored: Table,
        classes: np.ndarray,
        objective: Objective,
        *,
        random_state: int,
        n_jobs: int | None,
    ) -> None:
        self.folds, self.whole, self.scored = folds, whole, scored
        self.classes, self.objective = classes, objective
        self.random_state = random_state
        cores = count_cores()
        self.n_jobs = 1 if n_jobs is None else max(1, cores + 1 + n_jobs) if n_jobs < 0 else n_jobs
        self.failed: dict[str, str] = {}
        self.trials: list[dict[str, Any]] = []

    def search(self, members: Sequence[Member], trials: int, minutes: float | None) -> list[Trial]:
        """Return the best setting of every member, and all of its versions, trained.

        After a registered method whose settings were searched stands the mean of its best five.
        ``trials`` are shared out among the members with a space, each of which first tries its own
        parameters; with ``minutes`` the clock ends the search, after a first round.
        """
        deadline = None if minutes is None else time.monotonic() + 60 * minutes
        own = [(member, named, given) for member in members for named, given in member.versions]
        tried = self._try([(*each, True) for each in own])
        best: dict[tuple[str, str], Trial] = {
            (each.version.method, each.version.setting): each for each in tried
        }
        searched = [member for member in members if member.space]
        samplers = {
            member.name: Sampler(member.space, self.random_state + position)
            for position, member in enumerate(searched)
        }
        left = {
            member.name: (trials - len(searched)) // len(searched)
            + (position < (trials - len(searched)) % len(searched))
            for position, member in enumerate(searched)
        }
        ranked = {member.name: [best[member.name, ""]] for member in searched}
        while searched:
            asked = [
                (member, *samplers[member.name].ask())
                for member in searched
                for _ in range(BATCH if deadline else min(BATCH, left[member.name]))
            ]
            if not asked:
                break
            found = self._try([(member, "", given, False) for member, _, given in asked])
            for (member, proposal, _), trial in zip(asked, found, strict=True):
                left[member.name] -= 1
                samplers[member.name].tell(proposal, trial.value if trial else None)
                if trial:
                    known = [*ranked[member.name], trial]
                    known.sort(key=lambda each: -each.value)
                    ranked[member.name] = known[:MEMBERS]
            if deadline and time.monotonic() >= deadline:
                break
        by_name = {member.name: member for member in members}
        for member in searched:
            best[member.name, ""] = ranked[member.name][0]
            if joined := self._join(member, ranked[member.name]):
                ensemble, trial = joined
                by_name[ensemble.name] = ensemble
                best[ensemble.name, ""] = trial
        return [self._finish(by_name[name], trial) for (name, _), trial in best.items()]

    def _join(self, member: Member, ranked: Sequence[Trial]) -> tuple[Member, Trial] | None:
        """Return the mean of the best settings of a method, where these can be its members."""
        method = member.estimator
        if not isinstance(method, str) or len(ranked) < 2 or explain_refusal(METHODS.find(method)):
            return None
        ensemble = Member(f"ensemble of {member.name}", "ensemble", {})
        parameters = {
            "learner": method,
            "settings": [dict(each.parameters) for each in ranked],
            "objective": self.objective,
        }
        fitted = Ensemble.of([each.version.estimator for each in ranked], **parameters)
        score = np.mean([each.score for each in ranked], axis=0)
        version = Candidate(ensemble.name, "", fitted, self.classes[1])
        trial = self._measure(version, parameters, score, 0.0)
        self.trials.append({"method": ensemble.name, "objective": trial.value, "seconds": 0.0})
        return ensemble, trial

    def _measure(
        self, version: Candidate, parameters: Mapping[str, Any], score: np.ndarray, seconds: float
    ) -> Trial:
        """Return a trial with the best cut of its scores of the validation rows."""
        y, weight = self.scored.y, self.scored.weight
        cut = choose_cut(score, y, weight, self.objective)
        value = measure_objective(score >= cut, y, weight, self.objective)
        return Trial(replace(version, cut=cut), parameters, score, value, seconds)

    def _try(self, asked: Sequence[tuple[Member, str, Mapping[str, Any], bool]]) -> list[Any]:
        """Return the trials of members at parameters; None where one that may fail did."""
        for fold in self.folds:
            if any(isinstance(member.estimator, str) for member, *_ in asked):
                _ = fold.encoded  # once, before threads ask for it
        jobs = max(1, min(self.n_jobs, len(asked)))
        with limited_threads(max(1, count_cores() // jobs)):
            tried: list[Any] = Parallel(n_jobs=jobs, prefer="threads")(
                delayed(self._run)(*each) for each in asked
            )
        for (member, setting, given, _), trial in zip(asked, tried, strict=True):
            self.trials.append(
                {
                    "method": member.name,
                    "setting": setting,
                    "objective": np.nan if trial is None else trial.value,
                    "seconds": np.nan if trial is None else trial.seconds,
                    **given,
                }
            )
        return tried

    def _run(
        self, member: Member, setting: str, parameters: Mapping[str, Any], required: bool
    ) -> Trial | None:
        begin = time.perf_counter()
        score = np.empty(len(self.scored.y))
        try:
            for fold in self.folds:
                registered = isinstance(member.estimator, str)
                train = replace(fold.train, X=fold.encoded[1]) if registered else fold.train
                fitted = self._fit(member, parameters, train)
                version = Candidate(member.name, setting, fitted, self.classes[1])
                score[fold.at] = version.score(fold.encoded[2] if registered else fold.held_out.X)
        except Exception as error:
            if required:
                raise
            named = ", ".join(f"{name}={value}" for name, value in parameters.items())
            self.failed[f"{member.name}: {named}"] = str(error)
            return None
        return self._measure(version, parameters, score, time.perf_counter() - begin)

    def _finish(self, member: Member, trial: Trial) -> Trial:
        """Return a trial with the estimator that is shipped, which takes rows as they are given."""
        fold = self.folds[0]
        registered, estimator = isinstance(member.estimator, str), trial.version.estimator
        encoder = fold.encoded[0] if registered else None
        if self.whole is not None:
            rows = self.whole
            if registered:
                encoder = make_encoder(rows.X)
                with explaining():
                    rows = replace(rows, X=encoder.fit_transform(rows.X))
            estimator = self._fit(member, trial.parameters, rows)
        if encoder is not None:
            estimator = Pipeline([("encoder", encoder), ("method", estimator)])
        return replace(trial, version=replace(trial.version, estimator=estimator))

    def _fit(self, member: Member, parameters: Mapping[str, Any], rows: Table) -> Any:
        """Return a member that is trained on rows; errors name it."""
        name = member.name
        try:
            estimator = self._build(member, parameters)
            keywords = list_fit_keywords(
                estimator,
                f"The member {name}",
                sample_weight=rows.weight,
                sensitive_features=rows.groups,
            )
            estimator.fit(rows.X, self.classes[rows.y], **keywords)
        except ConfigError:
            raise
        except FairfrontierError as error:
            raise DataError(f"The member {name} failed: {error.fault}", error.mend) from error
        except (TypeError, ValueError) as error:
            text = " ".join(str(error).split())
            raise DataError(
                f"The member {name} cannot be trained on these rows: {text}",
                "Give it as a pipeline that encodes what the rows hold.",
            ) from error
        known = np.asarray(getattr(estimator, "classes_", ())).tolist()
        if {*known} != {*self.classes.tolist()}:
            raise ConfigError(
                f"The member {name} knows the labels {known}, and the rows have "
                f"{self.classes.tolist()}.",
                "Give a classifier, and the labels that it was fitted on.",
            )
        return estimator

    def _build(self, member: Member, parameters: Mapping[str, Any]) -> Any:
        """Return an unfitted copy of a member."""
        if isinstance(member.estimator, str):
            return create(member.estimator, **parameters)
        model = clone(member.estimator)
        if isinstance(model, FrozenEstimator):
            return model
        if isinstance(model, Scores):
            return model.set_params(pos_label=self.classes[1])
        drawn = [
            name
            for name, value in model.get_params().items()
            if value is None and name.rpartition("__")[2] == "random_state"
        ]
        return model.set_params(**{**dict.fromkeys(drawn, self.random_state), **parameters})


def list_members(
    estimators: Any,
    spaces: Mapping[str, Any],
    attributes: Sequence[str],
    criteria: Sequence[str],
    bounds: Sequence[float],
) -> list[Member]:
    """Return the members, each with a name of its own; ConfigError for what is no classifier."""
    if isinstance(estimators, str) or not isinstance(estimators, Sequence):
        raise ConfigError("estimators is no list.", "Give a list of estimators or methods.")
    named: dict[str, Any] = {}
    for each in estimators:
        name, estimator = each if isinstance(each, tuple) else (None, each)
        free = name or _name(estimator)
        names = (free, *(f"{free} #{k}" for k in range(2, len(named) + 2)))
        named[next(each for each in names if each not in named)] = estimator
    if not named:
        raise ConfigError("A frontier needs a member.", "Give estimators or methods.")
    refuse_unknown(spaces, named, "spaces has", ", which is no member")
    members = []
    for name, estimator in named.items():
        versions = _list_versions(estimator, attributes, criteria, bounds)
        bounded = isinstance(estimator, str) and "bound" in METHODS.find(estimator)().get_params()
        space = spaces.get(name)
        if space and (bounded or isinstance(estimator, FrozenEstimator | Scores)):
            raise ConfigError(
                f"The member {name} is fitted, or trained for every bound, and not searched.",
                "Leave it out of spaces.",
            )
        if space is None and isinstance(estimator, str) and not bounded:
            # pydantic and YAML, which members without a file do without.
            from fairfrontier.study.config import MethodFile

            own = MethodFile.read(estimator, None).space
            space = {key: each.distribution for key, each in own.items() if not each.loose}
        members.append(Member(name, estimator, space or {}, versions))
    return members


def _name(estimator: Any) -> str:
    if isinstance(estimator, str):
        method = METHODS.find(estimator)
        if "binary" not in method.task or issubclass(method, PostProcessor):
            raise ConfigError(
                f"The method {estimator!r} is no classifier of two classes.",
                "Rules behind members are the frontier's criteria and bounds.",
            )
        return estimator
    if not hasattr(estimator, "fit") or isinstance(estimator, type):
        raise ConfigError(
            f"The member {estimator!r} is no estimator.",
            "Give instances of classifiers, or names of registered methods.",
        )
    return type(estimator.steps[-1][1] if isinstance(estimator, Pipeline) else estimator).__name__


def _list_versions(
    estimator: Any, attributes: Sequence[str], criteria: Sequence[str], bounds: Sequence[float]
) -> list[tuple[str, Mapping[str, Any]]]:
    """Return what a member is trained with: of a method with a bound each one that is asked for."""
    if not isinstance(estimator, str) or "bound" not in METHODS.find(estimator)().get_params():
        return [("", {})]
    return [
        (
            f"{criterion} of {attribute} within {float(bound):.12g}",
            {"attributes": [attribute], "criterion": criterion, "bound": bound},
        )
        for attribute in attributes
        for criterion in criteria
        for bound in bounds
        if bound > 0 and _takes_criterion(estimator, criterion)
    ]


def _takes_criterion(method: str, criterion: str) -> bool:
    try:
        create(method, criterion=criterion)
    except ConfigError:
        return False
    return True


def measure_objective(
    decision: np.ndarray, y: np.ndarray, weight: np.ndarray, objective: Objective
) -> float:
    """Return an objective of decisions 0 and 1, oriented so that more is better."""
    chosen = np.asarray(decision, dtype=np.float64)
    false, true = np.bincount(y, weight * chosen, minlength=2)
    negatives, positives = np.bincount(y, weight, minlength=2)
    match objective:
        case "accuracy":
            return float((true + negatives - false) / (negatives + positives))
        case "balanced_accuracy":
            return float((true / positives + 1.0 - false / negatives) / 2.0)
        case "f1":
            return float(2.0 * true / (true + false + positives))
    of_false, of_missed = read_costs(objective) or (1.0, 1.0)
    return float(-(of_false * false + of_missed * (positives - true)) / (negatives + positives))


def make_encoder(X: Any) -> ColumnTransformer:
    """Return an unfitted encoder of a frame's or an array's columns as numbers.

    Text, categories and booleans become columns of 0 and 1, of 50 levels at most, with none for
    unseen levels; numbers are standardised, and missing ones are medians.
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
    if times := [key for key in other if kinds[key].is_temporal()]:
        raise ConfigError(
            f"Registered methods are given dates or times in the column {times[0]!r}.",
            "Give a number instead, as a year or an age, or leave the column out.",
        )
    one_hot = OneHotEncoder(
        handle_unknown="infrequent_if_exist", max_categories=MOST_LEVELS, sparse_output=False
    )
    numbers = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    return ColumnTransformer([("levels", one_hot, other), ("numbers", numbers, numeric)])


def make_folds(table: Table, splits: Sequence[tuple[np.ndarray, np.ndarray]]) -> list[Fold]:
    """Return folds of the rows of a table from positions of train rows and rows held out."""
    scored = np.sort(np.concatenate([held for _, held in splits]))
    if len(np.unique(scored)) != len(scored):
        raise ConfigError(
            "The splitter holds rows out more than once.", "Give one such as StratifiedKFold."
        )
    return [
        Fold(table.take(train), table.take(held), np.searchsorted(scored, held))
        for train, held in splits
    ]
