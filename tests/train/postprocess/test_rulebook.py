from __future__ import annotations

import hashlib
import json
import math

import numpy as np
import pytest

from tasks.runtime.errors import ConfigError, DataError
from tasks.runtime.seeds import uniforms
from tasks.train.postprocess.rule import ThresholdRule
from tasks.train.postprocess.rulebook import make_rulebook, read_rulebook, rescale

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


@pytest.mark.parametrize("scale", ["probability", "signed", "margin"])
@pytest.mark.parametrize("width", [0.0, 0.1, 2.0])
def test_the_json_can_be_implemented_from_its_own_words(scale, width, tmp_path):
    book = make(width, scale)
    described = json.loads(book.write())
    rng = np.random.default_rng(0)
    score = rng.random(300) if scale != "margin" else rng.normal(0, 2, 300)
    # Scores at the threshold, where the coin decides.
    score[:40] = rescale(0.3, scale)
    code = rng.integers(0, 2, 300)
    code[:40] = 1
    ids = rng.integers(-(2**62), 2**62, 300)
    h = book.probability(score, code)
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
    path.write_text(book.write())
    assert read_rulebook(path) == book
    assert read_rulebook(path).write() == book.write()


def test_unknown_groups_are_named():
    levels = (("M",), ("X",))
    with pytest.raises(DataError, match=r"new\.csv has rows of the group sex=X"):
        make().encode(np.array([0, 1]), levels, "new.csv")
    codes = make().encode(np.array([0, 1, 0]), (("M",), ("F",)), "new.csv")
    assert codes.tolist() == [1, 0, 1]


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
    ],
)
def test_a_json_that_says_what_cannot_be_is_refused(tmp_path, change, told):
    path = tmp_path / "thresholds.json"
    book = json.loads(make().write())
    change(book)
    path.write_text(json.dumps(book))
    with pytest.raises(ConfigError, match=told) as caught:
        read_rulebook(path)
    assert str(path) in str(caught.value)


def test_what_is_no_json_is_refused(tmp_path):
    (tmp_path / "a.json").write_text("{")
    for name in ("a.json", "b.json"):
        with pytest.raises(ConfigError, match="cannot be read as JSON"):
            read_rulebook(tmp_path / name)
