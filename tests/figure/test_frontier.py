from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from fairfrontier.figure.frontier import (
    choose_looks,
    draw_frontier,
    find_swept,
    name_measure,
    open_figure,
)
from fairfrontier.runtime.errors import ConfigError
from fairfrontier.study.frontier import build_frontier, list_fits
from tests.study.synthetic import make_plan, make_points, make_study

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(scope="module")
def frontier():
    study = make_study()
    plan = make_plan(study)
    return build_frontier(
        make_points(plan),
        list_fits(plan, "frontier"),
        study.frontier.accuracy,
        study.frontier.fairness,
        study.select_on,
    )


def test_the_same_picture_is_the_same_bytes(frontier):
    first = draw_frontier(frontier, "balanced_accuracy", "validation", title="toy")
    assert first.startswith(PNG)
    assert first == draw_frontier(frontier, "balanced_accuracy", "validation", title="toy")
    # Neither a date nor the version of the library is in the file.
    assert b"tEXt" not in first
    assert b"tIME" not in first


def test_a_frontier_without_a_single_number_is_still_drawn(frontier):
    empty = frontier.assign(accuracy=np.nan, fairness_value=np.nan, on_frontier=False)
    assert draw_frontier(empty, "balanced_accuracy", "validation").startswith(PNG)


def test_mixtures_are_drawn(frontier):
    name = "gap_rms:sex"
    mixtures = pd.DataFrame(
        {"fairness": name, "piece": 0, "accuracy": [0.7, 0.8], "fairness_value": [0.1, 0.2]}
    )
    one = frontier.loc[frontier["fairness"] == name]
    drawn = draw_frontier(one, "balanced_accuracy", "validation", mixtures=mixtures)
    assert drawn.startswith(PNG)
    assert drawn != draw_frontier(one, "balanced_accuracy", "validation")


def test_one_measure_makes_one_panel(frontier):
    one = frontier.loc[frontier["fairness"] == "gap_rms:sex"]
    assert draw_frontier(one, "balanced_accuracy", "train").startswith(PNG)


def test_dollar_signs_in_labels_are_no_mathematics(frontier):
    odd = frontier.assign(method=frontier["method"].str.replace("budro", r"a$\frac{$b"))
    assert draw_frontier(odd, "balanced_accuracy", "train", title="$x_$").startswith(PNG)


def test_swept_parameters_are_those_that_differ(frontier):
    settings = frontier.groupby("method")["setting"].unique()
    assert find_swept(map(json.loads, settings["budro"])) == ["budget"]
    assert find_swept(map(json.loads, settings["gbdt"])) == []


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("balanced_accuracy", "Balanced accuracy"),
        ("gap_rms:sex", "RMS gap, sex"),
        ("consistency:gender_race", "Consistency, gender and race"),
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
def test_no_file_of_the_current_folder_changes_a_picture(frontier, tmp_path):
    (tmp_path / "matplotlibrc").write_text("axes.facecolor: 000000\ntext.usetex: True\n")
    frontier.to_parquet(tmp_path / "frontier.parquet")
    code = """
import sys, pandas as pd
from fairfrontier.figure.frontier import draw_frontier
table = pd.read_parquet("frontier.parquet")
sys.stdout.buffer.write(draw_frontier(table, "balanced_accuracy", "validation", title="toy"))
"""
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        check=True,
    )
    assert done.stdout == draw_frontier(frontier, "balanced_accuracy", "validation", title="toy")


def test_a_matplotlibrc_that_cannot_be_read_is_one_sentence(tmp_path, monkeypatch):
    (tmp_path / "matplotlibrc").write_bytes(b"\xff")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "matplotlib", raising=False)
    with pytest.raises(ConfigError), open_figure(1.0, 1.0):
        pass
