from __future__ import annotations

import json

from fairfrontier.report.summary import build_summary, list_versions
from fairfrontier.reproduce.claim import check_claims
from fairfrontier.study.results import build_results
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
    assert {"python", "numpy", "pandas"} <= set(list_versions())
