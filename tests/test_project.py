"""Rules of the house that no linter knows."""

from __future__ import annotations

import ast
import json
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ROOMS = (
    ".ci",
    ".github",
    "benchmarks",
    "conf",
    "data/reference",
    "docs",
    "fairfrontier",
    "flows",
    "notebooks",
    "papers",
    "tasks",
    "tests",
)
LOCKS = ("requirements.lock", "requirements-dev.lock")
PEER_LOCKS = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("benchmarks/peer/*.lock"))
TEXT = {".cfg", ".csv", ".ipynb", ".json", ".lock", ".md", ".py", ".toml", ".yaml", ".yml", ""}
# Written in two halves, or this file would break the rules that it checks.
REGISTRIES = ("pypi" + ".org", "python" + "hosted", "ana" + "conda.org", "pypi" + ".python")
UNFINISHED = re.compile("TO" + "DO|FIX" + "ME|X" + r"XX\b")
UNSAFE = {"cloudpickle", "dill", "joblib", "marshal", "pickle", "shelve"}
KERNELS = (
    "fairfrontier.runtime.arrays",
    "fairfrontier.similarity.explore",
    "fairfrontier.similarity.face",
    "papers.rival.group_adversary",
    "fairfrontier.models.individual.attack",
    "fairfrontier.models.individual.budro.geometry",
    "fairfrontier.models.individual.budro.search",
    "fairfrontier.models.individual.budro.transport",
    "fairfrontier.models.neural.network",
    "fairfrontier.models.noisy.noise",
    "fairfrontier.models.noisy.assignment",
    "fairfrontier.models.noisy.player",
    "fairfrontier.models.noisy.rate",
    "papers.rival.budro_entropic",
    "papers.rival.ideal",
    "fairfrontier.models.thresholds.ramp",
    "fairfrontier.models.thresholds.rule",
    "fairfrontier.models.thresholds.threshold",
    "fairfrontier.models.regression.grid",
    "fairfrontier.models.regression.loss",
)


def files() -> Iterator[Path]:
    """Yield the files that belong to the project, by walking: a source archive has no git."""
    yield from (path for path in sorted(ROOT.iterdir()) if path.is_file())
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*")):
            hidden = any(part.startswith(".") for part in path.relative_to(ROOT / room).parts)
            if path.is_file() and "__pycache__" not in path.parts and not hidden:
                yield path


@cache
def texts() -> tuple[tuple[str, str], ...]:
    return tuple(
        (path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))
        for path in files()
        if path.suffix in TEXT
    )


@cache
def modules() -> tuple[tuple[str, frozenset[str]], ...]:
    """Return every module's path with what it imports."""
    return tuple((name, imports(ast.parse(text))) for name, text in texts() if name.endswith(".py"))


def imports(tree: ast.Module) -> frozenset[str]:
    """Return the top-level names of everything imported anywhere in a module."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names.add(str(node.module).partition(".")[0])
    return frozenset(names)


def test_walk_finds_the_rooms():
    found = [name for name, _ in texts()]
    assert "Makefile" in found
    assert "fairfrontier/runtime/errors.py" in found
    assert "tests/test_project.py" in found


def test_no_file_names_a_package_registry():
    assert not [
        (name, host) for name, text in texts() for host in REGISTRIES if host in text.lower()
    ]


def test_nothing_is_pickled():
    assert not [(name, bad) for name, imported in modules() if (bad := imported & UNSAFE)]
    calls = re.compile(r"allow_" + r"pickle\s*=\s*True|to_" + r"pickle\(|read_" + r"pickle\(")
    assert not [name for name, text in texts() if name.endswith(".py") and calls.search(text)]


def test_yaml_is_loaded_safely():
    # Each yaml.load must name a loader that its own module derives from the safe one.
    for name, text in texts():
        if name.endswith(".py") and name != "tests/test_project.py":
            assert not re.search(r"yaml\.(load_all|full_load|unsafe_load)", text), name
            for loader in re.findall(r"yaml\.load\([^)]*?(?:Loader=(\w+))?\)", text):
                assert re.search(rf"^class {loader}\(yaml\.SafeLoader\):", text, re.M), name


def test_prefect_is_known_only_behind_the_doors():
    doors = re.compile(r"flows/|tasks/|tests/(flows|tasks)/")
    assert not [
        name for name, imported in modules() if "prefect" in imported and not doors.match(name)
    ]


@pytest.mark.once
def test_the_verbs_need_no_prefect():
    code = (
        "import sys\n"
        "import fairfrontier as ff\n"
        "assert all(callable(getattr(ff, name)) for name in ff.__all__)\n"
        "from fairfrontier.models.registry import METHODS\n"
        "assert METHODS.all()\n"
        "assert 'prefect' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_kernels_need_only_numpy_scipy_and_array_api_compat():
    # A machine with a GPU may have little else: every other third-party import is refused.
    code = f"""
import importlib, sys
ours = {{"fairfrontier", "papers"}}
allowed = sys.stdlib_module_names | ours | {{"numpy", "scipy", "array_api_compat"}}
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in allowed and not name.startswith("_sysconfigdata"):
            raise ImportError(f"{{name}} is not for kernels")
sys.meta_path.insert(0, Refuse())
for kernel in {KERNELS!r}:
    try:
        importlib.import_module(kernel)
    except ImportError as error:
        raise SystemExit(f"{{kernel}}: {{error}}")
"""
    # -S: the hooks of site-packages are no imports of ours.
    paths = os.pathsep.join([str(ROOT), *(path for path in sys.path if path)])
    environment = {**os.environ, "PYTHONPATH": paths}
    result = subprocess.run(
        [sys.executable, "-S", "-c", code],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr


def test_modules_are_nouns():
    vague = {"utils", "util", "helpers", "helper", "common", "misc", "tools"}
    assert not [name for name, _ in modules() if vague & set(re.split(r"[/.]", name))]


def test_large_folders_and_modules_have_a_reason():
    lines = {name: text.count("\n") for name, text in texts() if name.endswith(".py")}
    floors = ("fairfrontier/", "flows/", "papers/", "tasks/")
    sizes = Counter(name.rpartition("/")[0] for name in lines if name.startswith(floors))
    large = {name for name, count in lines.items() if count > 1200}
    large |= {folder for folder, count in sizes.items() if count > 20}
    text = (ROOT / "CONTRIBUTING.md").read_text()
    assert large == set(re.findall(r"^- `([\w/.]+)`: \w", text, re.M))


def test_nothing_is_left_for_later():
    assert not [name for name, text in texts() if UNFINISHED.search(text)]


@pytest.mark.parametrize("name", [*LOCKS, "requirements-docs.lock", *PEER_LOCKS])
def test_locks_carry_hashes_and_no_address(name):
    text = (ROOT / name).read_text()
    assert "://" not in text
    assert "--index" not in text
    assert "--find-links" not in text
    entries = re.split(r"\n(?=\S)", text.strip())
    assert len(entries) > (5 if name in PEER_LOCKS else 50)
    assert not [entry.splitlines()[0] for entry in entries if "--hash=sha256:" not in entry]


def test_the_development_lock_contains_the_other():
    pins = [
        set(re.findall(r"^([\w.-]+(?:\[[^\]]*\])?==[^ ;\\]+)", (ROOT / name).read_text(), re.M))
        for name in LOCKS
    ]
    assert pins[0]
    assert pins[0] <= pins[1]


def test_make_help_lists_every_target():
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z][\w-]*):", makefile, re.M))
    phony = set(re.findall(r"^\.PHONY: (.*)$", makefile, re.M)[0].split())
    text = subprocess.run(
        ["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    listed = set(re.findall(r"^ *make ([\w-]+) +\S", text, re.M))
    assert targets == phony == listed
    assert {"setup", "reproduce", "test", "test-all", "smoke", "lint", "bench", "serve"} <= listed
    default = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert default == text


def test_what_is_saved_is_tested_again(tmp_path):
    for folder in ("conf", "fairfrontier", "tests"):
        (tmp_path / folder).mkdir()
    source = tmp_path / "fairfrontier" / "source.py"
    source.write_text("")
    # Not its prerequisite, the environment.
    words = ["make", "--no-print-directory", "-f", ROOT / "Makefile", "-o", "develop"]
    watching = subprocess.Popen(
        [*words, "watch", "RUN=echo", "PYTEST=-k name"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        first = watching.stdout.readline()
        # The clock of files moves in steps of some milliseconds.
        time.sleep(0.1)
        source.write_text("changed = True")
        assert watching.stdout.readline() == first
    finally:
        # Interrupts are ignored by what a shell has started in the background.
        os.killpg(watching.pid, signal.SIGTERM)
        watching.communicate()
    assert first.startswith("-m pytest -n auto")
    assert first.endswith("-k name\n")


def test_readme_opens_with_the_two_commands():
    text = (ROOT / "README.md").read_text()
    assert "make reproduce" in text
    assert "make test" in text


def test_links_of_the_documents_lead_somewhere():
    link = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
    assert not [
        (name, target)
        for name, text in texts()
        if name.endswith(".md")
        for target in link.findall(text)
        if not (ROOT / name).parent.joinpath(target).exists()
    ]


@pytest.mark.parametrize("name", ["run", "setup"])
def test_scripts_stop_at_the_first_fault(name):
    path = ROOT / ".ci" / name
    assert os.access(path, os.X_OK)
    assert "set -euo pipefail" in path.read_text()
    subprocess.run(["bash", "-n", path], check=True)


def test_what_every_change_must_pass():
    lines = (ROOT / ".ci" / "run").read_text().splitlines()
    # The variable picks OpenBLAS's kernels, for every test that it would hide a fault from.
    wanted = [
        "unset OPENBLAS_CORETYPE",
        "make --jobs 2 --output-sync lint docs",
        "make test",
        "make test-once",
        "make test-seeds",
        "make test-blas",
        "make test-fetched",
    ]
    assert [line for line in lines if line in wanted] == wanted


def test_tests_mirror_the_tree():
    lost = set()
    for path in (ROOT / "tests").glob("*/**/test_*.py"):
        folder = path.parent.relative_to(ROOT / "tests")
        homes = (ROOT / "fairfrontier" / folder, ROOT / folder)
        found = any(home.is_dir() or home.with_suffix(".py").exists() for home in homes)
        if not found and folder.parts[0] not in ("contracts", "faults", "fuzz", "security"):
            lost.add(path.relative_to(ROOT).as_posix())
    assert not lost


def test_hooks_fetch_nothing():
    import yaml

    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    assert [repository["repo"] for repository in hooks["repos"]] == ["local"]
    assert {hook["language"] for hook in hooks["repos"][0]["hooks"]} == {"system"}


def test_the_command_imports_nothing_from_the_current_folder():
    # Where pip makes no command, this line does.
    (line,) = re.findall(r"exec \"%s\" .* ", (ROOT / ".ci" / "setup").read_text())
    assert line.startswith('exec "%s" -P -m fairfrontier "$@"')


def test_supported_pythons_agree():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["requires-python"] == ">=3.11,<3.14"
    assert "(3, 11) <= sys.version_info < (3, 14)" in (ROOT / ".ci" / "setup").read_text()
    said = re.findall(r"Programming Language :: Python :: ([\d.]+)", str(project["classifiers"]))
    workflow = (ROOT / ".github" / "workflows" / "check.yml").read_text()
    assert f"python: {json.dumps(said)}" in workflow
    assert said == ["3.11", "3.12", "3.13"]
    assert project["license"] == "Apache-2.0"
    assert "Apache License" in (ROOT / "LICENSE").read_text()
