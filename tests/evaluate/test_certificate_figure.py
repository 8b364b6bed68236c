import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tasks.evaluate.certificate_figure import (
    TOLERANCE,
    draw_certificate,
    refuse_numbers,
    trace_lines,
)
from tasks.evaluate.certified import certify_chosen
from tasks.prepare.config import read_dataset
from tasks.runtime.errors import ConfigError, StoreError
from tasks.runtime.store import Store


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
    assert "no classes" in str(refuse_numbers(read_dataset(datasets / "communities.yaml")))
    assert refuse_numbers(read_dataset(datasets / "adult.yaml")) is None
