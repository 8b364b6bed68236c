"""What `import fairfrontier as ff` shows."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import fairfrontier as ff
from fairfrontier.metrics import verb
from fairfrontier.models.registry import METHODS
from fairfrontier.similarity.registry import METRICS

# As Windows has it: without modules and functions of POSIX, which other libraries do without there.
WINDOWS = """\
import importlib, os, pkgutil, signal, sys
import dask.array, distributed, mlflow, optuna, pandas, pyarrow.dataset, scipy.stats, skops.io
import httpx, matplotlib.figure, sklearn.ensemble, typer, xgboost
for name in ("fcntl", "grp", "posix", "pty", "pwd", "resource", "termios"):
    sys.modules[name] = None
for name in ("fork", "geteuid", "getuid", "killpg", "setsid", "statvfs", "sysconf", "uname"):
    delattr(os, name)
for name in ("SIGHUP", "SIGKILL", "alarm", "pthread_kill", "setitimer"):
    delattr(signal, name)
import fairfrontier
for each in pkgutil.walk_packages(fairfrontier.__path__, "fairfrontier."):
    importlib.import_module(each.name)
from fairfrontier.study.run import clear_killed
clear_killed()
"""
FACE = {
    "Scores",
    "FairMetric",
    "Frontier",
    "QuantileBarycentre",
    "Study",
    "audit",
    "create",
    "debias",
    "evaluate",
    "explain",
    "fill_places",
    "init",
    "learn",
    "load",
    "load_bundle",
    "load_model",
    "monitor",
    "post_process",
    "run_study",
    "score",
    "select",
}


def test_the_public_names_are_there():
    assert set(ff.__all__) == FACE
    assert set(dir(ff)) >= FACE
    for name in FACE:
        assert callable(getattr(ff, name)), name
    with pytest.raises(AttributeError, match="'lode'"):
        ff.lode  # noqa: B018


def test_registered_classes_are_there_as_editors_read_them():
    names = {
        cls.__name__: cls
        for cls in METHODS.all().values()
        if cls.__module__.startswith("fairfrontier.")
    } | {learner.__name__: learner for learner in METRICS.all().values()}
    for name, defined in names.items():
        assert getattr(ff, name) is defined
    tree = ast.parse(Path(ff.__file__).read_text())
    shown = {
        alias.asname: each.module
        for each in ast.walk(tree)
        if isinstance(each, ast.ImportFrom)
        for alias in each.names
        if alias.asname == alias.name
    }
    assert {name: shown.get(name) for name in names} == ff._list_registered()
    assert set(dir(ff)) > names.keys()


def test_verbs_are_functions_whatever_was_imported():
    assert ff.evaluate is verb.evaluate
    for name in ("audit", "debias", "evaluate", "monitor"):
        assert inspect.isfunction(getattr(ff, name)), name


def test_the_package_is_imported_without_libraries():
    code = (
        "import sys; before = set(sys.modules); import fairfrontier\n"
        "print(*{name.partition('.')[0] for name in sys.modules.keys() - before})"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(run.stdout.split()) <= {"fairfrontier", *sys.stdlib_module_names}


@pytest.mark.once
def test_every_module_is_imported_without_what_windows_lacks():
    run = subprocess.run([sys.executable, "-c", WINDOWS], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def test_the_frontier_of_arrays_is_imported_without_yaml_pictures_and_clusters():
    code = "import sys; from fairfrontier import Frontier; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {
        "dask",
        "httpx",
        "matplotlib",
        "optuna",
        "pyarrow.dataset",
        "pydantic",
        "xgboost",
        "yaml",
    }
    assert not heavy & set(run.stdout.split())
