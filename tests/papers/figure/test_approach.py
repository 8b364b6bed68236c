from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fairfrontier.prepare.config.dataset import read_dataset
from fairfrontier.runtime.errors import ConfigError
from papers.figure.approach import (
    Results,
    average,
    choose_budget,
    list_trained,
    refer_to_trivial,
    refuse_groups,
    select,
    trace,
)
from papers.figure.classifier import ClassifierRow
from tests.papers.noised import METHODS, ROOT, make_noised, row


@pytest.fixture(scope="module")
def rows(noised):
    return list_trained(noised, "figure")


def test_rows_are_told_by_their_parameters_and_not_by_their_labels(rows):
    assert [(each.label, each.approach, each.inner) for each in rows if each.noise == 0.1] == [
        ("plain", "unconstrained", ""),
        ("oracle", "true_groups", ""),
        ("direct", "naive", ""),
        ("ball", "dro", "ascent"),
        ("ball-exact", "dro", "exact"),
        ("ball-exact", "dro", "exact"),
        ("weights", "soft_assignment", "ascent"),
        ("weights-exact", "soft_assignment", "exact"),
        ("weights-exact", "soft_assignment", "exact"),
    ]
    assert {each.attribute for each in rows} == {"school"}
    assert {each.budget for each in select(rows, "figure", "dro", "exact")} == {0.1, 0.5}
    assert all(sorted(each.row.fits) == [0, 1] for each in rows)
    assert select(rows, "figure", "dro", "ascent")[0].row.first.model().approach == "dro"


def test_the_noise_is_the_datasets_where_the_row_has_none(noised_folder):
    methods = {"direct": {key: each for key, each in METHODS["direct"].items() if key != "noise"}}
    scene = make_noised(noised_folder, methods, seeds=1, name="no-noise")
    (found,) = list_trained(scene, "figure")
    assert found.noise == 0.2


def test_budget_is_that_of_most_rows(rows):
    assert choose_budget(rows) == 0.1
    others = [replace(each, budget=0.3) for each in rows if each.approach in ("naive", "dro")]
    assert choose_budget([*others, *rows[:3]]) == 0.3
    # Exact rows sweep it: they are asked only where there are no others.
    exact = [each for each in rows if each.inner == "exact"]
    assert choose_budget([*exact, others[0]]) == 0.3
    assert choose_budget(exact) == 0.1


def test_violation_is_of_the_constraint_with_the_largest_mean(noised, rows):
    results = Results.of(noised.points, rows)
    for each in rows[::3]:
        for kind, name in (("true", "true_{}"), ("noisy", "{}"), ("ball", "{}_ball")):
            values = {}
            for rate in ("tpr_shortfall", "fpr_excess"):
                for level in "abc":
                    points = noised.points.query(
                        "part == 'test' and method == @each.label and setting == @each.row.setting"
                        f" and measure == '{name.format(rate)}' and group == 'school={level}'"
                    )
                    assert sorted(points.seed) == [0, 1]
                    values[f"{name.format(rate)}:school={level}"] = points.value.to_numpy()
            worst = max(values, key=lambda key: values[key].mean())
            mean, error, group = results.violation(each, kind, 0.1)
            assert group == worst
            assert mean == pytest.approx(values[worst].mean() - 0.1)
            assert error == pytest.approx(abs(np.diff(values[worst])[0]) / 2)
        one = results.violation(each, "true", 0.1, ("fpr_excess",))
        assert one[2].startswith("true_fpr_excess:")


def test_a_group_that_some_splits_cannot_measure_counts_where_it_can(noised, rows):
    points = noised.points.copy()
    first = rows[0]
    of_a = (points["group"] == "school=a") & (points["measure"] == "true_tpr_shortfall")
    points.loc[of_a & (points["seed"] == 0), "value"] = np.nan
    points.loc[of_a & (points["seed"] == 1), "value"] = 0.9
    mean, error, worst = Results.of(points, rows).violation(first, "true", 0.0)
    assert (mean, worst) == (0.9, "true_tpr_shortfall:school=a")
    assert np.isnan(error)
    points["value"] = np.nan
    nothing = Results.of(points, rows).violation(first, "true", 0.0)
    assert np.isnan(nothing[0])


def test_error_and_the_trivial_classifier(noised, rows):
    found = rows[2]
    mean, error, _ = Results.of(noised.points, rows).error_rate(found)
    errors, shares = [], []
    for stored in found.row.fits.values():
        part = stored.split(ROOT).test
        errors.append(np.mean(stored.predictions()["test"].decision != part.y))
        shares.append(part.y.mean())
    assert mean == pytest.approx(np.mean(errors))
    assert error == pytest.approx(np.std(errors, ddof=1) / np.sqrt(2))
    assert refer_to_trivial(found, noised) == pytest.approx(np.mean(shares))
    assert np.isnan(average(np.array([0.5]))[1])


def test_lines_ascend_and_have_one_model_at_each_place(rows):
    def measure(each):
        return each.noise + each.budget, 0.0, each.label

    direct = [each for each in rows if each.label == "direct"]
    (line,) = trace(direct[::-1], "figure", "noise", measure)
    np.testing.assert_allclose(line.at, [0.1, 0.3])
    np.testing.assert_allclose(line.mean, [0.2, 0.4])
    assert line.worst == ("direct", "direct")
    assert [each.label for each in trace(rows[:3], "figure", "noise", measure)] == [
        "plain",
        "oracle",
    ]
    exact = [each for each in rows if each.label == "ball-exact"]
    with pytest.raises(ConfigError, match="one model for each noise, and the row 'ball-exact'"):
        trace(exact, "figure", "noise", measure)


@pytest.mark.parametrize(
    ("methods", "message"),
    [
        ({"line": {"method": "linear"}}, "no row has them"),
        ({"x": row("naive", criterion="accuracy")}, "rows are trained for accuracy"),
        (
            {"x": row("naive"), "y": row("dro", criterion="equal_opportunity")},
            "one criterion, and the rows have equalized_odds, equal_opportunity",
        ),
    ],
)
def test_studies_of_something_else_are_refused(noised_folder, methods, message):
    scene = make_noised(noised_folder, methods, seeds=1, name="other")
    with pytest.raises(ConfigError, match=message):
        list_trained(scene, "figure")


def test_an_approach_that_is_missing_is_named(rows):
    with pytest.raises(ConfigError):
        select(rows, "figure", "dro", "joint")
    assert isinstance(select(rows, "figure", "naive")[0].row, ClassifierRow)


def test_datasets_without_noise_have_no_figure():
    noisy = read_dataset(ROOT / "conf" / "datasets" / "adult-noisy.yaml")
    assert refuse_groups(noisy) is None
    german = read_dataset(ROOT / "conf" / "datasets" / "german.yaml")
    assert "german injects no noise" in str(refuse_groups(german))
