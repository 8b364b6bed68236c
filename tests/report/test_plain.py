"""Rows that the plain method beats in everything that they are for."""

from __future__ import annotations

import pandas as pd
import pytest

from fairfrontier.report.plain import find_worse
from fairfrontier.runtime.store import canonical_json
from fairfrontier.study.config import StudyConfig
from fairfrontier.study.expand import Planned
from fairfrontier.train.fit.group import FitGroup, Member

RULE = {"method": "hardt", "attributes": "sex"}
STUDY = StudyConfig.model_validate(
    {
        "study": "made",
        "dataset": "made",
        "methods": {"gbdt": {}},
        "frontier": {"fairness": ["consistency:sex", "gap_rms:sex"]},
    }
)


def plan_row(label, estimator, then=None):
    group = FitGroup(
        dataset="made", method=label, estimator=estimator, metric=None, rows=None,
        select_on="validation", threads=1, members=(Member(0, {}, {}),), then=then,
    )  # fmt: skip
    return Planned(("frontier",), group)


def find(row, trained=None, **planned):
    """Compare a row (accuracy, consistency, gap, AUC) with plain boosting's .7, .9, .1 and .8."""
    label = next(iter(planned))
    plan = [plan_row("gbdt", "gbdt"), plan_row(label, *planned[label])]
    numbers = {"gbdt": (0.7, 0.9, 0.1, 0.8), label: row}
    points = [
        (name, canonical_json({}), 0, part, measure, group, value, 0.0, 1.0, 100)
        for name, values in numbers.items()
        for part in ("train", "test")
        for (measure, group), value in zip(
            (("balanced_accuracy", ""), ("consistency", "sex"), ("gap_rms", "sex"), ("auc", "")),
            values if part == "test" or name == "gbdt" else (trained or values[0], *values[1:]),
            strict=True,
        )
    ]
    columns = ["method", "setting", "seed", "part", "measure", "group", "value", "low", "high", "n"]
    worse = find_worse(STUDY, plan, pd.DataFrame(points, columns=columns))
    assert all(key == (label, "{}") and why["plain"] == "gbdt" for key, why in worse.items())
    return next((why["reason"] for why in worse.values()), None)


@pytest.mark.parametrize(
    ("trained", "auc", "reason"),
    [
        (0.8, 0.7, "so overfits"),
        (None, 0.7, "its AUC is 0.10 lower"),
        (None, 0.8, "order rows as well"),
        (None, 0.785, "chance"),
    ],
)
def test_the_likely_reason(trained, auc, reason):
    assert reason in find((0.6, 0.8, 0.2, auc), trained, fair=("budro",))


def test_only_its_own_kind_of_fairness_counts():
    inconsistent, unequal = (0.6, 0.8, 0.0, 0.7), (0.6, 1.0, 0.3, 0.7)
    assert find(inconsistent, fair=("budro",)) is not None
    assert find(unequal, fair=("budro",)) is None
    assert find(inconsistent, weighted=("reweigh",)) is None
    assert find(unequal, weighted=("reweigh",)) is not None
    assert find(inconsistent, ruled=("gbdt", RULE)) is None
    assert find(unequal, ruled=("gbdt", RULE)) is not None


def test_a_row_is_not_worse_that_is_as_good_in_one_of_them_or_has_another_base():
    assert find((0.695, 0.8, 0.2, 0.7), fair=("budro",)) is None
    assert find((0.6, 0.895, 0.2, 0.7), fair=("budro",)) is None
    assert find((0.6, 0.8, 0.2, 0.7), fair=("sensei",)) is None
    assert find((0.6, 0.8, 0.2, 0.7), plain=("gbdt",)) is None
    assert find((0.6, 0.8, 0.2, 0.7), elsewhere=("of_another_package",)) is None
