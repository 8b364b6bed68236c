"""Completion is driven as bash does, by environment variables."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.project import call_here, environment, make_project

# What `fairfrontier` is when it is installed; the computing libraries that were imported come last.
SCRIPT = """
import atexit, sys
sys.argv = ["fairfrontier"]
from fairfrontier.cli.command import main
slow = ("dask", "matplotlib", "pandas", "pyarrow", "scipy", "sklearn", "xgboost")
atexit.register(lambda: print("imported:", *[name for name in slow if name in sys.modules]))
main()
"""


def as_bash(*words: str) -> dict[str, str]:
    return {
        "_FAIRFRONTIER_COMPLETE": "complete_bash",
        "COMP_WORDS": "\n".join(("fairfrontier", *words)),
        "COMP_CWORD": str(len(words)),
    }


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = make_project(tmp_path_factory.mktemp("project"))
    # A shell would run it.
    (home / "conf" / "studies" / "$(touch x).yaml").write_text("dataset: loans\n")
    (home / "conf" / "studies" / "--yes.yaml").write_text("dataset: loans\n")
    (home / "conf" / "studies" / "broken.yaml").write_text("dataset: [\n")
    (home / "conf" / "studies" / "odd.yaml").write_text("profiles: 3\n")
    bundle = home / "data" / "results" / "loans" / "choice" / "bundle"
    bundle.mkdir(parents=True)
    (bundle / "bundle.json").write_text("{}")
    (home / "data" / "results" / "loans" / "summary.json").write_text("{}")
    return home


def complete(home, *words):
    return set(call_here(home, **as_bash(*words)).stdout.split())


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("pre",), {"prepare"}),
        (("run", "loa"), {"loans"}),
        (("select", "pa"), {"paper"}),
        (("prepare", "loa"), {"loans"}),
        (("run", "loans", "--prof"), {"--profile"}),
        (("run", "loans", "--profile", ""), {"default", "short"}),
        (("run", "broken", "--profile", ""), set()),
        (("run", "odd", "--profile", ""), set()),
        (("run", "loans", "--cluster", "in"), {"inline"}),
        (("score", ""), {"data/results/loans/choice/bundle"}),
        (("audit", "x.csv", "--model", "d"), {"data/results/loans/choice/bundle"}),
        (("monitor", "b", "t.csv", "--limit", "accuracy_r"), {"accuracy_ratio"}),
        (("audit", "x.csv", "--limit", "tpr_d"), {"tpr_difference"}),
        (("debias", "x.csv", "--rule", "g"), {"group_thresholds"}),
        (("clean", "--kind", "re"), {"results"}),
        (("clean", "--study", ""), {"loans"}),
        (("list", "me"), {"methods", "metrics", "measures"}),
        (("schema", "data"), {"dataset"}),
    ],
)
def test_words_are_completed_from_the_project(home, words, found):
    assert complete(home, *words) == found


def test_no_name_is_completed_that_a_shell_would_run(home):
    assert "loans" in complete(home, "run", "")
    assert not [word for word in complete(home, "run", "") if "$" in word or word == "--yes"]


@pytest.mark.parametrize("command", ["run", "select", "monitor"])
def test_completion_imports_nothing_that_computes(home, command):
    told = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**environment(home), **as_bash(command, "--")},
        cwd=home,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    *words, imported = told.splitlines()
    assert "--conf" in words
    assert imported == "imported:"


def test_the_shell_gets_its_script(home, monkeypatch):
    monkeypatch.setenv("SHELL", "/bin/bash")
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    shown = call_here(home, "--show-completion", "bash").stdout
    assert "_FAIRFRONTIER_COMPLETE=complete_bash" in shown
