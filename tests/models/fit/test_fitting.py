from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import StratifiedKFold

from fairfrontier import create, learn, load
from fairfrontier.models.base import TrainingWarning
from fairfrontier.models.fit import fitting
from fairfrontier.models.fit.fitting import fit, fit_with_warnings
from fairfrontier.models.fit.group import KIND, FitGroup, Member, load_split, read_facts
from fairfrontier.models.fit.key import key
from fairfrontier.models.fit.training import chooses_cut, read_scores
from fairfrontier.models.group import number_cells
from fairfrontier.models.objective import choose_cut
from fairfrontier.models.prediction import predict_part
from fairfrontier.models.registry import METHODS, load_model
from fairfrontier.models.thresholds.base import score_part
from fairfrontier.runtime.errors import ConfigError, DataError, InputError
from fairfrontier.runtime.store import Store
from tests.project import DATASET, environment, make_project

FRESH = "split: {kind: random, train: 0.4, calibration: 0.2, validation: 0.2, test: 0.2}"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    dataset = DATASET.replace("split: {kind: random, train: 0.6, test: 0.4}", FRESH)
    return make_project(tmp_path_factory.mktemp("project"), dataset=dataset)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def make_group(**changes: object) -> FitGroup:
    return FitGroup(
        **{
            "dataset": "loans",
            "method": "row",
            "estimator": "linear",
            "metric": None,
            "rows": None,
            "select_on": "validation",
            "threads": 1,
            "members": (Member(0, {}, {}), Member(1, {}, {})),
            "then": {"method": "randomized_threshold", "attributes": "origin", "width": 0.1},
            **changes,
        }
    )


def test_decisions_are_those_of_the_rule_on_the_models_scores(home, store):
    group = make_group()
    entry = store.path(KIND, fit(group, store, home))
    base = store.path(KIND, key(group.base, store, home))
    for number, seed in enumerate(group.seeds):
        split = load("loans", seed, select_on="validation", home=home)
        model, rule = load_model(base / f"model-{number}"), load_model(entry / f"model-{number}")
        chain = rule.behind(model)
        stored = read_scores(entry / f"scores-{number}.npz")
        for name, part in split.parts():
            asked = predict_part(chain, part)
            np.testing.assert_array_equal(stored[name].decision, asked.decision)
            # The score stays the model's: how good it is, is no matter of the rule.
            np.testing.assert_array_equal(stored[name].score, predict_part(model, part).score)
            assert list(stored[name].counterfactuals) == ["origin"]
            for mine, theirs in zip(
                stored[name].counterfactuals["origin"], asked.counterfactuals["origin"], strict=True
            ):
                assert mine[0] == theirs[0]
                np.testing.assert_array_equal(mine[1], theirs[1])


def test_thresholds_follow_the_flip_of_a_group(home, store):
    group = make_group(members=(Member(0, {}, {}),))
    entry = store.path(KIND, fit(group, store, home))
    stored = read_scores(entry / "scores-0.npz")["test"]
    variants = [decision for _, decision in stored.counterfactuals["origin"]]
    # The loans' model does not see the origin: only the rule can tell the variants apart.
    assert np.ptp(np.stack(variants), axis=0).max() > 0.1


def test_the_rule_is_fitted_on_calibration_rows_and_tuned_on_validation_rows(home, store):
    group = make_group(members=(Member(0, {}, {}),))
    entry = store.path(KIND, fit(group, store, home))
    split = load("loans", 0, select_on="validation", home=home)
    stored = read_scores(entry / "scores-0.npz")
    rates = {
        name: [
            stored[name].decision[part.group("origin") == code].mean()
            for code in range(len(part.attributes["origin"]))
        ]
        for name, part in split.parts()
    }
    assert np.ptp(rates["calibration"]) == pytest.approx(0.0, abs=1e-9)
    assert np.ptp(rates["train"]) > 1e-3


def test_rows_that_decide_from_one_model_share_its_fit(home, store):
    groups = [
        make_group(),
        make_group(then={"method": "randomized_threshold", "attributes": "origin", "width": 0.5}),
        make_group(then=None),
    ]
    keys = [fit(group, store, home) for group in groups]
    assert len(set(keys)) == 3
    assert {key(group.base, store, home) for group in groups} == {keys[2]}
    assert len(list((store.folder / KIND).glob("*/*"))) == 3


def test_attributes_are_named_alone_or_in_lists(home, store):
    crossed = make_group(then={"method": "randomized_threshold", "attributes": ["origin"]})
    fit(crossed, store, home)
    unknown = make_group(then={"method": "randomized_threshold", "attributes": ["orgin"]})
    with pytest.raises(ConfigError, match=r"orgin.*Did you mean 'origin'"):
        fit(unknown, store, home)


def test_without_calibration_rows_the_mend_is_said(tmp_path, store):
    home = make_project(tmp_path)
    with pytest.raises(ConfigError, match=r"no calibration part.*calibration: 0.2"):
        fit(make_group(select_on="train"), store, home)


def test_without_calibration_rows_a_rule_is_fitted_on_validation_rows(tmp_path, store):
    home = make_project(tmp_path)
    entry = store.path(KIND, fit(make_group(members=(Member(0, {}, {}),)), store, home))
    split = load("loans", 0, select_on="validation", home=home)
    assert split.calibration is None
    part = score_part(split.validation, read_scores(entry / "scores-0.npz")["validation"].score)
    decision = predict_part(load_model(entry / "model-0"), part).decision
    origin = part.group("origin")
    rates = [decision[origin == level].mean() for level in np.unique(origin)]
    assert np.ptp(rates) == pytest.approx(0.0, abs=1e-9)


def test_a_rule_is_not_measured_on_the_validation_rows_that_it_was_made_from(tmp_path, store):
    home = make_project(tmp_path)
    then = {"method": "group_thresholds", "attributes": "origin", "bound": 0.2}
    entry = store.path(KIND, fit(make_group(then=then, members=(Member(0, {}, {}),)), store, home))
    part = load("loans", 0, select_on="validation", home=home).validation
    stored = read_scores(entry / "scores-0.npz")["validation"]
    rule, scored = load_model(entry / "model-0"), score_part(part, stored.score)

    def score(decision):
        return float(np.mean(decision * part.y + (1 - decision) * (1 - part.y)))

    # On its own rows it is the best there is.
    assert score(stored.decision) < score(predict_part(rule, scored).decision)
    # Every fold is decided by the rule of the other rows.
    _, cell = number_cells(np.column_stack([part.group("origin"), part.y]))
    for others, held_out in StratifiedKFold(5, shuffle=True, random_state=0).split(cell, cell):
        rows = scored.take(others)
        other = clone(rule).fit(rows.X, rows.y, sensitive_features=rows.groups)
        decision = predict_part(other, scored.take(held_out)).decision
        np.testing.assert_array_equal(stored.decision[held_out], decision)


def test_a_group_with_a_single_row_of_a_label_has_no_folds(tmp_path, store, monkeypatch):
    home = make_project(tmp_path)
    split = load("loans", 0, select_on="validation", home=home)
    part = split.validation
    rare = np.flatnonzero((part.group("origin") == 1) & (part.y == 1))
    split = split.replace(validation=part.take(np.setdiff1d(np.arange(part.n_samples), rare[1:])))
    monkeypatch.setattr("fairfrontier.models.fit.fitting.load_split", lambda *_: split)
    entry = store.path(KIND, fit(make_group(members=(Member(0, {}, {}),)), store, home))
    stored = read_scores(entry / "scores-0.npz")["validation"]
    own = predict_part(load_model(entry / "model-0"), score_part(split.validation, stored.score))
    np.testing.assert_array_equal(stored.decision, own.decision)


def test_a_group_without_calibration_rows_is_named(home, store, monkeypatch):
    split = load("loans", 0, select_on="validation", home=home)
    assert split.calibration is not None
    kept = np.flatnonzero(split.calibration.group("origin") != 1)
    poorer = dataclasses.replace(split, calibration=split.calibration.take(kept))
    monkeypatch.setattr("fairfrontier.models.fit.fitting.load_split", lambda *_: poorer)
    level = split.calibration.attributes["origin"][1]
    with pytest.raises(DataError, match=f"origin={level}"):
        fit(make_group(members=(Member(0, {}, {}),)), store, home)


def test_what_skips_the_model_skips_the_row(home, store):
    home_group = make_group(
        estimator="reweigh", members=(Member(0, {"n_estimators": 2, "attribute": 0}, {}),)
    )
    assert read_facts(store.path(KIND, fit(home_group, store, home)))["skipped"] is None
    direct = make_group(estimator="randomized_threshold", then=None, members=(Member(0, {}, {}),))
    told = read_facts(store.path(KIND, fit(direct, store, home)))["skipped"]
    assert "then: randomized_threshold" in told
    assert json.loads((store.path(KIND, fit(direct, store, home)) / "fit.json").read_text())


def test_a_batch_may_hold_splits_of_different_width(tmp_path, store):
    # So rare a region is in the training rows of one split only.
    table = make_project(tmp_path) / "data" / "raw" / "loans.csv"
    frame = pd.read_csv(table)
    rare = load("loans", 0, home=tmp_path).train.ids[0]
    frame.loc[rare, "region"] = "nowhere"
    frame.to_csv(table, index=False)
    seeds = [seed for seed in range(8) if rare not in load("loans", seed, home=tmp_path).train.ids]
    small = {"hidden": 4, "steps": 20, "batch_size": 20}
    group = make_group(
        estimator="nn",
        then=None,
        select_on="train",
        members=tuple(Member(seed, small, {}) for seed in (0, seeds[0])),
    )
    entry = store.path(KIND, fit(group, store, tmp_path))
    widths = [load_model(entry / f"model-{number}").n_features_in_ for number in range(2)]
    assert widths[0] == widths[1] + 1


def test_a_stored_model_keeps_the_names_of_its_features(home, store):
    entry = store.path(KIND, fit(make_group(then=None), store, home))
    split, model = (
        load("loans", 0, select_on="validation", home=home),
        load_model(entry / "model-0"),
    )
    assert tuple(model.feature_names_in_) == split.feature_names
    frame = pd.DataFrame(split.test.X, columns=split.feature_names)
    # An array has no names to compare, and is no reason for a warning.
    assert np.array_equal(model.predict(frame), model.predict(split.test.X))
    with pytest.raises(InputError):
        model.predict(frame[frame.columns[::-1]])
    other = load("loans", 0, select_on="validation", home=home).test
    with pytest.raises(DataError):
        predict_part(model, dataclasses.replace(other, feature_names=other.feature_names[::-1]))


DECIDE = """
import hashlib, sys
from fairfrontier import load, load_model
from fairfrontier.models.prediction import predict_part
split, model = load("loans", 0, select_on="validation"), load_model(sys.argv[1])
print(hashlib.sha256(predict_part(model, split.test).score.tobytes()).hexdigest())
"""


@pytest.mark.once
def test_a_process_with_another_hash_seed_decides_alike(tmp_path, store):
    table = make_project(tmp_path) / "data" / "raw" / "loans.csv"
    frame = pd.read_csv(table)
    frame["region"] = np.resize(["nan", "NaN", "NAN", "a", "1.0", "1"], len(frame))
    frame.to_csv(table, index=False)
    entry = store.path(KIND, fit(make_group(then=None), store, tmp_path))
    seed = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    answer = subprocess.run(
        [sys.executable, "-c", DECIDE, str(entry / "model-0")],
        env=environment(tmp_path, PYTHONHASHSEED=seed),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout.strip()
    part = load("loans", 0, select_on="validation", home=tmp_path).test
    score = predict_part(load_model(entry / "model-0"), part).score
    assert answer == hashlib.sha256(score.tobytes()).hexdigest()


@pytest.mark.parametrize("objective", [None, "f1"])
def test_a_corrected_score_is_kept_and_cut(home, store, objective):
    group = make_group(
        then={"method": "shift_inference", "attributes": "origin", "objective": objective},
        members=(Member(0, {}, {}),),
    )
    entry, plain = (store.path(KIND, fit(each, store, home)) for each in (group, group.base))
    stored, base = (read_scores(folder / "scores-0.npz")["test"] for folder in (entry, plain))
    assert not np.array_equal(stored.score, base.score)
    model, rule = (load_model(folder / "model-0") for folder in (plain, entry))
    assert (rule.cut_ == 0.5) == (objective is None)
    np.testing.assert_array_equal(stored.decision, stored.score >= rule.cut_)
    part = load("loans", 0, select_on="validation", home=home).test
    asked = predict_part(rule.behind(model), part)
    np.testing.assert_array_equal(asked.decision, stored.decision)
    for (_, decision), score in zip(
        stored.counterfactuals["origin"], stored.counterfactual_scores["origin"], strict=True
    ):
        np.testing.assert_array_equal(decision, score >= rule.cut_)


def test_width_and_rate_are_chosen_on_validation_rows(home, store, monkeypatch):
    split = load("loans", 0, select_on="validation", home=home)
    group = make_group(
        then={"method": "randomized_threshold", "attributes": "origin"},
        members=(Member(0, {}, {}),),
    )
    chosen = load_model(store.path(KIND, fit(group, store, home)) / "model-0")
    assert split.validation is not None
    turned = dataclasses.replace(split.validation, y=1 - split.validation.y)
    monkeypatch.setattr(
        "fairfrontier.models.fit.fitting.load_split",
        lambda *_: dataclasses.replace(split, validation=turned),
    )
    other = Store(store.folder / "other")
    worse = load_model(other.path(KIND, fit(group, other, home)) / "model-0")
    assert (worse.width_, worse.rate_) != (chosen.width_, chosen.rate_)


def test_noise_is_in_the_keys_of_those_that_see_it(home, store):
    noisy = DATASET.replace("missing:", "perturb: {noisy_groups: {origin: {share: 0.1}}}\nmissing:")
    noisy = noisy.replace("train: 0.6, test: 0.4", "train: 0.4, calibration: 0.2, test: 0.4")
    (home / "conf" / "datasets" / "noisy.yaml").write_text(
        noisy.replace("dataset: loans", "dataset: noisy")
    )
    members = [(Member(0, {}, {}, noise),) for noise in (0.1, 0.2)]

    def look(**changes: object) -> set[str]:
        groups = [make_group(dataset="noisy", members=each, **changes) for each in members]
        return {key(each, store, home) for each in groups}

    assert len(look(then=None)) == 1
    assert len(look()) == 2
    assert len(look(then=None, estimator="reweigh")) == 2


def test_an_edited_dataset_is_another_one_within_a_process(tmp_path, store):
    home = make_project(tmp_path)
    (home / "conf" / "datasets" / "mine.yaml").write_text("dataset: mine\nextends: loans\n")
    group = make_group(dataset="mine", then=None, members=(Member(0, {}, {}),))

    def look() -> tuple[str, int]:
        split = load_split(group, group.members[0], home)
        return key(group, store, home), split.test.n_samples

    found = [look()]
    assert look() == found[0]
    base, table = home / "conf" / "datasets" / "loans.yaml", home / "data" / "raw" / "loans.csv"
    base.write_text(DATASET.replace("train: 0.6, test: 0.4", "train: 0.5, test: 0.5"))
    found.append(look())
    table.write_text("\n".join(table.read_text().splitlines()[:-100]))
    found.append(look())
    base.write_text(DATASET)
    found.append(look())
    assert [size for _, size in found] == [360, 450, 400, 320]
    assert len({digest for digest, _ in found}) == 4


def test_what_a_model_reports_of_its_training_is_kept(home, store, monkeypatch):
    report = {"oracle_calls": 12, "gap": [0.5, 0.25]}
    monkeypatch.setattr("fairfrontier.models.baseline.linear.Linear.report_", report, raising=False)
    plain = make_group(then=None)
    assert read_facts(store.path(KIND, fit(plain, store, home)))["reports"] == [report, report]
    # A rule behind the model reports for itself.
    assert read_facts(store.path(KIND, fit(make_group(), store, home)))["reports"] == [{}, {}]


def test_a_method_that_finds_no_model_is_skipped_with_its_reason(home, store, monkeypatch):
    told = "linear found no model within 0.1."
    monkeypatch.setattr(
        "fairfrontier.models.baseline.linear.Linear.infeasible_", told, raising=False
    )
    entry = store.path(KIND, fit(make_group(then=None), store, home))
    assert read_facts(entry)["skipped"] == told
    assert not list(entry.glob("scores-*"))


def test_training_warnings_come_back_and_others_go_their_way(store, monkeypatch):
    def warn(group, store, home, *, client=None):
        for text in ("two", "one", "two"):
            warnings.warn(text, TrainingWarning, stacklevel=1)
        warnings.warn("soon gone", FutureWarning, stacklevel=1)
        return f"{group} {client}"

    monkeypatch.setattr(fitting, "fit", warn)
    with pytest.warns(FutureWarning, match="soon gone") as seen:
        found = fit_with_warnings("group", store, Path(), client="client")
    assert found == ("group client", ("two", "one"))
    assert len(seen) == 1


def test_a_fault_goes_its_way(store, monkeypatch):
    def warn(*_):
        raise ValueError("NaN")

    monkeypatch.setattr(fitting, "fit", warn)
    with pytest.raises(ValueError, match="NaN"):
        fit_with_warnings("group", store, Path())
    # Filters are what they were: here a warning is an error.
    with pytest.raises(TrainingWarning):
        warnings.warn("late", TrainingWarning, stacklevel=1)


def test_cuts_are_the_best_ones_on_validation_rows_and_saved(home, store):
    group = make_group(then=None, objective="f1")
    entry = store.path(KIND, fit(group, store, home))
    for number, seed in enumerate(group.seeds):
        split = load("loans", seed, select_on="validation", home=home)
        model, part = load_model(entry / f"model-{number}"), split.validation
        assert model.cut_ != 0.5
        stored = read_scores(entry / f"scores-{number}.npz")
        assert model.cut_ == choose_cut(stored["validation"].score, part.y, part.weight, "f1")
        for name, other in split.parts():
            decided = (stored[name].score >= model.cut_).astype(float)
            np.testing.assert_array_equal(stored[name].decision, decided)
            np.testing.assert_array_equal(model.predict(other.X) == 1, decided == 1)
            variants = zip(
                other.counterfactuals["origin"], stored[name].counterfactuals["origin"], strict=True
            )
            for variant, (_, decision) in variants:
                score = model.predict_proba(variant.X)[:, 1]
                np.testing.assert_array_equal(decision, score >= model.cut_)


def test_without_validation_rows_cuts_are_chosen_on_rows_that_a_model_has_not_seen(home, store):
    group = make_group(
        dataset=str(home / "unparted.yaml"),
        then=None,
        objective="accuracy",
        select_on="train",
        estimator="k_neighbors",
        members=(Member(0, {"n_neighbors": 1}, {}),),
    )
    text = (home / "conf/datasets/loans.yaml").read_text()
    text = text.replace(FRESH, "split: {kind: random, train: 0.6, test: 0.4}")
    (home / "unparted.yaml").write_text(text)
    entry = store.path(KIND, fit(group, store, home))
    split = load(home / "unparted.yaml", 0, select_on="train", home=home)
    assert split.validation is None
    # The nearest neighbour of a training row is that row: on these rows every cut would be right.
    score = load_model(entry / "model-0").predict_proba(split.train.X)[:, 1]
    assert ((score >= 0.5) == (split.train.y == 1)).all()
    other = np.empty(split.train.n_samples)
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    for fitted, held_out in folds.split(split.train.X, split.train.y):
        model = create("k_neighbors", n_neighbors=1)
        model.fit(split.train.X[fitted], split.train.y[fitted])
        other[held_out] = model.predict_proba(split.train.X[held_out])[:, 1]
    cut = choose_cut(other, split.train.y, split.train.weight, "accuracy")
    assert load_model(entry / "model-0").cut_ == cut


def test_rules_that_constrain_or_draw_decisions_keep_their_cut():
    kept = {name for name, method in METHODS.all().items() if not chooses_cut(method)}
    assert {"randomized_threshold", "noisy_dro", "noisy_naive"} <= kept
    assert not {"gbdt", "linear", "budro", "sensei", "noisy_unconstrained"} & kept


def test_without_validation_rows_some_of_training_are_held_out_to_stop_early(tmp_path, store):
    make_project(tmp_path)
    many = {"n_estimators": 40, "max_depth": 6, "learning_rate": 0.5, "early_stopping": 3}
    group = make_group(
        estimator="budro", then=None, select_on="train", metric={"name": "subspace"},
        members=(Member(0, many, {}),),
    )  # fmt: skip
    entry = store.path(KIND, fit(group, store, tmp_path))
    split = load("loans", 0, home=tmp_path)
    assert split.validation is None
    part, metric = split.train, learn("subspace", split)
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    fitted, held_out = next(iter(folds.split(part.X, part.y)))
    mine = part.take(fitted)
    model = create("budro", **many).fit(
        mine.X, mine.y, metric=metric, sample_weight=mine.weight, validation=part.take(held_out)
    )
    score = read_scores(entry / "scores-0.npz")["test"].score
    assert np.array_equal(score, model.predict_proba(split.test.X)[:, 1])
    (report,) = read_facts(entry)["reports"]
    assert report == model.report_
    assert report["rounds"] < 40
