"""Bounds in words on decisions: values by hand, and how often what is certified is passed."""

import numpy as np
import pandas as pd
import pytest

import fairfrontier as ff
from fairfrontier.runtime.errors import ConfigError, InputError

BOUNDS = [
    "selection_rate_difference:sex <= 0.14",
    "selection_rate_ratio:sex >= 0.6",
    "tpr_min:sex >= 0.3",
    "fdr_max:sex×race <= 0.6",
    "ppv_difference:race <= 0.2",
    "accuracy_difference:race to overall <= 0.1",
    "selection_rate_difference:sex | race <= 0.2",
    "share:race=b >= 0.2",
    "selection_rate <= 0.5",
]


def draw(n, seed):
    generator = np.random.default_rng(seed)
    given = pd.DataFrame(
        {"sex": generator.choice(["f", "m"], n), "race": generator.choice(["a", "b"], n)}
    )
    y = (generator.random(n) < 0.5).astype(int)
    chance = 0.25 + 0.25 * y + 0.1 * (given["sex"] == "m")
    return y, (generator.random(n) < chance).astype(int), given


def check(n, seed, bounds=BOUNDS, **keywords):
    y, decision, given = draw(n, seed)
    return ff.metrics.check_bounds(y, decision, sensitive_features=given, bounds=bounds, **keywords)


def test_values_are_those_of_the_rows_and_worse_at_worst():
    y, decision, given = draw(2_000, 0)
    found = check(2_000, 0).set_index("bound")
    selected = pd.Series(decision).groupby(given["sex"]).mean()
    right = given[decision == 1].assign(y=y[decision == 1])
    for bound, value in (
        (BOUNDS[0], np.ptp(selected)),
        (BOUNDS[1], selected.min() / selected.max()),
        (BOUNDS[3], (1 - right.groupby(["sex", "race"])["y"].mean()).max()),
        (BOUNDS[4], np.ptp(right.groupby("race")["y"].mean())),
        (BOUNDS[7], (right["race"] == "b").mean()),
    ):
        assert found.loc[bound, "value"] == pytest.approx(value)
    upper = found.index.str.contains("<=")
    assert (np.where(upper, 1, -1) * (found["worst"] - found["value"]) > 0).all()
    assert (found["kept"] >= found["certified"]).all()


def test_what_is_certified_holds_for_the_population():
    # Of the population: selection .425 ± .05 by sex, TPR ≥ .5, and equal precision by race.
    truth = {BOUNDS[0]: 0.1, BOUNDS[2]: 0.5, BOUNDS[4]: 0.0, BOUNDS[8]: 0.425}
    wrong = 0
    for seed in range(200):
        found = check(400, seed, [*truth]).set_index("bound")["worst"]
        wrong += any(
            (value > found[bound]) if "<=" in bound else (value < found[bound])
            for bound, value in truth.items()
        )
    assert wrong <= 10


def test_rows_that_are_needed_would_do():
    found = check(600, 3, BOUNDS[:1]).iloc[0]
    assert found["kept"]
    assert not found["certified"]
    assert check(int(4 * found["needed"]), 3, BOUNDS[:1])["certified"].all()


def test_a_group_without_the_rate_certifies_nothing():
    y, decision, given = draw(300, 1)
    decision[given["sex"] == "f"] = 0
    found = ff.metrics.check_bounds(
        y, decision, sensitive_features=given, bounds=["ppv_min:sex >= 0.1"]
    )
    assert not found["certified"].any()


@pytest.mark.parametrize(
    ("bounds", "error"),
    [
        (["tpr_min:age >= 0.5"], ConfigError),
        (["tpr:sex=x >= 0.5"], ConfigError),
        ("tpr_min:sex >= 0.5", ConfigError),
    ],
)
def test_what_is_not_there_is_refused(bounds, error):
    with pytest.raises(error):
        check(100, 0, bounds)


def test_probabilities_are_refused():
    y, decision, given = draw(100, 0)
    with pytest.raises(InputError):
        ff.metrics.check_bounds(
            y, decision * 0.5, sensitive_features=given, bounds=["tpr_min:sex >= 0.5"]
        )
