"""What wheel and source distribution hold, and that they work where there is no checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
# What is not code: each once in the repository, at the same place below the root.
SHIPPED = {
    *(f"conf/{kind}/*" for kind in ("clusters", "encoders", "methods", "vocabularies")),
    "conf/datasets/german.yaml",
    "data/raw/german.*",
}
STUDY = "fairfrontier/project/conf/studies/german.yaml"


def build(project: Path, folder: Path, umask: int = -1) -> tuple[Path, Path]:
    """Build what `make wheel` builds; return the source distribution and the wheel."""
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    subprocess.run(command, cwd=project, check=True, capture_output=True, umask=umask)
    (source,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return source, wheel


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return build(ROOT, tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def wheel(built: tuple[Path, Path]) -> Path:
    return built[1]


@pytest.mark.once
def test_the_source_distribution_builds_the_same_bytes_elsewhere(built, tmp_path):
    shutil.unpack_archive(built[0], tmp_path, filter="data")
    (copy,) = tmp_path.iterdir()
    for path in [copy, *copy.rglob("*")]:
        path.chmod(path.stat().st_mode & 0o700)
        os.utime(path, (1e9, 1e9))
    # What work leaves behind in a checkout.
    for stray in (
        ".venv/a.py",
        "data/cache/a",
        "data/results/german/frontier.csv",
        "fairfrontier/__pycache__/a.pyc",
        "notes.txt",
        "tests/.hypothesis/a",
    ):
        (copy / stray).parent.mkdir(parents=True, exist_ok=True)
        (copy / stray).write_text("a")
    again = build(copy, tmp_path / "dist", umask=0o077)
    assert [path.name for path in again] == [path.name for path in built]
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in built]


def test_the_source_distribution_holds_the_repository(built):
    if not (ROOT / ".git").exists():
        pytest.skip("this is no checkout")
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True)
    # A link to a folder becomes its files.
    tracked = {path for path in listed.stdout.decode().splitlines() if (ROOT / path).is_file()}
    with tarfile.open(built[0]) as archive:
        assert tracked <= {name.partition("/")[2] for name in archive.getnames()}


def test_the_wheel_holds_the_library_and_what_it_needs(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    code = {
        str(path.relative_to(ROOT))
        for pattern in ("*.py", "*.j2", "*.js", "*.yaml", "py.typed")
        for path in (ROOT / "fairfrontier").rglob(pattern)
    }
    data = {
        f"fairfrontier/project/{path.relative_to(ROOT)}"
        for pattern in SHIPPED
        for path in ROOT.glob(pattern)
    }
    assert len(data) > 20
    assert {name for name in names if ".dist-info/" not in name} == code | data | {STUDY}
    assert (
        "fairfrontier = fairfrontier.__main__:main"
        in (
            zipfile.ZipFile(wheel).read(next(n for n in names if n.endswith("entry_points.txt")))
        ).decode()
    )


@pytest.mark.once
def test_the_unpacked_wheel_works_in_an_empty_folder(wheel, tmp_path):
    shutil.unpack_archive(wheel, tmp_path / "site", format="zip")
    (tmp_path / "empty").mkdir()
    # What is installed here, but for this checkout.
    (tmp_path / "others").mkdir()
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if "fairfrontier" not in path.name:
            (tmp_path / "others" / path.name).symlink_to(path)
    paths = os.pathsep.join([str(tmp_path / "site"), str(tmp_path / "others")])

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-S", *words],
            cwd=tmp_path / "empty",
            env={**os.environ, "PYTHONPATH": paths},
            capture_output=True,
            text=True,
            check=False,
        )

    code = (
        "import fairfrontier as ff\n"
        "from fairfrontier.runtime.finder import list_names\n"
        "from fairfrontier.study.config import MethodFile\n"
        "from pathlib import Path\n"
        "assert ff.load('german').train.X.shape == (800, 62)\n"
        "assert list(list_names('study', Path())) == ['german']\n"
        "assert MethodFile.read('gbdt', Path()).presets\n"
        "assert ff.create('linear').name == 'linear'\n"
        "print(ff.__file__)\n"
    )
    done = call("-c", code)
    assert done.returncode == 0, done.stderr
    assert str(tmp_path / "site") in done.stdout
    listed = call("-m", "fairfrontier", "list", "methods", "--json")
    assert '"budro"' in listed.stdout
    assert '"hardt"' not in listed.stdout
    small = (
        "dataset: german\nmethods: {linear: {}}\nfrontier: {fairness: ['gap_rms:age']}\nseeds: 1\n"
    )
    (tmp_path / "empty" / "small.yaml").write_text(small)
    ran = call("-m", "fairfrontier", "run", "small.yaml", "--cluster", "inline")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    study = (ROOT / "conf" / "studies" / "german.yaml").read_text()
    (tmp_path / "empty" / "held.yaml").write_text(study.replace("study: german", "study: held"))
    refused = call("-m", "fairfrontier", "run", "held.yaml")
    assert refused.returncode == 2
    assert "fairfrontier-papers" in refused.stderr


@pytest.mark.slow
@pytest.mark.parametrize("locked", [False, True], ids=["newest", "locked"])
@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_a_fresh_environment_with_the_wheel_alone(wheel, tmp_path, version, locked):
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

    install = ("python", "-m", "pip", "install", "-q")
    if locked:
        lock = str(ROOT / "requirements.lock")
        call(*install, "--require-hashes", "--no-deps", "-r", lock)
        call(*install, "--no-deps", str(wheel))
    else:
        call(*install, f"{wheel}[cpu]")
    call("python", "-c", "import fairfrontier as ff; ff.load('german')")
    assert "german" in call("fairfrontier", "list", "datasets")
    absent = "import importlib.util as u; assert not any(map(u.find_spec, ('tasks', 'flows')))"
    call("python", "-c", absent)
    call("fairfrontier", "run", "german")
    assert (folder / "data" / "results" / "german" / "frontier.csv").is_file()
