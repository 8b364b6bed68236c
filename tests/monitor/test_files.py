"""What `fairfrontier monitor` writes and prints."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pandas as pd
import pytest

import fairfrontier as ff
from fairfrontier.monitor.files import FILES
from fairfrontier.runtime import draft
from fairfrontier.runtime.errors import ConfigError
from fairfrontier.runtime.writer import holding
from tests.cli.process import children, wait_for
from tests.monitor.watched import make_bundle, make_rows
from tests.project import call_here, command, environment


def test_an_alarm_is_shown_written_and_the_exit_code(tmp_path):
    make_bundle(tmp_path)
    table = make_rows(1, 1500, 0.8).assign(region="<b>far</b>")
    table.to_csv(tmp_path / "2026-W47.csv", index=False)
    limit = ("--limit", "selection_rate_difference:sex=0.1")
    result = call_here(tmp_path, "monitor", "lines", "2026-W47.csv", *limit)
    assert result.returncode == 4, result.stderr
    assert "selection_rate:sex=woman" in result.stdout
    assert "Drifted beyond chance in 2026-W47" in result.stdout
    folder = tmp_path / "data/results/monitor/lines"
    assert {path.name for path in folder.iterdir()} == {*FILES, "rows@2026-W47.parquet"}
    summary = json.loads((folder / "monitor.json").read_text())
    assert summary["limits"][0]["alarm"] == "2026-W47"
    assert "selection_rate:sex=woman" in summary["raised"]
    assert "0.1, known since 2026-W47" in (folder / "report.html").read_text()
    # No row of the table is on the page.
    assert "1-17" not in (folder / "report.html").read_text().split("data:image")[0]
    assert len(pd.read_parquet(folder / "history.parquet")) > 0
    given = {"table": tmp_path / "2026-W47.csv", "out": folder}
    again = ff.monitor(tmp_path / "lines", **given)
    assert again["alarms"] == summary["alarms"]
    # It was no event so far.
    assert again["raised"] == summary["raised"]
    # Thresholds depend on the number of checks, which no later option changes.
    later = ff.monitor(tmp_path / "lines", minimum=2000, **given)
    assert later["counts"]["checks"] == summary["counts"]["checks"]
    make_rows(2, 300).drop(columns="outcome").to_csv(tmp_path / "2026-W48.csv", index=False)
    ff.monitor(tmp_path / "lines", table=tmp_path / "2026-W48.csv", out=folder)
    page = (folder / "report.html").read_text()
    assert re.search('alt="Rates by period[^"]* –, reference 0.', page)
    assert not re.search('alt="[^"]*nan', page)
    with pytest.raises(ConfigError, match="'acuracy' is no rate"):
        ff.monitor(tmp_path / "lines", limit="acuracy=0.8", **given)


def test_what_a_killed_run_raised_is_still_to_be_announced(tmp_path, monkeypatch):
    make_bundle(tmp_path)
    make_rows(1, 1500, 0.8).to_csv(tmp_path / "W1.csv", index=False)
    given = {"table": tmp_path / "W1.csv", "out": tmp_path / "out"}
    rename = draft._rename

    def kill(*names):
        rename(*names)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        # Right after the draft is complete.
        patch.setattr(draft, "_rename", kill)
        with pytest.raises(KeyboardInterrupt):
            ff.monitor(tmp_path / "lines", **given)
    found = ff.monitor(tmp_path / "lines", **given)
    assert not any(found["new"].values())
    assert found["raised"] == [alarm["name"] for alarm in found["alarms"]] != []


def test_a_first_period_that_was_killed_as_its_files_were_moved_goes_on(tmp_path, monkeypatch):
    make_bundle(tmp_path)
    make_rows(1, 300).to_csv(tmp_path / "W1.csv", index=False)
    out = tmp_path / "out"
    given = {"table": tmp_path / "W1.csv", "out": out}
    rename = draft._rename

    def kill(name, *rest):
        if name == "history.parquet":
            raise KeyboardInterrupt
        rename(name, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(draft, "_rename", kill)
        # The draft stays, as when a process is killed.
        patch.setattr(draft.shutil, "rmtree", lambda *_, **__: None)
        with pytest.raises(KeyboardInterrupt):
            ff.monitor(tmp_path / "lines", **given)
    assert (out / "drift.parquet").is_file()
    assert not (out / "history.parquet").exists()
    assert ff.monitor(tmp_path / "lines", **given)["counts"]["rows"] == 300


def test_rows_of_no_known_group_are_shown_and_a_limit_that_hides_behind_them_ends(tmp_path):
    make_bundle(tmp_path)
    table = make_rows(1, 300)
    table.assign(sex=table["sex"].str.upper()).to_csv(tmp_path / "W1.csv", index=False)
    limit = ("--limit", "selection_rate_difference:sex=0.1")
    result = call_here(tmp_path, "monitor", "lines", "W1.csv", *limit)
    assert result.returncode == 2
    assert "W1.csv are of no known group of sex" in result.stderr
    folder = tmp_path / "data/results/monitor/lines"
    assert not folder.exists()
    result = call_here(tmp_path, "monitor", "lines", "W1.csv")
    assert result.returncode == 0, result.stderr
    assert "300 of 300 rows of W1 are of no known group of sex." in result.stdout
    summary = json.loads((folder / "monitor.json").read_text())
    assert summary["periods"][0]["unknown"] == {"origin": 0, "sex": 300}
    assert "sex: 300" in (folder / "report.html").read_text()


@pytest.mark.slow
def test_periods_that_are_counted_at_once_are_both_in_the_history(tmp_path):
    make_bundle(tmp_path)
    folder = tmp_path / "history"
    processes = []
    # Both have looked at the history, and wait for it, before either may count.
    with holding(folder):
        for week in ("W1", "W2"):
            make_rows(int(week[1]), 300).to_csv(tmp_path / f"{week}.csv", index=False)
            words = command("monitor", "lines", f"{week}.csv", "--out", str(folder))
            where = {"cwd": tmp_path, "env": environment(tmp_path)}
            processes.append(
                subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, **where)
            )
        wait_for(
            lambda: all(
                any(opens(each, folder) for each in children(process.pid)) for process in processes
            )
        )
    said = [process.communicate(timeout=120)[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], said
    assert set(pd.read_parquet(folder / "history.parquet")["period"]) == {"W1", "W2"}
    assert {path.name for path in folder.iterdir()} >= {"rows@W1.parquet", "rows@W2.parquet"}


def opens(process, folder):
    """Return whether a process has a folder open."""
    handles = Path(f"/proc/{process}/fd").iterdir()
    return folder in [handle.readlink() for handle in handles if handle.is_symlink()]
