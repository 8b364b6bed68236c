"""Periods and labels that come later are counted once, and compared with the reference."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import fairfrontier as ff
from fairfrontier.deployment import scoring
from fairfrontier.deployment.bundle import load_bundle
from fairfrontier.deployment.config import MonitorConfig
from fairfrontier.deployment.history import DRIFT, HISTORY, count_period, name_kept, write_table
from fairfrontier.deployment.monitoring import FILES, watch
from fairfrontier.runtime import writer
from fairfrontier.runtime.errors import ConfigError, DataError, StoreError
from fairfrontier.runtime.writer import holding
from tests.cli.process import wait_for
from tests.deployment.watched import make_bundle, make_rows
from tests.project import call_here, command, environment


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return make_bundle(tmp_path_factory.mktemp("watched"))


def count_rows(bundle, folder, rows, period, /, **options):
    """Count rows as a period, and keep the history but draw nothing."""
    table = folder / f"{period}.csv"
    rows.to_csv(table, index=False)
    out = folder / "history"
    given = {"bundle": bundle, "table": table, "period": period, "out": out, **options}
    found = watch(MonitorConfig(**given))
    out.mkdir(exist_ok=True)
    found.history.write(out)
    if found.kept is not None:
        write_table(found.kept, out / name_kept(period))
    return found


@pytest.fixture
def keep(bundle, tmp_path):
    """Return a function that counts rows as a period of this test's history."""
    return partial(count_rows, bundle, tmp_path)


@pytest.fixture(scope="module")
def first(bundle, tmp_path_factory):
    """Return folders in which 50 rows are counted as W1, with their labels and without."""
    labelled, later = tmp_path_factory.mktemp("labelled"), tmp_path_factory.mktemp("later")
    count_rows(bundle, labelled, make_rows(7, 50), "W1")
    count_rows(bundle, later, make_rows(7, 50).drop(columns="outcome"), "W1")
    return labelled, later


def rate_of(found, rate, group, period):
    table = found.rates.set_index(["rate", "group", "period"])
    return float(table.loc[(rate, group, period), "value"])


@pytest.mark.parametrize("labelled", [0, 1])
def test_labels_that_only_some_files_have_are_missed(bundle, tmp_path, labelled):
    for number in (0, 1):
        rows = make_rows(number, 50)
        kept = rows if number == labelled else rows.drop(columns="outcome")
        kept.to_parquet(tmp_path / f"{number}.parquet")
    config = MonitorConfig(bundle=bundle, table=tmp_path, period="W1", out=tmp_path / "history")
    with pytest.raises(ConfigError, match="has no column 'outcome'"):
        watch(config)


def test_rates_are_those_of_the_bundles_decisions(bundle, keep):
    rows = make_rows(1, 800)
    found = keep(rows, "W1")
    decision = load_bundle(bundle).decide(rows)["decision"].astype(int)
    y, woman = rows["outcome"] == "repaid", rows["sex"] == "woman"
    assert rate_of(found, "selection_rate", "woman", "W1") == pytest.approx(decision[woman].mean())
    assert rate_of(found, "tpr", "woman", "W1") == pytest.approx(decision[woman & y].mean())
    assert rate_of(found, "fpr", "woman", "W1") == pytest.approx(decision[woman & ~y].mean())
    assert rate_of(found, "accuracy", "", "W1") == pytest.approx((decision == y).mean())
    # Too few in the reference, or in this period.
    assert "elsewhere" not in set(found.rates["group"])
    assert np.isnan(rate_of(found, "selection_rate", "other", "W1"))
    assert set(found.history.drift["column"]) == {"score", "income", "region"}


def test_a_period_is_counted_once(keep):
    rows = make_rows(2, 300)
    first = keep(rows, "W1")
    assert first.new == {"rows": 300, "labels": 300, "ignored": 0}
    again = keep(rows, "W1")
    assert again.new == {"rows": 0, "labels": 0, "ignored": 0}
    pd.testing.assert_frame_equal(again.history.counts, first.history.counts)
    with pytest.raises(ConfigError, match="was counted already, as the period W1"):
        keep(rows, "W2")
    with pytest.raises(DataError, match=r"No row of .* has an id of the period W1"):
        keep(make_rows(3, 300), "W1")


def test_chances_of_labels_that_come_later_are_summed_in_any_order(keep, tmp_path):
    rows = make_rows(4, 400)
    keep(rows.drop(columns="outcome"), "W1")
    history = keep(rows[["outcome", "case"]].head(150), "W1").history
    at = (history.counts["rows"] == 0) & (history.counts["group"] == "woman")
    history.counts.loc[at & (history.counts["true_positive"] > 0), "true_positive"] += 1e-12
    history.write(tmp_path / "history")
    assert keep(rows[["outcome", "case"]], "W1").new == {"rows": 0, "labels": 250, "ignored": 150}


def test_labels_that_come_later_count_as_if_they_had_come_at_once(keep, tmp_path):
    rows = make_rows(4, 400)
    keep(rows.drop(columns="outcome"), "W1")
    half = rows.iloc[:250]
    found = keep(half[["outcome", "case"]], "W1")
    assert found.new == {"rows": 0, "labels": 250, "ignored": 0}
    # A table of all labels so far has some that are known.
    late = keep(rows.sample(frac=1.0, random_state=0), "W1")
    assert late.new == {"rows": 0, "labels": 150, "ignored": 250}
    shutil.rmtree(tmp_path / "history")
    whole = keep(rows, "W1")
    pd.testing.assert_frame_equal(late.rates, whole.rates)
    assert late.history.entries["rows"].tolist() == [400, 0, 0]


@pytest.mark.parametrize("later", [False, True])
def test_labels_written_another_way_are_refused_and_can_be_corrected(keep, later):
    rows = make_rows(10, 200)
    if later:
        keep(rows.drop(columns="outcome"), "W1")
    for written in ({"repaid": "Repaid"}, {"repaid": 1, "not": 0}):
        other = rows.assign(outcome=rows["outcome"].replace(written))
        with pytest.raises(DataError, match=r"column 'outcome' holds '(Repaid|0|1)' in row \d+"):
            keep(other, "W1")
    assert keep(rows, "W1").new["labels"] == 200
    if later:
        # Of rows that are not of the period, nothing is counted, and nothing is wrong.
        extra = make_rows(11, 2).assign(outcome="other")
        assert keep(pd.concat([rows, extra]), "W1").new["ignored"] == 200


@pytest.mark.parametrize("undecided", [False, True])
def test_a_row_that_comes_twice_is_not_counted_twice(keep, tmp_path, undecided):
    rows = make_rows(5, 60)
    again = rows.iloc[[7]].assign(income="much") if undecided else rows.iloc[[7]]
    with pytest.raises(DataError, match="'5-7' occurs twice"):
        keep(pd.concat([rows, again]).drop(columns="outcome"), "W1")
    assert not (tmp_path / "history").exists()
    assert keep(rows.drop(columns="outcome"), "W1").new["rows"] == 60
    assert keep(rows, "W1").new["labels"] == 60


def test_labels_need_row_ids_of_their_own(keep):
    rows = make_rows(5, 60)
    keep(rows.drop(columns="outcome"), "W2")
    with pytest.raises(ConfigError, match="no column 'outcome' of labels"):
        keep(rows.drop(columns="outcome").iloc[1:], "W2")
    with pytest.raises(DataError, match=r"'5-0' occurs twice in .*W2\.csv"):
        keep(rows.iloc[[0, 1, 0]], "W2")


def test_counts_do_not_depend_on_how_a_table_is_read(keep, tmp_path, monkeypatch):
    rows = make_rows(6, 200)
    whole = keep(rows, "W1").history.counts
    shutil.rmtree(tmp_path / "history")
    monkeypatch.setattr(scoring, "BATCH_ROWS", 37)
    monkeypatch.setattr("fairfrontier.prepare.table.text.BLOCK_BYTES", 1 << 11)
    shuffled = keep(rows.sample(frac=1.0, random_state=1), "W1").history.counts
    columns = [name for name in whole if name != "digest"]
    pd.testing.assert_frame_equal(shuffled[columns], whole[columns])


def test_text_is_written_as_the_dataset_of_the_bundle_says(bundle, tmp_path):
    loaded, rows = load_bundle(bundle), make_rows(7, 300)
    found = []
    for separator in (",", ";"):
        source = loaded.encoder.config.source.model_copy(update={"separator": separator})
        config = loaded.encoder.config.model_copy(update={"source": source})
        object.__setattr__(loaded.encoder, "config", config)
        rows.to_csv(tmp_path / "rows.csv", index=False, sep=separator)
        counted = count_period(loaded, tmp_path / "rows.csv", "case", lambda _: None)
        found.append(counted.counts)
    pd.testing.assert_frame_equal(*found)


@pytest.mark.parametrize("absent", [False, True])
def test_rows_of_no_known_group_are_counted_and_may_not_hide_a_limit(keep, tmp_path, absent):
    rows = make_rows(12, 300)
    strange = rows.assign(sex=None) if absent else rows.assign(sex=rows["sex"].str.upper())
    limit = "selection_rate_difference:sex=0.1"
    with pytest.raises(DataError, match=r"300 rows of .* --limit selection_rate_.*: man, woman\."):
        keep(strange, "W1", limit=limit)
    with pytest.raises(DataError):
        # One group alone can be compared with none.
        keep(rows.assign(sex=rows["sex"].replace("woman", "female")), "W1", limit=limit)
    assert not (tmp_path / "history").exists()
    few = rows["sex"].where(rows.index > 4, "other")
    found = keep(rows.assign(sex=few), "W1", limit=limit)
    assert found.history.count_unknown("W1") == {"origin": 0, "sex": 5}
    # Known groups are judged where others are not known; so are all rows.
    half = rows.iloc[::2]["sex"].str.upper()
    other = make_rows(13, 300)
    found = keep(other.assign(sex=half.reindex(rows.index).fillna(other["sex"])), "W2")
    assert found.history.count_unknown("W2") == {"origin": 0, "sex": 150}
    # What is in a small period says nothing of how groups are written.
    assert keep(strange.iloc[:9].assign(case=range(9)), "W3").new["rows"] == 9
    shutil.rmtree(tmp_path / "history")
    alone = keep(strange, "W1", limit="accuracy=0.5")
    assert alone.history.count_unknown("W1") == {"origin": 0, "sex": 300}


def test_what_changed_raises_an_alarm_that_stays_and_what_did_not_none(keep):
    limits = "selection_rate_difference:sex=0.1,accuracy=0.5"
    alarms = []
    for week in range(5):
        rows = make_rows(100 + week, 700, lower=0.6 if week in (2, 3) else 0.0)
        found = keep(rows, f"W{week}", limit=limits if week == 0 else None)
        alarms.append(dict(found.alarms[["name", "alarm"]].to_numpy().tolist()))
    assert alarms[:2] == [{}, {}]
    assert alarms[3]["selection_rate:sex=woman"] == "W2"
    assert "selection_rate_difference:sex" in alarms[3]
    assert not {"accuracy", "selection_rate:sex=man", "tpr:sex=man"} & {*alarms[4]}
    assert alarms[4].items() >= alarms[3].items()
    checks = found.checks.set_index("name")
    assert ((checks["p"] <= 0.05) == (checks["alarm"] != "")).all()


def test_a_history_of_another_bundle_or_with_other_limits_is_refused(keep, tmp_path):
    keep(make_rows(7, 50), "W1", limit="accuracy=0.5")
    other = make_bundle(tmp_path / "other", seed=9)
    with pytest.raises(ConfigError):
        keep(make_rows(8, 50), "W2", bundle=other)
    with pytest.raises(ConfigError, match="--limit is not that of the history"):
        keep(make_rows(8, 50), "W2", limit="accuracy=0.6")
    with pytest.raises(ConfigError, match="--alpha is not that of the history"):
        keep(make_rows(8, 50), "W2", alpha=0.2)
    assert len(keep(make_rows(8, 50), "W2", limit="accuracy=0.5").history.periods) == 2


@pytest.mark.parametrize("content", [b"PAR1", None])
def test_a_damaged_history_is_one_sentence(keep, tmp_path, content):
    keep(make_rows(7, 50), "W1")
    path = tmp_path / "history" / HISTORY
    if content is None:
        pd.DataFrame({"entry": [1]}).to_parquet(path)
    else:
        path.write_bytes(content)
    with pytest.raises(StoreError):
        keep(make_rows(8, 50), "W2")


def change(facts=None, **columns):
    """Return a function that changes columns of a history, and what is kept beside them."""

    def change_table(table):
        table = table.assign(**columns)
        table.attrs.update(facts or {})
        return table

    return change_table


@pytest.mark.parametrize(
    "damage",
    [
        change({"announced": ["accuracy"]}),
        change({"alpha": 0.5}),
        change(unknown=1.5),
        change(entry=lambda table: table["entry"] + 1),
        change(group=lambda table: table["group"].replace("man", "men")),
        lambda table: table.iloc[:-3],
    ],
)
def test_a_history_that_was_changed_is_one_sentence(first, keep, tmp_path, damage):
    shutil.copytree(first[0], tmp_path, dirs_exist_ok=True)
    path = tmp_path / "history" / HISTORY
    table = pd.read_parquet(path)
    facts = dict(table.attrs)
    changed = damage(table)
    changed.attrs = {**facts, **changed.attrs}
    changed.to_parquet(path, index=False)
    with pytest.raises(StoreError):
        keep(make_rows(8, 50), "W2")


@pytest.mark.parametrize(
    "damage", [change(probability=7.0), change(batch=-1), change(label=1.0), change(more=1)]
)
def test_decisions_that_were_changed_are_one_sentence_and_no_part_of_the_history(
    first, keep, tmp_path, damage
):
    rows = make_rows(7, 50)
    shutil.copytree(first[1], tmp_path, dirs_exist_ok=True)
    path = tmp_path / "history" / name_kept("W1")
    table = pd.read_parquet(path)
    changed = damage(table)
    changed.attrs = table.attrs
    changed.to_parquet(path, index=False)
    with pytest.raises(StoreError):
        keep(rows, "W1")


@pytest.mark.parametrize("instead", ["nothing", "a pipe", "a link"])
@pytest.mark.parametrize("name", [HISTORY, DRIFT, name_kept("W1")])
def test_a_history_whose_file_is_gone_is_not_begun_anew(first, keep, tmp_path, name, instead):
    rows = make_rows(7, 50)
    shutil.copytree(first[1], tmp_path, dirs_exist_ok=True)
    path = tmp_path / "history" / name
    path.unlink()
    if instead == "a pipe":
        os.mkfifo(path)
    elif instead == "a link":
        path.symlink_to("/nowhere/at/all")
    refused = ConfigError if (name, instead) == (name_kept("W1"), "nothing") else StoreError
    with pytest.raises(refused, match=r"there is no file|without row ids"):
        keep(rows, "W1")


def test_rows_that_cannot_be_used_are_one_sentence(keep):
    rows = make_rows(9, 50)
    for missing, match in (("income", "no column 'income'"), ("sex", "by which groups are told")):
        with pytest.raises(ConfigError, match=match):
            keep(rows.drop(columns=missing), "W1")
    with pytest.raises(ConfigError, match="no column 'outcome', in which labels are"):
        keep(rows.drop(columns="outcome"), "W1", labelled=True)
    with pytest.raises(DataError, match=r"No row of .* has a label"):
        keep(rows.assign(outcome=""), "W1", labelled=True)
    with pytest.raises(DataError, match=r"No row of .* can be decided: income is"):
        keep(rows.assign(income="much"), "W1")
    with pytest.raises(ConfigError, match="names 'job', which the bundle does not know"):
        keep(rows, "W1", limit="tpr_ratio:job=0.8")
    with pytest.raises(ConfigError, match="no column 'case'"):
        keep(rows.drop(columns="case"), "W1")


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.from_pandas, pa.Table.from_pandas])
def test_periods_are_frames_of_any_kind(tmp_path, kind):
    make_bundle(tmp_path)
    rows = make_rows(3, 300)
    rows.to_csv(tmp_path / "W49.csv", index=False)
    of_file = ff.monitor(tmp_path / "lines", table=tmp_path / "W49.csv", out=tmp_path / "a")
    options = {"table": kind(rows), "out": tmp_path / "b"}
    found = ff.monitor(tmp_path / "lines", period="W49", **options)
    assert found["counts"] == of_file["counts"]
    assert found["drift"] == of_file["drift"]
    with pytest.raises(ConfigError):
        ff.monitor(tmp_path / "lines", **options)


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
    rename = Path.rename

    def kill(path, target):
        moved = rename(path, target)
        if target.name == writer.COMPLETE:
            raise KeyboardInterrupt
        return moved

    with monkeypatch.context() as patch:
        # Right after the draft is complete.
        patch.setattr(Path, "rename", kill)
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
    replace = Path.replace

    def kill(path, target):
        if path.name == "history.parquet":
            raise KeyboardInterrupt
        return replace(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", kill)
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
            with (tmp_path / f"{week}.log").open("w") as log:
                processes.append(subprocess.Popen(words, stdout=log, stderr=log, **where))
        logs = [tmp_path / f"{week}.log" for week in ("W1", "W2")]
        wait_for(lambda: all("Waiting for another process" in log.read_text() for log in logs))
    codes = [process.wait(timeout=120) for process in processes]
    assert codes == [0, 0], [log.read_text() for log in logs]
    assert set(pd.read_parquet(folder / "history.parquet")["period"]) == {"W1", "W2"}
    assert {path.name for path in folder.iterdir()} >= {"rows@W1.parquet", "rows@W2.parquet"}
