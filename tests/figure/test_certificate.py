import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairfrontier.figure.certificate import (
    TOLERANCE,
    draw_certificate,
    refuse_regressions,
    spread_labels,
    trace_lines,
)
from fairfrontier.figure.certified import certify_chosen
from fairfrontier.prepare.config.dataset import read_dataset
from fairfrontier.runtime.errors import ConfigError, StoreError
from fairfrontier.runtime.store import Store


def test_lines_pass_through_the_studys_own_budgets(certified):
    lines = trace_lines(certified)
    chosen = list(certify_chosen(certified))
    assert len(lines) == sum(len(each.certificates) for each in chosen)
    assert len({(each.label, each.loss) for each in lines}) == len(lines)
    certificates = [found for each in chosen for found in each.certificates]
    for line, found in zip(lines, certificates, strict=True):
        assert line.loss == found.loss
        assert np.all(np.diff(line.budget) > 0)
        assert np.all(np.diff(line.value) >= 0)
        assert np.all((line.low <= line.value) & (line.value <= line.high))
        # As a concave function of the budget has it.
        slope = np.diff(line.value) / np.diff(line.budget)
        assert np.all(np.diff(slope) <= 0.01 * slope[0])
        for gap in found.gaps:
            there = line.value[line.budget == gap.budget]
            assert there == pytest.approx([gap.value], rel=TOLERANCE, abs=1e-12)


def test_labels_say_what_a_rows_settings_differ_in(certified):
    labels = {each.label for each in trace_lines(certified)}
    assert labels <= {"linear", "threshold", "tree n estimators 3", "tree n estimators 6"}
    assert "linear" in labels


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12), st.floats(0.01, 0.3))
def test_labels_are_moved_apart_and_no_further_than_needed(heights, gap):
    height = np.array(heights)
    placed = spread_labels(height, gap)
    order = np.argsort(height, kind="stable")
    assert np.all(np.diff(placed[order]) >= gap - 1e-9)
    assert placed.min() >= 0
    room = gap * (len(height) - 1) <= 1
    assert placed.max() <= 1 + 1e-9 if room else placed.min() == 0
    # The optimum's conditions: a run of touching labels keeps its mean unless it is at an end of
    # the axis, which pushes it inwards, and pulls apart nowhere.
    runs = np.split(order, np.flatnonzero(np.diff(placed[order]) > gap + 1e-9) + 1)
    for run in runs:
        pull = np.cumsum(placed[run] - height[run])
        at_foot, at_top = placed[run[0]] < 1e-9, placed[run[-1]] > 1 - 1e-9
        if not at_foot and not at_top:
            assert pull[-1] == pytest.approx(0, abs=1e-9)
        if not at_foot:
            assert np.all(pull <= 1e-9)
        if not at_top:
            assert np.all(pull[-1] - pull >= -1e-9)


def test_the_picture_and_its_words(certified):
    from matplotlib.image import imread

    picture = draw_certificate(certified)
    assert imread(io.BytesIO(picture.png)).shape[2] == 4
    assert "linear" in picture.alt
    assert "at ε = 0.5" in picture.alt


def test_what_cannot_be_drawn_is_refused(certified, tmp_path):
    bare = certified.study.model_copy(update={"certificate": None})
    with pytest.raises(ConfigError, match="certifies nothing"):
        trace_lines(replace(certified, study=bare))
    with pytest.raises(StoreError, match="no certified model"):
        trace_lines(replace(certified, store=Store(tmp_path)))
    datasets = Path(__file__).resolve().parents[2] / "conf" / "datasets"
    assert "no classes" in str(refuse_regressions(read_dataset(datasets / "communities.yaml")))
    assert refuse_regressions(read_dataset(datasets / "adult.yaml")) is None
