"""Resolving a study: looking up every name in it, and expanding every row into its settings."""

from __future__ import annotations

import inspect
import itertools
import math
import os
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_type_hints

import pandas as pd
from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError

from fairfrontier.models.fit.group import KIND, FitGroup, Member
from fairfrontier.models.fit.key import key
from fairfrontier.models.objective import OWN, RANKED, Objective, list_serving
from fairfrontier.models.registry import METHODS
from fairfrontier.prepare.config.dataset import (
    DatasetConfig,
    read_dataset,
    read_lineage,
    replace_noise,
)
from fairfrontier.prepare.split import Task
from fairfrontier.runtime.errors import ConfigError, nearest, refuse_unknown, repeated
from fairfrontier.runtime.finder import find_yaml
from fairfrontier.runtime.store import Store, canonical_json
from fairfrontier.study.config import (
    BEST,
    Block,
    Dimension,
    MethodBlock,
    MethodFile,
    MethodRow,
    StudyConfig,
    ThenRow,
)
from fairfrontier.study.reproduction import find_laboratory

if TYPE_CHECKING:
    from fairfrontier.models.base import Estimator


# Which objective a study has, and the parameters by which methods serve it.

COSTS = "{costs: {false_positive: 1, false_negative: 5}}"
# Measures that need these have no value of all rows, or none in every study.
SPECIAL = frozenset(
    {"membership", "counterfactuals", "counterfactual_score", "certificate", "box", "gap"}
    | {"true_group", "costs"}
)


def find_objective(study: StudyConfig, dataset: DatasetConfig, where: str) -> Objective | None:
    """Return the objective that methods can serve: of classes, unless each keeps its own.

    A ConfigError refuses what is no objective of the dataset's task; ``where`` is the study's file.
    """
    from fairfrontier.metrics.measure.registry import MEASURES, split_name

    objective, task = study.objective, dataset.label.task
    if objective == OWN:
        return None
    if not isinstance(objective, str):
        if task == "binary":
            return objective
        raise ConfigError(
            f"{where}: objective gives costs of errors of two classes, and {study.dataset} poses a "
            f"{task} task.",
            f"Choose among: {', '.join(list_objectives(task))}, or {OWN}.",
        )
    measure = MEASURES.all().get(split_name(objective)[0])
    suits = measure is not None and task in measure.task and measure.direction != "none"
    if suits and (task == "regression" or objective in RANKED):
        return None if task == "regression" else objective
    known = list_objectives(task)
    listed = f"Choose among: {', '.join(known)}, or {OWN}"
    mend = f"{listed}." if measure else nearest(objective, [*known, OWN])
    raise ConfigError(
        f"{where}: objective (by default frontier.accuracy) is {objective!r}, which is no "
        f"objective of a {task} task.",
        f"{listed} with frontier.accuracy: {objective}." if suits else mend,
    )


def list_objectives(task: Task) -> list[str]:
    """Return what the objective of a study may be, besides ``own``."""
    whole = list_whole(task)
    if task == "regression":
        return whole
    ranked = [name for name in RANKED if name in whole]
    return [*ranked, COSTS] if task == "binary" else ranked


def list_whole(task: Task) -> list[str]:
    """Return the measures of a task that have a value of all rows, which can be good or bad."""
    from fairfrontier.metrics.measure.registry import MEASURES
    from fairfrontier.metrics.verb import list_groups

    return sorted(
        name
        for name, measure in MEASURES.all().items()
        if task in measure.task
        and measure.direction != "none"
        and not measure.needs & SPECIAL
        and "" in list_groups(measure, task, ["group"])
    )


def serve(
    method: type[Estimator], objective: Objective | None, own: Collection[str], key: str
) -> dict[str, Any]:
    """Return those parameters of a method by which it serves an objective.

    ``own`` are the parameters that a row gives itself, in place of these. A ConfigError that opens
    with ``key`` refuses costs for a method that cannot serve them.
    """
    # Regressions have no objective of classes.
    if objective is None or not hasattr(method, "objectives"):
        return {}
    serving = list_serving(objective, method)
    costs = isinstance(objective, Mapping) and "objective" in serving and "objective" not in own
    if costs and not _takes(method, objective):
        from fairfrontier.models.thresholds.base import PostProcessor

        rule = issubclass(method, PostProcessor)
        other = "Choose group_thresholds, which serves costs, or give" if rule else "Give"
        raise ConfigError(
            f"{key}: {method.name} serves {' and '.join(method.objectives)} only, and the study's "
            "objective gives costs.",
            f"{other} {method.name} an objective of its own: {method.objectives[-1]}.",
        )
    return serving


def _takes(method: Any, objective: Objective) -> bool:
    """Return whether a method accepts an objective beside its other defaults."""
    try:
        method(objective=objective).check()
    except ConfigError:
        return False
    except TypeError:
        # It has parameters without a default.
        return True
    return True


# Arguments that a YAML gives to a method or a fair metric, checked against its signature.

# XGBoost and networks compute with numbers of 32 bits.
WHOLE, TINY, HUGE = 2**31 - 1, 1.2e-38, 3.4e38


def check_names(
    function: Callable[..., Any], title: str, names: Iterable[str], others: Iterable[str] = ()
) -> None:
    """Refuse arguments that a function does not take; ``others`` are further keys beside them."""
    accepted = [name for name in inspect.signature(function).parameters if name != "split"]
    for name in names:
        if name not in accepted:
            raise ConfigError(
                f"{title} takes no parameter {str(name)!r}.",
                nearest(str(name), (*accepted, *others)),
            )


def check_types(function: Callable[..., Any], title: str, arguments: Mapping[str, Any]) -> None:
    """Refuse arguments of another type than the function's signature says."""
    for name, value in arguments.items():
        adapter = _make_adapter(function, name)
        try:
            taken = value if adapter is None else adapter.validate_python(value)
        except ValidationError as error:
            expected = error.errors(include_url=False)[0]["msg"]
            raise ConfigError(
                f"The parameter {name!r} of {title} is {value!r}.", f"{expected}."
            ) from None
        if not all(map(_has_32_bits, taken if isinstance(taken, list) else [taken])):
            raise ConfigError(
                f"The parameter {name!r} of {title} is {value!r}.", "Give a number of 32 bits."
            )


def _has_32_bits(value: Any) -> bool:
    """Return whether a number can be one of 32 bits; anything else can."""
    if isinstance(value, float):
        return value == 0.0 or TINY <= abs(value) <= HUGE
    return not isinstance(value, int) or abs(value) <= WHOLE


@cache
def _make_adapter(function: Callable[..., Any], name: str) -> TypeAdapter[Any] | None:
    """Return what validates an argument, None where its type is not known."""
    # Fields that a dataclass inherits have annotations of their own module.
    names: dict[str, Any] = {}
    for cls in reversed(inspect.getmro(function)) if inspect.isclass(function) else ():
        names |= vars(sys.modules[cls.__module__])
    called = function.__init__ if inspect.isclass(function) else function  # type: ignore[misc]
    config = ConfigDict(strict=True, arbitrary_types_allowed=True)
    try:
        hints = get_type_hints(called, names or None, include_extras=True)
        return TypeAdapter(hints[name], config=config) if name in hints else None
    except (NameError, PydanticUserError):
        return None


# Rows × settings × seeds of a study, all of which are listed before the first is trained.
MOST_FITS = 20_000


@dataclass(frozen=True)
class ResolvedRow:
    """One row of a block at one value of its sweep.

    ``shared`` has the fields of FitGroup that all its members share. Models of a batched method
    must also share ``structure``, which is None for other methods, and are of different splits only
    with ``across_splits``.
    """

    block: Block
    seeds: tuple[int, ...]
    shared: dict[str, Any]
    parameters: dict[str, Any]
    setting: dict[str, Any]
    noise: float | None
    structure: list[Any] | None
    across_splits: bool

    def trains_like(self, other: ResolvedRow) -> bool:
        """Return whether both rows train the same model."""
        mine, theirs = (
            (row.shared, row.parameters, row.noise, row.structure) for row in (self, other)
        )
        return mine == theirs


@dataclass(frozen=True)
class ResolvedStudy:
    """A study, its dataset and its rows, those of the published block first.

    ``where`` is the file that errors name.
    """

    study: StudyConfig
    where: str
    dataset: DatasetConfig
    rows: tuple[ResolvedRow, ...]


def resolve(study: StudyConfig, home: Path, path: Path | None = None) -> ResolvedStudy:
    """Look up every name of a study, whose file is ``path``, and expand its rows.

    A ConfigError refuses a method, preset, grid, parameter, metric or group attribute that does not
    exist, and values that a method does not accept.
    """
    where = str(path) if path else f"Study {study.study}"
    context = Resolver(study, home, where)
    rows = [
        resolved
        for block, block_rows, select_on in study.blocks()
        for label, row in block_rows.methods.items()
        if not context.waits(block, label, row)
        for resolved in context.resolve_row(block, label, row, block_rows, select_on)
    ]
    return ResolvedStudy(study, where, context.dataset, tuple(rows))


class Resolver:
    """Looks up the names in the rows of a study, and expands them."""

    def __init__(self, study: StudyConfig, home: Path, where: str) -> None:
        from fairfrontier.models.registry import METHODS

        self.study, self.home, self.where = study, home, where
        self.methods = METHODS
        self.file = find_yaml("dataset", study.dataset, home)
        self.lineage = read_lineage(self.file, home)
        self.dataset = read_dataset(self.file, home)
        laboratory = find_laboratory(study)
        self.follows_curve = laboratory is not None and laboratory.follows_curve(study, home)
        self.certificate = _describe_certificate(study, where)
        self.objective = find_objective(study, self.dataset, where)
        self.fits = 0

    def waits(self, block: Block, label: str, row: MethodRow) -> bool:
        """Return whether a row waits for the method that a search finds best; check its rule."""
        if row.method != BEST:
            return False
        key = f"{self.where}: methods.{label}"
        if block != "frontier" or self.study.search is None or row.then is None:
            raise ConfigError(
                f"{key}: method: best is for a post-processor in a study with a search.",
                "Name a method, or add search: {trials: 40} and then: group_thresholds.",
            )
        for _ in self._resolve_then(row.then, self.objective, key):
            pass
        return True

    def resolve_row(
        self,
        block: Block,
        label: str,
        row: MethodRow,
        rows: MethodBlock,
        select_on: Literal["train", "validation"],
    ) -> Iterator[ResolvedRow]:
        """Yield a checked row at every value of its sweep."""
        key = f"{self.where}: {'published.' if block == 'published' else ''}methods.{label}"
        if block == "published" and row.sweeps and not self.follows_curve:
            raise ConfigError(
                f"{key} lists several values, but a row of a published table has one setting.",
                "Give every value its own row, or sweep in the frontier's block.",
            )
        name = row.method or label
        method = self.methods.get(name)
        if method is None:
            raise ConfigError(
                f"{key}: there is no method {name!r}.", nearest(name, self.methods.all())
            )
        presets = MethodFile.read(name, self.home)
        preset = presets.preset(row.preset, self.lineage, key)
        own_metric = preset.pop("metric", {})
        grid = presets.grid(row.grid, key)
        _check_names(method, (*preset, *grid, *row.parameters), key, MethodRow.model_fields)
        metric = self._resolve_metric(name, own_metric, row, key)
        objective = self.objective if block == "frontier" else None
        for noise in row.noise or ():
            replace_noise(self.dataset, noise, self.file)
        swept = {**grid, **row.parameters}
        self._count_fits(swept, row, rows, key)
        for chosen, noise, (then, shown) in itertools.product(
            _sweep(swept), row.noise or (None,), list(self._resolve_then(row.then, objective, key))
        ):
            own = {**preset, **chosen}
            parameters = {**serve(method, objective, own, key), **own}
            model = _make_model(method, parameters, self.dataset, key)
            setting = {
                **chosen,
                **({"preset": row.preset} if row.preset else {}),
                **({"metric": row.metric} if row.metric else {}),
                **({"noise": noise} if noise is not None else {}),
                **shown,
                **({"rows": rows.rows} if rows.rows is not None else {}),
                "select_on": select_on,
            }
            shared = {
                "dataset": self.study.dataset,
                "method": label,
                "estimator": name,
                # A method that takes no metric is not refitted when the metric changes.
                "metric": metric if "metric" in method.fit_takes else None,
                "rows": rows.rows,
                "select_on": select_on,
                "threads": self.study.threads,
                "certificate": self.certificate,
                "minimum": self.study.minimum,
                "then": then,
                "objective": objective,
            }
            structure = list(model.structure()) if model.batched else None
            across = method.across_splits
            yield ResolvedRow(
                block, rows.seeds, shared, parameters, setting, noise, structure, across
            )

    def _count_fits(
        self, swept: Mapping[str, Any], row: MethodRow, rows: MethodBlock, key: str
    ) -> None:
        """Refuse a row with which the study has too many fits to list."""
        values = [*swept.values(), *(row.then.parameters.values() if row.then else ())]
        sizes = [len(value) for value in values if isinstance(value, list)]
        self.fits += math.prod(sizes) * len(row.noise or (None,)) * len(rows.seeds)
        if self.fits > MOST_FITS:
            raise ConfigError(
                f"{key}: with this row the study has {self.fits:,} fits, more than {MOST_FITS:,}.",
                "Sweep fewer values, or use fewer seeds.",
            )

    def resolve_frontier_row(self, label: str, row: MethodRow) -> tuple[ResolvedRow, ...]:
        """Return a row of the frontier's block at every value of its sweep."""
        study, self.fits = self.study, 0
        return tuple(self.resolve_row("frontier", label, row, study, study.select_on))

    def read_space(self, method: str) -> dict[str, Dimension]:
        """Return what a search may choose of a method."""
        space = MethodFile.read(method, self.home).space
        others = [each.instead_of for each in space.values() if each.instead_of]
        key = f"conf/methods/{method}.yaml: space"
        _check_names(self.methods.find(method), [*space, *others], key, ())
        return space

    def read_preset(self, method: str, preset: str | None) -> dict[str, Any]:
        """Return the parameters of a method's preset."""
        return MethodFile.read(method, self.home).preset(preset, self.lineage, self.where)

    def try_model(self, method: str, parameters: Mapping[str, Any], key: str) -> None:
        """Raise a ConfigError for parameters of a method that it refuses together."""
        cls = self.methods.find(method)
        served = serve(cls, self.objective, parameters, key)
        _make_model(cls, {**served, **parameters}, self.dataset, key)

    def _resolve_metric(
        self, method: str, own: Mapping[str, Any], row: MethodRow, key: str
    ) -> dict[str, Any] | None:
        metric = _merge_metric(self.study.metric or {}, own, row.metric)
        if metric is not None:
            _check_metric(metric, key)
        elif "metric" in self.methods.find(method).fit_needs:
            raise ConfigError(
                f"{key}: {method} needs a fair metric, but the study has none.",
                "Add metric: {name: subspace} to the study.",
            )
        return metric

    def _resolve_then(
        self, row: ThenRow | None, objective: Objective | None, key: str
    ) -> Iterator[tuple[dict[str, Any] | None, dict[str, Any]]]:
        """Yield the parameters of a post-processor at every setting, and its entries there."""
        if row is None:
            yield None, {}
            return
        from fairfrontier.models.thresholds.base import GroupRule

        where = f"{key}.then"
        method = self.methods.get(row.method)
        if method is None or not issubclass(method, GroupRule):
            known = [
                name for name, other in self.methods.all().items() if issubclass(other, GroupRule)
            ]
            raise ConfigError(
                f"{where}: there is no post-processor {row.method!r}.", nearest(row.method, known)
            )
        preset = MethodFile.read(row.method, self.home).preset(row.preset, self.lineage, where)
        _check_names(method, (*preset, *row.parameters), where, ThenRow.model_fields)
        if "scale" in {*preset, *row.parameters}:
            raise ConfigError(
                f"{where}: the scores are the method's probabilities.", "Leave out scale."
            )
        for chosen in _sweep(row.parameters):
            own = {**preset, **chosen}
            parameters = {**serve(method, objective, own, where), **own}
            _make_model(method, parameters, self.dataset, where)
            shown = {f"then.{name}": value for name, value in chosen.items()}
            if row.preset:
                shown["then.preset"] = row.preset
            yield {"method": row.method, **parameters}, {"then": row.method, **shown}


def _check_names(
    method: type[Estimator], names: Iterable[str], key: str, others: Iterable[str]
) -> None:
    """Refuse parameters that a method does not have; ``others`` are the other keys of its row."""
    with _naming(key):
        check_names(method, method.name, names, others)


@contextmanager
def _naming(key: str) -> Iterator[None]:
    """Open the message of a ConfigError with the file and key."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{key}: {error.fault}", error.mend) from error


def _merge_metric(*layers: Mapping[str, Any]) -> dict[str, Any] | None:
    """Merge the layers of a metric; one that names another metric replaces those before it."""
    merged: dict[str, Any] = {}
    for layer in layers:
        if "name" in layer and layer["name"] != merged.get("name"):
            merged = {}
        merged = {**merged, **layer}
    return merged or None


def _describe_certificate(study: StudyConfig, where: str) -> dict[str, Any] | None:
    """Return what is certified: of the validation part only if the frontier or a claim reads it."""
    if study.certificate is None:
        return None
    from fairfrontier.metrics.measure.registry import CERTIFIED, MEASURES, split_name

    part, laboratory = "validation", find_laboratory(study)
    mentions = laboratory.list_mentions(study, where) if laboratory else ()
    names = [name for _, of_part, name in mentions if of_part == part]
    if study.select_on == part:
        names += [study.frontier.accuracy, *study.frontier.fairness]
    known = MEASURES.all()
    measures = {split_name(name)[0] for name in names} & set(known)
    read = any(known[measure].needs & CERTIFIED for measure in measures)
    return {
        "metric": study.metric,
        "budgets": list(study.certificate.budgets),
        "rows": study.certificate.rows,
        "parts": ["test", part] if read else ["test"],
    }


def _make_model(
    method: type[Estimator], parameters: Mapping[str, Any], dataset: DatasetConfig, key: str
) -> Estimator:
    """Return an untrained model, so that invalid values are refused before anything is trained."""
    from fairfrontier.models.registry import name_columns

    named = name_columns(method, parameters, list(dataset.groups), dataset.dataset, key)
    # What names attributes is turned into their columns when the split is known.
    unnamed = {name: value for name, value in parameters.items() if named[name] == value}
    with _naming(key):
        check_types(method, method.name, unnamed)
        for name in method.group_parameters:
            if isinstance(parameters.get(name), list) and repeated(map(str, named[name])):
                fault = f"{name} names an attribute twice: {parameters[name]}."
                raise ConfigError(fault, "Name it once.")
        model = method(**parameters)
        try:
            model.check()
        except TypeError as error:
            raise ConfigError(
                f"a parameter has a value of the wrong type ({error}).",
                "Write numbers as numbers and names as names.",
            ) from error
    return model


def _sweep(parameters: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield every combination of the listed values."""
    sweeps: list[Iterable[Any]] = []
    for name, value in parameters.items():
        if value == []:
            raise ConfigError(f"{name} lists no value to sweep.", "List one, or leave it out.")
        sweeps.append(value if isinstance(value, list) else [value])
    for combination in itertools.product(*sweeps):
        yield dict(zip(parameters, combination, strict=True))


def _check_metric(metric: Mapping[str, Any], key: str) -> None:
    """Refuse a fair metric or parameter that does not exist."""
    from fairfrontier.similarity.registry import METRICS

    known = METRICS.all()
    name = metric.get("name", "")
    refuse_unknown([name], list(known), f"{key}: there is no fair metric")
    parameters = {parameter: value for parameter, value in metric.items() if parameter != "name"}
    with _naming(key):
        check_names(known[name], f"the metric {name}", parameters)
        check_types(known[name], f"the metric {name}", parameters)


# Expanding a study into the fit groups that it trains.

# The most models trained together: more are hardly faster, and a long sweep would leave cores idle.
BATCH_SIZE = 5


@dataclass(frozen=True)
class Planned:
    """A fit group, trained once, and the blocks of the study that show it."""

    blocks: tuple[Block, ...]
    group: FitGroup


def expand(resolved: ResolvedStudy) -> tuple[Planned, ...]:
    """Return the fit groups of a study; see `expand_rows`."""
    return expand_rows(resolved.study.study, resolved.rows)


def expand_rows(study: str, rows: Sequence[ResolvedRow]) -> tuple[Planned, ...]:
    """Return the fit groups of resolved rows, those of the published block first.

    There is one per row × sweep value × seed; a batched method has groups of up to BATCH_SIZE
    values and seeds of a row that share their structure. A fit that both blocks ask for comes once,
    with both named. ``setting`` holds what the row itself says (preset, grid, swept and fixed
    parameters, metric, post-processor), the rows and the part selected on: enough that (dataset,
    method, setting, seed) names one fit, whatever the profile. A ConfigError refuses two different
    fits with the same name.
    """
    where = f"Study {study}"
    batches: dict[str, tuple[ResolvedRow, list[Member], list[Block]]] = {}
    names: dict[tuple[str, str, int], tuple[ResolvedRow, str]] = {}
    shared: Counter[tuple[str, Block]] = Counter()
    for row in rows:
        for seed in row.seeds:
            name = (row.shared["method"], canonical_json(row.setting), seed)
            together: dict[str, Any] = {
                "of": row.shared,
                "block": row.block,
                "structure": row.structure,
            }
            if not row.across_splits:
                together |= {"seed": seed, "noise": row.noise}
            batch = canonical_json(together if row.structure is not None else {"name": name})
            if name in names:
                other, batch = names[name]
                if not row.trains_like(other):
                    raise ConfigError(
                        f"{where}: two different fits are both called {name[0]} {name[1]}.",
                        "Give one of the rows another label.",
                    )
                batches[batch][2].append(row.block)
                shared[batch, row.block] += 1
                continue
            names[name] = (row, batch)
            members = batches.setdefault(batch, (row, [], [row.block]))[1]
            members.append(Member(seed, row.parameters, row.setting, row.noise))
    for (batch, block), count in shared.items():
        row, of_batch, _ = batches[batch]
        if count < len(of_batch):
            raise ConfigError(
                f"{where}: the {block} block asks for {count} of the {len(of_batch)} "
                f"fits of {row.shared['method']} that the {row.block} block trains at once.",
                "Ask for the same seeds and values in both, or give one of the rows another label.",
            )
    return tuple(
        Planned(tuple(dict.fromkeys(blocks)), FitGroup(**row.shared, members=part))
        for row, members, blocks in batches.values()
        for part in _share_out(members)
    )


def _share_out(members: Sequence[Member]) -> Iterator[tuple[Member, ...]]:
    """Yield parts of at most BATCH_SIZE members, of sizes as equal as possible."""
    parts = -(-len(members) // BATCH_SIZE)
    cuts = [len(members) * part // parts for part in range(parts + 1)]
    for first, stop in itertools.pairwise(cuts):
        yield tuple(members[first:stop])


# Where the store keeps the models of a study, so that a chosen one can be loaded.

COLUMNS = ("method", "setting", "seed", "model", "post_processor", "needs_groups")


def list_models(plan: Sequence[Planned], store: Store, home: Path) -> pd.DataFrame:
    """Return the folder of every stored model of a study: a frame with the columns ``COLUMNS``.

    ``model`` is a folder for `load_model` and ``post_processor`` that of the rule that decides from
    the model's scores, empty without one; both are relative to ``home``. ``needs_groups`` says
    whether the group of a row is needed to decide on it. Skipped methods have no row.
    """
    rows = []
    for planned in plan:
        group = planned.group
        entry = store.path(KIND, key(group, store, home))
        base = entry if group.then is None else store.path(KIND, key(group.base, store, home))
        for number, member in enumerate(group.members):
            folder = f"model-{number}"
            if not (entry / folder).is_dir():
                continue
            rule = "" if group.then is None else _name(entry / folder, home)
            name = (group.method, canonical_json(member.setting), member.seed)
            rows.append((*name, _name(base / folder, home), rule, needs_groups(group)))
    table = pd.DataFrame(rows, columns=list(COLUMNS)).drop_duplicates(ignore_index=True)
    return table.sort_values(["method", "setting", "seed"], kind="stable", ignore_index=True)


def needs_groups(group: FitGroup) -> bool:
    """Return whether models of a fit group have to be told a row's group when they decide."""
    deciding = [group.estimator, *([] if group.then is None else [str(group.then["method"])])]
    known = filter(None, map(METHODS.get, deciding))
    return any("sensitive_features" in method.predict_needs for method in known)


def _name(folder: Path, home: Path) -> str:
    return Path(os.path.relpath(folder, home)).as_posix()
