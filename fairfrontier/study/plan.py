"""Reading a study, checking all that it names, and unfolding it into fit groups."""

from __future__ import annotations

import inspect
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairfrontier.prepare.config.dataset import (
    DatasetConfig,
    read_dataset,
    read_lineage,
    replace_noise,
)
from fairfrontier.runtime.config import parse, read_yaml
from fairfrontier.runtime.errors import ConfigError, nearest
from fairfrontier.runtime.finder import FOLDERS, find_yaml, is_path
from fairfrontier.runtime.home import find_home
from fairfrontier.runtime.store import canonical_json
from fairfrontier.study.check import mentions_certified, refuse_figures, refuse_measures
from fairfrontier.study.claim import Block, refuse_claims
from fairfrontier.study.config import DEFAULT_PROFILE, FIXED_KEYS, MethodRow, StudyConfig, ThenRow
from fairfrontier.study.method_file import MethodFile

if TYPE_CHECKING:
    from fairfrontier.train.base import Estimator
    from fairfrontier.train.fit.group import FitGroup, Member

# Models trained at once at most: more are hardly faster, and a long sweep would leave cores idle.
AT_ONCE = 5


@dataclass(frozen=True)
class Planned:
    """A fit group and the blocks of the study that show it.

    Attributes
    ----------
    blocks : tuple of {"published", "frontier"}
        At least one; a group that both blocks ask for is trained once.
    group : FitGroup
        What is trained.
    """

    blocks: tuple[Block, ...]
    group: FitGroup


def studies(home: Path | None = None) -> dict[str, Path]:
    """Return the project's own studies, name -> YAML file, sorted by name."""
    folder = (home or find_home()) / FOLDERS["study"]
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def load_study(
    name_or_path: str | Path, profile: str = DEFAULT_PROFILE, home: Path | None = None
) -> StudyConfig:
    """Read a study and lay a profile over it.

    Parameters
    ----------
    name_or_path : str or Path
        A name in ``conf/studies``, the project's or the package's, or the path of a YAML file.
    profile : str, default "default"
        How much is run; ``default`` is the study as it stands.
    home : Path, optional
        The project root; found from the current folder by default.

    Returns
    -------
    StudyConfig
        Frozen. Names of methods, presets, parameters, datasets and measures have been checked.

    Raises
    ------
    ConfigError
        Naming the file, the key and what was expected.
    """
    home = home or find_home()
    path = find_yaml("study", name_or_path, home)
    content = read_yaml(path)
    if not isinstance(content, dict):
        raise ConfigError(f"{path} holds no keys and values.", "Write it as `key: value` lines.")
    if "profile" in content:
        raise ConfigError(f"{path}: there is no key 'profile' here.", "Did you mean 'profiles'?")
    content.setdefault("study", path.stem)
    profiles = content.get("profiles") or {}
    if not isinstance(profiles, dict) or not all(isinstance(p, dict) for p in profiles.values()):
        raise ConfigError(
            f"{path}: profiles must map each profile's name to what it changes.",
            "Write profiles: {paper: {seeds: 10}}, for example.",
        )
    if profile != DEFAULT_PROFILE and profile not in profiles:
        raise ConfigError(
            f"{path} has no profile {profile!r}.", nearest(profile, (DEFAULT_PROFILE, *profiles))
        )
    # Every profile is parsed: a fault in one shows at once, not on the night it is first run.
    parsed = {
        each: _parse(_merge(content, changes), path, each, changes)
        for each, changes in {DEFAULT_PROFILE: {}, **profiles}.items()
    }
    study = parsed[profile]
    file = find_yaml("dataset", study.dataset, home, beside=path.parent, where=f"{path}: dataset")
    if is_path(study.dataset):
        study = study.model_copy(update={"dataset": str(file)})
    refuse_measures(study, path, home)
    refuse_figures(study, path, home)
    settings: dict[Block, list[tuple[str, Mapping[str, Any]]]] = {}
    for row in _settle(study, home, path):
        settings.setdefault(row.block, []).append((row.shared["method"], row.setting))
    refuse_claims(study, settings, path)
    return study


def expand(study: StudyConfig, home: Path | None = None) -> tuple[Planned, ...]:
    """Unfold a study into the fit groups that it trains.

    Parameters
    ----------
    study : StudyConfig
        The study, from ``load_study``.
    home : Path, optional
        The project root, for the presets in ``conf/methods``.

    Returns
    -------
    tuple of Planned
        One per row x sweep value x seed, the published block first; a fit that both blocks ask
        for comes once, with both named. A batched method has groups of up to AT_ONCE
        values and seeds of a row that share their structure.

    Raises
    ------
    ConfigError
        When a row asks for what does not exist, or two different fits would carry the same
        method, setting and seed in the results.

    Notes
    -----
    ``setting`` holds what the row says itself (preset, grid, swept and fixed parameters, metric,
    post-processor), the rows and the part selected on: enough that (dataset, method, setting,
    seed) names one fit, whatever the profile.
    """
    # Estimators import their libraries; a study can be read and listed without them.
    from fairfrontier.train.fit.group import FitGroup, Member

    home = home or find_home()
    batches: dict[str, tuple[_Row, list[Member], list[Block]]] = {}
    names: dict[tuple[str, str, int], tuple[_Row, str]] = {}
    shared: Counter[tuple[str, Block]] = Counter()
    for row in _settle(study, home, None):
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
                other, where = names[name]
                if not row.trains_like(other):
                    raise ConfigError(
                        f"Study {study.study}: two different fits are both called {name[0]} "
                        f"{name[1]}.",
                        "Give one of the rows another label.",
                    )
                batches[where][2].append(row.block)
                shared[where, row.block] += 1
                continue
            names[name] = (row, batch)
            members = batches.setdefault(batch, (row, [], [row.block]))[1]
            members.append(Member(seed, row.parameters, row.setting, row.noise))
    for (where, block), count in shared.items():
        row, of_batch, _ = batches[where]
        if count < len(of_batch):
            raise ConfigError(
                f"Study {study.study}: the {block} block asks for {count} of the {len(of_batch)} "
                f"fits of {row.shared['method']} that the {row.block} block trains at once.",
                "Ask for the same seeds and values in both, or give one of the rows another label.",
            )
    return tuple(
        Planned(tuple(dict.fromkeys(blocks)), FitGroup(**row.shared, members=part))
        for row, members, blocks in batches.values()
        for part in _share_out(members)
    )


def _share_out(members: Sequence[Member]) -> Iterator[tuple[Member, ...]]:
    """Yield parts of AT_ONCE members at most, as equal as can be."""
    parts = -(-len(members) // AT_ONCE)
    cuts = [len(members) * part // parts for part in range(parts + 1)]
    for first, stop in itertools.pairwise(cuts):
        yield tuple(members[first:stop])


@dataclass(frozen=True)
class _Row:
    """One row of a block at one value of its sweep.

    ``shared`` has the fields of FitGroup that all its members share; ``structure`` is what models
    of a batched method must share besides, and None for other methods; ``across_splits`` says
    whether they may be of different splits.
    """

    block: Block
    seeds: tuple[int, ...]
    shared: dict[str, Any]
    parameters: dict[str, Any]
    setting: dict[str, Any]
    noise: float | None
    structure: list[Any] | None
    across_splits: bool

    def trains_like(self, other: _Row) -> bool:
        """Tell whether both rows train the same model."""
        mine, theirs = (
            (each.shared, each.parameters, each.noise, each.structure) for each in (self, other)
        )
        return mine == theirs


def _merge(content: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Lay ``changes`` over ``content``: mappings merge, anything else replaces."""
    merged = dict(content)
    for key, value in changes.items():
        below = merged.get(key)
        both = isinstance(below, Mapping) and isinstance(value, Mapping)
        merged[key] = _merge(below, value) if both else value  # type: ignore[arg-type]
    return merged


def _parse(
    content: dict[str, Any], path: Path, profile: str, changes: Mapping[str, Any]
) -> StudyConfig:
    """Parse a merged study; the first fault becomes a ConfigError."""
    where = str(path) if profile == DEFAULT_PROFILE else f"{path}, profile {profile}"
    for key in FIXED_KEYS:
        if key in changes:
            raise ConfigError(f"{where}: a profile cannot change {key!r}.", "Take it out.")
    return parse(StudyConfig, {**content, "profile": profile}, where)


def _shows_curve(study: StudyConfig, home: Path) -> bool:
    """Tell whether the published table is a curve, along which settings are points."""
    from fairfrontier.reproduce.publication import read_publication

    if study.published is None:
        return False
    try:
        publication, table = read_publication(study.published.reproduces, home)
    except ConfigError:
        # A table that is not there is refused where it is needed.
        return False
    return publication.tables[table].along is not None


def _settle(study: StudyConfig, home: Path, path: Path | None) -> Iterator[_Row]:
    """Yield every row of both blocks at every value of its sweep, checked."""
    from fairfrontier.train.registry import METHODS

    registered = METHODS.all()
    where = str(path) if path else f"Study {study.study}"
    file = find_yaml("dataset", study.dataset, home)
    lineage = read_lineage(file, home)
    config = read_dataset(file, home)
    for block, rows, select_on in study.blocks():
        for label, row in rows.methods.items():
            key = f"{where}: {'published.' if block == 'published' else ''}methods.{label}"
            if block == "published" and row.sweeps and not _shows_curve(study, home):
                raise ConfigError(
                    f"{key} lists several values, and a row of a published table has one setting.",
                    "Give each value a row of its own, or sweep in the frontier's block.",
                )
            name = row.method or label
            if name not in registered:
                raise ConfigError(f"{key}: there is no method {name!r}.", nearest(name, registered))
            presets = MethodFile.read(name, home)
            preset = presets.preset(row.preset, lineage, key)
            own_metric = preset.pop("metric", {})
            grid = presets.grid(row.grid, key)
            _check_parameters(
                registered[name],
                (*preset, *grid, *row.parameters),
                key,
                MethodRow.model_fields,
            )
            metric = _merge_metric(study.metric or {}, own_metric, row.metric)
            if metric is not None:
                _check_metric(metric, key)
            elif "metric" in registered[name].fit_needs:
                raise ConfigError(
                    f"{key}: {name} needs a fair metric, and the study names none.",
                    "Add metric: {name: subspace} to the study.",
                )
            for noise in row.noise or ():
                replace_noise(config, noise, file)
            for chosen, noise, (then, told) in itertools.product(
                _sweep({**grid, **row.parameters}),
                row.noise or (None,),
                list(_settle_then(row.then, lineage, config, registered, home, key)),
            ):
                parameters = {**preset, **chosen}
                model = _make_model(registered[name], parameters, key)
                setting = {
                    **chosen,
                    **({"preset": row.preset} if row.preset else {}),
                    **({"metric": row.metric} if row.metric else {}),
                    **({"noise": noise} if noise is not None else {}),
                    **told,
                    **({"rows": rows.rows} if rows.rows is not None else {}),
                    "select_on": select_on,
                }
                shared = {
                    "dataset": study.dataset,
                    "method": label,
                    "estimator": name,
                    # A method that takes no metric is not fitted anew when the metric changes.
                    "metric": metric if "metric" in registered[name].fit_takes else None,
                    "rows": rows.rows,
                    "select_on": select_on,
                    "threads": study.threads,
                    "certificate": _certificate(study),
                    "minimum": study.minimum,
                    "then": then,
                }
                structure = list(model.structure()) if model.batched else None
                across = registered[name].across_splits
                yield _Row(block, rows.seeds, shared, parameters, setting, noise, structure, across)


def _settle_then(
    row: ThenRow | None,
    lineage: Sequence[str],
    config: DatasetConfig,
    registered: Mapping[str, type[Estimator]],
    home: Path,
    key: str,
) -> Iterator[tuple[dict[str, Any] | None, dict[str, Any]]]:
    """Yield every setting of a post-processor, checked: what is fitted, and what is shown of it."""
    if row is None:
        yield None, {}
        return
    from fairfrontier.train.postprocess.base import PostProcessor

    where = f"{key}.then"
    known = {name: each for name, each in registered.items() if issubclass(each, PostProcessor)}
    if row.method not in known:
        raise ConfigError(
            f"{where}: there is no post-processor {row.method!r}.", nearest(row.method, known)
        )
    preset = MethodFile.read(row.method, home).preset(row.preset, lineage, where)
    _check_parameters(known[row.method], (*preset, *row.parameters), where, ThenRow.model_fields)
    if "scale" in {*preset, *row.parameters}:
        raise ConfigError(
            f"{where}: behind a method scores are its probabilities.", "Leave out scale."
        )
    for chosen in _sweep(row.parameters):
        parameters = {**preset, **chosen}
        _check_attributes(known[row.method], parameters, config, where)
        _make_model(known[row.method], parameters, where)
        told = {f"then.{name}": value for name, value in chosen.items()}
        if row.preset:
            told["then.preset"] = row.preset
        yield {"method": row.method, **parameters}, {"then": row.method, **told}


def _check_attributes(
    method: type[Estimator], parameters: Mapping[str, Any], config: DatasetConfig, key: str
) -> None:
    """Refuse group attributes that the dataset does not have, before any model is trained."""
    for name in method.group_parameters:
        value = parameters.get(name)
        for each in value if isinstance(value, list | tuple) else [value]:
            if each is None or isinstance(each, int) or each in config.groups:
                continue
            raise ConfigError(
                f"{key}: {name} is {each!r}, which is no group attribute of {config.dataset}.",
                nearest(str(each), config.groups),
            )


def _check_parameters(
    method: type[Estimator], given: Iterable[str], key: str, fields: Iterable[str]
) -> None:
    """Refuse what a method does not take; ``fields`` are the other keys of its row."""
    accepted = list(inspect.signature(method).parameters)
    for each in given:
        if each not in accepted:
            raise ConfigError(
                f"{key}: {method.name} takes no parameter {each!r}.",
                nearest(each, (*accepted, *fields)),
            )


def _merge_metric(*layers: Mapping[str, Any]) -> dict[str, Any] | None:
    """Lay metrics over each other; one that names another learner starts anew."""
    merged: dict[str, Any] = {}
    for layer in layers:
        if "name" in layer and layer["name"] != merged.get("name"):
            merged = {}
        merged = {**merged, **layer}
    return merged or None


def _certificate(study: StudyConfig) -> dict[str, Any] | None:
    if study.certificate is None:
        return None
    asked = study.certificate
    return {
        "metric": study.metric,
        "budgets": list(asked.budgets),
        "rows": asked.rows,
        "parts": ["test", "validation"] if mentions_certified(study, "validation") else ["test"],
    }


def _make_model(method: type[Estimator], parameters: Mapping[str, Any], key: str) -> Estimator:
    """Let the method refuse values that cannot be, before hours are spent on other rows."""
    try:
        model = method(**parameters)
        model.check()
    except ConfigError as error:
        raise ConfigError(f"{key}: {error.fault}", error.mend) from error
    except TypeError as error:
        raise ConfigError(
            f"{key}: a parameter has a value of the wrong type ({error}).",
            "Write numbers as numbers and names as names.",
        ) from error
    return model


def _sweep(parameters: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield every combination of the listed values."""
    for name, each in parameters.items():
        if each == []:
            raise ConfigError(f"{name} lists no value to sweep.", "List one, or leave it out.")
    values: list[Iterable[Any]] = [
        each if isinstance(each, list) else [each] for each in parameters.values()
    ]
    for combination in itertools.product(*values):
        yield dict(zip(parameters, combination, strict=True))


def _check_metric(metric: Mapping[str, Any], key: str) -> None:
    """Check the name of a fair metric and of its parameters."""
    from fairfrontier.metric.registry import METRICS

    known = METRICS.all()
    name = metric.get("name", "")
    if name not in known:
        raise ConfigError(f"{key}: there is no fair metric {name!r}.", nearest(str(name), known))
    accepted = [each for each in inspect.signature(known[name]).parameters if each != "split"]
    for given in metric:
        if given != "name" and given not in accepted:
            raise ConfigError(
                f"{key}: the metric {name} takes no parameter {given!r}.", nearest(given, accepted)
            )
