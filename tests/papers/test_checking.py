from __future__ import annotations

import json

import numpy as np
import pytest

from fairfrontier.runtime.errors import ConfigError
from fairfrontier.study.frontier import list_fits, summarise
from papers.checking import check_claims
from tests.study.synthetic import make_plan, make_points, make_study


def claim(**compare: object) -> list[dict[str, object]]:
    return [{"id": "one", "sentence": "A sentence.", "compare": compare}]


def check(**compare: object) -> dict:
    study = make_study(claims=claim(**compare))
    plan = make_plan(study)
    return check_claims(study, make_points(plan), plan)[0]


def test_claims_hold_or_not_with_their_numbers():
    study = make_study()
    plan = make_plan(study)
    points = make_points(plan)
    found = {each["id"]: each for each in check_claims(study, points, plan)}
    assert {name: each["held"] for name, each in found.items()} == {
        "wider": True,
        "exact": True,
        "false": False,
    }
    evidence = found["wider"]["evidence"]
    assert [each["measure"] for each in evidence["numbers"]] == ["gap_rms:sex", "gap_rms:race"]
    assert (evidence["block"], evidence["n_seeds"]) == ("published", 1)
    left = points.loc[
        (points["method"] == "budro")
        & (points["part"] == "test")
        & (points["measure"] == "gap_rms")
        & (points["group"] == "race")
        & ~points["setting"].str.contains("budget"),
        "value",
    ]
    assert evidence["numbers"][1]["left"] == pytest.approx(left.iloc[0])


@pytest.mark.parametrize(
    ("relation", "value", "held"),
    [(">", 1, False), (">=", 1, True), ("<", 1, False), ("<=", 1, True), ("==", 0.9, False)],
)
def test_relations(relation, value, held):
    found = check(left="project", value=value, measure="consistency:gender_race", relation=relation)
    assert found["held"] is held


def test_every_measure_of_a_claim_must_hold():
    # BuDRO's gap by sex is below Project's in the made-up results, its consistency is not.
    both = ["gap_rms:sex", "consistency:gender_race"]
    assert check(left="budro", right="gbdt", measure=both[:1], relation="<")["held"] is True
    assert check(left="budro", right="gbdt", measure=both, relation="<")["held"] is False


def test_equality_has_a_tolerance():
    asked = {"left": "project", "value": 0.999, "measure": "consistency:gender_race"}
    assert check(**asked, relation="==")["held"] is False
    assert check(**asked, relation="==", tolerance=0.01)["held"] is True


def test_what_is_missing_is_not_known():
    found = check(left="budro", right="gbdt", measure="tpr:sex=Other", relation=">")
    assert found["held"] is None
    assert found["evidence"]["numbers"][0]["left"] is None


def follow(**trend: object) -> dict:
    asked = {"row": "budro", "along": "budget", "block": "frontier", **trend}
    study = make_study(claims=[{"id": "one", "sentence": "A sentence.", "trend": asked}])
    plan = make_plan(study)
    return check_claims(study, make_points(plan), plan)[0]


@pytest.mark.parametrize(
    ("measure", "direction", "held"),
    [
        ("consistency:spouse", "rising", True),
        ("consistency:spouse", "falling", False),
        ("gap_rms:sex", "falling", True),
        (["gap_rms:sex", "balanced_accuracy"], "falling", True),
        (["gap_rms:sex", "consistency:spouse"], "falling", False),
    ],
)
def test_trends(measure, direction, held):
    found = follow(measure=measure, direction=direction)
    assert found["held"] is held
    evidence = found["evidence"]
    assert evidence["at"] == [0.05, 0.1, 0.2, 0.4, 0.8]
    assert [len(each["means"]) for each in evidence["numbers"]] == [5] * len(evidence["numbers"])


def trend_of(values: list[float], **trend: object) -> bool | None:
    """Check a rising trend on made-up means."""
    asked = {"row": "budro", "along": "budget", "block": "frontier", "direction": "rising"}
    asked |= {"measure": "auc", **trend}
    study = make_study(claims=[{"id": "one", "sentence": "A sentence.", "trend": asked}])
    plan = [each for each in make_plan(study) if each.group.method == "budro" and each.group.rows]
    points = make_points(plan)
    points = points.loc[points["measure"] == "balanced_accuracy"].assign(measure="auc")
    budget = points["setting"].map(lambda setting: json.loads(setting)["budget"])
    points["value"] = budget.map(dict(zip([0.05, 0.1, 0.2, 0.4, 0.8], values, strict=True)))
    return check_claims(study, points, plan)[0]["held"]


def test_a_trend_may_rest_but_not_turn():
    assert trend_of([0.1, 0.2, 0.2, 0.3, 0.4]) is True
    assert trend_of([0.1, 0.2, 0.19, 0.3, 0.4]) is False
    assert trend_of([0.1, 0.2, 0.19, 0.3, 0.4], tolerance=0.02) is True
    # Within the tolerance of every step, but not above its start in the end.
    assert trend_of([0.1, 0.09, 0.08, 0.07, 0.06], tolerance=0.02) is False
    assert trend_of([0.1, 0.1, 0.1, 0.1, 0.1]) is False
    assert trend_of([0.1, 0.2, float("nan"), 0.3, 0.4]) is None


def test_one_setting_of_a_sweep_is_compared():
    asked = {"measure": "consistency:spouse", "block": "frontier"}
    low, high = ({"row": "budro", "budget": budget} for budget in (0.05, 0.8))
    found = check(left=high, right=low, relation=">", **asked)
    assert found["held"] is True
    assert found["evidence"]["numbers"][0]["left_row"] == "budro at budget 0.8"
    assert check(left=low, right=high, relation=">", **asked)["held"] is False


def test_rows_are_compared_one_by_one_or_with_one():
    asked = {"measure": "balanced_accuracy", "relation": "<", "block": "published"}
    each = check(left=["reweigh", "budro"], right=["gbdt", "gbdt"], **asked)
    assert each["held"] is True
    assert check(left=["reweigh", "budro"], right="gbdt", **asked) == each
    turned = check(left=["reweigh", "gbdt"], right="budro", **asked)
    assert turned["held"] is False
    assert [
        (number["left_row"], number["right_row"], number["held"])
        for number in turned["evidence"]["numbers"]
    ] == [("reweigh", "budro", True), ("gbdt", "budro", False)]


@pytest.mark.parametrize(
    ("relation", "value", "held"),
    [
        ("==", 0.011, True),
        ("==", 0.009, False),
        (">=", 0.0299, True),
        (">=", 0.031, False),
        (">", 0.009, True),
        (">", 0.011, False),
        ("<=", 0.011, True),
        ("<=", 0.009, False),
        ("<", 0.031, True),
        ("<", 0.0299, False),
    ],
)
def test_noise_is_the_half_of_the_interval_that_faces_the_other_side(relation, value, held):
    study = make_study(
        claims=[
            {
                "id": "one",
                "sentence": "A sentence.",
                "compare": {
                    "left": "gbdt",
                    "value": value,
                    "measure": "auc",
                    "relation": relation,
                    "noise": True,
                    "block": "published",
                },
            }
        ]
    )
    plan = make_plan(study)
    points = make_points(plan)
    points = points.loc[points["measure"] == "balanced_accuracy"].assign(
        measure="auc", value=0.02, low=0.01, high=0.03
    )
    found = check_claims(study, points, plan)[0]
    assert found["held"] is held
    assert found["evidence"]["numbers"][0]["noise"] == pytest.approx(0.01)


def test_the_noise_of_two_rows_adds_in_squares():
    asked = {"left": "budro", "right": "gbdt", "measure": "gap_rms:sex", "noise": True}
    found = check(relation="==", **asked)
    number = found["evidence"]["numbers"][0]
    study = make_study()
    plan = make_plan(study)
    table = summarise(make_points(plan), list_fits(plan, "published"), "test")
    own = {
        row["method"]: row for row in table.loc[table["name"] == "gap_rms:sex"].to_dict("records")
    }
    up = own["budro"]["high"] - own["budro"]["value"]
    down = own["gbdt"]["value"] - own["gbdt"]["low"]
    assert number["noise"] == pytest.approx((up**2 + down**2) ** 0.5)


def test_two_rows_on_several_splits_are_compared_split_by_split():
    asked = {"left": "reweigh", "right": "gbdt", "measure": "auc", "block": "frontier"}
    study = make_study(
        claims=[
            {
                "id": "one",
                "sentence": "A sentence.",
                "compare": {**asked, "relation": "<", "noise": True},
            }
        ]
    )
    plan = make_plan(study)
    points = make_points(plan)
    points = points.loc[points["measure"] == "balanced_accuracy"].assign(measure="auc")
    # Far apart from split to split, and one row always a little behind the other.
    points["value"] = 0.5 + 0.1 * points["seed"]
    behind = (points["method"] == "reweigh") & points["setting"].str.contains("rows")
    points.loc[behind, "value"] -= 0.01 + 0.001 * points["seed"]
    found = check_claims(study, points, plan)[0]
    number = found["evidence"]["numbers"][0]
    assert found["held"] is True
    gaps = -(0.01 + 0.001 * np.arange(3))
    assert number["left"] - number["right"] == pytest.approx(gaps.mean())
    assert number["noise"] == pytest.approx(4.302653 * gaps.std(ddof=1) / 3**0.5)


def test_what_is_never_below_zero_is_not_compared_with_it():
    with pytest.raises(ConfigError, match="never below 0"):
        check(
            left="gbdt", value=0, measure="selection_rate_difference:sex", relation=">", noise=True
        )


def test_other_blocks_and_parts():
    found = check(
        left="reweigh",
        right="gbdt",
        measure="balanced_accuracy",
        relation="<",
        block="frontier",
        part="validation",
    )
    assert found["held"] is True
    assert found["evidence"]["n_seeds"] == 3
