"""Scores of any scale: a rule needs only their order, and which end is which."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import fairfrontier as ff
from fairfrontier.debias.config import DebiasConfig
from fairfrontier.debias.debiasing import decide_rows, fit_debiasing, read_again
from fairfrontier.runtime.errors import DataError
from fairfrontier.train.base import TrainingWarning
from fairfrontier.train.postprocess.base import find_backward
from tests.debias.scored import make_scores

EXACT = {"rule": "group_thresholds", "holdout": 0.0, "pool_below": 0}


@pytest.fixture(scope="module")
def scored():
    """Return scores in several units, of one order."""
    table = make_scores(400)
    rank = table["s"].rank(method="first")
    points = 300 + rank.astype(int) ** 2
    return table.assign(points=points, negative=-(1e6 / rank), away=np.exp(rank / 3))


def debias(table, folder, **options):
    """Return a rule and the probabilities with which it decides the rows 1."""
    folder.mkdir(parents=True, exist_ok=True)
    table.to_parquet(folder / "s.parquet")
    asked = {} if "apply" in options else {"groups": "sex"}
    found = fit_debiasing(DebiasConfig(table=folder / "s.parquet", **asked, **options))
    (batch,) = read_again(found)
    code, signed, _ = decide_rows(found, batch)
    return found, found.rulebook.decision_rule.probability(signed, code)


def test_rules_for_points_decide_as_for_probabilities_of_their_order(scored, tmp_path):
    _, usual = debias(scored, tmp_path, scores="s", labels="y", **EXACT)
    for scores in ("points", "negative", "away"):
        _, own = debias(scored, tmp_path, scores=scores, scale="points", labels="y", **EXACT)
        np.testing.assert_array_equal(own, usual)


def test_a_kept_rule_for_points_has_its_thresholds_in_points(scored, tmp_path):
    asked = {"scores": "points", "scale": "points", "labels": "y", "budget": 0.1}
    found, chance = debias(scored, tmp_path, **asked, **EXACT)
    found.rulebook.write(tmp_path / "thresholds.json")
    thresholds = json.loads((tmp_path / "thresholds.json").read_text())["thresholds"]
    cuts = {each["group"]["sex"]: each for each in thresholds}
    by_hand = [
        sum(share for share, cut in zip(each["shares"], each["cuts"], strict=True) if points > cut)
        for points, each in zip(scored["points"], scored["sex"].map(cuts), strict=True)
    ]
    np.testing.assert_allclose(chance, by_hand)
    _, again = debias(scored, tmp_path, apply=tmp_path / "thresholds.json")
    np.testing.assert_array_equal(again, chance)
    # Beyond the scores of the fit nothing but the order counts either.
    ends = scored.head(2).assign(points=[-1e9, 1e9])
    _, own = debias(ends, tmp_path, apply=tmp_path / "thresholds.json")
    assert own.tolist() == [0, 1]


def test_ramps_take_points_by_their_ranks(scored, tmp_path):
    options = {"scale": "points", "holdout": 0.0, "width": 0.2, "pool_below": 0}
    _, chance = debias(scored, tmp_path, scores="points", labels="y", **options)
    _, other = debias(scored, tmp_path, scores="away", labels="y", **options)
    # Both have the same knots; between them a line in points is none in their exponentials.
    np.testing.assert_allclose(chance, other, atol=0.05)
    rates = pd.Series(chance).groupby(scored["sex"]).mean()
    assert rates.max() - rates.min() < 1e-6
    _, labelless = debias(scored, tmp_path, scores="points", rate=0.3, **options)
    assert labelless.mean() == pytest.approx(0.3, abs=1e-6)


def test_what_points_need_to_be_decided_is_asked_for(scored, tmp_path):
    with pytest.raises(ValueError, match="labels"):
        DebiasConfig(table="s.csv", scores="points", groups="sex", scale="points")
    for scale in ("probability", "margin", "signed"):
        with pytest.raises(DataError, match="points"):
            debias(scored, tmp_path / scale, scores="points", scale=scale, labels="y")
    with pytest.raises(DataError, match="points"):
        ff.create("group_thresholds", scale="margin").fit(
            scored["points"].to_numpy(), scored["y"].to_numpy(), groups=scored[["sex"]] == "Male"
        )


def test_scores_that_predict_backwards_are_refused(scored, tmp_path):
    turned = scored.assign(s=1 - scored["s"])
    for options in ({}, EXACT, {"solver": "histogram"}):
        with pytest.raises(DataError, match="opposite"):
            debias(turned, tmp_path, scores="s", labels="y", **options)
    for solver in ("exact", "histogram"):
        deciles = turned.assign(s=(turned["s"] * 9).round() / 9)
        with pytest.raises(DataError, match="opposite"):
            debias(deciles, tmp_path, scores="s", labels="y", solver=solver)
    model, y = ff.create("group_thresholds"), turned["y"].to_numpy()
    groups = turned[["sex"]] == "Male"
    with pytest.warns(TrainingWarning, match="opposite"):
        model.fit(turned["s"].to_numpy(), y, groups=groups)
    # Rows without weight have no direction.
    both = np.where(np.arange(len(y)) % 2, scored["s"], turned["s"])
    model.fit(both, y, groups=groups, sample_weight=np.arange(len(y)) % 2.0)
    # Noise is no direction.
    rng = np.random.default_rng(0)
    for _ in range(20):
        assert not find_backward(rng.random(60), rng.integers(2, size=60), np.ones(60))


def test_labels_of_several_levels_are_told(scored, tmp_path):
    levels = scored.assign(
        y=np.where(scored["y"] == 1, "paid", np.where(scored.index % 2, "late", "no"))
    )
    found, _ = debias(levels, tmp_path, scores="s", labels="y", positive="paid", **EXACT)
    assert set(found.zeros["y"]) == {"late", "no"}
    found, _ = debias(levels, tmp_path, scores="s", labels="y", positive="paid,late", **EXACT)
    assert found.zeros == {}
