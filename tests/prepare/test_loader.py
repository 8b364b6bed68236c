from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import yaml

from fairfrontier import load
from fairfrontier.runtime.errors import ConfigError, DataError
from tests.prepare.conftest import fingerprint


def same(one, other):
    for (name, part), (_, twin) in zip(one.parts(), other.parts(), strict=True):
        for field in ("ids", "X", "y", "groups", "protected", "weight"):
            assert np.array_equal(getattr(part, field), getattr(twin, field)), (name, field)
    return one.digest == other.digest


def test_a_table_of_ones_own_needs_yaml_only(project, people, tmp_path):
    split = load(project(), home=tmp_path)
    kept = people.dropna(subset=["age"])
    assert split.task == "binary"
    assert sum(part.n_samples for _, part in split.parts()) == len(kept) == 397
    assert [name for name, _ in split.parts()] == ["train", "calibration", "test"]
    assert split.feature_names == (
        "income", "age", "city_Bonn", "city_Köln", "city_Ulm", "city_missing", "owner_True",
    )  # fmt: skip
    assert split.train.attributes["origin"] == ("north", "south", "west")
    assert split.train.attributes["origin×age"][:2] == ("north×young", "north×older")
    assert split.train.classes == ("other", "granted")
    assert split.favourable == 1
    assert split.protected_kinds == {"origin": "categorical", "age": "continuous"}
    assert split.protected_columns == {"origin": (), "age": (1,)}
    for _, part in split.parts():
        raw = people.loc[part.ids]
        assert np.array_equal(part.y, (raw["verdict"] == "granted").to_numpy().astype(np.int64))
        names = np.array(part.attributes["origin"])[part.group("origin")]
        assert np.array_equal(names, raw["origin"].to_numpy())
        assert np.array_equal(part.group("age"), (raw["age"] >= 30).to_numpy().astype(int))
        assert np.array_equal(
            part.group("origin×age"), part.group("origin") * 2 + part.group("age")
        )
        assert np.array_equal(part.protected[:, 1], raw["age"].to_numpy())
        assert np.array_equal(part.X[:, 6], raw["owner"].to_numpy().astype(float))
        assert np.array_equal(part.X[:, 5], raw["city"].isna().to_numpy().astype(float))
        assert (part.y.dtype, part.groups.dtype, part.ids.dtype) == (np.int64,) * 3
        assert np.isfinite(part.X).all()
    train = people.loc[split.train.ids]
    income = train["income"].fillna(train["income"].median())
    expected = (income - income.mean()) / income.std(ddof=0)
    assert np.allclose(split.train.X[:, 0], expected)


def test_load_is_repeatable_and_seeds_differ(project, tmp_path):
    path = project()
    assert same(load(path, home=tmp_path), load(path, home=tmp_path))
    other = load(path, seed=1, home=tmp_path)
    assert other.digest != load(path, home=tmp_path).digest
    assert not np.array_equal(other.test.ids, load(path, home=tmp_path).test.ids)


def test_the_name_of_a_dataset_finds_its_file(project, tmp_path):
    path = project()
    assert same(load("housing", home=tmp_path), load(path, home=tmp_path))
    with pytest.raises(ConfigError, match="Did you mean 'housing'"):
        load("hosuing", home=tmp_path)
    with pytest.raises(ConfigError):
        load("elsewhere/mine.yaml", home=tmp_path)


def test_a_dataset_is_called_as_its_file(project, tmp_path):
    path = project(dataset="houses")
    with pytest.raises(ConfigError, match="calls itself 'houses'"):
        load(path, home=tmp_path)


def test_source_paths_are_also_looked_up_beside_the_yaml(project, tmp_path, people):
    path = project()
    beside = tmp_path / "elsewhere"
    beside.mkdir()
    (tmp_path / "people.csv").rename(beside / "people.csv")
    moved = path.rename(beside / "mine.yaml")
    split = load(moved, home=tmp_path)
    assert split.train.n_samples == 238


def test_rows_keeps_a_seeded_sample_of_the_training_rows(project, tmp_path):
    path = project()
    whole, few = load(path, home=tmp_path), load(path, home=tmp_path, rows=50)
    assert few.train.n_samples == 50
    assert np.isin(few.train.ids, whole.train.ids).all()
    assert np.array_equal(few.test.ids, whole.test.ids)
    assert same(few, load(path, home=tmp_path, rows=50))
    assert few.digest != whole.digest
    assert load(path, home=tmp_path, rows=10_000).train.n_samples == whole.train.n_samples
    # Encoders see the sample only.
    assert np.allclose(few.train.X[:, :2].mean(axis=0), 0)


def test_validation_is_carved_out_of_train_before_encoders_are_fitted(project, tmp_path):
    path = project()
    whole = load(path, home=tmp_path)
    carved = load(path, home=tmp_path, select_on="validation")
    assert carved.validation.n_samples == round(0.2 * whole.train.n_samples)
    together = np.concatenate([carved.train.ids, carved.validation.ids])
    assert np.array_equal(np.sort(together), np.sort(whole.train.ids))
    assert abs(carved.validation.y.mean() - whole.train.y.mean()) < 0.02
    assert np.allclose(carved.train.X[:, :2].mean(axis=0), 0)
    assert not np.allclose(carved.validation.X[:, :2].mean(axis=0), 0)
    assert np.array_equal(carved.test.ids, whole.test.ids)
    assert same(load(path, home=tmp_path, select_on="train"), whole)
    assert carved.digest != whole.digest
    few = load(path, home=tmp_path, rows=100, select_on="validation")
    assert (few.train.n_samples, few.validation.n_samples) == (80, 20)


def test_a_validation_part_of_its_own_is_left_alone(project, tmp_path):
    path = project(split={"kind": "random", "train": 0.5, "validation": 0.2, "test": 0.3})
    assert same(load(path, home=tmp_path), load(path, home=tmp_path, select_on="validation"))


def test_the_digest_follows_what_shapes_the_arrays_and_nothing_else(project, tmp_path, people):
    digest = load(project(), home=tmp_path).digest
    assert load(project(notes="read me", description="x"), home=tmp_path).digest == digest
    missing = {"numeric": "mean", "categorical": "category", "columns": {"age": "drop"}}
    assert load(project(missing=missing), home=tmp_path).digest != digest
    # The order of levels is the order of codes.
    groups = {"origin": {"column": "origin", "levels": ["west", "north", "south"]}}
    turned = {"origin": {"column": "origin", "levels": ["north", "west", "south"]}}
    sections = {"protected": [], "counterfactuals": {}}
    one = load(project(groups=groups, **sections), home=tmp_path)
    assert one.digest != load(project(groups=turned, **sections), home=tmp_path).digest
    changed = people.copy()
    changed.loc[3, "points"] += 1
    assert load(project(changed), home=tmp_path).digest != digest


def test_weights_are_read_from_their_column(project, tmp_path, people):
    split = load(project(weight="weight"), home=tmp_path)
    assert np.array_equal(split.train.weight, people["weight"].loc[split.train.ids].to_numpy())
    assert "weight" not in split.feature_names
    people.loc[0, "weight"] = -1
    with pytest.raises(DataError):
        load(project(people, weight="weight"), home=tmp_path)
    assert (load(project(), home=tmp_path).test.weight == 1).all()


def test_rest_takes_every_column_that_nothing_else_uses(project, tmp_path):
    features = {"numeric": "rest", "categorical": ["city"], "drop": ["points", "owner"]}
    split = load(project(features=features, weight="weight"), home=tmp_path)
    assert split.feature_names[0] == "income"
    assert not {"points", "age", "weight", "verdict"} & set(split.feature_names)


def test_a_regression_target(project, tmp_path, people):
    label = {"column": "points", "task": "regression", "range": [0, 50]}
    split = load(project(label=label), home=tmp_path, select_on="validation")
    assert (split.task, split.train.classes, split.favourable) == ("regression", (), None)
    assert split.train.y.dtype == np.float64
    expected = people["points"].loc[split.train.ids].to_numpy() / 50
    assert np.allclose(split.train.y, expected)


def test_several_unordered_classes(project, tmp_path, people):
    split = load(project(label={"column": "verdict", "task": "multiclass"}), home=tmp_path)
    assert split.task == "multiclass"
    assert split.train.classes == ("granted", "pending", "refused")
    names = np.array(split.train.classes)[split.train.y]
    assert np.array_equal(names, people["verdict"].loc[split.train.ids].to_numpy())


def test_take_restricts_a_part_and_its_counterfactuals(project, tmp_path):
    test = load(project(), home=tmp_path).test
    rows = np.array([5, 2, 70])
    few = test.take(rows)
    again = few.take(np.array([2, 0]))
    assert np.array_equal(few.ids, test.ids[rows])
    for name, variants in test.counterfactuals.items():
        for whole, some, fewer in zip(
            variants, few.counterfactuals[name], again.counterfactuals[name], strict=True
        ):
            assert np.array_equal(whole.X[rows], some.X)
            assert np.array_equal(whole.groups[rows], some.groups)
            assert np.array_equal(whole.X[[70, 5]], fewer.X)


def test_perturbations_act_before_encoding(project, tmp_path):
    noisy = {
        "noisy_groups": {"origin": {"share": 0.3}},
        "drop": {"where": {"groups": {"age": "young"}, "label": "granted"}, "probability": 1.0},
    }
    features = {"numeric": ["income", "age"], "groups": ["origin"]}
    sets = {"who": {"origin": ["north", "south"]}}
    split = load(project(perturb=noisy, features=features, counterfactuals=sets), home=tmp_path)
    plain = load(project(features=features, counterfactuals=sets), home=tmp_path)
    assert split.feature_names[2:] == ("origin_north", "origin_south", "origin_west")
    assert split.protected_columns["origin"] == (2, 3, 4)
    for _, part in split.parts():
        seen = part.group("origin")
        # The feature is the group as seen, never the true one.
        assert np.array_equal(part.X[:, 2:], np.eye(3)[seen])
        assert 0.15 < (seen != part.true_groups[:, 0]).mean() < 0.45
        crossed = part.groups[:, 2]
        assert np.array_equal(crossed, seen * 2 + part.group("age"))
    assert plain.train.true_groups is None
    assert np.array_equal(plain.test.group("origin"), split.test.true_groups[:, 0])
    young = split.train.true_groups[:, 1] == 0
    assert not (young & (split.train.y == 1)).any()
    assert ((split.test.true_groups[:, 1] == 0) & (split.test.y == 1)).any()
    assert np.allclose(split.train.X[:, 0].mean(), 0)


@pytest.mark.parametrize(
    ("sections", "kind", "message"),
    [
        ({"label": {"column": "verdcit"}}, ConfigError, "label.column.*Did you mean 'verdict'"),
        ({"split": {"kind": "column", "column": "age", "train": "x"}}, ConfigError, "no level 'x'"),
        ({"missing": {}}, DataError, "'city' has .* missing cells"),
        ({"missing": {"columns": {"city": "mean"}}}, ConfigError, "mean does not fit"),
        ({"features": {"numeric": ["city"]}}, DataError, "holds 'Köln' in row 1, which is no"),
        ({"features": {"binary": {"city": "Uml"}}}, ConfigError, "binary.city: no row .*'Ulm'"),
        ({"features": {}}, ConfigError, "names no column"),
        ({"source": {"path": "people.csv", "sha256": "0" * 64}}, DataError, "expects 000000"),
        ({"rows": {"keep": {"age": {"above": 200}}}}, DataError, "no row remains"),
        (
            {"rows": {"keep": {"city": {"in": ["Ulm", "bonn"]}}}},
            ConfigError,
            r"rows.keep.city: column 'city' holds no level 'bonn'. Did you mean 'Bonn'",
        ),
        (
            {
                "groups": {},
                "counterfactuals": {},
                "features": {"numeric": ["income", "age"]},
                "protected": ["age"],
                "missing": {"numeric": "mean", "categorical": "category"},
            },
            DataError,
            r"protected.age has missing cells, and a fair metric needs numbers",
        ),
        (
            {"rows": {"keep": {"city": {"not": [True]}}}},
            ConfigError,
            r"rows.keep.city: column 'city' holds no level 'True' .YAML reads yes, no, on",
        ),
        ({"rows": {"keep": {"city": {"above": 2}}}}, DataError, "Compare levels with in or not"),
        ({"rows": {"keep": {"origin": {"in": "west"}}}}, DataError, "origin is constant"),
        ({"split": {"kind": "random", "train": 396, "test": 5}}, DataError, "asks for 401 rows"),
        ({"counterfactuals": {"x": {"points": [1]}}}, ConfigError, "used by no feature"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_said_in_two_sentences(project, tmp_path, sections, kind, message):
    defaults = {"counterfactuals": {}, "groups": {}, "protected": []}
    if "rows" in sections or "missing" in sections:
        defaults = {}
    with pytest.raises(kind, match=message) as caught:
        load(project(**{**defaults, **sections}), home=tmp_path)
    assert caught.value.fault.endswith(".")
    assert caught.value.mend.endswith((".", "?"))


def test_an_unseen_level_is_zeros_for_a_feature_and_an_error_for_a_group(project, tmp_path, people):
    people["part"] = np.where(np.arange(len(people)) < 200, "old", "new")
    people.loc[399, "city"] = "Trier"
    rule = {"kind": "column", "column": "part", "train": "old", "test": ["new"]}
    split = load(project(people, split=rule), home=tmp_path)
    city = [name.startswith("city_") for name in split.feature_names]
    assert split.test.X[split.test.ids == 399][:, city].sum() == 0
    assert (split.test.X[split.test.ids != 399][:, city].sum(axis=1) == 1).all()
    people.loc[399, "origin"] = "east"
    with pytest.raises(DataError, match="'east' occurs in test and never in train"):
        load(project(people, split=rule), home=tmp_path)
    sections = {"groups": {}, "protected": ["origin"], "counterfactuals": {}, "split": rule}
    with pytest.raises(DataError, match="'east' occurs in test and never in train"):
        load(project(people, **sections), home=tmp_path)


def test_infinite_cells_are_refused(project, tmp_path, people):
    people.loc[12, "income"] = np.inf
    with pytest.raises(DataError, match=r"'income' holds 'inf' in row 12, which is infinite"):
        load(project(people), home=tmp_path)
    keep = {"keep": {"age": {"at_least": 0}, "income": {"at_most": 1e9}}}
    assert 12 not in load(project(people, rows=keep), home=tmp_path).train.ids


def test_a_constant_protected_column_is_refused(project, tmp_path, people):
    people["age"] = 44.0
    sections = {"groups": {}, "counterfactuals": {}}
    with pytest.raises(DataError, match=r"protected.age is constant: it is 44"):
        load(project(people, protected=["age"], **sections), home=tmp_path)
    people["origin"] = "west"
    with pytest.raises(DataError, match="'west'"):
        load(project(people, protected=["origin"], **sections), home=tmp_path)


def test_one_class_is_refused(project, tmp_path, people):
    people["verdict"] = "granted"
    with pytest.raises(DataError):
        load(project(people), home=tmp_path)
    people.loc[:2, "verdict"] = "refused"
    with pytest.raises(DataError, match="all training rows have one class"):
        load(project(people, groups={}, protected=[]), home=tmp_path, rows=3, seed=1)


@pytest.mark.parametrize(
    "wrong", [{"seed": -1}, {"rows": 0}, {"select_on": "test"}, {"partitions": 2}]
)
def test_requests_that_cannot_be(project, tmp_path, wrong):
    with pytest.raises(ConfigError):
        load(project(), home=tmp_path, **wrong)


def test_several_files_are_one_table(project, tmp_path, people):
    path = project()
    people.iloc[:150].to_csv(tmp_path / "one.csv", index=False, na_rep="?")
    (tmp_path / "two.csv").write_text(
        "a comment first\n" + people.iloc[150:].to_csv(index=False, na_rep="?"), encoding="utf-8"
    )
    data = yaml.safe_load(path.read_text(encoding="utf-8"))
    data["source"]["path"] = [
        {"path": "one.csv", "part": "train"},
        {"path": "two.csv", "part": "test", "skip_rows": 1},
    ]
    data["split"] = {"kind": "column", "column": "part", "train": "train", "test": "test"}
    path.write_text(yaml.safe_dump(data, allow_unicode=True), encoding="utf-8")
    split = load(path, home=tmp_path)
    assert split.train.ids.max() == 149
    assert split.test.ids.min() == 150
    assert np.array_equal(
        split.test.y, (people["verdict"].loc[split.test.ids] == "granted").to_numpy().astype(int)
    )


def test_parquet_gives_what_csv_gives(project, tmp_path, people):
    from_csv = load(project(), home=tmp_path)
    people.to_parquet(tmp_path / "people.parquet")
    source = {"path": "people.parquet", "format": "parquet"}
    from_parquet = load(project(source=source), home=tmp_path)
    assert from_csv.feature_names == from_parquet.feature_names
    assert not same(from_csv, from_parquet)


def test_part_ids_are_rows_of_the_concatenated_source():
    split = load("adult")
    ids = np.concatenate([split.train.ids, split.test.ids])
    assert ids.max() > 45_222
    assert np.unique(ids).size == 45_222
    assert isinstance(pd.Index(ids).max(), int | np.integer)


def test_noise_replaces_the_share_of_the_yaml(project, tmp_path):
    def path(share):
        return project(perturb={"noisy_groups": {"origin": {"share": share}}})

    asked = load(path(0.0), home=tmp_path, noise=0.4)
    written = load(path(0.4), home=tmp_path)
    none = load(path(0.4), home=tmp_path, noise=0.0)
    for part, other, clean in zip(asked.parts(), written.parts(), none.parts(), strict=True):
        assert np.array_equal(part[1].groups, other[1].groups)
        assert np.array_equal(part[1].true_groups, clean[1].groups)
        assert np.array_equal(clean[1].true_groups, clean[1].groups)
    assert asked.digest == written.digest != none.digest
    assert fingerprint(path(0.0), home=tmp_path, noise=0.4) == fingerprint(path(0.4), home=tmp_path)
    with pytest.raises(ConfigError):
        load(project(), home=tmp_path, noise=0.1)
    with pytest.raises(ConfigError):
        load(path(0.1), home=tmp_path, noise=1.1)


@pytest.mark.parametrize("backend", ["numpy", "dask"])
@pytest.mark.parametrize("task", ["multiclass", "binary"])
def test_codes_among_the_classes_of_a_label_are_no_marks(project, tmp_path, task, backend):
    draw = np.random.default_rng(6)
    classes = ["01", "09", "1E3"][: 2 if task == "binary" else 3]
    frame = pd.DataFrame({"job": draw.choice(classes, 300), "city": draw.choice(["a", "b"], 300)})
    frame["income"] = draw.normal(30, 5, 300)
    frame.to_csv(tmp_path / "t.csv", index=False)
    described = project(
        source={"path": "t.csv", "missing": ["9", 1000]},
        rows={"keep": {"job": {"in": classes}}, "drop_missing": ["job"]},
        label={"column": "job", "task": task},
        features={"numeric": ["income"]},
        groups={"city": {"column": "city"}},
        protected=["city"],
        missing={},
        counterfactuals={},
    )
    split = load(described, home=tmp_path, backend=backend)
    assert sum(len(part.ids) for _, part in split.parts()) == 300
    assert split.train.classes == tuple(classes)


@pytest.mark.parametrize("backend", ["numpy", "dask"])
def test_a_missing_cell_passes_no_condition_of_a_split(project, tmp_path, people, backend):
    rule = {"kind": "random", "train": 0.6, "test": 0.4, "of": {"city": {"not": "Ulm"}}}
    split = load(project(split=rule), home=tmp_path, backend=backend)
    ids = np.concatenate([np.asarray(part.ids) for _, part in split.parts()])
    assert set(people["city"][ids]) == {"Bonn", "Köln"}
    # Where nothing becomes a level of that name, it is one like others.
    people["city"] = people["city"].fillna("missing")
    people.to_csv(tmp_path / "people.csv", index=False)
    path = project(split=rule, missing={"numeric": "drop"}, counterfactuals={})
    split = load(path, home=tmp_path, backend=backend)
    ids = np.concatenate([np.asarray(part.ids) for _, part in split.parts()])
    assert set(people["city"][ids]) == {"Bonn", "Köln", "missing"}
