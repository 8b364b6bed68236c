"""One edit of a valid file is answered by a result or by one sentence, in time and in memory.

`make fuzz` asks for more examples than the default suite; see `tests/fuzz/__main__.py`.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import resource
import shutil
import signal
import time
import warnings
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings

from fairfrontier.auditing import debias
from fairfrontier.auditing.audit import audit
from fairfrontier.auditing.audit import check_options as check_audit
from fairfrontier.auditing.debias import fit_debiasing
from fairfrontier.auditing.debiased import check_options as check_debiasing
from fairfrontier.auditing.debiased import decide_table
from fairfrontier.auditing.noisy_groups import run_noisy_audit
from fairfrontier.auditing.option import AuditConfig, DebiasConfig
from fairfrontier.choose.choosing import read_finished
from fairfrontier.choose.config import SelectConfig
from fairfrontier.cli.option import build_command
from fairfrontier.deployment.bundle import load_bundle
from fairfrontier.deployment.config import ExplainConfig, MonitorConfig, ScoreConfig
from fairfrontier.deployment.explanation import check_options as check_explain
from fairfrontier.deployment.monitoring import check_options as check_monitor
from fairfrontier.deployment.monitoring import watch
from fairfrontier.deployment.scoring import check_score
from fairfrontier.models.thresholds.randomized_threshold import trace_budgets
from fairfrontier.prepare.description import PrepareConfig
from fairfrontier.prepare.draft.config import InitConfig
from fairfrontier.prepare.draft.draft import draft_dataset, read_raw
from fairfrontier.prepare.loader import load
from fairfrontier.runtime.errors import FairfrontierError, escape_controls
from fairfrontier.study.check import load_study
from fairfrontier.study.config import RunOptions
from fairfrontier.study.draft import init
from fairfrontier.study.query import read_query
from fairfrontier.study.resolve import expand
from fairfrontier.study.run import check_options as check_run
from tests.deployment.watched import make_bundle, make_rows
from tests.fuzz.edit import edited_arguments, edited_table, edited_tree
from tests.project import DATASET, ROOT, STUDY, make_project, make_table

EXAMPLES = int(os.environ.get("FUZZ", "500")) // 7
# Seconds of a processor, and by the clock, since others may use the machine.
SECONDS, WAIT, BYTES = 10, 100, 1 << 30
# Between them they have every key, and few claims that are alike: YAML takes most of the time.
STUDIES = (
    *("adult-noisy-choice", "adult-regression-all", "celeba-parity", "compas", "german"),
    *("neighbourhoods", "synthetic"),
)

# A dataset has the name of its file.
EDITED = DATASET.replace("dataset: loans", "dataset: edited")
COLUMNS = {"scores": "score", "groups": ("origin",), "labels": "outcome", "positive": "repaid"}

fuzzed = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize="FUZZ" not in os.environ,
    database=None,
    suppress_health_check=list(HealthCheck),
)


# How many inputs were tried, and the most seconds that one took.
TRIED = {"inputs": 0, "slowest": 0.0}


@pytest.fixture(scope="module", autouse=True)
def _report():
    """Write what was tried into the file that `make fuzz` names."""
    yield
    if "FUZZ_REPORT" in os.environ:
        Path(os.environ["FUZZ_REPORT"]).write_text(json.dumps(TRIED))


@contextmanager
def answered(inputs=1):
    """Let a fault of the user's pass, which is one sentence; end what takes too long or much."""

    def stop(*_):
        raise TimeoutError(f"more than {SECONDS} s of a processor, or {WAIT} s")

    said, started = "a fault and a mend", time.process_time()
    before = {number: signal.signal(number, stop) for number in (signal.SIGALRM, signal.SIGPROF)}
    signal.alarm(WAIT)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limit = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + BYTES, limit[1]))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except FairfrontierError as error:
        said = str(error)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limit)
        signal.alarm(0)
        signal.setitimer(signal.ITIMER_PROF, 0)
        for number, handler in before.items():
            signal.signal(number, handler)
        TRIED["inputs"] += inputs
        TRIED["slowest"] = max(TRIED["slowest"], time.process_time() - started)
    assert escape_controls(said) == said, said[:300]
    assert len(said.splitlines()) <= 1, said[:300]
    assert 0 < len(said) < 2000, said[:300]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = make_project(tmp_path_factory.mktemp("fuzz"))
    make_scores().to_csv(home / "scores.csv", index=False)
    (home / "empty.csv").touch()
    (home / "folder.csv").mkdir()
    os.mkfifo(home / "pipe.csv")
    os.mkfifo(home / "pipe.yaml")
    make_bundle(home / "watched")
    make_rows(1, 120).to_csv(home / "period.csv", index=False)
    fitted = fit_debiasing(DebiasConfig(table=home / "scores.csv", **COLUMNS))
    fitted.rulebook.write(home / "thresholds.json")
    # What is edited is right before it.
    (home / "conf" / "datasets" / "edited.yaml").write_text(EDITED)
    load("edited", home=home)
    return home


@fuzzed
@given(text=edited_tree(yaml.safe_load(EDITED)))
def test_datasets(home, text):
    path = home / "conf" / "datasets" / "edited.yaml"
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    with answered():
        load(path, home=home)


@fuzzed
@given(text=edited_tree(yaml.safe_load(STUDY)))
def test_studies_of_a_project(home, text):
    path = home / "conf" / "studies" / "edited.yaml"
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    with answered():
        expand(load_study(path, home=home))
    path.unlink()


@pytest.mark.parametrize("name", STUDIES)
def test_studies_that_are_shipped(tmp_path, name):
    content = yaml.safe_load((ROOT / "conf" / "studies" / f"{name}.yaml").read_text())

    @settings(fuzzed, max_examples=max(EXAMPLES // len(STUDIES), 1))
    @given(text=edited_tree(content))
    def try_edits(text):
        path = tmp_path / f"{name}.yaml"
        path.write_text(text, encoding="utf-8", errors="surrogatepass")
        with answered():
            expand(load_study(path, home=ROOT))

    try_edits()


@fuzzed
@given(data=edited_table(make_table(120).to_csv(index=False)))
def test_tables(home, data):
    (home / "data" / "raw" / "edited.csv").write_bytes(data)
    path = home / "conf" / "datasets" / "edited.yaml"
    path.write_text(EDITED.replace("loans.csv", "edited.csv"))
    with answered():
        load(path, home=home)


@settings(fuzzed, max_examples=max(EXAMPLES // 10, 1))
@given(data=edited_table(make_table(120).to_csv(index=False)))
def test_drafts(home, data):
    table = home / "drafted.csv"
    table.write_bytes(data)
    out = home / "drafted"
    with answered():
        drafted = init(table, label="outcome", protected=("origin",), out=out)
        expand(load_study(drafted.study, home=out))
    shutil.rmtree(out, ignore_errors=True)


def make_scores():
    table = make_table(120).assign(score=lambda t: (t["age"] / 100).round(3))
    return table.assign(decision=(table["age"] > 40).astype(int)).drop(columns=["income", "job"])


@pytest.fixture
def _short_curve(monkeypatch):
    """Solve each table 4 times in place of 35, which takes most of the time."""
    monkeypatch.setattr(debias, "trace_budgets", partial(trace_budgets, n_points=2))
    monkeypatch.setattr(debias, "REPEATS", 1)


@pytest.mark.usefixtures("_short_curve")
@fuzzed
@given(data=edited_table(make_scores().to_csv(index=False)))
def test_scores_and_decisions(home, data):
    table = home / "edited.csv"
    table.write_bytes(data)
    with answered():
        fit_debiasing(DebiasConfig(table=table, **COLUMNS))
    with answered(inputs=0):
        run_noisy_audit(
            AuditConfig(
                table=table,
                decisions="decision",
                labels="outcome",
                positive="repaid",
                group="origin",
                level=0.1,
                criterion=("tpr",),
            )
        )
    with answered():
        audit(
            AuditConfig(
                table=table,
                scores="score",
                threshold=0.5,
                labels="outcome",
                positive="repaid",
                groups=("origin", "decision"),
            )
        )


@settings(fuzzed, max_examples=max(EXAMPLES // 4, 1))
@given(data=edited_table(make_rows(1, 120).to_csv(index=False)))
def test_periods(home, data):
    table = home / "edited.csv"
    table.write_bytes(data)
    given = {"table": table, "out": home / "nowhere"}
    with answered():
        watch(MonitorConfig(bundle=home / "watched" / "lines", **given))
    with answered(inputs=0):
        audit(AuditConfig(model=home / "watched" / "lines", **given))


def test_rules(home, tmp_path):
    @fuzzed
    @given(text=edited_tree(json.loads((home / "thresholds.json").read_text()), "json"))
    def try_edits(text):
        rule = tmp_path / "edited.json"
        rule.write_text(text, encoding="utf-8", errors="surrogatepass")
        with answered():
            applied = fit_debiasing(DebiasConfig(table=home / "scores.csv", apply=rule))
            decide_table(applied, tmp_path / "decisions.parquet")
            applied.rulebook.write(tmp_path / "thresholds.json")

    try_edits()


# What a command is given, and what it does before its work begins.
COMMANDS = {
    "run": (RunOptions, ("study",), ("loans", "--profile", "short"), check_run),
    "prepare": (
        PrepareConfig,
        ("dataset",),
        ("loans", "--seed", "1"),
        lambda o: load(o.dataset, o.seed, home=o.home),
    ),
    "init": (
        InitConfig,
        ("table",),
        ("scores.csv", "--label", "outcome", "--protected", "origin", "--name", "drafted"),
        lambda o: draft_dataset(read_raw(o.table), o),
    ),
    "debias": (
        DebiasConfig,
        ("table",),
        (
            *("scores.csv", "--scores", "score", "--groups", "origin"),
            *("--labels", "outcome", "--positive", "repaid", "--budget", "0.1", "--out", "results"),
        ),
        check_debiasing,
    ),
    "audit": (
        AuditConfig,
        ("table",),
        (
            *("scores.csv", "--decisions", "decision", "--labels", "outcome"),
            *("--positive", "repaid", "--group", "origin", "--level", "0.1", "--out", "results"),
        ),
        check_audit,
    ),
    "select": (
        SelectConfig,
        ("study", "query"),
        ("loans", "max accuracy subject to gap_rms:origin <= 0.1", "--policy", "knee"),
        lambda o: (read_query(o.query), read_finished(o)),
    ),
    "score": (
        ScoreConfig,
        ("bundle", "table"),
        (
            "watched/lines",
            "period.csv",
            "--row-id",
            "case",
            "--keep",
            "sex",
            "--out",
            "out.parquet",
        ),
        lambda o: check_score(load_bundle(o.bundle), o.table, o.out, o.row_id, o.keep),
    ),
    "explain": (
        ExplainConfig,
        ("bundle", "table"),
        ("watched/lines", "period.csv", "--rows", "50", "--minimum", "5", "--out", "results"),
        check_explain,
    ),
    "monitor": (
        MonitorConfig,
        ("bundle", "table"),
        (
            *(
                "watched/lines",
                "period.csv",
                "--period",
                "W1",
                "--row-id",
                "case",
                "--alpha",
                "0.1",
            ),
            *("--limit", "tpr_ratio:sex=0.8,accuracy=0.5", "--out", "results"),
        ),
        check_monitor,
    ),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_options(home, monkeypatch, name):
    model, places, arguments, check = COMMANDS[name]

    def call(chosen):
        """Check the options."""
        check(chosen)

    call.__name__ = name
    command = build_command(model, call, *places)
    options = [f"--{field.replace('_', '-')}" for field in model.model_fields]
    monkeypatch.chdir(home)
    monkeypatch.setenv("FAIRFRONTIER_HOME", str(home))

    @settings(fuzzed, max_examples=max(EXAMPLES // len(COMMANDS), 1))
    @given(arguments=edited_arguments(arguments, options))
    def try_edits(arguments):
        said = io.StringIO()
        with answered(), contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            with pytest.raises(SystemExit) as left:
                command.main(arguments)
            assert left.value.code in (0, 2)
        assert "\x1b" not in said.getvalue()

    try_edits()
