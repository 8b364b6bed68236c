from __future__ import annotations

import json

from fairfrontier.report.finding import list_versions
from fairfrontier.report.summary import build_summary
from fairfrontier.study.results import Searched, build_results
from papers.checking import check_claims
from tests.study.synthetic import make_plan, make_points, make_study


def test_the_summary_is_plain_json():
    study = make_study()
    plan = make_plan(study)
    points = make_points(plan)
    results = build_results(study, plan, points, {"x": "y"})
    claims = check_claims(study, points, plan)
    summary = build_summary(results, claims, 12.3456)
    again = json.loads(json.dumps(summary, allow_nan=False))
    assert again["counts"]["claims_held"] == 2
    assert again["counts"]["settings"] == 9
    assert again["seconds"] == 12.346
    assert {"budget": 0.05, "rows": 8000, "select_on": "validation"} in [
        each["setting"] for each in again["frontier"]
    ]
    assert all(each["on_frontier"] or each["on_joint_frontier"] for each in again["frontier"])
    assert again["failed_trials"] == []
    assert "trials" not in again["counts"]
    assert {"python", "numpy", "pandas"} <= set(list_versions())


def test_failed_trials_are_counted_by_row_and_reason():
    study = make_study()
    plan = make_plan(study)
    failed = (("gbdt", "no room"), ("budro", "no room"), ("gbdt", "no room"), ("gbdt", "no luck"))
    searched = Searched(9, 9, 9, failed, {})
    results = build_results(study, plan, make_points(plan), {}, searched=searched)
    summary = json.loads(json.dumps(build_summary(results, (), 1.0)))
    assert (summary["counts"]["trials"], summary["counts"]["failed_trials"]) == (9, 4)
    assert summary["failed_trials"] == [
        {"row": "gbdt", "reason": "no room", "trials": 2},
        {"row": "budro", "reason": "no room", "trials": 1},
        {"row": "gbdt", "reason": "no luck", "trials": 1},
    ]
