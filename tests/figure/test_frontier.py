from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from fairfrontier.figure.frontier import (
    choose_looks,
    draw_charts,
    find_swept,
    name_measure,
    open_figure,
    trace_chart,
)
from fairfrontier.runtime.errors import ConfigError
from fairfrontier.study.frontier import list_fits, summarise
from tests.study.synthetic import make_plan, make_points, make_study

PNG = b"\x89PNG\r\n\x1a\n"


MEASURES = ("gap_rms:sex", "gap_rms:race", "consistency:spouse")


@pytest.fixture(scope="module")
def table():
    plan = make_plan(make_study())
    return summarise(make_points(plan), list_fits(plan, "frontier"), "test")


def trace(table, measures=MEASURES, prices=()):
    return [trace_chart(table, "balanced_accuracy", each, prices) for each in measures]


def test_the_same_picture_is_the_same_bytes(table):
    prices = [
        {"measure": "gap_rms:sex", "bound": bound, "method": method, "setting": setting,
         "suggested": bound is not None}
        for bound, method in ((None, "gbdt"), (0.1, "reweigh"))
        for setting in table.loc[table["method"] == method, "setting"].unique()
    ]  # fmt: skip
    first = draw_charts(trace(table, prices=prices), "$x_$")
    assert first.startswith(PNG)
    assert first == draw_charts(trace(table, prices=prices), "$x_$")
    assert first != draw_charts(trace(table), "$x_$")
    # Neither a date nor the version of the library is in the file.
    assert b"tEXt" not in first
    assert b"tIME" not in first


def test_charts_without_a_single_number_are_still_drawn(table):
    empty = table.assign(value=np.nan)
    assert draw_charts(trace(empty, MEASURES[:1])).startswith(PNG)


def test_swept_parameters_are_those_that_differ(table):
    settings = table.groupby("method")["setting"].unique()
    assert find_swept(map(json.loads, settings["budro"])) == ["budget"]
    assert find_swept(map(json.loads, settings["gbdt"])) == []


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("balanced_accuracy", "Balanced accuracy"),
        ("gap_rms:sex", "RMS gap, sex"),
        ("consistency:gender_race", "Consistency, gender race"),
        ("tpr_difference:race", "TPR difference, race"),
        ("selection_rate_ratio:sex×race", "Selection rate ratio, sex×race"),
    ],
)
def test_names_for_readers(name, shown):
    assert name_measure(name) == shown


def test_many_methods_can_be_told_apart():
    looks = choose_looks(f"method{i}" for i in range(72))
    assert len(set(looks.values())) == 72


@pytest.mark.once
def test_no_file_of_the_current_folder_changes_a_picture(table, tmp_path):
    (tmp_path / "matplotlibrc").write_text("axes.facecolor: 000000\ntext.usetex: True\n")
    table.to_parquet(tmp_path / "table.parquet")
    code = """
import sys, pandas as pd
from fairfrontier.figure.frontier import draw_charts, trace_chart
table = pd.read_parquet("table.parquet")
sys.stdout.buffer.write(draw_charts([trace_chart(table, "balanced_accuracy", "gap_rms:sex")]))
"""
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        check=True,
    )
    assert done.stdout == draw_charts(trace(table, MEASURES[:1]))


def test_a_matplotlibrc_that_cannot_be_read_is_one_sentence(tmp_path, monkeypatch):
    (tmp_path / "matplotlibrc").write_bytes(b"\xff")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "matplotlib", raising=False)
    with pytest.raises(ConfigError), open_figure(1.0, 1.0):
        pass
