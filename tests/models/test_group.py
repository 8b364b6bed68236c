"""Sensitive features of any kind, and the columns that a method names."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fairfrontier.models.group import SensitiveFeatures, find_columns
from fairfrontier.models.registry import create, load_model
from fairfrontier.runtime.errors import ConfigError, InputError

generator = np.random.default_rng(0)
N = 400
PEOPLE = pd.DataFrame(
    {
        "sex": generator.choice(["f", "m"], N),
        "age": pd.cut(generator.uniform(18, 80, N), [0, 40, 100], labels=["young", "old"]),
        "member": generator.random(N) < 0.4,
    }
)
SCORE = np.clip(generator.normal(0.5 + 0.1 * (PEOPLE["sex"] == "m"), 0.2), 0, 1)
LABEL = (generator.random(N) < SCORE).astype(int)


def fit(attributes=None):
    rule = create("group_thresholds", criterion="parity", attributes=attributes)
    return rule.fit(SCORE, LABEL, sensitive_features=PEOPLE)


def test_levels_have_the_order_of_text_or_of_their_category():
    known = SensitiveFeatures.learn(PEOPLE)
    assert known.names == ("sex", "age", "member")
    assert known.levels == (("f", "m"), ("young", "old"), None)
    codes = known.code(PEOPLE)
    assert np.array_equal(codes[:, 1], PEOPLE["age"].cat.codes)
    assert np.array_equal(known.code(PEOPLE[["member", "age", "sex"]]), codes)


@pytest.mark.parametrize("attributes", ["sex", ["sex"], ["age", "sex"], [0], None])
def test_columns_are_named_or_numbered(attributes, tmp_path):
    rule = fit(attributes)
    wanted = list(PEOPLE) if attributes is None else attributes
    wanted = [wanted] if isinstance(wanted, str) else wanted
    assert len(rule.cells_) == 2 ** len(wanted)
    decided = rule.predict_proba(SCORE, sensitive_features=PEOPLE)
    loaded = load_model(rule.save(tmp_path / "rule"))
    shuffled = PEOPLE[["member", "sex", "age"]].assign(other=1)
    assert np.array_equal(loaded.predict_proba(SCORE, sensitive_features=shuffled), decided)


def test_what_the_fit_did_not_have_is_refused_by_name():
    rule = fit("sex")
    with pytest.raises(InputError, match="'x'"):
        rule.predict_proba(SCORE[:1], sensitive_features=PEOPLE[:1].assign(sex="x"))
    with pytest.raises(InputError):
        rule.predict_proba(SCORE[:1], sensitive_features=PEOPLE[:1].drop(columns="sex"))
    with pytest.raises(ConfigError):
        fit("race")
    broken = PEOPLE.assign(sex=PEOPLE["sex"].where(PEOPLE.index > 0))
    with pytest.raises(InputError, match="'sex' is missing in 1 of 400"):
        create("group_thresholds").fit(SCORE, LABEL, sensitive_features=broken)
    with pytest.raises(InputError):
        create("group_thresholds").fit(SCORE, LABEL, sensitive_features=SCORE)


def test_codes_and_levels_are_not_taken_for_each_other():
    codes = (PEOPLE["sex"] == "m").to_numpy().astype(int)
    one = create("group_thresholds").fit(SCORE, LABEL, sensitive_features=codes)
    with pytest.raises(InputError):
        one.predict_proba(SCORE, sensitive_features=PEOPLE["sex"])
    other = create("group_thresholds", unseen="pooled").fit(
        SCORE, LABEL, sensitive_features=PEOPLE["sex"]
    )
    with pytest.raises(InputError):
        other.predict_proba(SCORE, sensitive_features=codes)


def test_rows_are_in_their_order_whatever_the_index():
    turned = PEOPLE["sex"].set_axis(np.arange(N)[::-1])
    known = SensitiveFeatures.learn(PEOPLE[["sex", "member"]])
    wanted = known.code(PEOPLE)
    assert np.array_equal(known.code({"sex": turned, "member": PEOPLE["member"]}), wanted)
    for wrong in ({"sex": "f"}, {"sex": ["f"], "member": [True, False]}, {}):
        with pytest.raises(InputError):
            SensitiveFeatures.learn(wrong)


def test_bands_are_levels_that_can_be_saved(tmp_path):
    bands = pd.cut(SCORE, [-1, 0.5, 2])
    rule = create("group_thresholds").fit(SCORE, LABEL, sensitive_features={"band": bands})
    loaded = load_model(rule.save(tmp_path / "rule"))
    decided = rule.predict_proba(SCORE, sensitive_features={"band": bands})
    assert np.array_equal(loaded.predict_proba(SCORE, sensitive_features={"band": bands}), decided)


def test_a_group_that_lacks_a_label_is_named():
    alone = PEOPLE["sex"].where(PEOPLE.index > 0, "x").where(PEOPLE.index != 1, "f")
    with pytest.raises(InputError):
        create("group_thresholds", criterion="equal_opportunity").fit(
            SCORE, np.where(PEOPLE.index > 0, LABEL, 0), sensitive_features=alone.to_frame()
        )


def test_columns_without_names_are_numbered():
    codes = np.zeros((3, 2), dtype=np.int64)
    assert find_columns(codes, [1, 0]) == [1, 0]
    for wrong in (2, "sex", []):
        with pytest.raises(ConfigError):
            find_columns(codes, wrong)
