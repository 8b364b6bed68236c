"""One edit of a valid file is answered by a result or by one sentence, in time and in memory.

`make fuzz` asks for more examples than the default suite: FUZZ=100000.
"""

from __future__ import annotations

import os
import signal
import warnings
from contextlib import contextmanager

import pytest
import yaml
from hypothesis import HealthCheck, given, settings

from fairfrontier.audit.auditing import run_audit
from fairfrontier.audit.config import AuditConfig
from fairfrontier.debias.config import DebiasConfig
from fairfrontier.debias.debiasing import fit_debiasing
from fairfrontier.prepare.loader import load
from fairfrontier.runtime.errors import FairfrontierError
from fairfrontier.study.expand import expand, load_study
from tests.fuzz.edit import edited_table, edited_tree
from tests.project import DATASET, ROOT, STUDY, make_project, make_table

EXAMPLES = int(os.environ.get("FUZZ", "500")) // 5
SECONDS = 10
STUDIES = ("adult", "adult-noisy", "adult-parity", "adult-regression", "german", "toxicity")

fuzzed = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize="FUZZ" not in os.environ,
    database=None,
    suppress_health_check=list(HealthCheck),
)


@contextmanager
def answered():
    """Let a fault of the user's pass, which is one sentence; end what takes too long."""

    def stop(*_):
        raise TimeoutError(f"more than {SECONDS} s")

    said = "a fault and a mend"
    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except FairfrontierError as error:
        said = str(error)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    assert said.isprintable(), said[:300]
    assert 0 < len(said) < 2000, said[:300]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return make_project(tmp_path_factory.mktemp("fuzz"))


@fuzzed
@given(text=edited_tree(yaml.safe_load(DATASET)))
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
    path = home / "conf" / "datasets" / "table.yaml"
    path.write_text(DATASET.replace("loans.csv", "edited.csv"))
    with answered():
        load(path, home=home)


def make_scores():
    table = make_table(120).assign(score=lambda t: (t["age"] / 100).round(3))
    return table.assign(decision=(table["age"] > 40).astype(int)).drop(columns=["income", "job"])


@fuzzed
@given(data=edited_table(make_scores().to_csv(index=False)))
def test_scores_and_decisions(home, data):
    table = home / "scores.csv"
    table.write_bytes(data)
    with answered():
        fit_debiasing(
            DebiasConfig(
                table=table, scores="score", groups=("origin",), labels="outcome", positive="repaid"
            )
        )
    with answered():
        run_audit(
            AuditConfig(
                table=table,
                decisions="decision",
                labels="outcome",
                positive="repaid",
                group="origin",
                level=0.1,
            )
        )
