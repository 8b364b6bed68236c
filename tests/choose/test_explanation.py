"""What bundles' scores are made of: by raw column, by group, in the card and from the command."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
from scipy.special import logit

import fairfrontier as ff
from fairfrontier.choose.config import ExplainConfig
from fairfrontier.choose.explanation import Explanation, draw_rows, explain_table
from fairfrontier.cli.command import app
from fairfrontier.cli.terminal import run_app
from fairfrontier.prepare.table import text
from fairfrontier.runtime.errors import DataError
from fairfrontier.runtime.text_file import read_csv
from tests.choose.test_bundle import choose

COLUMNS = ["income", "age", "region", "job"]


@pytest.fixture(scope="module")
def folders(loans, tmp_path_factory):
    base = tmp_path_factory.mktemp("explained")
    return {name: choose(loans, name).export(base / name) for name in ("gbdt", "linear", "drawn")}


@pytest.mark.parametrize("method", ["gbdt", "linear", "drawn"])
def test_values_of_raw_columns_add_up_to_the_scores(folders, raw, method):
    explanation = ff.explain(folders[method], raw)
    assert explanation.unit == "log-odds"
    assert list(explanation.values) == COLUMNS
    decided = ff.load_bundle(folders[method]).decide(raw)
    kept = decided[decided["refused"] == ""]
    assert explanation.values.index.equals(kept.index)
    scores = logit(kept["score"])
    np.testing.assert_allclose(explanation.base + explanation.values.sum(axis=1), scores, atol=1e-5)
    # So do the means of a group.
    table = explanation.tabulate().set_index(["attribute", "level"])
    for level in ("north", "south", "island"):
        rows = raw.loc[kept.index, "origin"] == level
        group = table.loc["origin", level]
        assert (group["n"] == rows.sum()).all()
        gap = scores[rows].mean() - explanation.base
        assert group["mean"].sum() == pytest.approx(gap, abs=1e-5)


@pytest.mark.parametrize("method", ["gbdt", "linear"])
def test_neither_the_order_of_rows_nor_of_columns_matters(folders, raw, method):
    values = ff.explain(folders[method], raw).values
    shuffled = raw.sample(frac=1, random_state=1)[raw.columns[::-1]]
    again = ff.explain(folders[method], shuffled).values.loc[values.index]
    pd.testing.assert_frame_equal(again, values, atol=1e-12)


def test_levels_of_few_rows_are_one_and_fewer_have_no_means(folders, raw):
    some = pd.concat([raw[raw["origin"] == "north"][:40], raw[raw["origin"] == "south"][:6]])
    some = pd.concat([some, raw[raw["origin"] == "island"][:7]])
    explanation = ff.explain(folders["linear"], some.assign(age=30))
    table = explanation.tabulate(10)
    levels = table[table["attribute"] == "origin"].groupby("level", sort=False)["n"].first()
    assert levels.to_dict() == {"north": 40, "other (2 levels)": 13}
    assert table["mean"].notna().all()
    table = explanation.tabulate(20).set_index("level")
    assert table.loc["other (2 levels)", ["mean", "mean_abs"]].isna().all(axis=None)
    assert explanation.tabulate(60)["mean"].isna().all()


def test_means_are_those_of_the_values():
    values = pd.DataFrame({"a": [1.0, -1.0, 2.0], "b": [-3.0, -3.0, 0.0]})
    groups = pd.DataFrame({"sex": pd.Categorical(["f", "m", None])})
    table = Explanation(values, 0.0, "log-odds", groups, {}).tabulate(1)
    assert table.to_numpy().tolist() == [
        ["", "", 3, "b", 2.0, -2.0],
        ["", "", 3, "a", pytest.approx(4 / 3), pytest.approx(2 / 3)],
        ["sex", "f", 1, "b", 3.0, -3.0],
        ["sex", "f", 1, "a", 1.0, 1.0],
        ["sex", "m", 1, "b", 3.0, -3.0],
        ["sex", "m", 1, "a", 1.0, -1.0],
    ]


def test_rows_of_a_table_are_drawn_the_same_in_any_batches(folders, raw, tmp_path, monkeypatch):
    path = tmp_path / "table.csv"
    raw.to_csv(path, index=False)
    config = ExplainConfig(bundle=folders["gbdt"], table=path, rows=120)
    whole = explain_table(config).values
    drawn = draw_rows(raw, 120)
    assert len(drawn) == 120
    assert whole.index.equals(drawn.index[drawn["age"] >= 20])
    monkeypatch.setattr(text, "BLOCK_BYTES", 2000)
    pd.testing.assert_frame_equal(explain_table(config).values, whole)


def test_the_command_leaves_a_table_and_a_figure(folders, raw, tmp_path, monkeypatch, capsys):
    raw.to_csv(tmp_path / "table.csv", index=False)
    monkeypatch.chdir(tmp_path)
    run(monkeypatch, folders["gbdt"], "table.csv", "--out", "made")
    told = capsys.readouterr().out
    assert "in log-odds" in told
    assert {path.name for path in (tmp_path / "made").iterdir()} == {"explain.csv", "explain.png"}
    table = read_csv(tmp_path / "made" / "explain.csv")
    explanation = ff.explain(folders["gbdt"], raw)
    assert list(table) == ["attribute", "level", "n", "column", "mean_abs", "mean", "base", "unit"]
    np.testing.assert_allclose(table["mean"], explanation.tabulate()["mean"], atol=1e-9)
    lines = {line.split()[0]: line.split()[-2:] for line in told.splitlines() if line.strip()}
    shown = [number for name in explanation.values.columns for number in lines[name]]
    assert all(re.fullmatch(r"−?\d+\.\d{3}", number) for number in shown)


def test_levels_that_training_had_not_are_told(folders, raw, tmp_path, monkeypatch, capsys):
    raw.assign(region="0" + raw["region"].astype("str")).to_csv(tmp_path / "t.csv", index=False)
    monkeypatch.chdir(tmp_path)
    run(monkeypatch, folders["gbdt"], "t.csv", "--out", "made")
    told = " ".join(capsys.readouterr().out.split())
    assert "No cell of region is a level that training had" in told
    assert not ff.explain(folders["gbdt"], raw).unseen


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda raw: raw.drop(columns="job"), "has no column 'job', which the model decides by"),
        (lambda raw: raw[:0], "holds no rows"),
        (lambda raw: raw.assign(age=3), "No row can be explained: age is outside"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_written(
    folders, raw, tmp_path, monkeypatch, capsys, change, told
):
    change(raw).to_csv(tmp_path / "table.csv", index=False)
    monkeypatch.chdir(tmp_path)
    run(monkeypatch, folders["gbdt"], "table.csv", "--out", "made", code=2)
    assert told in " ".join(capsys.readouterr().err.split())
    assert [path.name for path in tmp_path.iterdir()] == ["table.csv"]


def test_groups_may_be_missing_where_no_rule_needs_them(folders, raw):
    explanation = ff.explain(folders["gbdt"], raw.drop(columns="origin"))
    assert set(explanation.tabulate()["attribute"]) == {"", "old"}
    with pytest.raises(DataError, match="No row can be explained: there is none"):
        ff.explain(folders["gbdt"], raw[:0])


def run(monkeypatch, *words: object, code: int = 0) -> None:
    monkeypatch.setattr("sys.argv", ["fairfrontier", "explain", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        run_app(app)
    assert (ended.value.code or 0) == code
