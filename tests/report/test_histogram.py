"""Scores by group: means over the seeds, pooled levels, and what the page draws of them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fairfrontier.evaluate.statistic.interval import wilson
from fairfrontier.evaluate.statistic.rate import BINS, SUMS, count_scores
from fairfrontier.report import histogram
from fairfrontier.report.histogram import LEVELS, average_counts, tabulate_scores
from tests.evaluate.made import make_part
from tests.study.synthetic import make_plan, make_study

KEY = ("m", "{}")


def average(monkeypatch, parts, scores, minimum: int = 10) -> pd.DataFrame:
    """Return the mean of the counts of some splits, one row of a study each."""
    tables = iter(
        count_scores(score, part).assign(method="m", setting="{}", seed=seed)
        for seed, (part, score) in enumerate(zip(parts, scores, strict=True))
    )
    monkeypatch.setattr(histogram, "read_counts", lambda *_: next(tables, None))
    plan = make_plan(make_study(seeds=len(parts), published=None, claims=[]))
    return average_counts(plan, None, None, minimum)


def draw(seed: int, sizes: list[int]):
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(len(sizes)), sizes)
    score = rng.beta(2, 3, groups.size)
    y = (rng.random(groups.size) < score).astype(int)
    weight = rng.uniform(0.5, 2, groups.size)
    names = {"region": tuple(f"r{number}" for number in range(len(sizes)))}
    return make_part(y, groups[:, None], names, weight=weight), score


def test_seeds_are_averaged_and_drawn_with_intervals(monkeypatch):
    drawn = [draw(seed, [400, 300]) for seed in (0, 1)]
    counts = average(monkeypatch, *zip(*drawn, strict=True))
    assert set(counts["group"]) == {"", "region=r0", "region=r1"}
    assert counts.loc[counts["group"] == "region=r1", "n"].sum() == 300
    (shown,) = [
        each for each in tabulate_scores(counts, [KEY, ("x", "{}")], 10) if each["level"] == "r0"
    ]
    assert shown["attribute"] == "region"
    # A setting without scores, as of a method that was skipped.
    assert [shown[name][1] for name in ("n", "share", "calibration")] == [None] * 3
    assert shown["n"][0] == 400
    score, y, weight = (
        np.concatenate([value[part.group("region") == 0] for part, value in pairs])
        for pairs in (
            [(part, score) for part, score in drawn],
            [(part, part.y) for part, _ in drawn],
            [(part, part.weight) for part, _ in drawn],
        )
    )
    share = np.histogram(score, np.linspace(0, 1, BINS + 1), weights=weight)[0] / weight.sum()
    np.testing.assert_allclose(shown["share"][0], 1000 * share, atol=0.501)
    within = (score >= 0.3) & (score < 0.4)
    w = weight[within]
    rate = np.average(y[within], weights=w)
    # Rows of two splits of one table are no two samples.
    low, high = wilson(rate, w.sum() ** 2 / (w**2).sum() / 2)
    row = shown["calibration"][0][3]
    expected = [np.average(score[within], weights=w), rate, low, high]
    np.testing.assert_allclose(row, 100 * np.array(expected), atol=0.501)


def test_small_and_many_levels_are_pooled(monkeypatch):
    counts = average(monkeypatch, *zip(draw(0, [50, 30, 9, 4]), strict=True))
    sizes = counts.groupby("group")["n"].sum()
    assert sizes.to_dict() == {
        "": 93, "region=other (2 levels)": 13, "region=r0": 50, "region=r1": 30,
    }  # fmt: skip
    # A pool that is too small is not shown either.
    counts = average(monkeypatch, *zip(draw(0, [50, 5, 4]), strict=True))
    assert set(counts["group"]) == {"", "region=r0"}
    counts = average(monkeypatch, *zip(draw(0, [20 + k for k in range(11)]), strict=True))
    levels = set(counts["group"]) - {""}
    assert len(levels) == LEVELS
    assert {"region=other (4 levels)", "region=r10"} <= levels
    counts = average(monkeypatch, *zip(draw(0, [20] * LEVELS), strict=True))
    assert not counts["group"].str.contains("other").any()


def test_tenths_of_few_rows_have_no_calibration(monkeypatch):
    part = make_part([0, 1] * 8 + [1], [0] * 17, {"sex": ("a", "b")})
    counts = average(monkeypatch, [part], [np.array([0.31] * 16 + [0.9])])
    (everyone, _) = tabulate_scores(counts, [KEY], 10)
    ((score, positive, low, high),) = everyone["calibration"][0]
    assert (score, positive) == (31, 50)
    assert (low, high) == tuple(round(100 * float(end)) for end in wilson(0.5, 16))


@pytest.mark.filterwarnings("error")
def test_rows_of_no_weight_and_none_at_all(monkeypatch):
    part = make_part([0, 1] * 6, [0] * 12, {"sex": ("a",)}, weight=[0.0] * 12)
    counts = average(monkeypatch, [part], [np.full(12, 0.3)])
    shown = tabulate_scores(counts, [KEY], 10)[0]
    assert (sum(shown["share"][0]), shown["calibration"][0]) == (0, [])
    monkeypatch.setattr(histogram, "read_counts", lambda *_: None)
    empty = average_counts(make_plan(make_study()), None, None, 10)
    assert empty.empty
    assert list(empty.columns)[-len(SUMS) :] == list(SUMS)
    assert tabulate_scores(empty, [KEY], 10) == []
