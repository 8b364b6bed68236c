from __future__ import annotations

import json
import time

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import precision_score, recall_score, roc_auc_score

import fairfrontier as ff
from fairfrontier.auditing import audit as verb
from fairfrontier.auditing.figure import draw_impact
from fairfrontier.auditing.known_groups import judge
from fairfrontier.auditing.option import AuditConfig
from fairfrontier.runtime.errors import ConfigError, DataError
from fairfrontier.runtime.text_file import read_csv
from tests.auditing.hiring import make_applicants
from tests.auditing.test_noisy_groups import PNG, read_report

DECIDED = {"decisions": "hired", "groups": ("sex", "race")}
SCORED = {"scores": "score", "groups": ("sex", "race")}


def audit(frame, folder, **options):
    folder.mkdir(parents=True, exist_ok=True)
    frame.to_parquet(folder / "table.parquet")
    return ff.audit(AuditConfig(table=folder / "table.parquet", **options))


def pick(table, **wanted):
    for name, value in wanted.items():
        table = table[table[name] == value]
    return table


@pytest.fixture(scope="module")
def frame():
    return make_applicants()


@pytest.fixture(scope="module")
def labelled(frame, tmp_path_factory):
    return audit(frame, tmp_path_factory.mktemp("a"), labels="success", threshold=0.6, **SCORED)


def test_rates_of_categories_and_of_their_cross_are_counted(frame, tmp_path):
    found = audit(frame, tmp_path, minimum=1, exclude_below=0.0, **DECIDED)
    assert set(found.impact["attribute"]) == {"sex", "race", "sex×race"}
    named = frame.assign(sex=frame["sex"].fillna("unknown"))
    named["sex×race"] = named["sex"] + "×" + named["race"]
    for attribute, table in found.impact.groupby("attribute"):
        counted = named.groupby(attribute)["hired"].agg(["size", "sum"])
        table = table.set_index("level").loc[counted.index]
        assert table["n"].tolist() == counted["size"].tolist()
        assert table["selected"].tolist() == counted["sum"].tolist()
        known = ~counted.index.str.contains("unknown")
        best = (counted["sum"] / counted["size"])[known].max()
        np.testing.assert_allclose(table["ratio"], counted["sum"] / counted["size"] / best)
        assert (table["status"] == "unknown").tolist() == (~known).tolist()


def test_of_three_attributes_every_two_are_crossed(frame, tmp_path):
    third = frame.assign(born=np.where(frame.index % 2, "odd", "even"))
    asked = {**DECIDED, "groups": ("sex", "race", "born")}
    found = audit(third, tmp_path, **asked)
    crosses = ["sex×race", "sex×born", "race×born"]
    assert [*found.impact["attribute"].unique()] == ["sex", "race", "born", *crosses]
    pair = audit(frame, tmp_path, **DECIDED).impact
    pd.testing.assert_frame_equal(
        pick(found.impact, attribute="sex×race").reset_index(drop=True),
        pick(pair, attribute="sex×race").reset_index(drop=True),
    )


def test_a_column_with_the_name_of_a_cross_is_refused(frame, tmp_path):
    named = frame.assign(**{"sex×race": np.where(frame.index % 2, "odd", "even")})
    with pytest.raises(ConfigError, match="'sex×race'"):
        audit(named, tmp_path, **{**DECIDED, "groups": ("sex", "race", "sex×race")})


def test_scoring_rates_are_shares_above_the_median(frame, tmp_path):
    found = audit(frame, tmp_path, **SCORED)
    assert set(found.impact["measure"]) == {"scoring_rate"}
    assert found.median == frame["score"].median()
    above = (frame["score"] > frame["score"].median()).groupby(frame["sex"]).mean()
    rates = pick(found.impact, attribute="sex").set_index("level")["rate"]
    assert rates[["female", "male"]].tolist() == pytest.approx(above.tolist())
    # Nothing was decided, and there are no labels.
    assert not set(found.measures["measure"]) & {"selection_rate", "tpr", "auc"}
    assert {"scoring_rate_ratio", "disparity"} <= set(found.measures["measure"])
    assert found.calibration.empty


def test_measures_are_those_of_scikit_learn(frame, labelled):
    women = frame[frame["sex"] == "female"]
    measures = labelled.measures.set_index(["measure", "group"])["value"]
    decided = women["score"] >= 0.6
    assert measures["tpr", "sex=female"] == pytest.approx(recall_score(women["success"], decided))
    assert measures["ppv", "sex=female"] == pytest.approx(
        precision_score(women["success"], decided)
    )
    assert measures["npv", ""] == pytest.approx(
        precision_score(frame["success"], frame["score"] >= 0.6, pos_label=0)
    )
    assert measures["auc", ""] == pytest.approx(roc_auc_score(frame["success"], frame["score"]))
    levels = [measures["tpr", f"sex={level}"] for level in ("female", "male")]
    assert measures["tpr_difference", "sex"] == pytest.approx(max(levels) - min(levels))
    assert (
        labelled.measures.set_index(["measure", "group"])["low"]["ppv", "sex=female"]
        < (measures["ppv", "sex=female"])
    )


def test_categories_that_are_left_out_do_not_move_differences(frame, tmp_path, labelled):
    # All of a category of 1% are hired: it would have the highest rate.
    moved = frame.assign(score=frame["score"].where(frame["race"] != "Native Hawaiian", 1.0))
    found = audit(moved, tmp_path, labels="success", threshold=0.6, **SCORED)
    one, other = (
        each.measures.set_index(["measure", "group"])["value"] for each in (labelled, found)
    )
    for name in ("selection_rate_ratio", "tpr_difference", "ppv_difference"):
        assert other[name, "race"] == pytest.approx(one[name, "race"])
    assert other["selection_rate", "race=Native Hawaiian"] == 1.0
    ratio = pick(found.impact, measure="selection_rate", attribute="race", status="compared")
    assert other["selection_rate_ratio", "race"] == pytest.approx(ratio["ratio"].min())


def test_a_small_group_is_not_estimable_and_judges_no_limit(frame, tmp_path):
    few = frame.assign(sex=["female"] * 9 + ["male"] * (len(frame) - 9))
    found = audit(
        few,
        tmp_path,
        labels="success",
        decisions="hired",
        group="sex",
        limit="selection_rate_ratio=1,tpr:sex=female=0.99",
    )
    women = pick(found.impact, level="other (1 level)").iloc[0]
    assert women["status"] == "too few"
    assert women[["rate", "ratio", "four_fifths"]].isna().all()
    assert found.limits["verdict"].tolist() == ["not estimable", "not estimable"]


def test_a_level_of_few_rows_is_named_and_counted_nowhere(frame, tmp_path):
    # The counts of tpr, fpr, ppv and npv would be the label and the decision of a person alone.
    race = frame["race"].mask(frame.index == 7, "Tuvaluan").mask(frame.index < 3, "Samoan")
    asked = {"labels": "success", "decisions": "hired", "scores": "score"}
    found = audit(frame.assign(race=race), tmp_path, groups=("sex", "race"), **asked)
    for name in ("impact", "scores", "measures", "calibration"):
        text = getattr(found, name).to_csv()
        assert "Asian" in text
        assert "Tuvaluan" not in text, name
        assert "Samoan" not in text, name
    assert "male×Asian" in found.impact["level"].tolist()
    pooled = pick(found.impact, attribute="race", level="other (2 levels)")
    assert pooled["n"].tolist() == [4, 4]
    assert pooled["status"].tolist() == ["too few"] * 2
    assert pick(found.scores, attribute="race", level="other (2 levels)")["n"].tolist() == [4]
    by_level = found.calibration[found.calibration["attribute"] != ""]
    assert by_level["n"].min() >= 10


def test_limits_are_least_or_most_values(frame, tmp_path):
    limit = {
        "selection_rate_ratio:sex": 0.8,
        "selection_rate_difference": 0.5,
        "tpr_gap:sex": 0.01,
        "accuracy": 0.5,
        "tpr:sex=male": 0.99,
    }
    found = audit(frame, tmp_path, labels="success", limit=limit, **DECIDED)
    verdicts = found.limits.set_index(["limit", "group"])["verdict"].to_dict()
    assert verdicts == {
        ("selection_rate_ratio:sex", "sex"): "exceeded",
        ("selection_rate_difference", "sex"): "within",
        ("selection_rate_difference", "race"): "within",
        ("selection_rate_difference", "sex×race"): "within",
        ("tpr_gap:sex", "sex"): "exceeded",
        ("accuracy", ""): "within",
        ("tpr:sex=male", "sex=male"): "exceeded",
    }
    assert judge(0.8, 0.8, "higher") == judge(0.1 + 0.2, 0.3, "lower") == "within"
    assert judge(-0.2, 0.1, "zero") == "exceeded"
    assert judge(np.nan, 0.8, "higher") == "not estimable"


def test_calibration_is_by_tenths_of_all_scores(frame, labelled):
    everyone = pick(labelled.calibration, attribute="")
    assert len(everyone) == 10
    assert everyone["n"].sum() == len(frame)
    assert (everyone["n"] - 300).abs().max() < 10
    tenth = everyone.iloc[4]
    women = frame[(frame["sex"] == "female")]
    inside = women[(women["score"] > tenth["score_low"]) & (women["score"] <= tenth["score_high"])]
    row = pick(labelled.calibration, attribute="sex", level="female").iloc[4]
    assert row["n"] == len(inside)
    assert row["positive"] == pytest.approx(inside["success"].mean())
    assert row["score"] == pytest.approx(inside["score"].mean())


def test_scores_differ_in_standard_deviations(frame, labelled):
    rows = pick(labelled.scores, attribute="sex").set_index("level")
    women, men = (frame.loc[frame["sex"] == sex, "score"] for sex in ("female", "male"))
    squares = (women.size - 1) * women.var() + (men.size - 1) * men.var()
    pooled = np.sqrt(squares / (women.size + men.size - 2))
    assert rows["difference"]["female"] == pytest.approx((women.mean() - men.mean()) / pooled)
    assert rows["difference"]["male"] == 0


def test_scores_that_are_no_probabilities_have_ranks(frame, tmp_path):
    points = frame.assign(score=frame["score"] * 100)
    found = audit(points, tmp_path, labels="success", threshold=60, **SCORED)
    names = set(found.measures["measure"])
    assert {"auc", "disparity"} <= names
    assert not {"log_loss", "logistic_loss"} & names


def test_a_randomised_rule_has_expected_rates(frame, tmp_path):
    found = audit(frame, tmp_path, labels="success", randomised=True, **SCORED)
    rates = pick(found.impact, measure="selection_rate", attribute="sex").set_index("level")
    assert rates["rate"]["male"] == pytest.approx(frame["score"][frame["sex"] == "male"].mean())
    assert rates["fisher_p"].isna().all()
    assert "ppv" not in set(found.measures["measure"])


def test_levels_that_mean_unknown_are_counted_apart(frame, tmp_path):
    named = frame.assign(sex=frame["sex"].fillna("not stated"))
    found = audit(named, tmp_path, unknown=("not stated",), **DECIDED)
    pd.testing.assert_frame_equal(found.impact, audit(frame, tmp_path, **DECIDED).impact)


@pytest.mark.parametrize("unknown", ["9", "9.0", " 9"])
def test_a_level_that_means_unknown_is_written_in_any_way(frame, tmp_path, unknown):
    code = frame["sex"].map({"female": 1.0, "male": 2.0}).fillna(9.0)
    found = audit(frame.assign(sex=code), tmp_path, unknown=(unknown,), **DECIDED).impact
    by_sex = pick(found, measure="selection_rate", attribute="sex")
    assert by_sex["level"][by_sex["status"] == "unknown"].tolist() == ["unknown"]
    with pytest.raises(ConfigError, match=r"no group ever is '8' \(--unknown\)"):
        audit(frame.assign(sex=code), tmp_path, unknown=("9", "8"), **DECIDED)


def test_the_order_of_rows_changes_nothing_to_the_bit(frame, tmp_path):
    weighted = frame.assign(w=np.random.default_rng(1).random(len(frame)))
    scored = {"labels": "success", "scores": "score", "threshold": 0.6, "groups": ("sex",)}
    asked = {"weights": "w", **scored}
    one = audit(weighted, tmp_path / "a", **asked)
    other = audit(weighted.sample(frac=1, random_state=0), tmp_path / "b", **asked)
    for name in ("impact", "measures", "scores", "calibration"):
        pd.testing.assert_frame_equal(getattr(one, name), getattr(other, name), check_exact=True)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"limit": "selection_rate_ration=0.8"}, "Did you mean 'selection_rate_ratio'"),
        ({"limit": "tpr_ratio=0.8"}, "names 'tpr_ratio', which this audit does not measure"),
        ({"limit": "selection_rate=0.8"}, "neither better nor worse"),
        ({"limit": "selection_rate_ratio:sxe=0.8"}, "groups 'sxe'. Did you mean 'sex'"),
        ({"labels": "success", "limit": "tpr:sex=men=0.8"}, "no category. Did you mean 'sex=male'"),
        ({"labels": "success", "limit": "fpr_excess=0.1"}, "by category. Name one: --limit fpr_e"),
        ({"groups": ("sex", "rase")}, r"no column 'rase' \(--groups\). Did you mean 'race'"),
        ({"groups": ("sex", "score")}, "more than 1000 levels, too many for --groups"),
    ],
)
def test_what_cannot_be_audited_is_said(frame, tmp_path, options, told):
    with pytest.raises((ConfigError, DataError), match=told):
        audit(frame, tmp_path, **{**DECIDED, **options})


def test_a_cross_of_too_many_categories_is_refused(tmp_path):
    rows = np.arange(2000)
    many = pd.DataFrame({"d": rows % 2, "a": rows % 50, "b": rows // 40})
    with pytest.raises(DataError, match="a×b has 2000 categories, more than 1000"):
        audit(many, tmp_path, decisions="d", groups=("a", "b"))


def test_combinations_of_one_name_are_refused(tmp_path):
    p, q = ["a×b", "a", "a"] * 20, ["c", "b×c", "c"] * 20
    twins = pd.DataFrame({"p": p, "q": q, "d": [0, 1] * 30})
    with pytest.raises(DataError, match="p×q: two combinations of levels are both named 'a×b×c'"):
        audit(twins, tmp_path, decisions="d", groups=("p", "q"))


HIRES = {("man", 1): 770, ("man", 0): 1287, ("woman", 1): 475, ("woman", 0): 1629}


def make_counts():
    keys = [(sex, hired, half) for sex, hired in HIRES for half in "ab"]
    persons = [
        HIRES[sex, hired] // 2 + (half == "a") * (HIRES[sex, hired] % 2)
        for sex, hired, half in keys
    ]
    table = pd.DataFrame(keys, columns=["sex", "hired", "half"])
    return table.assign(persons=persons, score=np.arange(len(keys)) / 8, y=[0, 1, 1, 0] * 2)


def test_weights_that_count_persons_are_rows_repeated(tmp_path):
    table = make_counts()
    asked = {"decisions": "hired", "labels": "y", "scores": "score", "groups": ("sex", "half")}
    counted = audit(table, tmp_path / "a", weights="persons", **asked)
    repeated = audit(table.loc[table.index.repeat(table["persons"])], tmp_path / "b", **asked)
    for name in ("impact", "measures", "scores", "calibration"):
        one, other = getattr(counted, name), getattr(repeated, name)
        pd.testing.assert_frame_equal(one, other, check_exact=True)
    by_sex = pick(counted.impact, measure="selection_rate", attribute="sex").set_index("level")
    assert by_sex["rate"].round(4).tolist() == [0.3743, 0.2258]
    assert by_sex.loc["woman", "ratio"].round(3) == 0.603
    assert by_sex["four_fifths"].tolist() == [False, True]
    assert by_sex["n"].sum() == counted.n_samples == 4161
    with pytest.raises(DataError):
        audit(table.assign(persons=2 * 10**6), tmp_path, weights="persons", **asked)


def test_case_weights_are_of_impact_ratios_as_of_limits(frame, tmp_path):
    heavy = np.where((frame["sex"] == "female") & (frame["hired"] == 1), 0.25, 0.5)
    found = audit(frame.assign(w=heavy), tmp_path, weights="w", **DECIDED)
    rows = pick(found.impact, attribute="sex", status="compared").set_index("level")
    known = frame[frame["sex"] == "female"].assign(w=heavy[frame["sex"] == "female"])
    rate = np.average(known["hired"], weights=known["w"])
    assert rows["rate"]["female"] == pytest.approx(rate)
    measures = found.measures.set_index(["measure", "group"])
    assert rows["ratio"].min() == pytest.approx(measures["value"]["selection_rate_ratio", "sex"])
    # One way to weigh a rate, one interval of it.
    of_women = measures.loc[("selection_rate", "sex=female")]
    assert rows.loc["female", ["low", "high"]].tolist() == pytest.approx(of_women[["low", "high"]])
    assert rows["fisher_p"].isna().all()
    assert rows["four_fifths"].notna().all()


ACTIONS = {("w", 1): 60, ("w", 2): 20, ("w", 3): 20, ("b", 1): 40, ("b", 3): 20, ("b", 4): 40}


def make_applications():
    keys = [key for key, n in ACTIONS.items() for _ in range(n)]
    return pd.DataFrame(keys, columns=["race", "action"])


def test_several_levels_are_accepted_and_some_are_no_decision(tmp_path):
    table, asked = make_applications(), {"decisions": "action", "groups": "race"}
    found = audit(table, tmp_path / "a", accepted="1,2", undecided="4", **asked)
    assert found.impact.set_index("level")["rate"].to_dict() == pytest.approx(
        {"w": 0.8, "b": 40 / 60}
    )
    assert found.subject["undecided"] == {"4": 40}
    assert "zeros" not in found.subject
    # Of further levels it is said what they were counted as.
    alone = audit(table, tmp_path / "b", accepted=(1,), **asked)
    assert alone.subject["zeros"] == {"action": {"2": 20, "3": 40, "4": 40}}
    labelled = audit(
        table.assign(d=1), tmp_path / "c", decisions="d", labels="action", positive=1, groups="race"
    )
    assert labelled.subject["zeros"] == {"action": {"2": 20, "3": 40, "4": 40}}
    for wrong in ({"accepted": "1,7"}, {"accepted": "1", "undecided": "7"}):
        with pytest.raises(ConfigError):
            audit(table, tmp_path / "d", **wrong, **asked)
    with pytest.raises(DataError):
        audit(table.query("action == 4"), tmp_path / "d", undecided="4", **asked)


def test_rows_that_are_left_out_keep_the_numbers_of_others(tmp_path):
    table = make_applications().assign(score=[np.nan] * 80 + [0.5] * 119 + [np.inf])
    table.loc[:79, "action"] = 9
    with pytest.raises(DataError, match="row 199"):
        audit(
            table, tmp_path, decisions="action", accepted="1", undecided="9", scores="score",
            groups="race",
        )  # fmt: skip


def test_a_category_of_few_persons_has_its_ratio_unless_it_may_be_left_out(tmp_path):
    """6 RCNY 5-301(d): of 132 persons 8 are Native Hawaiian, 5 of whom score above the median."""
    sizes, above = [28, 40, 32, 8, 24], [18, 15, 16, 5, 10]
    table = pd.DataFrame({"race": np.repeat(list("hwbna"), sizes)})
    decided = [one for n, x in zip(sizes, above, strict=True) for one in [1] * x + [0] * (n - x)]
    table["above"] = decided
    found = audit(table, tmp_path / "a", decisions="above", groups="race")
    native = found.impact.set_index("level").loc["n"]
    assert (native["status"], native["ratio"].round(2)) == ("compared", 0.97)
    assert native["small_sample"]
    assert native["ratio_low"] < native["ratio"] < native["ratio_high"]
    ratio = found.measures.set_index(["measure", "group"])["value"]["selection_rate_ratio", "race"]
    assert ratio == pytest.approx(found.impact["ratio"].min())
    # A minimum that is asked for holds.
    hidden = audit(table, tmp_path / "b", decisions="above", groups="race", minimum=20)
    assert "n" not in hidden.impact["level"].tolist()


FILES = (
    *("impact.csv", "impact.png", "scores.csv", "measures.csv"),
    *("calibration.csv", "calibration.png", "report.html", "audit.json"),
)
EVIL = '<script>alert("x")</script>'
SCORED_AND_DECIDED = {
    "scores": "score",
    "threshold": 0.6,
    "labels": "success",
    "groups": ("sex", "race"),
}


def run(frame, folder, **options):
    """Audit a frame; the table lies beside the results."""
    folder.mkdir(parents=True, exist_ok=True)
    frame.to_parquet(folder / "rows.parquet")
    findings = verb.audit(AuditConfig(table=folder / "rows.parquet", **options))
    return verb.write(findings, folder, time.monotonic()), findings


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "rows"
    limit = "selection_rate_ratio:sex=0.8"
    return *run(make_applicants(1500), folder, limit=limit, **SCORED_AND_DECIDED), folder


def test_everything_is_left_behind(done):
    summary, findings, folder = done
    assert {path.name for path in folder.iterdir()} == {*FILES, "rows.parquet"}
    assert json.loads((folder / "audit.json").read_text(encoding="utf-8")) == summary
    for name in ("impact", "calibration"):
        assert (folder / f"{name}.png").read_bytes().startswith(PNG)
    for name in ("impact", "measures", "scores", "calibration"):
        table = getattr(findings, name)
        read = read_csv(folder / f"{name}.csv")
        assert read.columns.tolist() == table.columns.tolist()
        assert len(read) == len(table)
    counts = summary["counts"]
    assert counts["rows"] == 1500
    assert (
        counts["compared"] + counts["excluded"] + counts["unknown"] + counts["too_few"]
        == (counts["categories"])
    )
    assert counts["exceeded"] == 1
    assert summary["limits"][0]["verdict"] == "exceeded"


def test_the_report_stands_alone_and_says_what_is_compared(done):
    summary, _, folder = done
    reader = read_report(folder)
    assert all(link.startswith("data:image/png;base64,") for link in reader.links)
    assert "script" not in reader.tags
    for words in ("6 RCNY 5-301", "29 CFR 1607.4(D)", "counted apart", "below 4/5", "exceeded"):
        assert words in reader.text
    assert f"{summary['counts']['compared']} of {summary['counts']['categories']}" in reader.text


@pytest.mark.parametrize("power", [700, 1020])
def test_scores_of_any_size_are_compared_as_small_ones(tmp_path, power):
    plain = make_applicants(200).assign(score=lambda rows: rows["score"] - rows["score"].mean())
    asked = {"scores": "score", "labels": "success", "groups": ("race",), "threshold": 0.0}
    small, _ = run(plain, tmp_path / "small", **asked)
    large, _ = run(plain.assign(score=plain["score"] * 2.0**power), tmp_path / "large", **asked)
    assert len(small["scores"]) >= 4
    for one, other in zip(small["scores"], large["scores"], strict=True):
        for name in ("difference", "low", "high"):
            assert other[name] == pytest.approx(one[name])
        for name in ("mean", "deviation"):
            wanted = None if one[name] is None else one[name] * 2.0**power
            assert other[name] == pytest.approx(wanted)


def test_names_of_categories_are_escaped_and_guarded(tmp_path):
    frame = make_applicants(400).replace({"race": {"Black": EVIL, "White": "=1+1 $x_1$"}})
    run(frame, tmp_path, decisions="hired", group="race")
    reader = read_report(tmp_path)
    assert "script" not in reader.tags
    assert EVIL in reader.text
    assert "'=1+1" in (tmp_path / "impact.csv").read_text()


def test_an_audit_with_noise_replaces_one_without(tmp_path):
    frame = make_applicants(400).fillna({"sex": "male"})
    asked = {"decisions": "hired", "labels": "success", "group": "sex"}
    run(frame, tmp_path, **asked)
    run(frame, tmp_path, level=0.05, **asked)
    names = {path.name for path in tmp_path.iterdir()}
    assert "bounds.csv" in names
    assert "impact.csv" not in names
    run(frame, tmp_path, **asked)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {
        "rows.parquet",
        "impact.csv",
        "impact.png",
        "measures.csv",
        "report.html",
        "audit.json",
    }


def test_the_picture_tells_what_is_below_four_fifths(done):
    _, findings, _ = done
    impact = findings.impact
    women = impact.query("level == 'female' and measure == 'selection_rate'").iloc[0]
    assert women["four_fifths"]
    picture = draw_impact(impact)
    assert f"sex female {women['rate']:.3f}" in picture.alt
    # The look depends on the flag.
    flags = pd.array([False] * len(impact), dtype="boolean")
    assert draw_impact(impact.assign(four_fifths=flags)).png != picture.png
