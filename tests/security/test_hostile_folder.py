"""Commands in a folder in which somebody else has laid what steers or stops them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.project import environment

CONTROL = "\x1b]0;owned\x07\x1b]52;c;ZXZpbA==\x07"


@pytest.fixture
def folder(tmp_path):
    for kind in ("studies", "datasets", "clusters"):
        (tmp_path / "conf" / kind).mkdir(parents=True)
        os.mkfifo(tmp_path / "conf" / kind / "pipe.yaml")
    return tmp_path


def call(folder, *arguments, **changes):
    """Run a command in a process of its own: one that has matplotlib reads no settings."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "fairfrontier", *arguments],
        cwd=folder,
        env=environment(folder, **changes),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert "Traceback" not in done.stderr
    assert not {"\x1b", "\x07"} & {*done.stdout, *done.stderr}
    return done


@pytest.mark.once
def test_no_pipe_in_the_place_of_yaml_is_waited_for(folder):
    for command in (["list", "studies"], ["run", "pipe"], ["prepare", "pipe"]):
        done = call(folder, *command)
        assert (done.returncode, "there is no file pipe.yaml" in done.stderr) == (2, True), command
    asked = {"COMP_WORDS": "fairfrontier run pipe --profile ", "COMP_CWORD": "4"}
    call(folder, _FAIRFRONTIER_COMPLETE="complete_bash", **asked)


def test_doctor_says_what_stands_in_the_way(folder):
    settings = folder / "matplotlibrc"
    settings.write_text(f"lines.linewidth: {CONTROL}\nbad{CONTROL}: x\n")
    done = call(folder, "doctor")
    assert "cluster pipe: " in done.stdout
    assert "linewidth" in done.stderr
    settings.unlink()
    os.mkfifo(settings)
    done = call(folder, "doctor")
    assert "wrong   matplotlib: The file matplotlibrc" in done.stdout
    assert "Remove or correct" in done.stdout
