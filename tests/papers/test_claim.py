from __future__ import annotations

import pytest

from fairfrontier.runtime.errors import ConfigError
from papers.claim import RowAt, Trend, choose_block, order_settings, read_claims, refuse_claims
from tests.study.synthetic import make_study

SETTINGS = {
    "frontier": [
        ("gbdt", {"preset": "published"}),
        *(
            ("budro", {"budget": budget, "solver": solver})
            for budget in (0.8, 0.05, 0.1)
            for solver in ("exact", "sgd")
        ),
    ]
}


def study(**claim: object):
    return make_study(published=None, claims=[{"id": "one", "sentence": "So it is.", **claim}])


def refuse(**claim: object) -> None:
    refuse_claims(study(**claim), SETTINGS, "study.yaml")


def compare(left: object, **more: object) -> dict[str, object]:
    return {"left": left, "measure": "auc", "relation": ">", "value": 0, **more}


def trend(row: object = "budro", along: str = "budget", **more: object) -> dict[str, object]:
    return {"row": row, "along": along, "direction": "rising", "measure": "auc", **more}


def test_a_row_is_named_by_its_label_or_with_a_setting():
    (claim,) = read_claims(study(compare=compare("gbdt")))
    assert [str(each) for each in claim.rows] == ["gbdt"]
    row = RowAt.model_validate({"row": "budro", "budget": 0.1, "base_score": 2})
    assert str(row) == "budro at budget 0.1, base score 2"
    assert row.match("budro", {"budget": 0.1, "base_score": 2, "rows": 5})
    assert not row.match("budro", {"budget": 0.1})
    assert not row.match("gbdt", {"budget": 0.1, "base_score": 2})
    # A key that a setting does not have is not the same as a null.
    assert not RowAt.model_validate({"row": "a", "rows": None}).match("a", {})


def test_the_block_of_a_trend_is_that_of_the_study():
    own = study(trend=trend())
    assert choose_block(own, read_claims(own)[0].check.block)[0] == "frontier"
    other = make_study(claims=[{"id": "one", "sentence": "So.", "trend": trend(block="frontier")}])
    assert choose_block(other, read_claims(other)[0].check.block)[0] == "frontier"


def test_settings_are_ordered_by_number_not_by_text():
    asked = Trend.model_validate(trend(row={"row": "budro", "solver": "sgd"}))
    assert [value for value, _ in order_settings(asked, SETTINGS["frontier"])] == [0.05, 0.1, 0.8]
    texts = [
        ("budro", {"budget": "many", "solver": "sgd"}),
        ("budro", {"budget": 10, "solver": "sgd"}),
    ]
    assert [value for value, _ in order_settings(asked, texts)] == [10.0]


def test_what_can_be_checked_passes():
    refuse(compare=compare("gbdt"))
    refuse(compare=compare({"row": "budro", "budget": 0.1, "solver": "sgd"}))
    refuse(trend=trend(row={"row": "budro", "solver": "exact"}))


@pytest.mark.parametrize(
    ("claim", "message"),
    [
        ({"compare": compare("budr")}, r"no row of the frontier block.*'budro'"),
        ({"compare": compare("budro")}, r"several settings.*\{row: budro, budget: 0.8, solver"),
        ({"compare": compare({"row": "budro", "budget": 0.1})}, r"several.*budget: 0.1, solver"),
        (
            {"compare": compare({"row": "budro", "budget": 0.2, "solver": "sgd"})},
            r"a setting that the row does not have",
        ),
        ({"compare": compare({"row": "budro", "buget": 0.1})}, r"'buget'.*Did you mean 'budget'"),
        ({"trend": trend()}, r"sweeps other parameters too.*row: \{row: budro"),
        ({"trend": trend(row="gbdt")}, r"fewer than two values"),
        ({"trend": trend(along="solver")}, r"fewer than two values"),
        ({"compare": compare("gbdt", block="published")}, r"a published block, which"),
    ],
)
def test_what_cannot_be_checked_is_refused(claim, message):
    with pytest.raises(ConfigError, match=f"(?s)study.yaml: claim one.*{message}"):
        refuse(**claim)


@pytest.mark.parametrize(
    ("claim", "message"),
    [
        ({}, "checked in one way"),
        ({"compare": compare("gbdt"), "trend": trend()}, "checked in one way"),
        ({"compare": compare("gbdt", right="budro")}, "one right side"),
        ({"trend": trend(direction="up")}, "'rising' or 'falling'"),
        ({"trend": trend(measure=[])}, "at least 1"),
    ],
)
def test_a_claim_has_one_form(claim, message):
    with pytest.raises(ConfigError, match=f"study.yaml: claims.0.*{message}"):
        refuse(**claim)


def test_an_id_stands_once():
    claim = {"id": "one", "sentence": "So.", "compare": compare("gbdt")}
    with pytest.raises(ConfigError):
        refuse_claims(make_study(published=None, claims=[claim, claim]), SETTINGS, "x")
