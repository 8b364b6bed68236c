from __future__ import annotations

import numpy as np
import pytest

from fairfrontier.runtime.errors import ConfigError
from papers.figure.approach import Line
from papers.figure.violation import (
    choose_line_looks,
    draw_by_rate,
    draw_noisy,
    draw_robust,
    draw_true,
    list_line_keys,
    trace_by_approach,
    trace_by_rate,
    trace_robust,
)
from tests.papers.noised import METHODS, make_noised

RATES = ("tpr_shortfall", "fpr_excess")


def violation(scene, label, noise, measures, budget=0.1, own_budget=None):
    """Return the largest mean over groups and measures, less α, straight from the table."""
    points = scene.points
    points = points[(points.part == "test") & (points.method == label)]
    points = points[points.setting.str.contains(f'"noise":{noise}')]
    if own_budget is not None:
        points = points[points.setting.str.contains(f'"budget":{own_budget}')]
    points = points[points.measure.isin(measures) & points.group.str.fullmatch("school=[abc]")]
    assert points.groupby(["measure", "group"]).size().eq(2).all()
    return points.groupby(["measure", "group"])["value"].mean().max() - budget


@pytest.mark.parametrize(("kind", "prefix"), [("true", "true_"), ("noisy", "")])
def test_each_approach_has_a_panel_of_its_violations(noised, kind, prefix):
    found = trace_by_approach(noised, "figure", kind)
    (panels,) = found.panels
    assert found.budget == 0.1
    assert [[line.label for line in each.lines] for each in panels] == [
        ["direct"], ["ball"], ["weights"],
    ]  # fmt: skip
    measures = [f"{prefix}{rate}" for rate in RATES]
    for panel in panels:
        assert [each.label for each in panel.references] == ["plain", "oracle"]
        for line in (*panel.lines, *panel.references):
            expected = [violation(noised, line.label, at, measures) for at in line.at]
            np.testing.assert_allclose(line.mean, expected)
            assert np.isfinite(line.error).all()
    # Without constraints a budget has no meaning: the row's own 0.7 is not asked for.
    np.testing.assert_allclose(panels[0].references[0].at, [0.1])


def test_each_worst_case_judges_training_by_ascent_and_exact(noised):
    found = trace_robust(noised)
    (panels,) = found.panels
    for panel, labels, suffix in zip(
        panels, (["ball", "ball-exact"], ["weights", "weights-exact"]), ("ball", "assignment"),
        strict=True,
    ):  # fmt: skip
        assert [each.label for each in panel.lines] == labels
        assert [each.label for each in panel.references] == ["plain", "oracle", "direct"]
        measures = [f"{rate}_{suffix}" for rate in RATES]
        for line in (*panel.lines, *panel.references):
            own = 0.1 if line.inner == "exact" else None
            expected = [
                violation(noised, line.label, at, measures, own_budget=own) for at in line.at
            ]
            np.testing.assert_allclose(line.mean, expected)
    assert [line.inner for line in panels[0].lines] == ["ascent", "exact"]


def test_rates_stand_apart_and_together_make_the_whole(noised):
    whole = trace_by_approach(noised, "figure", "true").panels[0]
    apart = trace_by_rate(noised).panels
    assert [each.title for each in apart[1]] == [
        "naive: FPR excess", "DRO: FPR excess", "soft assignments: FPR excess",
    ]  # fmt: skip
    for place, panel in enumerate(whole):
        both = [row[place].lines[0].mean for row in apart]
        np.testing.assert_allclose(np.max(both, axis=0), panel.lines[0].mean)
        assert np.ptp(both, axis=0).min() > 0


@pytest.mark.parametrize("draw", [draw_true, draw_noisy, draw_robust, draw_by_rate])
def test_the_same_scene_is_the_same_bytes(noised, draw):
    picture = draw(noised)
    assert picture == draw(noised)
    assert picture.png.startswith(b"\x89PNG")


def test_words_hold_what_is_drawn(noised):
    line = trace_by_approach(noised, "figure", "true").panels[0][1].lines[0]
    alt = draw_true(noised).alt
    assert "violation of true groups against the noise γ, at α = 0.1" in alt
    group = line.worst[0].partition("=")[2]
    assert f"ball {line.mean[0]:+.3f} ± {line.error[0]:.3f} at 0.1 ({group})" in alt


def test_rows_of_another_budget_and_of_one_rate_are_refused(noised_folder):
    one_rate = {
        label: {**each, "criterion": "equal_opportunity", "noise": [0.1]}
        for label, each in METHODS.items()
        if "exact" not in label
    }
    scene = make_noised(noised_folder, one_rate, seeds=1, name="one-rate")
    with pytest.raises(ConfigError):
        draw_by_rate(scene)
    # With one split there is no standard error.
    line = trace_by_approach(scene, "figure", "true").panels[0][0].lines[0]
    assert np.isnan(line.error).all()
    assert "±" not in draw_true(scene).alt
    one_rate["ball"]["budget"] = 0.2
    scene = make_noised(noised_folder, one_rate, seeds=1, name="two-budgets")
    with pytest.raises(ConfigError, match=r"no row of dro has 0\.1"):
        draw_true(scene)


def test_a_reference_of_one_noise_stands_for_others_where_noise_is_no_part_of_the_measure(noised):
    true, worst = trace_by_approach(noised, "figure", "true"), trace_robust(noised)
    assert (true.across, worst.across) == (True, False)
    assert not trace_by_approach(noised, "figure", "noisy").across
    assert trace_by_rate(noised).across
    for found in (true, worst):
        keys = dict(
            list_line_keys(
                found.lines(), found.thick(), choose_line_looks(found.lines()), across=found.across
            )
        )
        # The row was trained at one noise: a line across the panel, or a point without a line.
        look = keys["plain: unconstrained"]
        assert (look["marker"] == "") == found.across
        assert (look["ls"] == "") != found.across
        assert keys["oracle: true groups"]["ls"] == "-"


def test_rows_of_one_approach_share_a_colour_and_no_marker():
    def line(label, approach, inner=""):
        return Line(label, approach, inner, *np.zeros((3, 1)))

    looks = choose_line_looks(
        [line("a", "dro", "ascent"), line("b", "dro", "exact"), line("c", "dro", "ascent"),
         line("d", "naive")]
    )  # fmt: skip
    assert looks["a"] == looks["b"]
    assert looks["a"][0] == looks["c"][0] != looks["d"][0]
    assert looks["a"][1] != looks["c"][1]
