"""Bundles whose files do not fit each other are refused, though every digest is right."""

from __future__ import annotations

import json
import math
import os
import shutil
from functools import partial

import numpy as np
import pytest

import fairfrontier as ff
from fairfrontier.choose.bundle import FORMAT, load_bundle, make_bundle
from fairfrontier.choose.content import check_model, check_rule, list_facts
from fairfrontier.choose.view import describe_reference
from fairfrontier.metric.fair_metric import FairMetric
from fairfrontier.prepare.loader import fit_table, make_request
from fairfrontier.prepare.row import RowEncoder
from fairfrontier.runtime import text_file
from fairfrontier.runtime.errors import ConfigError, StoreError
from fairfrontier.runtime.store import hash_file
from fairfrontier.runtime.text_file import MOST_VALUES
from fairfrontier.train.postprocess.rule import MOST_THRESHOLDS, MixtureRule
from tests.fuzz.bundle import BUNDLES, CLASSES, TABLE, make_table, save_bundles, seal


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    base = tmp_path_factory.mktemp("saved")
    return save_bundles(base, ("rule", "classes", "regression"))


@pytest.fixture
def copy(saved, tmp_path):
    """Return a function that copies a bundle, and changes and seals a file of JSON in it."""

    def change(kind, name, edit):
        folder = shutil.copytree(saved[kind], tmp_path / kind)
        content = json.loads((folder / name).read_text())
        edit(content)
        (folder / name).write_text(json.dumps(content))
        seal(folder)
        return folder

    return change


def put(*path, value):
    """Return an edit that replaces a value."""

    def edit(tree):
        for step in path[:-1]:
            tree = tree[step]
        if isinstance(tree, dict):
            assert path[-1] in tree
        tree[path[-1]] = value

    return edit


def add(*path, **entries):
    """Return an edit that adds entries to a mapping."""

    def edit(tree):
        for step in path:
            tree = tree[step]
        assert not tree.keys() & entries.keys()
        tree.update(entries)

    return edit


def rename(tree, key):
    """Give the first entry of a mapping another key."""
    tree[key] = tree.pop(next(iter(tree)))


def scale(factor):
    """Return an edit that multiplies the shares of a rule's thresholds."""

    def edit(tree):
        rule = tree["facts"]["rule"]
        rule["shares"] = [[share * factor for share in shares] for shares in rule["shares"]]

    return edit


def swap_codes(tree):
    """Give two levels of a group each other's code."""
    codes = tree["attributes"][0]["codes"]
    first, second, *_ = codes
    codes[first], codes[second] = codes[second], codes[first]


EDITS = [
    ("rule", "encoder.json", swap_codes),
    ("rule", "encoder.json", put("attributes", 0, "names", value=["here", "there"][::-1])),
    ("classes", "encoder.json", put("classes", value=["none", "clerk", "baker"])),
    ("rule", "bundle.json", put("needed_groups", value=[])),
    ("rule", "bundle.json", put("randomized", value=False)),
    ("classes", "bundle.json", put("classes", value=["none", "clerk", "baker"])),
    ("rule", "bundle.json", put("study", value=["x"])),
    ("rule", "bundle.json", put("minimum", value=0)),
    ("rule", "bundle.json", put("row_id", value=3)),
    ("rule", "bundle.json", put("seed", value=-1)),
    ("rule", "bundle.json", put("certificate", value={"budgets": "many"})),
    ("rule", "bundle.json", put("certificate", value={"budgets": [0.1], "rows": "50"})),
    ("rule", "bundle.json", put("certificate", value={"budgets": [0.1], "rows": 50.0})),
    ("rule", "bundle.json", put("certificate", value={"budgets": ["0.1"], "rows": 50})),
    ("rule", "bundle.json", put("certificate", value={"budgets": [0.1] * 257, "rows": 50})),
    ("rule", "bundle.json", put("certificate", value={"budgets": [0.1] * 4, "rows": 50_001})),
    ("classes", "bundle.json", put("accepted", value="nobody")),
    ("rule", "reference.json", put("counts", "rows", value=10**400)),
    ("rule", "reference.json", put("counts", "selected", value=1e9)),
    ("rule", "reference.json", put("counts", "positive", value=True)),
    ("rule", "reference.json", put("groups", value={})),
    ("rule", "reference.json", put("score", value={"levels": ["a"], "counts": [1, 2, 3]})),
    ("rule", "reference.json", put("score", "edges", value=[1, 1])),
    (
        "rule",
        "reference.json",
        put("score", value={"edges": [-1e308, 1e308], "counts": [1, 2, 3, 4]}),
    ),
    ("rule", "reference.json", put("features", "region", value={"edges": [], "counts": [1, 2]})),
    ("rule", "reference.json", add("features", "region", edges=None)),
    ("rule", "reference.json", add("features", "income", levels=None)),
    ("rule", "reference.json", put("features", "income", "edges", 0, value="0")),
    ("rule", "reference.json", put("score", "edges", 0, value="0")),
    ("rule", "reference.json", put("counts", "selected", value="1")),
    ("regression", "reference.json", put("cut", value=None)),
    ("regression", "reference.json", put("cut", value="1")),
    ("classes", "reference.json", put("classes", value={})),
    ("rule", "reference.json", put("groups", "sex", value={})),
    ("rule", "reference.json", lambda tree: rename(tree["groups"]["sex"], "nobody")),
    ("rule", "encoder.json", put("dataset", "source", "missing", value=["\ud800"])),
    ("rule", "encoder.json", put("unseen", value="guess")),
    ("rule", "encoder.json", put("classes", value=["repaid", "repaid"])),
    ("rule", "encoder.json", put("classes", value=[])),
    ("classes", "encoder.json", put("classes", value=["a", "b", "c" * 4097])),
    ("rule", "encoder.json", put("levels", value=["repaid"])),
    ("rule", "encoder.json", put("levels", value=["repaid", "not", "not"])),
    ("rule", "encoder.json", put("levels", value=["repaid", 0])),
    ("classes", "encoder.json", put("levels", value=["baker", "clerk"])),
    ("regression", "encoder.json", put("levels", value=["0"])),
    ("rule", "encoder.json", put("encoder", 0, "names", value=["x", "y"])),
    ("rule", "encoder.json", put("attributes", 0, "name", value="age")),
    ("rule", "rule/manifest.json", scale(2.0)),
    ("rule", "rule/manifest.json", scale(-1.0)),
    ("rule", "rule/manifest.json", scale(math.nan)),
    ("rule", "rule/manifest.json", put("facts", "rule", "thresholds", 0, 0, value=math.nan)),
    ("rule", "rule/manifest.json", put("parameters", "unseen", value="pooled")),
    ("rule", "rule/manifest.json", put("parameters", "random_state", value=1.5)),
    ("rule", "model/manifest.json", add("facts", cut_=math.nan)),
    ("regression", "model/manifest.json", put("parameters", "n_estimators", value=-1)),
]


@pytest.mark.parametrize(("kind", "name", "edit"), EDITS)
def test_files_that_do_not_fit_each_other_are_refused(copy, kind, name, edit):
    folder = copy(kind, name, edit)
    with pytest.raises(StoreError) as caught:
        load_bundle(folder)
    assert caught.value.fault.startswith(f"{folder} holds no complete bundle: ")


@pytest.mark.parametrize(
    ("name", "edit", "reason"),
    [
        ("bundle.json", put("minimum", value="5"), "minimum: Input should be a valid integer"),
        ("bundle.json", lambda tree: tree.pop("format"), "KeyError: 'format'"),
        ("reference.json", put("groups", value={}), "its groups cannot be right"),
        ("encoder.json", put("attributes", 0, "name", value="age"), "its attributes cannot be"),
        ("encoder.json", put("unseen", value="\x1b[2J a\nb"), r"'\\x1b\[2J a\\nb' is not what"),
        ("encoder.json", put("unseen", value="a " * 500), r"bundle: '(a ){99}a…"),
        ("model/manifest.json", put("facts", "n_features_in_", value=10**7), "its features cannot"),
        ("model/manifest.json", add("facts", more=[{"n_features_in_": 10**7}]), "its features"),
        ("model/manifest.json", lambda tree: tree["facts"].pop("n_features_in_"), "its features"),
        ("rule/manifest.json", put("facts", "n_features_in_", value=10**7), "its features cannot"),
        ("model/manifest.json", add("parameters", n_grid=10**9), "its n_grid cannot be right"),
    ],
)
def test_a_refused_bundle_says_why(copy, name, edit, reason):
    with pytest.raises(StoreError, match=reason) as caught:
        load_bundle(copy("rule", name, edit))
    assert caught.value.fault.isprintable()


def test_a_model_of_other_classes_features_or_groups_is_refused(saved, tmp_path):
    for number, (kind, other, part) in enumerate(
        [("rule", "regression", "model"), ("rule", "classes", "model"), ("rule", "rule", "rule")]
    ):
        folder = shutil.copytree(saved[kind], tmp_path / str(number))
        shutil.rmtree(folder / part)
        shutil.copytree(saved[other] / "model", folder / part)
        seal(folder)
        with pytest.raises(StoreError, match="holds no complete bundle"):
            load_bundle(folder)


@pytest.mark.parametrize("kind", ["classes", "regression"])
def test_a_rule_behind_a_model_of_other_than_two_classes_is_refused(saved, tmp_path, kind):
    folder = shutil.copytree(saved[kind], tmp_path / "bundle")
    shutil.copytree(saved["rule"] / "rule", folder / "rule")
    seal(folder)
    with pytest.raises(StoreError, match="its rule cannot be right"):
        load_bundle(folder)


N_ROWS = 300
SCORE = np.random.default_rng(0).uniform(size=N_ROWS)
LABEL = (np.random.default_rng(1).uniform(size=N_ROWS) < SCORE).astype(np.int64)
GROUPS = np.arange(N_ROWS)[:, None] % 2
DRAWN = {"width": 0.2, "rate": 0.5}
REVERSED = "reversed"


@pytest.mark.parametrize(
    ("method", "parameters", "name", "value"),
    [
        ("group_thresholds", {}, "classes_", np.array([1, 0])),
        ("group_thresholds", {}, "classes_", np.array([0, 1, 2])),
        ("group_thresholds", {}, "classes_", np.array(["0", "1"])),
        ("group_thresholds", {}, "scale", "per cent"),
        ("hardt", {}, "share_", np.full((2, 2), 0.25)),
        ("hardt", {}, "share_", np.full((2, 2), math.nan)),
        ("hardt", {}, "threshold_", np.full((2, 2), math.nan)),
        ("hardt", {}, "ignored_", np.array([0.0, -1.0])),
        ("hardt", {}, "constant_", np.array([0.0, 7.0])),
        ("reject_option", {}, "theta_", math.nan),
        ("reject_option", {}, "theta_", -0.5),
        ("shift_inference", {}, "priors_", np.array([0.5, math.nan])),
        ("shift_inference", {}, "prior_", 3.0),
        ("shift_inference", {}, "cut_", math.nan),
        ("randomized_threshold", {"criterion": "covariance", "width": 0.2}, "rule_.slope", None),
        (
            "randomized_threshold",
            {**DRAWN, "calibrate": "isotonic"},
            "calibration_.knots",
            REVERSED,
        ),
        ("randomized_threshold", {**DRAWN, "calibrate": "isotonic"}, "calibration_.values", None),
        ("randomized_threshold", {**DRAWN, "calibrate": "isotonic"}, "calibration_.kind", "spline"),
        ("randomized_threshold", {**DRAWN, "calibrate": "isotonic"}, "calibration_", None),
        ("randomized_threshold", {**DRAWN, "calibrate": "sigmoid"}, "calibration_.knots", None),
    ],
)
def test_a_rule_that_no_fit_leaves_is_refused(method, parameters, name, value):
    rule = ff.create(method, attributes=0, **parameters)
    rule.fit(SCORE, LABEL, groups=GROUPS)
    check_rule(rule)
    *path, last = name.split(".")
    owner = getattr(rule, path[0]) if path else rule
    before = getattr(owner, last)
    if path and value is None:
        value = np.full_like(before, math.nan)
    object.__setattr__(owner, last, before[::-1] if value is REVERSED else value)
    with pytest.raises(ValueError, match=r"cannot be right|'scale'"):
        check_rule(rule)


def test_a_rule_of_more_thresholds_than_are_made_is_refused():
    many = [[0.0] * (MOST_THRESHOLDS + 1)]
    with pytest.raises(ValueError, match="more than 1,000 thresholds"):
        MixtureRule.from_json({"thresholds": many, "shares": many})


def test_a_draw_among_regressors_has_probabilities_and_a_seed():
    X = np.column_stack([SCORE, LABEL])
    model = ff.create("fair_regression", attribute=0, iterations=5)
    model.fit(X, SCORE, groups=GROUPS)
    names = ("a", "b")
    check_model(model, names, 0)
    model.random_state = [1]
    with pytest.raises(ValueError, match="random_state"):
        check_model(model, names, 0)
    model.random_state, model.n_grid = 0, 0
    with pytest.raises(ValueError, match="'n_grid'"):
        check_model(model, names, 0)
    model.n_grid, model.probability_ = 40, np.array([2.0, -1.0])
    with pytest.raises(ValueError, match="probabilities"):
        check_model(model, names, 0)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("coefficient", lambda each: each[:1]),
        ("coefficient", lambda each: each * math.nan),
        ("classes_", lambda each: each[::-1]),
        ("coefficient", lambda each: each > 0),
        ("intercept", lambda each: each[:1]),
        ("classes_", lambda each: each.astype(np.float64)),
        ("classes_", lambda each: each + 1),
    ],
)
def test_arrays_that_only_some_uses_notice_are_refused(saved, tmp_path, name, change):
    folder = shutil.copytree(saved["classes"], tmp_path / "bundle")
    change_arrays(folder, "model", **{name: change})
    with pytest.raises(StoreError, match="holds no complete"):
        load_bundle(folder)


def change_arrays(folder, part, **changes):
    """Change arrays of a bundle's model or rule, by name, and seal it."""
    path = folder / part / "arrays.npz"
    with np.load(path) as stored:
        arrays = dict(stored)
    np.savez(path, **{**arrays, **{name: edit(arrays[name]) for name, edit in changes.items()}})
    manifest = json.loads((folder / part / "manifest.json").read_text())
    manifest["files"]["arrays.npz"] = hash_file(path)
    (folder / part / "manifest.json").write_text(json.dumps(manifest))
    seal(folder)


def test_a_rule_that_names_an_attribute_twice_is_refused(copy):
    def repeat(tree):
        tree["parameters"]["attributes"] *= 2

    folder = copy("rule", "rule/manifest.json", repeat)
    change_arrays(folder, "rule", cells=lambda each: np.hstack([each, each]))
    with pytest.raises(StoreError, match="its attributes cannot be right"):
        load_bundle(folder)


@pytest.fixture
def save(tmp_path, monkeypatch):
    """Return a function that saves the bundle of a method."""

    def save(name, **parameters):
        def fit(split):
            model = ff.create(name, **parameters)
            given = {"groups": split.train.groups} if "groups" in model.fit_takes else {}
            return model.fit(split.train.X, split.train.y, **given)

        monkeypatch.setitem(BUNDLES, name, (TABLE, fit))
        return save_bundles(tmp_path, [name])[name]

    return save


@pytest.mark.parametrize("within", [False, True])
def test_a_net_of_small_numbers_is_refused(save, within):
    small = {"hidden": [2], "steps": 1}
    own = {"learner": "nn", "learner_parameters": small, "max_iter": 1} if within else small
    folder = save("reductions" if within else "nn", **own)
    load_bundle(folder)
    name = "0_parameter_0" if within else "parameter_0"
    change_arrays(folder, "model", **{name: lambda each: each.astype(np.int8)})
    with pytest.raises(StoreError, match="its network cannot be right"):
        load_bundle(folder)


def test_a_model_infers_no_more_groups_than_it_has_trees_for(save):
    folder = save("linear_post", n_estimators=2)
    assert len(load_bundle(folder).model.cells_) > 2
    more = {"group_coefficient": ((0, 5), (0, 0)), "group_intercept": (0, 5)}
    more["price"] = ((0, 0), (0, 5))
    changes = {name: partial(np.pad, pad_width=width) for name, width in more.items()}
    change_arrays(folder, "model", **changes)
    with pytest.raises(StoreError, match="its groups cannot be right"):
        load_bundle(folder)


@pytest.mark.parametrize(
    "shapes",
    [
        *(((2, 2), (2, 1), (1, 2)), ((3, 3), (2, 1), (0, 3)), (0, 0, 0)),
        *(((3, 3), (3, 4), (0, 3)), ((3, 3), (3, 1), (4, 3))),
    ],
)
def test_a_metric_of_other_features_is_refused(saved, tmp_path, shapes):
    folder = shutil.copytree(saved["rule"], tmp_path / "bundle")
    assert load_bundle(folder).metric.sigma.shape == (3, 3)
    FairMetric(*map(np.ones, shapes)).save(folder / "metric.npz")
    seal(folder)
    with pytest.raises(StoreError, match="holds no complete bundle"):
        load_bundle(folder)


@pytest.mark.parametrize("name", ["encoder.json", "reference.json", "model/manifest.json", "more"])
def test_no_link_and_no_pipe_in_a_bundle_is_followed(saved, tmp_path, name):
    for kind in ("link", "pipe"):
        folder = shutil.copytree(saved["rule"], tmp_path / kind)
        path = folder / name
        if path.is_file():
            path.rename(tmp_path / "elsewhere")
        path.symlink_to(tmp_path / "elsewhere") if kind == "link" else os.mkfifo(path)
        manifest = json.loads((folder / "bundle.json").read_text())
        del manifest["sha256"]
        manifest["files"].pop(name, None)
        seal(folder, manifest)
        with pytest.raises(StoreError, match="is a link or no file, which no bundle holds"):
            load_bundle(folder)


@pytest.mark.parametrize(
    ("name", "size", "told"),
    [
        ("bundle.json", 2**30, r"bundle\.json has more than the 33,554,432 bytes that are read"),
        ("encoder.json", 2**26, r"encoder\.json is not what was exported"),
        ("model/arrays.npz", 2**42, r"holds 4,398,.* bytes, more than any bundle may"),
    ],
)
def test_files_of_any_size_are_not_read(saved, tmp_path, name, size, told):
    folder = shutil.copytree(saved["rule"], tmp_path / "bundle")
    os.truncate(folder / name, size)
    with pytest.raises(StoreError, match=told):
        load_bundle(folder)


@pytest.mark.parametrize("name", ["bundle.json", "reference.json", "model/manifest.json"])
@pytest.mark.parametrize(
    ("lead", "told"),
    [
        (lambda key: f'"{key}": 0,', "it has the key '{key}' twice"),
        (lambda _: f'"more": [{"[]," * MOST_VALUES}0],', "{name} has more than the 2,097,152"),
    ],
    ids=["twice", "many"],
)
def test_json_that_others_read_otherwise_or_fills_the_memory_is_refused(
    saved, tmp_path, name, lead, told
):
    folder = shutil.copytree(saved["rule"], tmp_path / "bundle")
    path = folder / name
    text = path.read_text()
    key = next(iter(json.loads(text)))
    path.write_text(text.replace("{", "{" + lead(key), 1))
    if name != "bundle.json":
        seal(folder)
    with pytest.raises(StoreError, match=told.format(key=key, name=path.name)):
        load_bundle(folder)


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    """A bundle with as many levels, of long names, as a dataset may have by default."""
    home = tmp_path_factory.mktemp("wide")
    rows = make_table(0, 8000)
    rng = np.random.default_rng(0)
    for column, number in {"region": 1000, "origin": 500, "job": 8}.items():
        levels = np.array([f"{column} {'x' * 90} {level}" for level in range(number)])
        rows[column] = levels[rng.permutation(len(rows)) % number]
    for folder in ("conf/datasets", "data/raw"):
        (home / folder).mkdir(parents=True)
    rows.to_csv(home / "data/raw/credit-lines.csv", index=False)
    dataset = CLASSES.replace("counterfactuals: {region: {region: all}}\n", "")
    dataset = dataset.replace("groups: {", "groups: {both: {cross: [origin, sex]}, ")
    (home / "conf/datasets/credit-lines.yaml").write_text(dataset)
    table = fit_table(make_request("credit-lines", home=home))
    split = table.encode()
    model = ff.create("nn", steps=1, hidden=[2]).fit(split.train.X, split.train.y)
    manifest = {"format": FORMAT, "study": "wide", "row_id": "case", "minimum": 1}
    manifest |= {"accepted": rows["job"][0], "models": [{"setting": {"x": [0] * 5000}}]}
    bundle = make_bundle(model, RowEncoder.of(table), manifest)
    manifest |= list_facts(bundle)
    bundle.reference = describe_reference(bundle, rows, bundle.encode(rows), 1)
    return bundle


def test_what_a_wide_table_exports_is_read(wide, tmp_path):
    folder = wide.write(tmp_path / "bundle")
    assert (folder / "reference.json").stat().st_size > 2**21
    assert load_bundle(folder).reference == wide.reference


def test_what_is_too_large_to_be_read_is_not_exported(wide, tmp_path, monkeypatch):
    monkeypatch.setattr(text_file, "MOST_VALUES", 10_000)
    with pytest.raises(ConfigError, match=r"cannot be exported: reference\.json has more than the"):
        wide.write(tmp_path / "bundle")
    assert not [*tmp_path.iterdir()]
