"""The changelog keeps its format, and its newest version is the project's."""

from __future__ import annotations

import datetime
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
KINDS = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"]


def read(text: str) -> dict[str, dict[str, list[str]]]:
    """Return the entries of every version, by kind; what breaks the format is an error."""
    versions: dict[str, dict[str, list[str]]] = {}
    for section in re.split(r"^## ", text, flags=re.M)[1:]:
        version, *parts = re.split(r"^### ", section, flags=re.M)
        kinds = versions.setdefault(version.splitlines()[0], {})
        for part in parts:
            kind, _, body = part.partition("\n")
            assert kind not in kinds, f"{kind} stands twice"
            kinds[kind] = re.split(r"^- *", body, flags=re.M)[1:]
        assert list(kinds) == [kind for kind in KINDS if kind in kinds], "kinds or their order"
        assert all(entry.strip() for entries in kinds.values() for entry in entries), "empty entry"
        assert all(kinds.values()), "a kind without an entry"
    return versions


def test_the_changelog_keeps_its_format():
    unreleased, *released = read((ROOT / "CHANGELOG.md").read_text())
    assert unreleased == "Unreleased"
    versions, dates = zip(*(heading.split(" - ") for heading in released), strict=True)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert versions[0] == project["version"]
    papers = tomllib.loads((ROOT / "papers" / "pyproject.toml").read_text())["project"]
    assert papers["version"] == versions[0]
    assert papers["dependencies"] == [f"fairfrontier[cpu,papers]=={versions[0]}"]
    numbers = [tuple(map(int, version.split("."))) for version in versions]
    assert numbers == sorted(set(numbers), reverse=True)
    days = [datetime.date.fromisoformat(date) for date in dates]
    assert days == sorted(days, reverse=True)


@pytest.mark.parametrize(
    "body",
    [
        "### Mended\n\n- A fault.\n",
        "### Added\n\n",
        "### Added\n\n-\n- A feature.\n",
        "### Fixed\n\n- A fault.\n\n### Added\n\n- A feature.\n",
        "### Added\n\n- A feature.\n\n### Added\n\n- Another.\n",
    ],
)
def test_what_breaks_the_format_is_found(body):
    with pytest.raises(AssertionError):
        read(f"# Changelog\n\n## Unreleased\n\n{body}")
