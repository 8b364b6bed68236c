"""What wheel and source distribution hold, and that they work where there is no checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Iterable
from importlib.metadata import Distribution, PathDistribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
# What is not code: each once in the repository, at the same place below the root.
SHIPPED = {
    *(f"conf/{kind}/*" for kind in ("clusters", "encoders", "methods", "vocabularies")),
    "conf/datasets/german.yaml",
    "data/raw/german.*",
}
STUDY = "fairfrontier/project/conf/studies/german.yaml"
# Brought by extras alone.
OPTIONAL = {"cryptography", "dask", "distributed", "fairlearn", "httpx", "pip", "psutil"}
FAR = f"""\
dataset: far
source:
  format: csv
  path: {{sha256: {"a" * 64}, sources: [{{url: "https://nowhere.invalid/far.csv"}}]}}
label: {{column: y, positive: 1}}
features: {{numeric: [x]}}
split: {{kind: random, train: 0.5, test: 0.5}}
"""
# Every module but that of downloads; and a frontier of arrays, whose table is left as a file.
FRONTIER = """\
import importlib, pkgutil
import numpy as np, pandas as pd
import fairfrontier as ff
for each in pkgutil.walk_packages(ff.__path__, "fairfrontier."):
    if each.name != "fairfrontier.prepare.source.download":
        importlib.import_module(each.name)
draw = np.random.default_rng(0)
table = pd.DataFrame({"income": draw.normal(size=400), "sex": draw.choice(["f", "m"], 400)})
table["repaid"] = (table["income"] + (table["sex"] == "m") + draw.normal(size=400) > 0).astype(int)
table.to_csv("loans.csv", index=False)
frontier = ff.Frontier(["linear", "gbdt"])
frontier.fit(table[["income"]], table["repaid"], sensitive_features=table[["sex"]])
assert len(frontier.results_)
"""


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


def find_required(requirements: Iterable[str], extras: Iterable[str]) -> dict[str, Distribution]:
    """Return what is installed with requirements under some extras, and for their own, by name."""
    found: dict[str, Distribution] = {}
    asked = set()
    waiting = [(Requirement(text), extra) for text in requirements for extra in ("", *extras)]
    while waiting:
        each, extra = waiting.pop()
        name, wanted = each.name.lower().replace("_", "-"), frozenset(each.extras)
        holds = each.marker is None or each.marker.evaluate({"extra": extra})
        if holds and (name, wanted) not in asked:
            asked.add((name, wanted))
            found[name] = distribution(name)
            below = map(Requirement, found[name].requires or ())
            waiting += [(one, of) for one in below for of in ("", *wanted)]
    return found


@pytest.mark.once
def test_the_wheel_works_in_an_empty_folder_with_what_it_requires_alone(wheel, tmp_path):
    shutil.unpack_archive(wheel, tmp_path / "site", format="zip")
    (tmp_path / "empty").mkdir()
    (metadata,) = (tmp_path / "site").glob("*.dist-info")
    required = find_required(PathDistribution(metadata).requires or (), ["cpu"])
    assert {"numpy", "pandas", "xgboost-cpu"} <= required.keys()
    assert not required.keys() & OPTIONAL
    purelib = Path(sysconfig.get_path("purelib"))
    (tmp_path / "others").mkdir()
    for each in required.values():
        for top in {file.parts[0] for file in each.files or ()} - {"..", "__pycache__"}:
            link = tmp_path / "others" / top
            if not link.exists():
                link.symlink_to(purelib / top)
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
    (tmp_path / "empty" / "reduced.yaml").write_text(small.replace("linear", "reductions"))
    datasets = tmp_path / "empty" / "conf" / "datasets"
    datasets.mkdir(parents=True)
    (datasets / "far.yaml").write_text(FAR)
    # Who asks for what an extra brings is told its name.
    for words, extra in (
        (("run", "small.yaml", "--cluster", "local"), "dask"),
        (("prepare", "far"), "fetch"),
        (("run", "reduced.yaml"), "papers"),
    ):
        lacking = call("-m", "fairfrontier", *words)
        assert lacking.returncode == 2, lacking.stdout + lacking.stderr
        assert f"fairfrontier[{extra}]" in lacking.stderr
    ran = call("-m", "fairfrontier", "run", "small.yaml", "--cluster", "inline")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    study = (ROOT / "conf" / "studies" / "german.yaml").read_text()
    (tmp_path / "empty" / "held.yaml").write_text(study.replace("study: german", "study: held"))
    refused = call("-m", "fairfrontier", "run", "held.yaml")
    assert refused.returncode == 2
    assert "fairfrontier-papers" in refused.stderr
    # The whole way of a table of one's own.
    fitted = call("-c", FRONTIER)
    assert fitted.returncode == 0, fitted.stderr
    for words in (
        ("init", "loans.csv", "--label", "repaid", "--protected", "sex"),
        ("run", "loans"),
        ("select", "loans"),
        ("score", "data/results/loans/choice/bundle", "loans.csv"),
        ("audit", "loans.csv", "--decisions", "repaid", "--groups", "sex"),
        ("doctor",),
    ):
        done = call("-m", "fairfrontier", *words)
        assert done.returncode == 0, (words, done.stdout + done.stderr)


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
