from __future__ import annotations

import shutil

import pytest

from fairfrontier.cli.cleaning import list_items
from fairfrontier.runner import run_plain
from fairfrontier.runtime.errors import ConfigError
from fairfrontier.runtime.finder import FOLDERS
from fairfrontier.runtime.home import SHIPPED
from fairfrontier.runtime.store import Store
from fairfrontier.study import search
from fairfrontier.study.config import RunOptions
from fairfrontier.study.run import SEARCH, restore_search, start_study
from tests.project import make_project

STUDY = """
dataset: loans
methods: {linear: {}, parity: {method: best, then: group_thresholds}}
search: {trials: 4}
frontier: {fairness: ["selection_rate_difference:origin"]}
"""


def start(home):
    return start_study(RunOptions(study="loans", conf=str(home), cluster="inline"))


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    home = make_project(tmp_path_factory.mktemp("searched"), study=STUDY)
    return home, run_plain(start(home))


@pytest.fixture
def home(done, tmp_path):
    """A copy of the project after its search, which a test may change."""
    return shutil.copytree(done[0], tmp_path / "copy")


def test_a_second_run_searches_no_more(done, home, monkeypatch):
    monkeypatch.delattr(search.Search, "run")
    again = start(home)
    assert again.searched.trials == 4
    assert again.is_complete
    shutil.rmtree(home / "data" / "results")
    facts = run_plain(again)
    assert facts["trained"] == 0
    told = ("fits", "skipped", "trials", "failed_trials")
    assert [facts[key] for key in told] == [done[1][key] for key in told]
    first, second = (each / "data/results/loans/points.parquet" for each in (done[0], home))
    assert first.read_bytes() == second.read_bytes()


def test_a_report_alone_is_written_without_a_search(home, monkeypatch):
    monkeypatch.delattr(search.Search, "run")
    shutil.rmtree(home / "data/cache/store/results")
    assert run_plain(start(home))["trained"] == 0


def narrow_space(home):
    shipped = (SHIPPED / FOLDERS["method"] / "linear.yaml").read_text()
    (home / FOLDERS["method"]).mkdir(exist_ok=True)
    (home / FOLDERS["method"] / "linear.yaml").write_text(shipped.replace("1.0e-6", "1.0e-5"))


def ask_for_less(home):
    (home / FOLDERS["study"] / "loans.yaml").write_text(STUDY.replace("trials: 4", "trials: 3"))


def lose(kind):
    return lambda home: shutil.rmtree(home / "data/cache/store" / kind)


@pytest.mark.parametrize(
    "change",
    [narrow_space, ask_for_less, lose("fit"), lose("points"), lose("split")],
    ids=["space", "study", "fits", "points", "splits"],
)
def test_what_has_changed_is_searched_again(home, change):
    change(home)
    assert start(home).searched is None


def test_other_rows_are_searched_again_and_kept_in_turn(home):
    table = home / "data/raw/loans.csv"
    table.write_text("\n".join(table.read_text().splitlines()[:-30]) + "\n")
    assert start(home).searched is None
    facts = run_plain(start(home))
    assert facts["trained"] > 0
    again = start(home)
    assert again.searched is not None
    assert len(again.fits) == facts["fits"]


def test_an_outcome_of_other_points_than_trials_would_have_is_not_taken(home, monkeypatch):
    monkeypatch.setattr(Store, "peek", lambda *_: {"plan": [{"points": "of another table"}]})
    assert start(home).searched is None


def test_what_is_recalled_needs_no_workers(home):
    assert start(home).searched is not None
    options = RunOptions(study="loans", conf=str(home), cluster="auto")
    assert start_study(options).cluster.kind == "inline"


def test_a_kept_search_and_its_fits_belong_to_the_study(home):
    items = [item for item in list_items(home) if item.kind in ("fits", "measures", "copies")]
    assert {SEARCH, "fit", "points"} <= {item.path.parents[1].name for item in items}
    assert {studies for item in items if (studies := item.studies)} == {frozenset({"loans"})}
    assert all(item.studies for item in items)


def test_a_search_that_shows_nothing_is_an_error(tmp_path):
    rows = "linear: {}, parity: {method: best,"
    assert rows in STUDY
    study = STUDY.replace(rows, "parity: {method: linear,")
    home = make_project(tmp_path, study=study.replace("trials: 4", "trials: 1"))
    with pytest.raises(ConfigError, match="before any row"):
        run_plain(start(home))
    assert not (home / "data/cache/store" / SEARCH).exists()


def test_a_search_with_a_failed_trial_is_not_kept(tmp_path, monkeypatch):
    home, run_search = make_project(tmp_path, study=STUDY), search.Search.run

    def fail(self, evaluate):
        outcome = run_search(self, evaluate)
        outcome.failed.append(("linear", "no room"))
        return outcome

    monkeypatch.setattr(search.Search, "run", fail)
    run_plain(start(home))
    assert not (home / "data/cache/store" / SEARCH).exists()
    assert start(home).searched is None


def test_a_study_without_a_search_has_none_to_recall(tmp_path):
    run = start(make_project(tmp_path))
    assert restore_search(run) is run
