from __future__ import annotations

import pytest
import yaml

from fairfrontier.models.fit.group import FitGroup, Member
from fairfrontier.runtime.errors import ConfigError
from fairfrontier.study.config import StudyConfig
from fairfrontier.study.frontier import list_fits
from fairfrontier.study.resolve import Planned
from papers.checking import check_claims
from papers.claim import Claim, read_claims, refuse_claims
from papers.comparison import compare
from papers.equal_harm import check_equal_harm
from papers.publication import read_publication
from tests.papers.test_curve import make

# Loss and disparity on train, then on test.
ROWS = {
    "fair": [(1.0, 0.4, 1.0, 0.4), (1.2, 0.2, 1.2, 0.2), (2.0, 0.1, 2.0, 0.1)],
    "worse": [(1.1, 0.4, 1.1, 0.4), (1.5, 0.2, 1.5, 0.2), (2.5, 0.15, 2.5, 0.15)],
    "plain": [(1.0, 0.4, 1.0, 0.4)],
}


def study(**asked: object) -> StudyConfig:
    content = {
        "study": "toy",
        "dataset": "toy",
        "methods": {name: {} for name in ROWS},
        "select_on": "train",
        "frontier": {"accuracy": "rmse", "fairness": ["disparity:sex"]},
        "claims": [{"id": "one", "sentence": "So it is.", **asked}],
    }
    return StudyConfig.model_validate(content)


def plan_of(fits) -> list[Planned]:
    return [
        Planned(
            ("frontier",),
            FitGroup(
                dataset="toy",
                method=method,
                estimator=method,
                metric=None,
                rows=None,
                select_on="train",
                threads=1,
                members=(Member(seed, {}, yaml.safe_load(setting)),),
            ),
        )
        for method, setting, seed in fits.itertuples(index=False)
    ]


def check(home=None, **asked):
    points, fits = make(ROWS)
    made = study(equal_harm={"relation": "<=", **asked})
    return check_claims(made, points, plan_of(fits), home=home)[0]


def test_rows_are_compared_at_every_disparity_of_the_right_one():
    found = check(left="fair", right="worse")
    assert found["held"] is True
    numbers = found["evidence"]["numbers"]
    assert [each["harm"] for each in numbers] == pytest.approx([0.4, 0.2, 0.15])
    assert [each["left"] for each in numbers] == pytest.approx([1.0, 1.2, 1.6])
    assert [each["right"] for each in numbers] == pytest.approx([1.1, 1.5, 2.5])
    assert numbers[1]["left_row"] == "fair at 0.200"
    back = check(left="worse", right="fair")
    assert back["held"] is False
    # The other way round the last point is out of reach, which is no better than any loss.
    assert back["evidence"]["numbers"][2]["left"] is None
    assert back["evidence"]["numbers"][2]["held"] is False
    assert check(left="worse", right="fair", relation=">")["held"] is True


def test_what_is_out_of_reach_may_be_passed_over():
    found = check(left="worse", right="fair", relation=">=", common=True)
    assert [each["left"] for each in found["evidence"]["numbers"]] == pytest.approx([1.1, 1.5])
    assert found["held"] is True
    # Nothing in common is nothing known.
    assert check(left="worse", right="fair", share=0.1, common=True)["held"] is None


@pytest.mark.parametrize(
    ("asked", "held"),
    [
        ({"left": "fair", "right": "plain", "share": 0.5}, False),
        ({"left": "fair", "right": "plain", "share": 0.5, "factor": 1.2}, True),
        ({"left": "fair", "right": "plain", "share": 0.5, "factor": 1.19}, False),
        ({"left": "fair", "right": "plain", "share": 0.5, "tolerance": 0.2001}, True),
        ({"left": "fair", "right": "plain", "share": 0.2, "factor": 99}, False),
        ({"left": ["fair", "worse"], "right": "plain", "share": 0.5, "factor": 1.2}, False),
        ({"left": ["fair", "worse"], "right": ["plain", "worse"]}, True),
        ({"left": ["fair", "worse"], "right": ["plain", "fair"]}, False),
        ({"left": "fair", "right": "plain", "relation": "=="}, True),
        ({"left": "worse", "right": "plain", "relation": "==", "tolerance": 0.09}, False),
    ],
)
def test_shares_factors_and_tolerances(asked, held):
    assert check(**asked)["held"] is held


def test_what_was_not_run_is_not_known():
    points, fits = make({"fair": ROWS["fair"]})
    made = study(equal_harm={"left": "fair", "right": "plain", "relation": "<="})
    assert check_claims(made, points, plan_of(fits))[0]["held"] is None
    made = study(equal_harm={"left": "plain", "right": "fair", "relation": "<="})
    assert check_claims(made, points, plan_of(fits))[0]["held"] is None


def write_reference(home) -> None:
    row = {"method": "fair", "label": "Fair", "mean": [1.25, 0.2], "spread": [0.1, 0.1]}
    far = {"method": "fair", "label": "Fairer", "mean": [3, 0.05]}
    table = {
        "title": "A curve",
        "dataset": "toy",
        "where": "Figure 1",
        "verified": "By eye.",
        "spread_kind": "se",
        "n_splits": 1,
        "measures": ["rmse", "disparity:sex"],
        "along": "disparity:sex",
        "rows": {"at .2": row, "at .05": far},
    }
    folder = home / "data" / "reference"
    folder.mkdir(parents=True)
    content = {"publication": "toy", "source": "A paper.", "tables": {"curve": table}}
    (folder / "toy.yaml").write_text(yaml.safe_dump(content, sort_keys=False))


def test_a_published_curve_is_met_or_not(tmp_path):
    write_reference(tmp_path)
    found = check(tmp_path, left="fair", published="toy.curve")
    assert [each["held"] for each in found["evidence"]["numbers"]] == [True, False]
    assert [each["left"] for each in found["evidence"]["numbers"]] == pytest.approx([1.2, None])
    assert found["evidence"]["numbers"][0]["right_row"] == "Fair"


def test_ours_is_read_off_the_curve_beside_a_published_one(tmp_path):
    write_reference(tmp_path)
    points, fits = make(ROWS)
    publication, table = read_publication("toy.curve", tmp_path)
    own = fits.loc[fits["method"] == "fair"]
    found = compare(points, own, publication, table, "default").set_index(["row", "measure"])
    assert list(found.index.unique("row")) == ["at .2", "at .05"]
    assert found.loc[("at .2", "rmse"), "ours_mean"] == pytest.approx(1.2)
    assert found.loc[("at .2", "disparity:sex"), "ours_mean"] == 0.2
    assert found.loc[("at .2", "rmse"), "n_splits"] == 1
    assert found.loc["at .05", "ours_mean"].isna().all()
    # A row that the paper does not have is named with its setting, as in other tables.
    with_plain = compare(points, fits, publication, table, "default")
    assert "plain" in set(with_plain["row"])


def test_a_curve_is_along_one_of_its_measures(tmp_path):
    write_reference(tmp_path)
    path = tmp_path / "data" / "reference" / "toy.yaml"
    path.write_text(path.read_text().replace("along: disparity:sex", "along: disparity:race"))
    with pytest.raises(ConfigError):
        read_publication("toy.curve", tmp_path)


def test_seconds_of_calls_are_compared():
    points, fits = make(ROWS)
    made = study(speed={"left": ["fair", "plain"], "right": "worse", "factor": 0.1})
    for seconds, held in (
        ({"fair": 0.01, "plain": 0.1, "worse": 1.0}, True),
        ({"fair": 0.01, "plain": 0.2, "worse": 1.0}, False),
        ({"fair": 0.01, "worse": 1.0}, None),
        ({"fair": 0.5, "worse": 1.0}, False),
        ({}, None),
    ):
        found = check_claims(made, points, plan_of(fits), seconds=seconds)[0]
        assert found["held"] is held


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"left": "fair"}, "one right side"),
        ({"left": "fair", "right": "plain", "published": "toy.curve"}, "one right side"),
        ({"left": ["fair"], "right": ["plain", "worse"]}, "1 rows on the left and 2 on the right"),
        ({"left": "fair", "right": "plain", "share": 0}, "greater than 0"),
    ],
)
def test_what_cannot_be_asked_is_refused(asked, message):
    with pytest.raises(ConfigError, match=message):
        read_claims(study(equal_harm={"relation": "<=", **asked}))


def test_rows_must_be_there(tmp_path):
    settings = {"frontier": [(name, {}) for name in ROWS]}
    for asked in (
        {"equal_harm": {"left": "fiar", "right": "plain", "relation": "<="}},
        {"speed": {"left": "fair", "right": "fiar", "factor": 0.1}},
    ):
        with pytest.raises(ConfigError, match="names 'fiar', which is no row"):
            refuse_claims(study(**asked), settings, "x")


def test_a_claim_is_checked_in_one_way():
    equal = {"left": "fair", "right": "plain", "relation": "<="}
    speed = {"left": "fair", "right": "plain", "factor": 1}
    with pytest.raises(ValueError, match="in one way"):
        Claim.model_validate({"id": "one", "sentence": "So.", "equal_harm": equal, "speed": speed})


def test_evidence_names_block_and_relation():
    points, fits = make(ROWS)
    asked = study(equal_harm={"left": "fair", "right": "plain", "relation": "<="})
    claim = read_claims(asked)[0].equal_harm
    assert claim is not None
    found = check_equal_harm(asked, claim, points, plan_of(fits))
    assert found["relation"] == "<="
    assert len(list_fits(plan_of(fits), "frontier")) == 7
