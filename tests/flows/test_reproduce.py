from __future__ import annotations

import shutil
from pathlib import Path

import pandas as pd
import pytest

from fairfrontier.cli.catalog import list_entries
from fairfrontier.runner import run_plain
from fairfrontier.runtime.errors import ConfigError, DataError
from fairfrontier.study.config import RunOptions
from fairfrontier.study.run import start_study
from flows import __main__ as main
from flows.frontier import restore
from flows.option import ReproduceOptions
from flows.reproduce import reproduce

# A study that reproduces figures, and no table.
FIGURES = """\
dataset: loans
methods: {linear: {}}
frontier: {fairness: [gap_rms:origin]}
reproduces: [toy.figure1, toy.figure2]
claims:
  - id: one
    sentence: It classifies.
    compare: {left: linear, value: 0.5, measure: balanced_accuracy, relation: ">"}
"""


@pytest.mark.once
def test_what_reproduces_a_table_is_run_and_compared(harness, project, capsys):
    asked = ReproduceOptions(cluster="inline", conf=str(project))
    asked.check()
    done = reproduce(asked)
    assert [each["study"] for each in done] == ["paper"]
    table = pd.read_csv(Path(done[0]["folder"]) / "published.csv")
    ours = table.set_index(["row", "measure"])["ours_mean"]
    assert 0.5 < ours["gbdt", "balanced_accuracy"] <= 1
    shown = capsys.readouterr().out
    assert "0.800 ± 0.010" in shown
    assert "report.html" in shown


@pytest.mark.once
def test_a_study_of_figures_is_reproduced_and_shows_its_claims(harness, fresh, capsys):
    (fresh / "conf" / "studies" / "paper.yaml").unlink()
    (fresh / "conf" / "studies" / "loans.yaml").write_text(FIGURES)
    entry = next(each for each in list_entries("studies", fresh) if each["name"] == "loans")
    assert entry["reproduces"] == "toy.figure1, toy.figure2"
    done = reproduce(ReproduceOptions(cluster="inline", conf=str(fresh)))
    assert [each["study"] for each in done] == ["loans"]
    shown = capsys.readouterr().out
    assert "It classifies." in shown
    assert "held" in shown


def test_what_is_kept_is_put_back_without_a_run_of_its_own(harness, fresh, monkeypatch):
    asked = ReproduceOptions(cluster="inline", conf=str(fresh))
    assert restore(asked.plan()[0]) is None
    first = run_plain(start_study(RunOptions(study="paper", conf=str(fresh), cluster="inline")))
    assert first["trained"] == first["fits"] == 3
    lost = Path(first["folder"]) / "published.csv"
    content = lost.read_bytes()
    lost.unlink()
    monkeypatch.setattr("flows.reproduce.frontier", pytest.fail)
    (second,) = reproduce(asked)
    assert lost.read_bytes() == content
    assert second == first | {"trained": 0, "seconds": second["seconds"]}
    # One lost fit, and there is something to do.
    shutil.rmtree(next((fresh / "data" / "cache" / "store" / "fit").glob("*/*")))
    assert restore(asked.plan()[0]) is None


def test_only_studies_with_the_profile_are_planned(project):
    plan = ReproduceOptions(profile="paper", conf=str(project)).plan()
    assert [(each.study, each.profile) for each in plan] == [("paper", "paper")]
    with pytest.raises(ConfigError, match="Did you mean 'paper'"):
        ReproduceOptions(profile="papre", conf=str(project)).plan()


@pytest.mark.parametrize(
    ("profile", "told", "code"),
    [
        ("default", "", 0),
        ("paper", "Skipped, without a profile 'paper': loans.\n", 0),
        ("short", "Skipped, without a profile 'short': paper.\n", 0),
        ("papre", "No study that reproduces something has a profile 'papre'. Did you", 2),
    ],
)
def test_studies_without_the_profile_are_named(fresh, capsys, monkeypatch, profile, told, code):
    figures = f"study: loans\n{FIGURES}profiles: {{short: {{seeds: 1}}}}\n"
    (fresh / "conf" / "studies" / "loans.yaml").write_text(figures)
    asked = []
    monkeypatch.setattr(main, "run_on_server", lambda _, make, *__: asked.append(make()) or [])
    monkeypatch.setenv("FAIRFRONTIER_HOME", str(fresh))
    monkeypatch.setattr("sys.argv", ["flows", "reproduce", "--profile", profile])
    with pytest.raises(SystemExit) as end:
        main.main()
    assert end.value.code == code
    assert len(asked) == (code == 0)
    said = capsys.readouterr().err
    assert said.startswith(told)
    assert said.count("\n") == bool(told)


def test_studies_of_small_tables_come_first(fresh):
    for name, rows in (("a", 60), ("z", 20)):
        lines = (fresh / "data" / "raw" / "loans.csv").read_text().splitlines()[:rows]
        (fresh / "data" / "raw" / f"{name}.csv").write_text("\n".join(lines))
        dataset = (fresh / "conf" / "datasets" / "loans.yaml").read_text()
        dataset = dataset.replace("dataset: loans", f"dataset: {name}").replace(
            "loans.csv", f"{name}.csv"
        )
        (fresh / "conf" / "datasets" / f"{name}.yaml").write_text(dataset)
        study = FIGURES.replace("dataset: loans", f"dataset: {name}")
        (fresh / "conf" / "studies" / f"{name}.yaml").write_text(study)
    plan = ReproduceOptions(conf=str(fresh)).plan()
    assert [each.study for each in plan] == ["z", "a", "paper"]


def test_a_project_without_publications_is_told(fresh):
    (fresh / "conf" / "studies" / "paper.yaml").unlink()
    with pytest.raises(ConfigError):
        ReproduceOptions(conf=str(fresh)).plan()


@pytest.fixture
def impatient(monkeypatch):
    """Try a download again without a pause."""
    monkeypatch.setattr("fairfrontier.prepare.source.download.PAUSE_SECONDS", 0.0)


def add_far(home):
    """Let two studies reproduce something, of which one needs a file that is elsewhere."""
    path = home / "conf" / "datasets" / "loans.yaml"
    origins = "[{path: far.csv}, {url: 'http://127.0.0.1:9/loans.csv'}]"
    far = f"{{sha256: {'f' * 64}, sources: {origins}}}"
    (home / "conf" / "datasets" / "far.yaml").write_text(
        path.read_text()
        .replace("dataset: loans", "dataset: far")
        .replace("data/raw/loans.csv", far)
    )
    (home / "conf" / "studies" / "paper.yaml").unlink()
    for name in ("far", "loans"):
        study = FIGURES.replace("dataset: loans", f"dataset: {name}")
        (home / "conf" / "studies" / f"{name}.yaml").write_text(f"study: {name}\n{study}")


@pytest.mark.usefixtures("impatient")
def test_a_study_whose_data_cannot_be_reached_is_left_out_and_named(harness, fresh, capsys):
    add_far(fresh)
    done = reproduce(ReproduceOptions(cluster="inline", conf=str(fresh)))
    assert [each["study"] for each in done] == ["far", "loans"]
    assert "127.0.0.1" in done[0]["unavailable"]
    assert "folder" in done[1]
    assert "far is skipped: " in capsys.readouterr().out


@pytest.mark.usefixtures("impatient")
def test_a_study_whose_data_is_another_than_stated_is_a_fault(harness, fresh):
    add_far(fresh)
    (fresh / "far.csv").write_text("other")
    with pytest.raises(DataError, match=r"Study far: .*far\.csv has sha256") as caught:
        reproduce(ReproduceOptions(cluster="inline", conf=str(fresh)))
    assert caught.value.mend.startswith("Move it away")
