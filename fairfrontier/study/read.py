"""Reading a study: its YAML, with a profile laid over it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairfrontier.runtime.config import parse, read_yaml
from fairfrontier.runtime.errors import ConfigError, nearest
from fairfrontier.runtime.finder import FOLDERS, find_yaml, is_path
from fairfrontier.study.config import DEFAULT_PROFILE, FIXED_KEYS, StudyConfig


def studies(home: Path) -> dict[str, Path]:
    """Return the project's own studies, name -> YAML file, sorted by name."""
    folder = home / FOLDERS["study"]
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def read_study(name_or_path: str | Path, profile: str, home: Path) -> tuple[StudyConfig, Path]:
    """Read a study's YAML and lay a profile over it.

    Parameters
    ----------
    name_or_path : str or Path
        A name in ``conf/studies``, the project's or the package's, or the path of a YAML file.
    profile : str
        How much is run; ``default`` is the study as it stands.
    home : Path
        The project root.

    Returns
    -------
    study : StudyConfig
        Parsed; nothing that it names has been looked up, but for the file of its dataset.
    path : Path
        The file.

    Raises
    ------
    ConfigError
        Naming the file, the key and what was expected.
    """
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
    return study, path


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
