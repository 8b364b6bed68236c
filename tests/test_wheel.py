"""What the wheel holds, and that it works where there is no checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
# What is not code: each once in the repository, at the same place below the root.
SHIPPED = {
    *(f"conf/{kind}/*" for kind in ("clusters", "encoders", "methods", "vocabularies")),
    "conf/datasets/german.yaml",
    "conf/studies/german.yaml",
    "data/raw/german.*",
    "data/reference/budro.yaml",
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (path,) = folder.glob("*.whl")
    return path


def test_the_wheel_holds_the_library_and_what_it_needs(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    code = {
        str(path.relative_to(ROOT))
        for pattern in ("*.py", "*.j2", "*.js", "py.typed")
        for path in (ROOT / "fairfrontier").rglob(pattern)
    }
    data = {
        f"fairfrontier/project/{path.relative_to(ROOT)}"
        for pattern in SHIPPED
        for path in ROOT.glob(pattern)
    }
    assert len(data) > 30
    assert {name for name in names if ".dist-info/" not in name} == code | data
    assert (
        "fairfrontier = fairfrontier.cli.command:main"
        in (
            zipfile.ZipFile(wheel).read(next(n for n in names if n.endswith("entry_points.txt")))
        ).decode()
    )


def test_the_unpacked_wheel_works_in_an_empty_folder(wheel, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    (tmp_path / "empty").mkdir()
    code = (
        "import fairfrontier as ff\n"
        "from fairfrontier.runtime.finder import list_names\n"
        "from fairfrontier.study.method_file import MethodFile\n"
        "from pathlib import Path\n"
        "assert ff.load('german').train.X.shape == (800, 62)\n"
        "assert list(list_names('study', Path())) == ['german']\n"
        "assert MethodFile.read('gbdt', Path()).presets\n"
        "assert ff.create('linear').name == 'linear'\n"
        "print(ff.__file__)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path / "empty",
        env={**os.environ, "PYTHONPATH": str(tmp_path / "site")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert str(tmp_path / "site") in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("version", ["3.11", "3.12"])
def test_a_fresh_environment_with_the_wheel_alone(wheel, tmp_path, version):
    python = shutil.which(f"python{version}")
    # pyenv has a shim for every version, which fails where that is not chosen.
    if python is None or subprocess.run([python, "--version"], check=False).returncode:
        pytest.skip(f"there is no Python {version} here")
    subprocess.run([python, "-m", "venv", tmp_path / "venv"], check=True)
    folder = tmp_path / "empty"
    folder.mkdir()

    def call(*command: str) -> str:
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        done = subprocess.run(
            [str(tmp_path / "venv" / "bin" / command[0]), *command[1:]],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    call("python", "-m", "pip", "install", "-q", f"{wheel}[cpu]")
    call("python", "-c", "import fairfrontier as ff; ff.load('german')")
    assert "german" in call("fairfrontier", "list", "datasets")
    absent = "import importlib.util as u; assert not any(map(u.find_spec, ('tasks', 'flows')))"
    call("python", "-c", absent)
    call("fairfrontier", "run", "german")
    assert (folder / "data" / "results" / "german" / "frontier.csv").is_file()
