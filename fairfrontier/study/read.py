"""Reading the YAML of a study, with a profile merged in and what it leaves open chosen."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairfrontier.prepare.config.dataset import DatasetConfig, read_dataset
from fairfrontier.runtime.config import parse, read_yaml
from fairfrontier.runtime.errors import ConfigError, nearest
from fairfrontier.runtime.finder import FOLDERS, find_yaml, is_path
from fairfrontier.study.config import BEST, DEFAULT_PROFILE, ENSEMBLE, FIXED_KEYS, StudyConfig

# Settings that are tried: some four minutes for 50,000 rows on two cores.
TRIALS = 150
# Labels are smoothed, for rules that hold on fresh rows.
RULE = {"labels": "smoothed", "unseen": "pooled"}
# Names of criteria in rows' labels, with those of `group_thresholds`.
CRITERIA = {"parity": "parity", "odds": "equalized_odds"}


def list_studies(home: Path) -> list[str]:
    """Return the sorted names of the project's own studies."""
    return sorted(path.stem for path in (home / FOLDERS["study"]).glob("*.yaml"))


def read_study(name_or_path: str | Path, profile: str, home: Path) -> tuple[StudyConfig, Path]:
    """Return a parsed study with a profile merged in, and its file.

    Of the names in it, only the dataset's file has been looked up. A ConfigError names the file,
    the key and what was expected.
    """
    path = find_yaml("study", name_or_path, home)
    content = read_yaml(path)
    if not isinstance(content, dict):
        raise ConfigError(f"{path} holds no keys and values.", "Write it as `key: value` lines.")
    if "profile" in content:
        raise ConfigError(f"{path}: there is no key 'profile' here.", "Did you mean 'profiles'?")
    if "label" in content:
        # A dataset's own YAML, which the study is about.
        content = {"dataset": str(path), "study": f"{path.stem}-default"}
    content.setdefault("study", path.stem)
    _complete(content, path, home)
    profiles = content.get("profiles") or {}
    if not isinstance(profiles, dict) or not all(
        isinstance(name, str) and isinstance(changes, dict) for name, changes in profiles.items()
    ):
        raise ConfigError(
            f"{path}: profiles must map each profile's name to what it changes.",
            "Write profiles: {paper: {seeds: 10}}, for example; put a number in quotes.",
        )
    if profile != DEFAULT_PROFILE and profile not in profiles:
        raise ConfigError(
            f"{path} has no profile {profile!r}.", nearest(profile, (DEFAULT_PROFILE, *profiles))
        )
    # Every profile is parsed, so that a mistake in one shows before it is first run.
    parsed = {}
    for name, changes in {DEFAULT_PROFILE: {}, **profiles}.items():
        where = str(path) if name == DEFAULT_PROFILE else f"{path}, profile {name}"
        for key in FIXED_KEYS:
            if key in changes:
                raise ConfigError(f"{where}: a profile cannot change {key!r}.", "Take it out.")
        merged = {**_merge(content, changes), "profile": name}
        parsed[name] = parse(StudyConfig, merged, where)
    study = parsed[profile]
    file = find_yaml("dataset", study.dataset, home, beside=path.parent, where=f"{path}: dataset")
    if is_path(study.dataset):
        study = study.model_copy(update={"dataset": str(file)})
    return study, path


def _complete(content: dict[str, Any], path: Path, home: Path) -> None:
    """Add what a study leaves to its dataset: methods with a search, and measures of fairness."""
    frontier = content.get("frontier", {})
    stated = "methods" in content and isinstance(frontier, dict) and "fairness" in frontier
    if stated or not isinstance(frontier, dict) or not isinstance(content.get("dataset"), str):
        return
    where = f"{path}: dataset"
    dataset = read_dataset(
        find_yaml("dataset", content["dataset"], home, beside=path.parent, where=where), home
    )
    content["frontier"] = {"fairness": choose_measures(dataset), **frontier}
    if dataset.label.task == "regression":
        content["frontier"].setdefault("accuracy", "rmse")
    if "methods" not in content:
        content["methods"] = choose_methods(dataset, bool(content.get("metric")))
        content.setdefault("search", {"trials": TRIALS})


def choose_measures(dataset: DatasetConfig) -> list[str]:
    """Return measures of fairness by the dataset's groups and counterfactual sets.

    ConfigError is raised for a dataset that has neither.
    """
    by_group = {
        "binary": ("selection_rate_difference", "gap_max"),
        "multiclass": ("gap_rms",),
        "regression": ("disparity",),
    }[dataset.label.task]
    measures = [f"{measure}:{group}" for group in dataset.groups for measure in by_group]
    if dataset.label.task != "regression":
        measures += [f"consistency:{name}" for name in dataset.set_names]
    if not measures:
        raise ConfigError(
            f"{dataset.dataset} declares neither groups nor counterfactuals.",
            "Say who is to be treated alike: groups: {sex: {column: sex}}, for example.",
        )
    return measures


def choose_methods(dataset: DatasetConfig, has_metric: bool) -> dict[str, dict[str, Any]]:
    """Return the rows of a study: learners, and what makes them fair to each attribute.

    With a fair metric methods of individual fairness are added.
    """
    if dataset.label.task == "regression":
        rows: dict[str, dict[str, Any]] = {"linear_regression": {}, "gbdt_regression": {}}
        for group in dataset.groups:
            rows[f"fair_regression {group}"] = {"method": "fair_regression", "attribute": group}
        return rows
    rows = {"linear": {}, "random_forest": {}}
    if dataset.label.task == "binary":
        rows = {"linear": {}, "gbdt": {}, "random_forest": {}, ENSEMBLE: {}}
        for group in dataset.groups:
            for name, criterion in CRITERIA.items():
                rule = {"method": "group_thresholds", "criterion": criterion, "attributes": group}
                rows[f"{name} {group}"] = {"method": BEST, "then": {**rule, **RULE}}
            # Without groups at decision: the one bounds odds, the other parity.
            rows[f"fair_gbm {group}"] = {"method": "fair_gbm", "attributes": group}
            rows[f"linear_post {group}"] = {
                "method": "linear_post",
                "criterion": "parity",
                "attributes": group,
            }
    if has_metric:
        rows |= {"budro": {}, "sensei": {}}
    return rows


def _merge(content: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Merge ``changes`` into ``content``: mappings merge, anything else is replaced."""
    merged = dict(content)
    for key, value in changes.items():
        below = merged.get(key)
        both = isinstance(below, Mapping) and isinstance(value, Mapping)
        merged[key] = _merge(below, value) if both else value  # type: ignore[arg-type]
    return merged
