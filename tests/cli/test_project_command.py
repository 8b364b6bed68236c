from __future__ import annotations

import pytest

from tests.project import call, call_here, make_table


@pytest.fixture
def home(tmp_path):
    table = make_table(300).rename(columns={"origin": "ethnicity"})
    table.to_csv(tmp_path / "loans.csv", index=False, sep=";")
    return tmp_path


def test_what_is_next_is_said(home):
    result = call_here(home, "init", "loans.csv")
    assert result.returncode == 0, result.stderr
    first, written, last = result.stdout.splitlines()
    assert first.startswith("loans.csv: label outcome = repaid; protected ethnicity, age; ")
    assert written == "Drafted conf/datasets/loans.yaml and conf/studies/loans.yaml."
    assert last == "Next: fairfrontier run loans"
    again = call_here(home, "init", "loans.csv")
    assert again.returncode == 2
    assert len(again.stderr.splitlines()) == 1


def test_a_draft_in_a_project_above_says_so(home):
    (home / "conf" / "datasets").mkdir(parents=True)
    (home / "data").mkdir()
    result = call_here(home / "data", "init", "../loans.csv", FAIRFRONTIER_HOME=str(home))
    assert result.returncode == 0, result.stderr
    _, written, last = result.stdout.splitlines()
    assert written.endswith(f"../conf/studies/loans.yaml, in the project {home}.")
    assert last == "Next: fairfrontier run loans"


@pytest.mark.slow
def test_the_first_frontier_needs_no_edit(home):
    assert call(home, "init", "loans.csv").returncode == 0
    result = call(home, "run", "loans", "--cluster", "inline")
    assert result.returncode == 0, result.stderr
    assert (home / "data" / "results" / "loans" / "report.html").is_file()
