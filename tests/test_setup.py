"""Which Python .ci/setup takes: on a PATH of stubs, which install nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
NAMES = ("python3", "python3.13", "python3.12", "python3.11", "python")
# Answers as a Python of the version that its folder has beside its name, or is none.
STUB = f"""\
#!/bin/sh
echo "${{0##*/}} $1 $2" >>log
version=$(cat "$0.version" 2>/dev/null) || exit 127
case "$1 $2" in
"- "*)
    exec '{sys.executable}' -ISc "import sys
sys.version_info = tuple(map(int, '$version'.split('.')))
exec(sys.stdin.read())" "$2" ;;
"-m venv")
    mkdir -p "$4/bin"
    cp "$0" "$4/bin/python"
    cp "$0.version" "$4/bin/python.version" ;;
esac
"""


class Machine:
    """A copy of the script beside a lock, and the versions of what the PATH has by name."""

    def __init__(self, home: Path) -> None:
        self.home = home
        for folder in (".ci", "bin"):
            (home / folder).mkdir()
        shutil.copy(ROOT / ".ci" / "setup", home / ".ci")
        (home / "some.lock").write_text("one")
        for name in (*NAMES, "uv"):
            (home / "bin" / name).write_text(STUB)
            (home / "bin" / name).chmod(0o755)

    def set_up(
        self, versions: dict[str, str], *arguments: str, python: str = ""
    ) -> subprocess.CompletedProcess[str]:
        (self.home / "log").write_text("")
        for path in (self.home / "bin").glob("*.version"):
            path.unlink()
        for name, version in versions.items():
            (self.home / "bin" / f"{name}.version").write_text(version)
        words = [self.home / ".ci" / "setup", "some.lock", "made", *arguments]
        path = os.pathsep.join([str(self.home / "bin"), os.defpath])
        return subprocess.run(
            words, env={"PATH": path, "PYTHON": python}, capture_output=True, text=True
        )

    def made_by(self) -> list[str]:
        """Return which Pythons have made the environment."""
        lines = (self.home / "log").read_text().splitlines()
        return [line.split()[0] for line in lines if line.endswith(" -m venv")]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


OLD = {"python3": "3.10.4"}
NEW = {"python3": "3.13.1", "python3.13": "3.13.1", "python3.12": "3.12.9"}


@pytest.mark.parametrize(
    ("versions", "newest", "python", "maker"),
    [
        (NEW, None, "", "python3"),
        (NEW, "3.13", "", "python3"),
        (NEW, "3.12", "", "python3.12"),
        (NEW, "3.12", "python3.13", "python3.12"),
        (NEW, None, "python3.12", "python3.12"),
        (NEW | {"python3.11": "3.11.0"}, "3.12", "python3.11", "python3.11"),
        (NEW | {"python3.11": "3.11.0"}, "3.11", "", "python3.11"),
        (OLD | {"python": "3.12.0"}, "3.12", "", "python"),
        (NEW, "3.11", "", None),
        (NEW | {"python3": "3.14.0"}, None, "python3", None),
        (OLD, "3.12", "", None),
    ],
)
def test_the_first_python_that_fits_makes_the_environment(machine, versions, newest, python, maker):
    found = machine.set_up(versions, *([newest] if newest else []), python=python)
    made = machine.home / "made"
    if maker is None:
        assert found.returncode == 2
        assert f"some.lock needs a Python from 3.11 to {newest or 3.13}, and none" in found.stderr
        assert f"PYTHON=/path/to/python{newest or 3.13}\n" in found.stderr
        assert not made.exists()
        return
    assert found.returncode == 0, found.stderr
    assert machine.made_by() == [maker]
    assert (made / "bin" / "python.version").read_text() == versions[maker]
    assert (made / "some.lock").read_text() == "one"


def test_an_environment_of_a_python_that_is_too_new_is_made_again(machine):
    for lock, newest, makers in [
        ("one", "3.13", ["python3"]),
        ("one", "3.12", []),
        ("two", "3.13", []),
        ("three", "3.12", ["python3.12"]),
        ("four", "3.13", []),
    ]:
        (machine.home / "some.lock").write_text(lock)
        assert machine.set_up(NEW, newest).returncode == 0
        assert machine.made_by() == makers
        assert (machine.home / "made" / "some.lock").read_text() == lock
    assert (machine.home / "made" / "bin" / "python.version").read_text() == NEW["python3.12"]


def test_one_peer_wants_an_older_python(tmp_path):
    (tmp_path / ".ci").mkdir()
    stub = tmp_path / ".ci" / "setup"
    stub.write_text('#!/bin/sh\necho "$@"\n')
    stub.chmod(0o755)
    words = ["make", "--no-print-directory", "-f", ROOT / "Makefile", "peers"]
    text = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    asked = [line.split() for line in text.splitlines()]
    assert all((ROOT / line[0]).exists() for line in asked)
    assert {line[1]: line[2:] for line in asked} == {
        ".peers/fairlearn": [],
        ".peers/fairgbm": ["3.12"],
        ".peers/aedt": [],
    }
