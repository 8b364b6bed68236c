"""Budgets as shares of how far apart rows are."""

import numpy as np
import pytest

from fairfrontier import create, learn
from fairfrontier.models.individual.budget import measure_spread
from fairfrontier.runtime.errors import ConfigError
from tests.models.tables import make_split

SPLIT = make_split(300)
METRIC = learn("subspace", SPLIT)
BUDGETED = ("budro", "fair_boosting", "sensr", "sensei")


def fit(name, X=SPLIT.train.X, **parameters):
    model = create(name)
    model.set_params(**{**model.example, **parameters})
    return model.fit(X, SPLIT.train.y, metric=METRIC)


@pytest.mark.parametrize("seed", [0, 1])
def test_spread_is_the_mean_distance_of_two_rows(seed):
    rng = np.random.default_rng(seed)
    z, mass = rng.normal(2.0, 3.0, (40, 3)), rng.random(40)
    mass /= mass.sum()
    distance = np.sum((z[:, None] - z[None]) ** 2, axis=2)
    assert measure_spread(z, mass) == pytest.approx(mass @ distance @ mass)


@pytest.mark.parametrize("name", BUDGETED)
def test_a_share_is_the_budget_that_it_stands_for(name):
    share = fit(name, budget=None, budget_share=0.02)
    assert share.report_["budget_share"] == 0.02
    raw = fit(name, budget=share.report_["budget"])
    assert raw.report_["budget_share"] == pytest.approx(0.02)
    X = SPLIT.test.X
    assert np.array_equal(share.predict_proba(X), raw.predict_proba(X))


@pytest.mark.parametrize("name", BUDGETED)
def test_a_share_does_not_depend_on_the_scale_of_the_metric(name):
    shares = [fit(name, X, budget=None).report_ for X in (SPLIT.train.X, 10 * SPLIT.train.X)]
    assert shares[1]["budget"] == pytest.approx(100 * shares[0]["budget"])


def test_rows_that_coincide_have_no_spread():
    model = fit("budro", np.zeros_like(SPLIT.train.X), budget=0.1)
    assert model.report_ == {"budget": 0.1, "budget_share": 0.0, "rounds": 4}


@pytest.mark.parametrize("name", BUDGETED)
@pytest.mark.parametrize("parameter", ["budget", "budget_share"])
def test_what_is_no_budget_is_refused(name, parameter):
    with pytest.raises(ConfigError, match=f"The parameter '{parameter}' .* is -1"):
        create(name, **{parameter: -1.0}).check()
