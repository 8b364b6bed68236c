"""What a release brings beside its code: a bill of materials, how to cite it, what others run."""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
SBOM = ROOT / ".ci" / "sbom.py"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_bill_of_materials_lists_the_lock_with_licences(tmp_path):
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    made = []
    for seed in "12":
        command = [sys.executable, "-W", "error", str(SBOM), str(tmp_path / seed)]
        subprocess.run(command, env=os.environ | {"PYTHONHASHSEED": seed}, check=True)
        (path,) = (tmp_path / seed).iterdir()
        made.append(path.read_text())
    assert made[0] == made[1]
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(made[0]) is None
    bill = json.loads(made[0])
    assert bill["metadata"]["component"]["version"] == PROJECT["version"]
    lock = (ROOT / "requirements.lock").read_text()
    pins = re.findall(r"^([\w.-]+)(?:\[.*?\])?==(\S+)", lock, re.M)
    assert sorted((part["name"], part["version"]) for part in bill["components"]) == sorted(pins)
    hashes = [entry["content"] for part in bill["components"] for entry in part["hashes"]]
    assert sorted(hashes) == sorted(re.findall(r"sha256:(\w+)", lock))
    assert all(part["licenses"] for part in bill["components"])


@pytest.mark.parametrize(
    ("licence", "allowed"),
    [
        ("MIT", True),
        ("GPL-3.0-only", False),
        ("MIT AND GPL-3.0-only", False),
        ("MIT OR GPL-3.0-only", True),
        ("MPL-2.0 AND (Apache-2.0 OR AGPL-3.0-only)", True),
    ],
)
def test_licences_are_held_to_the_list(licence, allowed):
    assert runpy.run_path(str(SBOM))["is_allowed"](licence) is allowed


def test_a_licence_that_nobody_has_read_is_an_error(monkeypatch):
    from email.message import Message

    vague = Message()
    vague["License"] = "BSD"
    vague["Classifier"] = "License :: OSI Approved :: BSD License"
    find_licence = runpy.run_path(str(SBOM))["find_licence"]
    monkeypatch.setitem(find_licence.__globals__, "metadata", lambda name: vague)
    with pytest.raises(SystemExit, match="unread does not say its licence clearly"):
        find_licence("unread")


def test_the_citation_is_of_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    required = {"cff-version", "message", "title", "authors"}
    assert required <= citation.keys()
    assert citation["cff-version"] == "1.2.0"
    assert citation["version"] == PROJECT["version"]
    assert citation["license"] == PROJECT["license"]
    heading = f"## {citation['version']} - {citation['date-released']}"
    assert heading in (ROOT / "CHANGELOG.md").read_text().splitlines()


def test_workflows_only_call_what_runs_in_a_checkout():
    paths = sorted((ROOT / ".github" / "workflows").iterdir())
    assert paths
    for path in paths:
        workflow = yaml.safe_load(path.read_text())
        assert workflow["permissions"] == {"contents": "read"}
        for job in workflow["jobs"].values():
            matrix = job["strategy"]["matrix"]
            assert matrix["command"] == [".ci/run", "make docs", "make wheel"]
            runs = [step["run"] for step in job["steps"] if "run" in step]
            assert runs == ["${{ matrix.command }}"]
            uses = [step["uses"] for step in job["steps"] if "uses" in step]
            assert all(re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40}", name) for name in uses)


def test_what_is_locked_agrees():
    checked = subprocess.run([sys.executable, "-m", "pip", "check"], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout
