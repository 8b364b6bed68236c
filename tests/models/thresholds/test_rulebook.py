from __future__ import annotations

import hashlib
import json
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from fairfrontier.models.registry import create, load_model
from fairfrontier.models.thresholds.base import read_scores, rescale
from fairfrontier.models.thresholds.rule import ThresholdRule
from fairfrontier.models.thresholds.rulebook import MIXTURE, make_rulebook, read_rulebook
from fairfrontier.prepare.split import Split
from fairfrontier.prepare.table.role import ScoreColumns, ScoreTable
from fairfrontier.runtime.errors import ConfigError, DataError
from fairfrontier.runtime.seeds import uniforms
from tests.models.thresholds.made import make_part

MASK = 2**64 - 1


def make(width=0.1, scale="probability", seed=5):
    rule = ThresholdRule(width, np.array([-0.2, 0.3]), np.array([0.25, 0.5]))
    return make_rulebook(
        rule,
        score="s",
        scale=scale,
        columns=("sex",),
        cells=(("F",), ("M",)),
        counts=np.array([10, 20]),
        rates=np.array([0.4, 0.4]),
        rate=0.4,
        budget=0.0,
        seed=seed,
        ids=None,
        file="scores.parquet",
        sha256="0" * 64,
        rows=30,
    )


def mix(z):
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def decide(book, score, group, row_id):
    """Decide on one row from what the JSON says, with nothing but Python's own means."""
    threshold = next(each for each in book["thresholds"] if each["group"] == group)
    f = {"probability": 2 * score - 1, "signed": score}.get(book["score"]["scale"])
    f = 2 / (1 + math.exp(-score)) - 1 if f is None else f
    width, t = book["rule"]["width"], threshold["threshold"]
    if width > 0:
        h = min(1.0, max(0.0, (f - t) / width))
    else:
        h = 1.0 if f > t else threshold["coin"] if f == t else 0.0
    if isinstance(row_id, str) and not row_id.lstrip("-").isdigit():
        row_id = int.from_bytes(hashlib.sha256(row_id.encode()).digest()[:8], "little")
    G = 0x9E3779B97F4A7C15
    a = mix((book["draw"]["seed"] + G) & MASK)
    b = mix((a + G) & MASK)
    u = (mix((mix((int(row_id) * G + a) & MASK) + b) & MASK) >> 11) * 2.0**-53
    return h, int(u < h)


def decide_rows(book, score, code):
    signed = read_scores(score, book.score.scale, "The rule")
    return book.decision_rule.probability(signed, code)


@pytest.mark.parametrize("scale", ["probability", "signed", "margin"])
@pytest.mark.parametrize("width", [0.0, 0.1, 2.0])
def test_the_json_can_be_implemented_from_its_own_words(scale, width, tmp_path):
    book = make(width, scale)
    book.write(tmp_path / "a.json")
    described = json.loads((tmp_path / "a.json").read_text())
    rng = np.random.default_rng(0)
    score = rng.random(300) if scale != "margin" else rng.normal(0, 2, 300)
    # Scores at the threshold, where the coin decides.
    score[:40] = rescale(0.3, scale)
    code = rng.integers(0, 2, 300)
    code[:40] = 1
    ids = rng.integers(-(2**62), 2**62, 300)
    h = decide_rows(book, score, code)
    decisions = book.decide(h, ids)
    for i in range(300):
        group = {"sex": "FM"[code[i]]}
        theirs, decision = decide(described, float(score[i]), group, int(ids[i]))
        assert theirs == pytest.approx(h[i], abs=1e-12)
        assert decision == decisions[i]
    assert 0 < decisions.mean() < 1


def test_the_numbers_to_check_by_are_right():
    check = make(seed=11).draw.check
    np.testing.assert_array_equal(check["u"], uniforms(11, np.array(check["ids"])))


def test_thresholds_stand_in_the_scale_of_the_scores():
    for scale, unit in (("probability", 0.5), ("signed", 1.0)):
        first = make(scale=scale).thresholds[0]
        assert first.one_from - first.zero_up_to == pytest.approx(0.1 * unit)
    margin = make(scale="margin").thresholds[1]
    assert 2 / (1 + math.exp(-margin.zero_up_to)) - 1 == pytest.approx(0.3)
    assert rescale(1.2, "probability") is None
    assert rescale(1.0, "margin") is None


def test_written_and_read_it_is_the_same(tmp_path):
    path = tmp_path / "thresholds.json"
    book = make()
    book.write(path)
    assert read_rulebook(path) == book
    read_rulebook(path).write(tmp_path / "again.json")
    assert path.read_bytes() == (tmp_path / "again.json").read_bytes()


def test_unknown_groups_are_named():
    levels = (("M",), ("X",))
    with pytest.raises(DataError, match=r"new\.csv has rows of the group sex=X"):
        make().encode(np.array([0, 1]), levels, "new.csv")
    codes = make().encode(np.array([0, 1, 0]), (("M",), ("F",)), "new.csv")
    assert codes.tolist() == [1, 0, 1]


def test_unknown_groups_are_decided_as_the_rule_says(tmp_path):
    levels, rows = (("M",), ("X",), ("missing",)), np.array([0, 1, 2])
    book = make().decide_unseen("F")
    assert book.encode(rows, levels, "new.csv").tolist() == [1, 0, 0]
    book.write(tmp_path / "thresholds.json")
    assert read_rulebook(tmp_path / "thresholds.json").unseen_cell == ("F",)
    for policy in ("X", "pooled"):
        with pytest.raises(ConfigError, match=f"unseen is {policy}, which has no threshold"):
            make().decide_unseen(policy)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda book: book.update(version=2), "version"),
        (lambda book: book["rule"].update(width=-1), "rule.width"),
        (lambda book: book["thresholds"][0].update(coin=2), "coin"),
        (lambda book: book["thresholds"][1].update(group={"sex": "F"}), "two thresholds"),
        (lambda book: book["thresholds"][1].update(group={"race": "F"}), "group of race"),
        (lambda book: book["rule"].update(with_=1), "with_"),
        (lambda book: book.pop("draw"), "draw"),
        (lambda book: book["target"].update(budget=float("inf")), "target.budget"),
        (lambda book: book["rule"].update(formula="h = 1"), "rule.formula is not what"),
        (lambda book: book["score"].update(signed="f = -score"), "score.signed is not what"),
        (lambda book: book["groups"].update(levels="any"), "groups.levels is not what"),
        (lambda book: book["draw"].update(algorithm="dice"), "draw.algorithm is not what"),
        (lambda book: book["draw"].update(ids="any"), "draw.ids is not what"),
        (lambda book: book["draw"].update(seed=6), "draw.check is not what"),
        (lambda book: book["thresholds"][0].update(one_from=0.9), "0.one_from is not what"),
        (lambda book: book["thresholds"][0].update(zero_up_to=None), "0.zero_up_to is not what"),
    ],
)
def test_a_json_that_says_what_cannot_be_is_refused(tmp_path, change, told):
    path = tmp_path / "thresholds.json"
    make().write(path)
    book = json.loads(path.read_text())
    change(book)
    path.write_text(json.dumps(book))
    with pytest.raises(ConfigError, match=told) as caught:
        read_rulebook(path)
    assert str(path) in str(caught.value)


def test_what_is_no_json_is_refused(tmp_path):
    (tmp_path / "a.json").write_text("{")
    (tmp_path / "deep.json").write_text("[" * 100_000)
    (tmp_path / "half.json").write_text('["\\ud800"]')
    (tmp_path / "twice.json").write_text('{"a": 1, "a": 2}')
    for name in ("a.json", "deep.json", "half.json", "twice.json", "missing.json", "/dev/zero"):
        with pytest.raises(ConfigError, match="cannot be read as JSON"):
            read_rulebook(tmp_path / name)


SPLIT = Split("made", 0, "binary", ("score",), {}, {}, train=make_part(), digest="1" * 64)


def fit(**parameters):
    part = SPLIT.train
    model = create("randomized_threshold", random_state=3, **parameters)
    return model.fit(part.X, part.y, sensitive_features=part.groups)


@pytest.mark.parametrize(
    "parameters",
    [
        {"width": 0.5, "rate": 0.3},
        {"width": 0.0, "rate": 0.4, "attributes": [1, 0]},
        {"attributes": 1, "budget": 0.1, "width_grid": [0.1, 0.3]},
        {"width": 0.5, "rate": 0.3, "scale": "margin"},
    ],
)
def test_a_rule_fitted_on_arrays_decides_alike_on_tables(parameters, tmp_path):
    model = fit(**parameters)
    part = make_part(1, 500)
    book = model.to_rulebook(SPLIT, score="s", ids="person")
    book.write(tmp_path / "thresholds.json")
    book = read_rulebook(tmp_path / "thresholds.json")
    columns = {name: np.array(levels)[part.group(name)] for name, levels in part.attributes.items()}
    table = pd.DataFrame({"s": part.X[:, 0], "person": part.ids, **columns})
    table.to_csv(tmp_path / "new.csv", index=False)
    read = ScoreColumns(
        book.score.column, book.groups.columns, ids=book.draw.column, scale=book.score.scale
    )
    (batch,) = ScoreTable(tmp_path / "new.csv", read).batches()
    code = book.encode(batch.cell, batch.levels, "new.csv")
    h = decide_rows(book, batch.score, code)
    np.testing.assert_array_equal(
        h, model.predict_proba(part.X, sensitive_features=part.groups)[:, 1]
    )
    np.testing.assert_array_equal(
        book.decide(h, batch.ids),
        model.predict(part.X, sensitive_features=part.groups, ids=part.ids),
    )
    assert sum(each.n for each in book.thresholds) == book.input.rows == SPLIT.train.n_samples
    assert [each.rate for each in book.thresholds] == pytest.approx(model.result_["rates"])
    assert (book.target.rate, book.target.budget) == (model.rate_, model.budget)
    assert (book.input.file, book.input.sha256) == ("made", "1" * 64)


def test_calibrated_scores_have_no_place_in_a_rulebook():
    with pytest.raises(ConfigError, match="of calibrated scores"):
        fit(calibrate="sigmoid", width=0.1, rate=0.4).to_rulebook(SPLIT)


@pytest.mark.parametrize(
    ("method", "parameters"),
    [
        ("group_thresholds", {"bound": 0.02}),
        ("group_thresholds", {"criterion": "equalized_odds", "attributes": 1}),
        ("group_thresholds", {"criterion": "parity", "randomized": False, "bound": 0.1}),
        ("randomized_threshold", {"criterion": "equal_opportunity", "width": 0.1, "rate": 0.5}),
        ("randomized_threshold", {"criterion": "equal_opportunity", "width": 0.0, "rate": 0.5}),
        ("randomized_threshold", {"criterion": "equalized_odds", "width": 0.2}),
        ("randomized_threshold", {"criterion": "covariance", "attributes": 0, "width": 0.1}),
        ("hardt", {}),
        ("hardt", {"criterion": "equal_opportunity", "tolerance": 0.05, "attributes": 1}),
        ("hardt", {"criterion": "equalized_odds", "objective": "balanced_accuracy"}),
        ("reject_option", {"attributes": 0}),
        ("reject_option", {"thetas": [0.1, 1.0], "budget": 0.3}),
    ],
)
def test_every_rule_by_group_has_a_document(method, parameters, tmp_path):
    part, fresh = SPLIT.train, make_part(1, 400)
    model = create(method, random_state=3, **parameters).fit(
        part.X, part.y, sensitive_features=part.groups
    )
    model.to_rulebook(SPLIT).write(tmp_path / "thresholds.json")
    book = read_rulebook(tmp_path / "thresholds.json")
    names = np.stack([np.array(fresh.attributes[name])[fresh.group(name)]
                      for name in book.groups.columns], axis=1)  # fmt: skip
    cells, cell = np.unique(names, axis=0, return_inverse=True)
    code = book.encode(cell.reshape(-1), tuple(map(tuple, cells.tolist())), "new.csv")
    h = decide_rows(book, fresh.X[:, 0], code)
    np.testing.assert_array_equal(
        h, model.predict_proba(fresh.X, sensitive_features=fresh.groups)[:, 1]
    )
    decided = model.predict(fresh.X, sensitive_features=fresh.groups, ids=fresh.ids)
    np.testing.assert_array_equal(book.decide(h, fresh.ids), decided)
    assert 0 < decided.mean() < 1
    assert book.target.criterion == parameters.get("criterion", "parity")
    # The formula in words, from the JSON alone.
    described = json.loads((tmp_path / "thresholds.json").read_text())
    for i in range(50):
        group, f = described["thresholds"][code[i]], 2 * float(fresh.X[i, 0]) - 1
        if "shares" in group:
            pairs = zip(group["thresholds"], group["shares"], strict=True)
            wanted = sum(share for threshold, share in pairs if f > threshold)
        elif group["slope"] is None:
            wanted = float(f > group["centre"])
        else:
            line = group["level"] + group["slope"] * (f - group["centre"])
            wanted = min(1.0, max(0.0, line))
        assert h[i] == pytest.approx(wanted, abs=1e-9)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("method", "parameters"),
    [
        ("hardt", {"tolerance": 0.1}),
        ("hardt", {"criterion": "equal_opportunity"}),
        ("hardt", {"criterion": "equalized_odds"}),
        ("reject_option", {"attributes": 0}),
        ("reject_option", {"budget": 0.4}),
        # No width of the region brings the groups together.
        ("reject_option", {"thetas": [0.01]}),
    ],
)
def test_the_facts_of_a_document_are_those_of_its_rows(method, parameters, weighted):
    part, target = SPLIT.train, {}
    weight = 1.0 + part.ids % 3 if weighted else np.ones(part.n_samples)
    model = create(method, **parameters)
    model.fit(part.X, part.y, sensitive_features=part.groups, sample_weight=weight)
    book = model.to_rulebook(SPLIT)
    h = model.predict_proba(part.X, sensitive_features=part.groups)[:, 1]
    code = model.encode(part.groups)
    assert [each.n for each in book.thresholds] == np.bincount(code).tolist()
    assert book.input.rows == part.n_samples
    for kind, rows in {"rate": part.y >= 0, "tpr": part.y == 1, "fpr": part.y == 0}.items():
        own = [rows & (code == k) for k in range(len(book.thresholds))]
        target[kind] = np.array([np.average(h[each], weights=weight[each]) for each in own])
    np.testing.assert_allclose([each.rate for each in book.thresholds], target["rate"])
    criteria = {"equal_opportunity": ["tpr"], "equalized_odds": ["tpr", "fpr"]}
    for kind in criteria.get(book.target.criterion, ["rate"]):
        assert np.ptp(target[kind]) <= book.target.budget + 1e-9
    assert book.target.rate is None
    asked = model.tolerance if method == "hardt" else model.budget
    unmet = "thetas" in parameters
    assert book.target.budget == pytest.approx(np.ptp(target["rate"]) if unmet else asked)


def test_a_rule_chosen_on_validation_rows_states_theirs():
    part, other = SPLIT.train, make_part(4, 700)
    model = create("reject_option", attributes=0)
    model.fit(part.X, part.y, sensitive_features=part.groups, validation=other)
    book = model.to_rulebook(SPLIT)
    decided = model.predict(other.X, sensitive_features=other.groups)
    code = other.groups[:, 0]
    assert [each.n for each in book.thresholds] == np.bincount(code).tolist()
    expected = [decided[code == k].mean() for k in range(2)]
    assert [each.rate for each in book.thresholds] == pytest.approx(expected)


@pytest.mark.parametrize("method", ["hardt", "reject_option"])
def test_groups_without_a_threshold_are_refused_or_decided_as_another(method):
    part = SPLIT.train.take(np.flatnonzero(SPLIT.train.group("race") < 2))
    model = create(method, attributes=1).fit(part.X, part.y, sensitive_features=part.groups)
    rows = np.zeros(2, dtype=np.int64)
    with pytest.raises(DataError, match="the group race=C"):
        model.to_rulebook(SPLIT).encode(rows, (("C",),), "new.csv")
    assert model.to_rulebook(SPLIT, unseen="B").encode(rows, (("C",),), "").tolist() == [1, 1]
    with pytest.raises(ConfigError, match="unseen is pooled, which has no threshold"):
        model.to_rulebook(SPLIT, unseen="pooled")


def test_flipped_decisions_have_no_place_in_a_rulebook():
    part = SPLIT.train
    y = np.where(part.groups[:, 0] == 1, 1 - part.y, part.y)
    told = r"above thresholds, but this hardt flips decisions\. Fit without flip\."
    model = create("hardt", attributes=0, flip=True).fit(part.X, y, sensitive_features=part.groups)
    with pytest.raises(ConfigError, match=told):
        model.to_rulebook(SPLIT)
    model.fit(part.X, part.y, sensitive_features=part.groups)
    assert model.to_rulebook(SPLIT).rule.formula == MIXTURE


@pytest.mark.parametrize("method", ["hardt", "reject_option"])
def test_a_model_that_was_saved_without_rates_decides_and_is_fitted_again(method, tmp_path):
    part = SPLIT.train
    model = create(method, attributes=0).fit(part.X, part.y, sensitive_features=part.groups)
    folder = model.save(tmp_path / "model")
    assert load_model(folder).to_rulebook(SPLIT) == model.to_rulebook(SPLIT)
    manifest = json.loads((folder / "manifest.json").read_text())
    del manifest["facts"]["result"]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    back = load_model(folder)
    np.testing.assert_array_equal(
        back.predict_proba(part.X, sensitive_features=part.groups),
        model.predict_proba(part.X, sensitive_features=part.groups),
    )
    with pytest.raises(ConfigError, match=f"this {method} was saved without. Fit it again"):
        back.to_rulebook(SPLIT)


def test_pooled_thresholds_are_for_groups_that_were_not_seen():
    part = SPLIT.train.take(np.flatnonzero(SPLIT.train.group("race") < 2))
    model = create("group_thresholds", attributes=1, unseen="pooled")
    model.fit(part.X, part.y, sensitive_features=part.groups)
    book = model.to_rulebook(SPLIT)
    assert book.cells == (("A",), ("B",), ("(unseen)",))
    asked = SPLIT.train.take(np.flatnonzero(SPLIT.train.group("race") == 2))
    code = book.encode(np.zeros(asked.n_samples, dtype=np.int64), (("C",),), "new.csv")
    np.testing.assert_array_equal(
        decide_rows(book, asked.X[:, 0], code),
        model.predict_proba(asked.X, sensitive_features=asked.groups)[:, 1],
    )
    assert model.to_rulebook(SPLIT, unseen="B").encode(code * 0, (("C",),), "").max() == 1


def test_other_processors_and_other_groups_are_refused():
    part = SPLIT.train
    other = create("shift_inference").fit(part.X, part.y, sensitive_features=part.groups)
    with pytest.raises(ConfigError, match="shift_inference has another rule"):
        other.to_rulebook(SPLIT)
    merged = replace(part, attributes={"sex": ("all",), "race": ("A", "B", "C")})
    with pytest.raises(ConfigError, match="other groups than those of made"):
        fit(width=0.1, rate=0.3).to_rulebook(SPLIT.replace(train=merged))
