"""What a trial of a search came to: its points, or why it failed."""

from __future__ import annotations

import itertools
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fairfrontier.metrics.measure.registry import MEASURES, split_name
from fairfrontier.models.baseline.ensemble import MEMBERS, explain_refusal
from fairfrontier.models.space import Sampler
from fairfrontier.runtime.errors import (
    ClusterError,
    ConfigError,
    FairfrontierError,
    StoreError,
    explain_missing,
)
from fairfrontier.runtime.store import canonical_json
from fairfrontier.study.config import (
    BEST,
    ENSEMBLE,
    Dimension,
    MethodRow,
    SearchConfig,
    StudyConfig,
)
from fairfrontier.study.frontier import (
    KEYS,
    NO_MEMBERS,
    NO_MODEL,
    NO_TRIAL,
    UNTRIED,
    name_measures,
    orient,
    pivot_measures,
)
from fairfrontier.study.resolve import Planned, ResolvedStudy, Resolver, expand_rows


class InterruptedRun(Exception):  # noqa: N818
    """The run was interrupted before this fit started."""


# They would end every other trial, too: the disk, the workers, or who interrupts the run.
ENDING = (StoreError, ClusterError, OSError, CancelledError, InterruptedRun)
# Characters of another library's message that are told.
LONGEST = 300


def collect_trial(fits: Sequence[Any], measures: Sequence[Any]) -> pd.DataFrame | str:
    """Return the points of a trial, or why it has none, from the futures of its stages.

    Whatever a fit raises is the trial's failure, except ``ENDING`` and errors of Dask, which are
    raised. Of a measure only errors that a user can mend are failures.
    """
    try:
        for future in fits:
            future.result()
    except Exception as error:
        if _ends_search(error):
            raise
        return _describe(error)
    try:
        tables = [future.result() for future in measures]
    except FairfrontierError as error:
        if _ends_search(error):
            raise
        return error.fault
    points: pd.DataFrame = pd.concat(tables, ignore_index=True)
    return points


def _ends_search(error: Exception) -> bool:
    foreign = any(cls.__module__.startswith("distributed") for cls in type(error).__mro__)
    return foreign or isinstance(error, ENDING)


def _describe(error: Exception) -> str:
    """Return an error in one sentence: of another library its type, and the first line it says."""
    if isinstance(error, ModuleNotFoundError):
        error = explain_missing(error) or error
    if isinstance(error, FairfrontierError):
        return error.fault
    said = (str(error).strip().splitlines() or [""])[0].strip().removesuffix(".")
    text = said if len(said) <= LONGEST else f"{said[:LONGEST]}…"
    raised = f"The fit raised {type(error).__name__}"
    # Its constructor escapes what would steer a terminal.
    return FairfrontierError(f"{raised}: {text}." if text else f"{raised}.", "").fault


# Which settings that a search tried make an ensemble.


@dataclass(frozen=True, eq=False)
class Tuned:
    """A row, parameters of its space that were tried, and the objective there."""

    row: SearchedRow
    parameters: Mapping[str, Any]
    value: float


def choose_learner(
    row: SearchedRow, told: Mapping[str, Sequence[Tuned]], resolver: Resolver
) -> str | None:
    """Return the base whose settings make a row's ensemble: of its learner, or the best of all.

    None where no base has two settings that can be members.
    """
    learner = row.row.parameters.get("learner")
    able = [
        base
        for base, tuned in told.items()
        if len(tuned) > 1
        and tuned[0].row.method == (learner or tuned[0].row.method)
        and _may_join(tuned[0].row, resolver)
    ]
    return max(able, key=lambda base: max(each.value for each in told[base]), default=None)


def _may_join(row: SearchedRow, resolver: Resolver) -> bool:
    """Return whether a row's settings can be members: of rows, labels and weights alone."""
    plain = not (row.row.sweeps or row.row.metric or row.row.noise)
    return plain and explain_refusal(resolver.methods.find(row.method)) is None


def gather_members(told: Sequence[Tuned], resolver: Resolver) -> dict[str, Any]:
    """Return an ensemble's learner and settings: the best that were tried of one row."""
    method, own = told[0].row.method, told[0].row.row
    fixed = {**resolver.read_preset(method, own.preset), **own.parameters}
    ranked = sorted(told, key=attrgetter("value"), reverse=True)
    distinct = {canonical_json(each.parameters): each.parameters for each in ranked}
    # A list of values would be a sweep.
    return {
        "learner": method,
        "settings": [[{**fixed, **each} for each in distinct.values()][:MEMBERS]],
    }


# Searching a study's settings: first those that serve its objective, then the budgets between.

# Settings of a row that are tried at once: a constant, so that none depends on the workers.
BATCH = 4
# The share of the trials that looks for the best settings where others look for budgets.
TUNING = 0.5
# Adjacent budgets closer than this, as a share of their range, are not divided again.
CLOSEST = 1 / 32

# Where minutes count, a row none of whose first trials succeeded is given up.
HOPELESS = 5 * BATCH

# The points of every trial, or why it failed.
Evaluate = Callable[[Sequence[Sequence[Planned]]], Sequence[pd.DataFrame | str]]


@dataclass(frozen=True, eq=False)
class SearchedRow:
    """A row of a study with parameters that its YAML leaves to the search.

    ``space`` are those that are tuned for the objective. ``dial`` trades the objective for
    fairness: a parameter of the method, or of the post-processor where ``of_rule``; ``listed`` are
    its values, where the study lists them. A rule without a dial has one position. An ensemble
    ``waits`` for the settings of its learner.
    """

    label: str
    method: str
    row: MethodRow
    space: Mapping[str, Dimension]
    dial: tuple[str, Dimension] | None
    of_rule: bool
    listed: tuple[float, ...] = ()
    waits: bool = False

    @property
    def positions(self) -> Sequence[float]:
        """The positions of its dial that are tried first, the loosest before all."""
        count = (len(self.listed) or 3) if self.dial else int(self.of_rule)
        return list(np.linspace(1, 0, count)) if count > 1 else [1.0] * count

    @property
    def base(self) -> str:
        """What rows have in common that are tuned together: all but the dial of their rules."""
        own = self.row.model_dump(exclude={"then"}, exclude_unset=True) | {"method": self.method}
        return canonical_json(own)

    def stand_behind(self, winner: SearchedRow) -> SearchedRow:
        """Return the row behind the best method, whose name it gets, if it waits for that."""
        if self.method != BEST:
            return self
        own = winner.row.model_dump(exclude={"then"}, exclude_unset=True)
        then = self.row.model_dump(include={"then"}, exclude_unset=True)
        row = MethodRow.model_validate({**own, "method": winner.method, **then})
        label = f"{self.label} ({winner.label})"
        return replace(self, label=label, method=winner.method, row=row)

    def tune(self, tuned: Mapping[str, Any]) -> MethodRow:
        """Return the row without its rule at tuned parameters, its own dial at its loose end."""
        loosest = {} if self.of_rule else self.set_dial(1.0)
        return self._replace({**tuned, **loosest}, None)

    def trade(self, tuned: Mapping[str, Any], position: float) -> MethodRow:
        """Return the row at tuned parameters and a position of its dial, from 0, tight, to 1."""
        dialled = self.set_dial(position)
        if not self.of_rule:
            return self._replace({**tuned, **dialled}, self._dump_rule({}))
        return self._replace(tuned, self._dump_rule(dialled))

    def set_dial(self, position: float) -> dict[str, Any]:
        """Return the dial's parameter at a position."""
        if self.dial is None:
            return {}
        name, dimension = self.dial
        if not self.listed:
            return {name: dimension.at(position)}
        ordered = sorted(self.listed, reverse=dimension.loose == "low")
        return {name: ordered[round(position * (len(ordered) - 1))]}

    def _dump_rule(self, dialled: Mapping[str, Any]) -> dict[str, Any] | None:
        if self.row.then is None:
            return None
        return {**self.row.then.model_dump(exclude_unset=True), **dialled}

    def _replace(self, parameters: Mapping[str, Any], rule: Mapping[str, Any] | None) -> MethodRow:
        own = self.row.model_dump(exclude={"then"}, exclude_unset=True)
        then = {} if rule is None else {"then": dict(rule)}
        return MethodRow.model_validate({**own, "method": self.method, **parameters, **then})


@dataclass(eq=False)
class Outcome:
    """What a search tried: its fits that the study shows, and counts of trials.

    ``rows`` are those that did not fail, as `Search.record` takes them. ``failed`` has the label of
    each trial that failed, with its reason, and ``absent`` those of rows of which the study shows
    nothing, with the reasons.
    """

    planned: dict[str, Planned] = field(default_factory=dict)
    rows: list[tuple[str, MethodRow, bool]] = field(default_factory=list)
    trials: int = 0
    failed: list[tuple[str, str]] = field(default_factory=list)
    absent: dict[str, str] = field(default_factory=dict)


def list_searched(study: StudyConfig, resolver: Resolver) -> list[SearchedRow]:
    """Return the rows with anything to search: no grid, and parameters in a space that are free."""
    rows = []
    for label, row in study.methods.items():
        if row.grid is not None:
            continue
        method = row.method or label
        fixed, own = set(row.parameters), {}
        if method != BEST:
            fixed |= set(resolver.read_preset(method, row.preset))
            own = resolver.read_space(method)
        space = {key: value for key, value in own.items() if key not in fixed and not value.loose}
        rule = row.then
        knobs, parameters, taken = own, row.parameters, fixed
        if rule is not None:
            knobs, parameters = resolver.read_space(rule.method), rule.parameters
            taken = {*parameters, *resolver.read_preset(rule.method, rule.preset)}
        dial, listed = None, ()
        for own_name, dimension in knobs.items():
            other = dimension.instead_of
            name = other if other in taken else own_name
            value = parameters.get(name)
            if dimension.loose and (isinstance(value, list) or name not in taken):
                dial = (name, dimension)
                listed = tuple(value) if isinstance(value, list) else ()
        waits = method == ENSEMBLE and "settings" not in fixed
        of_rule = rule is not None
        searched = SearchedRow(label, method, row, space, dial, of_rule, listed, waits)
        if dial and not listed and _refuses_dial(searched, resolver):
            searched = replace(searched, dial=None)
        if space or searched.dial or waits or method == BEST:
            rows.append(searched)
    return rows


def _refuses_dial(row: SearchedRow, resolver: Resolver) -> bool:
    """Return whether a row's other values refuse a budget that its method takes without them.

    What is wrong without the budget is no refusal of it, nor is a budget that nothing takes.
    """
    then = row.row.then

    def takes(tried: SearchedRow) -> bool:
        loosest = tried.trade({}, 1.0)
        try:
            if not resolver.waits("frontier", tried.label, loosest):
                resolver.resolve_frontier_row(tried.label, loosest)
        except ConfigError:
            return False
        return True

    try:
        resolver.try_model(then.method if then else row.method, row.set_dial(1.0), row.label)
    except (ConfigError, TypeError):
        return False
    return takes(replace(row, dial=None)) and not takes(row)


class Search:
    """The state of a search.

    Trials are proposed in rounds of a fixed size and told in order: what is tried depends on the
    study and its seed, not on the number of workers, and a killed search finds all its trials in
    the store again. With ``minutes`` the clock decides when the last round begins.
    """

    def __init__(self, study: StudyConfig, config: SearchConfig, resolver: Resolver) -> None:
        self.study, self.config, self.resolver = study, config, resolver
        self.rows = list_searched(study, resolver)
        self.outcome = Outcome()
        # The standard error of a difference between two halves of the rows that measure a trial.
        self.chance = 0.0
        self.deadline = time.monotonic() + 60 * config.minutes if config.minutes else None

    def run(self, evaluate: Evaluate) -> Outcome:
        """Tune every base for the objective, then divide the largest steps between budgets."""
        best = self._tune(evaluate)
        self._trade(best, evaluate)
        shown = {planned.group.method for planned in self.outcome.planned.values()}
        absent = [row for row in self.rows if row.label not in shown]
        self.outcome.absent = {row.label: self._explain(row, row.base in best) for row in absent}
        return self.outcome

    def _explain(self, row: SearchedRow, tuned: bool) -> str:
        """Return why nothing of a row is shown; ``tuned`` is whether parameters were found."""
        own = [reason for label, reason in self.outcome.failed if label == row.label]
        if own:
            return NO_TRIAL.format(count=len(own), reason=Counter(own).most_common(1)[0][0])
        if tuned:
            return UNTRIED
        return NO_MEMBERS if row.waits else NO_MODEL

    @property
    def _is_over(self) -> bool:
        if self.deadline is not None:
            return time.monotonic() >= self.deadline
        return self.outcome.trials >= (self.config.trials or 0)

    def _tune(self, evaluate: Evaluate) -> dict[str, Mapping[str, Any]]:
        """Return the best parameters of each base; none where all its trials failed."""
        tuners = self._make_tuners()
        half = time.monotonic() + 60 * TUNING * (self.config.minutes or 0)
        # However short the time, a first round gives the study its models.
        while self.config.trials or not self.outcome.trials or time.monotonic() < half:
            asked = [(tuner, proposal) for tuner in tuners.values() for proposal in tuner.ask()]
            if not asked:
                break
            rows = [(tuner.shown or tuner.row, tuner.shown is not None) for tuner, _ in asked]
            tried = [
                (row.label, row.tune(tuner.read(proposal)), shown)
                for (row, shown), (tuner, proposal) in zip(rows, asked, strict=True)
            ]
            for (tuner, proposal), value in zip(asked, self._try(tried, evaluate), strict=True):
                tuner.tell(proposal, None if value is None else float(value[0]))
        told = {base: tuner.told for base, tuner in tuners.items() if tuner.told}
        return self._choose(told, self._gather(told, evaluate))

    def _make_tuners(self) -> dict[str, _Tuner]:
        """Return the tuner of each base, with its share of the trials where these are counted."""
        tuners: dict[str, _Tuner] = {}
        for number, row in enumerate(self.rows):
            if row.method == BEST or row.waits:
                continue
            tuners.setdefault(row.base, _Tuner(row, self.config.seed + number))
            if row.row.then is None:
                tuners[row.base].shown = row
        if self.config.trials:
            tuning = TUNING if any(row.dial for row in self.rows) else 1.0
            waiting = len({row.base for row in self.rows if row.waits})
            waiting += sum(row.of_rule and row.dial is None for row in self.rows)
            self._share_out(int(self.config.trials * tuning) - waiting, list(tuners.values()))
        return tuners

    def _choose(
        self, told: Mapping[str, Sequence[Tuned]], ensembles: Sequence[tuple[str, Tuned]]
    ) -> dict[str, Mapping[str, Any]]:
        """Return the best parameters of each base, ensembles' too, and put rules behind the best.

        A learner's ensemble stands for it: the best of many settings is so by chance, too.
        """
        best = {base: max(each, key=attrgetter("value")) for base, each in told.items()}
        learners = {learner for learner, _ in ensembles}
        alone = [each for base, each in best.items() if base not in learners]
        contenders = [*alone, *(ensemble for _, ensemble in ensembles)]
        if contenders:
            winner = max(contenders, key=attrgetter("value")).row
            self.rows = [row.stand_behind(winner) for row in self.rows]
        best |= {ensemble.row.base: ensemble for _, ensemble in ensembles}
        return {base: tuned.parameters for base, tuned in best.items()}

    def _gather(
        self, told: Mapping[str, Sequence[Tuned]], evaluate: Evaluate
    ) -> list[tuple[str, Tuned]]:
        """Return each ensemble that could be made, after the base of its learner."""
        waiting: dict[str, SearchedRow] = {}
        for row in self.rows:
            if row.waits and (row.row.then is None or row.base not in waiting):
                waiting[row.base] = row
        found = [(row, choose_learner(row, told, self.resolver)) for row in waiting.values()]
        made = [
            (learner, row, gather_members(told[learner], self.resolver))
            for row, learner in found
            if learner is not None
        ]
        tried = [(row.label, row.tune(own), row.row.then is None) for _, row, own in made]
        values = self._try(tried, evaluate) if tried else []
        return [
            (learner, Tuned(row, own, float(value[0])))
            for (learner, row, own), value in zip(made, values, strict=True)
            if value is not None
        ]

    @staticmethod
    def _share_out(trials: int, tuners: Sequence[_Tuner]) -> None:
        """Give each base a batch, where there are as many, and the rest by its free parameters."""
        least = max(1, min(BATCH, trials // max(1, len(tuners))))
        rest = max(0, trials - least * len(tuners))
        free = max(1, sum(len(tuner.row.space) for tuner in tuners))
        for tuner in tuners:
            tuner.share = least + rest * len(tuner.row.space) // free

    def _trade(self, best: Mapping[str, Mapping[str, Any]], evaluate: Evaluate) -> None:
        """Try budgets of every row: its ends and middle, then the middles of the largest steps."""
        rows = [row for row in self.rows if row.positions and row.base in best]
        known: dict[str, dict[float, np.ndarray]] = {row.label: {} for row in rows}
        waiting = {row.label: row.positions for row in rows}
        while True:
            proposals = [(row, at) for row in rows for at in waiting.pop(row.label, ())]
            if not proposals:
                steps = [step for row in rows for step in self._list_steps(row, known[row.label])]
                steps.sort(key=lambda step: -step[0])
                proposals = [(row, at) for _, row, at in steps[:BATCH]]
            if self.config.trials:
                proposals = proposals[: self.config.trials - self.outcome.trials]
            if not proposals or self._is_over:
                return
            tried = [(row.label, row.trade(best[row.base], at), True) for row, at in proposals]
            for (row, at), value in zip(proposals, self._try(tried, evaluate), strict=True):
                known[row.label][at] = np.array([]) if value is None else value

    def _list_steps(
        self, row: SearchedRow, known: Mapping[float, np.ndarray]
    ) -> Iterator[tuple[float, SearchedRow, float]]:
        """Yield (size, row, middle) of steps between adjacent budgets that are worth dividing.

        They are above the resolution, and above what chance alone gives.
        """
        if row.listed:
            return
        measured = sorted(at for at, value in known.items() if value.size)
        for low, high in itertools.pairwise(measured):
            size = float(np.abs(known[high] - known[low]).max())
            middle = (low + high) / 2
            taken = row.set_dial(middle) in (row.set_dial(low), row.set_dial(high))
            coarse = size > max(self.config.resolution, self.chance) and high - low > CLOSEST
            if coarse and not taken and middle not in known:
                yield size, row, middle

    def _try(
        self, tried: Sequence[tuple[str, MethodRow, bool]], evaluate: Evaluate
    ) -> list[np.ndarray | None]:
        """Evaluate rows, keep the fits of those shown, and return their oriented measures."""
        plans = [self._plan(label, row) for label, row, _ in tried]
        planned = [plan for plan in plans if not isinstance(plan, str)]
        results = iter(evaluate(planned) if planned else ())
        values: list[np.ndarray | None] = []
        for (label, row, shown), plan in zip(tried, plans, strict=True):
            result = plan if isinstance(plan, str) else next(results)
            self.outcome.trials += 1
            if isinstance(result, str):
                self.outcome.failed.append((label, result))
                values.append(None)
                continue
            self.record(label, row, shown)
            values.append(self._read(result) if len(result) else None)
        return values

    def record(self, label: str, row: MethodRow, shown: bool) -> None:
        """Note a row that was tried, and whether the study shows its fits."""
        self.outcome.rows.append((label, row, shown))
        for planned in self._expand(label, row) if shown else ():
            member = planned.group.members[0]
            name = canonical_json([label, member.setting, member.seed])
            self.outcome.planned.setdefault(name, planned)

    def plan_first(self) -> list[Planned]:
        """Return the fits of the rows' own parameters, which are tried before all others."""
        rows = [
            row
            for row in list_searched(self.study, self.resolver)
            if row.method != BEST and not row.waits
        ]
        plans = [self._plan(row.label, row.tune({})) for row in rows]
        return [planned for plan in plans if not isinstance(plan, str) for planned in plan]

    def plan_tried(self) -> list[Planned]:
        """Return the fits of all rows that were tried."""
        rows = self.outcome.rows
        return [planned for label, row, _ in rows for planned in self._expand(label, row)]

    def _plan(self, label: str, row: MethodRow) -> Sequence[Planned] | str:
        """Return the fits of a proposal, or why its method refuses these values together."""
        try:
            return self._expand(label, row)
        except ConfigError as error:
            return error.fault

    def _expand(self, label: str, row: MethodRow) -> Sequence[Planned]:
        return expand_rows(self.study.study, self.resolver.resolve_frontier_row(label, row))

    def _read(self, points: pd.DataFrame) -> np.ndarray | None:
        """Return the objective and the fairness measures of a row's best setting, more is better.

        It has several where a parameter that is not searched has a list of values.
        """
        names = [self.study.frontier.accuracy, *self.study.frontier.fairness]
        shown = points[points["part"] == self.study.select_on]
        named = shown.assign(name=name_measures(shown)).sort_values("seed", kind="stable")
        named = named[named["name"].isin(names)]
        # Their means alone: a trial needs no interval.
        value = named.groupby([*KEYS, "name"])["value"].mean(skipna=False).reset_index()
        means = pivot_measures(value, KEYS).reindex(columns=names).dropna(subset=names[:1])
        if means.empty:
            return None
        counted = shown[shown["measure"] == names[0]]
        self.chance = counted.drop_duplicates("seed")["n"].sum() ** -0.5
        unit = self.resolver.dataset.label.units[1]
        scale = [unit if MEASURES.find(split_name(n)[0]).has_units else 1.0 for n in names]
        values = np.column_stack([orient(name, means[name].to_numpy()) for name in names]) / scale
        return np.asarray(np.nan_to_num(values[values[:, 0].argmax()]))


class _Tuner:
    """Proposes settings of a row by the tree-structured Parzen estimator, seeded.

    The first proposal is the row's own parameters.
    """

    def __init__(self, row: SearchedRow, seed: int) -> None:
        self.row, self.asked = row, 0
        # How many trials it may ask for.
        self.share = math.inf
        self.told: list[Tuned] = []
        self.shown: SearchedRow | None = None
        self._seed = seed
        self._sampler: Sampler | None = None

    def ask(self) -> list[Any]:
        """Return at most ``BATCH`` proposals of its share; one in all where nothing is tuned."""
        share = self.share if self.row.space else 1
        if math.isinf(share) and not self.told and self.asked >= HOPELESS:
            return []
        count = int(min(share - self.asked, BATCH))
        if count <= 0:
            return []
        first: list[Any] = [] if self.asked else [(None, {})]
        self.asked += count
        return [*first, *(self._sample() for _ in range(count - len(first)))]

    def read(self, proposal: Any) -> dict[str, Any]:
        """Return the parameters of a proposal."""
        return {name: self.row.space[name].read(value) for name, value in proposal[1].items()}

    def tell(self, proposal: Any, value: float | None) -> None:
        """Record the objective of a proposal; None where it failed."""
        if self._sampler is not None:
            self._sampler.tell(proposal[0], value)
        if value is not None:
            self.told.append(Tuned(self.row, self.read(proposal), value))

    def _sample(self) -> Any:
        if self._sampler is None:
            space = {name: dimension.distribution for name, dimension in self.row.space.items()}
            self._sampler = Sampler(space, self._seed)
        return self._sampler.ask()


# Where a search looks: spaces that methods accept, and rows that are left to it.


def leave_out_searched(
    plan: tuple[Planned, ...], resolved: ResolvedStudy, home: Path
) -> tuple[Planned, ...]:
    """Return the fits of a plan whose settings are no matter of the study's search.

    A ConfigError refuses a search that has nothing to choose, or values that methods do not accept.
    """
    resolver = Resolver(resolved.study, home, resolved.where)
    rows = list_searched(resolved.study, resolver)
    if not rows:
        raise ConfigError(
            f"{resolved.where}: search has nothing to choose.",
            "Leave parameters of a row open that its conf/methods has under space, or take it out.",
        )
    for row in rows:
        refuse_space(row, resolver)
    labels = {row.label for row in rows}
    return tuple(
        planned
        for planned in plan
        if "frontier" not in planned.blocks or planned.group.method not in labels
    )


def refuse_space(row: SearchedRow, resolver: Resolver) -> None:
    """Raise a ConfigError for an end or a choice of a row's space that its method refuses.

    It is one that is refused both beside the method's defaults and beside what the row says: what
    is refused beside other values alone is a trial that fails.
    """
    searched = [(row.method, row.row, name, each) for name, each in row.space.items()]
    if row.dial is not None and not row.listed:
        rule = row.row.then if row.of_rule else None
        own = (row.method, row.row) if rule is None else (rule.method, rule)
        searched.append((*own, *row.dial))
    for method, given, name, dimension in searched:
        around = resolver.read_preset(method, given.preset) | {
            key: value[0] if isinstance(value, list) else value
            for key, value in given.parameters.items()
        }
        for value in dimension.choices or (dimension.at(0.0), dimension.at(1.0)):
            refusal = _find_refusal(method, around, {name: value}, resolver)
            if refusal is not None:
                raise ConfigError(
                    f"conf/methods/{method}.yaml: space.{name} has {value!r}, which {method} "
                    "refuses.",
                    refusal.mend,
                ) from refusal


def _find_refusal(
    method: str, around: Mapping[str, Any], value: Mapping[str, Any], resolver: Resolver
) -> ConfigError | None:
    """Return why a method refuses a value; None where it takes it by itself or in its row."""
    refusal = None
    contexts: Sequence[Mapping[str, Any]] = ({}, around)
    for context in contexts:
        try:
            resolver.try_model(method, {**context, **value}, f"methods.{method}")
        except ConfigError as error:
            refusal = refusal or error
        except TypeError:
            # It has parameters without a default, which the row gives.
            continue
        else:
            return None
    return refusal
