from __future__ import annotations

from pathlib import Path

import pytest

from fairfrontier.runtime.errors import ConfigError, nearest
from fairfrontier.runtime.store import canonical_json
from fairfrontier.study.check import load_study
from fairfrontier.study.config import list_studies
from tests.study.planned import DATASET, STUDY, change, make_home, plan, write

CLAIM = {
    "id": "fairer-by-budget",
    "sentence": "Outputs shift less as the budget grows.",
    "trend": {
        "row": "fair",
        "along": "budget",
        "direction": "falling",
        "measure": "dif:budget=2",
        "block": "frontier",
    },
}


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    return make_home(tmp_path, monkeypatch)


def test_blocks_unfold_into_every_row_value_and_seed(home):
    found = plan(home)
    # 2 published rows of one seed, then 1 + 2 settings of two seeds.
    assert len(found) == 2 + 3 * 2
    assert [each.blocks for each in found.values()][:3] == [
        ("published",),
        ("published",),
        ("frontier",),
    ]
    swept = found["fair", '{"budget":0.1,"preset":"published","rows":100,'
                  '"select_on":"validation","solver":"exact"}', 1]  # fmt: skip
    assert swept.group.members[0].parameters == {"budget": 0.1, "depth": 14, "solver": "exact"}
    assert swept.group.metric == {"name": "subspace"}
    assert (swept.group.rows, swept.group.select_on, swept.group.threads) == (100, "validation", 1)
    published = found["fair", '{"preset":"published","select_on":"train"}', 0]
    assert published.group.members[0].parameters == {"budget": 0.4, "depth": 14}
    assert published.group.rows is None


def test_a_method_that_takes_no_metric_gets_none(home):
    groups = [each.group for each in plan(home).values()]
    assert {each.method: each.metric for each in groups} == {
        "boosting": None,
        "fair": {"name": "subspace"},
    }


def test_a_fit_that_both_blocks_ask_for_comes_once(home):
    content = {**STUDY, "rows": None, "select_on": "train"}
    write(home / "conf/studies/toy.yaml", content)
    found = plan(home)
    both = [each for each in found.values() if each.blocks == ("published", "frontier")]
    assert [(each.group.method, *each.group.seeds) for each in both] == [("boosting", 0)]
    assert len(found) == 2 + 3 * 2 - 1


def test_two_fits_never_share_a_name(home):
    # The same label, setting and seed, but another estimator behind it.
    content = {**STUDY, "rows": None, "select_on": "train"}
    content["methods"] = {"fair": {"method": "boosting", "preset": "published"}}
    content["claims"] = []
    write(home / "conf/studies/toy.yaml", content)
    with pytest.raises(ConfigError):
        plan(home)


def test_labels_grids_and_row_metrics(home):
    row = {
        "method": "fair",
        "preset": "published",
        "grid": "paper",
        "solver": "sgd",
        "metric": {"penalty": 2.0},
    }
    change(home, "methods", "fair-grid", value=row)
    found = [each.group for each in plan(home).values() if each.group.method == "fair-grid"]
    assert len(found) == 2 * 3 * 2
    assert {each.estimator for each in found} == {"fair"}
    assert {
        (g.members[0].parameters["budget"], g.members[0].parameters["depth"]) for g in found
    } == {(b, d) for b in (0.1, 0.3) for d in (6, 8, 10)}
    assert found[0].metric == {"name": "subspace", "penalty": 2.0}
    assert found[0].members[0].setting["metric"] == {"penalty": 2.0}


def test_a_list_inside_a_list_is_one_value(home):
    change(home, "methods", "boosting", "layers", value=[[100, 50]])
    found = [g.group for g in plan(home).values() if g.blocks == ("frontier",)]
    assert {str(g.members[0].parameters["layers"]) for g in found if g.method == "boosting"} == {
        "[100, 50]"
    }


def test_a_profile_is_merged_deeply(home):
    study = load_study("toy", "paper", home).study
    assert study.published is not None
    assert study.published.seeds == (3, 5)
    assert set(study.published.methods) == {"boosting", "fair"}
    assert (study.threads, study.slug) == (2, "toy@paper")
    assert load_study("toy", home=home).study.slug == "toy"


def test_settings_do_not_depend_on_the_profile(home):
    names = {(method, setting) for method, setting, _ in plan(home)}
    assert {(method, setting) for method, setting, _ in plan(home, "paper")} == names


def test_a_study_by_path_and_the_listing(home, tmp_path):
    copy = write(tmp_path / "elsewhere.yaml", {k: v for k, v in STUDY.items() if k != "study"})
    assert load_study(copy, home=home).study.study == "elsewhere"
    assert load_study(str(copy), home=home).study.study == "elsewhere"
    assert list_studies(home) == ["toy"]


def test_a_dataset_by_path_is_sought_beside_the_study(home):
    write(home / "conf/studies/mine.yaml", DATASET)
    change(home, "dataset", value="mine.yaml")
    # The preset of `fair` covers the dataset toy only, and this one goes by its file's name.
    with pytest.raises(ConfigError):
        load_study("toy", home=home)


@pytest.mark.parametrize(
    ("keys", "value", "message"),
    [
        (("seed",), 3, r"no key 'seed'.*Did you mean 'seeds'"),
        (("dataset",), None, r"dataset: this key is missing"),
        (("seeds",), [], r"seeds: there is no seed"),
        (("dataset",), "toi", r"no dataset 'toi'.*Did you mean 'toy'"),
        (("dataset",), "none.yaml", r"toy.yaml: dataset: there is no dataset file none.yaml"),
        (("metric",), {"nome": "subspace"}, r"metric: it has no name"),
        (("metric",), {"name": "subspace", "penalti": 1}, r"Did you mean 'penalty'"),
        (("metric",), None, r"fair needs a fair metric"),
        (("methods", "boostin"), {}, r"methods.boostin: there is no method.*'boosting'"),
        (("methods", "fair", "preset"), "publishd", r"no preset.*Did you mean 'published'"),
        (("methods", "fair", "budgett"), 1, r"takes no parameter.*Did you mean 'budget'"),
        (("methods", "fair", "then"), "thresholds", r"there is no post-processor 'thresholds'"),
        (("published", "methods", "fair", "budget"), [1, 2], r"published.methods.fair lists"),
        (("frontier", "accuracy"), "acuracy", r"unknown measure.*Did you mean 'accuracy'"),
        (("frontier", "accuracy"), "selection_rate", r"no value is better"),
        (("frontier", "accuracy"), "rmse", r"is for regression labels.*a binary task.*accuracy"),
        (("frontier", "fairness"), ["gap_rms"], r"no value of all rows.*gap_rms:sex"),
        (("frontier", "fairness"), ["counterfactual_fairness:sex"], r"under counterfactuals"),
        (("frontier", "fairness"), ["gap_rms:sexe"], r"under groups.*Did you mean 'sex'"),
        (("frontier", "fairness"), ["gap_rms:sex×sex"], r"an attribute twice"),
        (("frontier", "fairness"), ["gap_rms:sex=F"], r"level sex=F.*Choose among: gap_rms:sex,"),
        (("frontier", "fairness"), ["tpr_shortfall:sex"], r"no value of sex.*tpr_shortfall:sex=LE"),
        (("frontier", "fairness"), ["true_fpr_excess:sex=F"], r"no noisy groups"),
        (("claims", "0", "compare", "measure"), "error_cost", r"no costs of errors"),
        (("claims", "0", "compare", "left"), "fiar", r"no row of the published block.*'fair'"),
        (("claims", "0", "compare", "value"), 1.0, r"one right side"),
        (("profiles", "paper", "study"), "x", r"cannot change 'study'"),
        (("figures",), ["certificate"], r"figures: The study toy .*certifies nothing"),
        (
            ("certificate",),
            {"budgets": [0.1, 0.1]},
            r"certificate.budgets: a budget is listed twice",
        ),
        (("methods", "fair", "budget"), list(range(20_001)), r"40,006 fits, more than 20,000"),
    ],
)
def test_faults_name_the_file_the_key_and_the_mend(home, keys, value, message):
    path = change(home, *keys, value=value)
    with pytest.raises(ConfigError, match=f"(?s){message}") as caught:
        load_study("toy", home=home)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    "name",
    [
        *("accuracy:sex=F", "tpr:race=a", "tpr:sex×race=F×a", "gap_rms:sex×race", "tpr_gap:sex"),
        *("selection_rate_gap_inside:race inside sex=F", "consistency:spouse", "disparity:race=a"),
    ],
)
def test_measures_of_levels_pairs_and_sets_are_taken(home, name):
    change(home, "frontier", "fairness", value=[name])
    assert load_study("toy", home=home).study.frontier.fairness == (name,)


def test_a_spread_over_all_memberships_stands_without_a_group(home):
    change(home, "frontier", "fairness", value=["accuracy_spread", "consistency:spouse"])
    assert load_study("toy", home=home).study.frontier.fairness[0] == "accuracy_spread"


def test_unknown_study_profile_and_file(home):
    with pytest.raises(ConfigError, match=r"no study 'toi'.*Did you mean 'toy'"):
        load_study("toi", home=home)
    with pytest.raises(ConfigError, match=r"no profile 'papr'.*Did you mean 'paper'"):
        load_study("toy", "papr", home)
    with pytest.raises(ConfigError, match=r"no study file missing\.yaml"):
        load_study("missing.yaml", home=home)
    (home / "conf/studies/list.yaml").write_text("- a\n")
    with pytest.raises(ConfigError):
        load_study("list", home=home)


def test_a_method_file_with_an_unknown_key(home):
    path = write(home / "conf/methods/fair.yaml", {"method": "fair", "preset": {}})
    with pytest.raises(ConfigError, match=nearest("preset", ["presets"])) as caught:
        load_study("toy", home=home)
    assert str(path) in str(caught.value)


def test_a_row_without_anything_takes_the_defaults(home):
    methods = {**STUDY["methods"], "boosting": None}
    write(home / "conf/studies/toy.yaml", {**STUDY, "methods": methods})
    found = [g.group for g in plan(home).values() if g.blocks == ("frontier",)]
    assert next(g.members[0].parameters for g in found if g.method == "boosting") == {}


def test_a_certificate_is_asked_for_under_the_studys_metric(home):
    certified = {
        **STUDY,
        "certificate": {"budgets": [0.1, 2]},
        "frontier": {"fairness": ["dif:budget=2"]},
    }
    write(home / "conf/studies/toy.yaml", certified)
    found = [each.group.certificate for each in plan(home).values()]
    parts = ["test", "validation"]
    wanted = {"budgets": [0.1, 2.0], "metric": {"name": "subspace"}, "rows": 2000, "parts": parts}
    assert all(each == wanted for each in found)


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({}, ["test"]),
        ({"frontier": {"fairness": ["dif:budget=2"]}}, ["test", "validation"]),
        ({"frontier": {"fairness": ["adversarial_gap:budget=2"]}}, ["test", "validation"]),
        ({"claims": [CLAIM]}, ["test"]),
        ({"claims": [CLAIM | {"trend": CLAIM["trend"] | {"part": "validation"}}]}, None),
    ],
)
def test_validation_is_certified_where_something_reads_it(home, changes, parts):
    write(home / "conf/studies/toy.yaml", {**STUDY, "certificate": {"budgets": [2]}, **changes})
    found = [each.group.certificate["parts"] for each in plan(home).values()]
    assert found
    assert all(each == (parts or ["test", "validation"]) for each in found)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"certificate": {"budgets": [float("inf")]}}, ".inf is not a finite number"),
        ({"certificate": {"budgets": []}}, "certificate.budgets"),
        ({"frontier": {"fairness": ["dif:budget=2"]}}, "Add certificate"),
        ({"certificate": {"budgets": [2]}, "frontier": {"fairness": ["dif:budget=3"]}}, "budget=2"),
    ],
)
def test_a_certificate_that_cannot_be_is_refused(home, changes, message):
    write(home / "conf/studies/toy.yaml", {**STUDY, **changes})
    with pytest.raises(ConfigError, match=message):
        load_study("toy", home=home)


def test_a_row_that_names_another_learner_starts_anew(home):
    methods = {
        "fair": {"metric": {"penalty": 3.0}},
        "fair-face": {"method": "fair", "metric": {"name": "face", "directions": 2}},
    }
    metric = {"name": "subspace", "penalty": 1.0, "units": False}
    write(
        home / "conf/studies/toy.yaml",
        {**STUDY, "metric": metric, "methods": methods, "claims": []},
    )
    found = {
        each.group.method: each.group.metric
        for each in plan(home).values()
        if each.blocks == ("frontier",)
    }
    assert found["fair"] == {"name": "subspace", "penalty": 3.0, "units": False}
    assert found["fair-face"] == {"name": "face", "directions": 2}


def test_post_processors_sweep_beside_their_models(home):
    then = {"method": "rule", "attributes": "sex", "budget": [0, 0.1]}
    row = {"method": "fair", "preset": "published", "budget": [0.1, 0.2], "then": then}
    change(home, "methods", "fair+rule", value=row)
    found = [(key, each) for key, each in plan(home).items() if key[0] == "fair+rule"]
    assert len(found) == 2 * 2 * 2
    settings = {setting for (_, setting, _), _ in found}
    assert (
        canonical_json(
            {
                "budget": 0.2,
                "preset": "published",
                "then": "rule",
                "then.attributes": "sex",
                "then.budget": 0.1,
                "rows": 100,
                "select_on": "validation",
            }
        )
        in settings
    )
    rule = {"method": "rule", "attributes": "sex", "budget": 0.1}
    assert rule in [each.group.then for _, each in found]
    bases = {each.group.members[0].parameters["budget"] for _, each in found}
    assert bases == {0.1, 0.2}


@pytest.mark.parametrize(
    ("then", "message"),
    [
        ({"method": "rule", "budgte": 1}, r"methods.fair.then: rule takes no parameter 'budgte'"),
        ({"method": "rule", "scale": "margin"}, r"scores are the method's probabilities"),
        ({"method": "rule", "attributes": "gender"}, r"attributes is 'gender', which is no group"),
        ({"method": "rule", "attributes": 1.5}, r"'attributes' of.*1.5. .*valid string"),
    ],
)
def test_faults_of_post_processors_name_their_place(home, then, message):
    change(home, "methods", "fair", "then", value=then)
    with pytest.raises(ConfigError, match=message):
        load_study("toy", home=home)


def test_noise_sweeps_the_data_of_a_row(home):
    change(home, "methods", "fair", "noise", value=[0.1, 0.3])
    with pytest.raises(ConfigError):
        load_study("toy", home=home)
    noisy = {**DATASET, "perturb": {"noisy_groups": {"race": {"share": 0.0}}}}
    write(home / "conf/datasets/toy.yaml", noisy)
    found = [each.group for key, each in plan(home).items() if key[0] == "fair"]
    members = [member for group in found for member in group.members]
    assert {member.noise for member in members if "noise" in member.setting} == {0.1, 0.3}
    assert all(member.setting["noise"] == member.noise for member in members if member.noise)


def test_a_preset_holds_for_datasets_that_extend_its_own(home):
    write(home / "conf/datasets/more.yaml", {"dataset": "more", "extends": "toy"})
    change(home, "dataset", value="more")
    assert {
        each.group.members[0].parameters["depth"]
        for key, each in plan(home).items()
        if key[0] == "fair"
    } == {14}
