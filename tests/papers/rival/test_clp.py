from dataclasses import dataclass, replace

import numpy as np
import pytest
from sklearn import config_context
from sklearn.ensemble import BaggingClassifier

from fairfrontier import create
from fairfrontier.prepare.split import Variant
from fairfrontier.runtime.errors import ConfigError, DataError
from papers.rival.clp import draw_variants
from tests.models.tables import make_split

SMALL = {"hidden": 8, "learning_rate": 0.02, "batch_size": 60, "steps": 200, "record_every": 10}


@dataclass(frozen=True)
class Levels:
    """A counterfactual set that writes levels into one column."""

    X: np.ndarray
    column: int
    levels: tuple[float, ...]
    rows: np.ndarray | None = None

    @property
    def names(self):
        return tuple(map(str, self.levels))

    @property
    def n_samples(self):
        return len(self.X)

    def __iter__(self):
        for level in self.levels:
            X = self.X.copy()
            X[:, self.column] = level
            yield Variant(str(level), X, np.zeros((len(X), 1), dtype=np.int64))

    def take(self, rows):
        return Levels(self.X[rows], self.column, self.levels)


MADE = make_split(400)
X, Y = MADE.train.X, MADE.train.y
SETS = {"sex": Levels(X, 0, (0.0, 1.0)), "lean": Levels(X, 1, (-1.0, 0.0, 1.0))}


def fit(**parameters):
    return create("clp", **{**SMALL, **parameters}).fit(X, Y, counterfactuals=SETS)


def spread(model, column):
    low, high = MADE.test.X.copy(), MADE.test.X.copy()
    low[:, column], high[:, column] = 0, 1
    return np.abs(model.predict_proba(low) - model.predict_proba(high)).mean()


def test_strength_zero_is_plain_training():
    plain = create("nn", **SMALL).fit(X, Y)
    paired = fit(strength=0.0)
    for left, right in zip(paired.network_.arrays, plain.network_.arrays, strict=True):
        assert np.array_equal(left, right)


def test_strength_pairs_the_logits_of_the_set_that_is_named():
    plain, sex, both = fit(strength=0.0), fit(counterfactual_set="sex"), fit()
    assert spread(sex, 0) < 0.3 * spread(plain, 0)
    assert spread(sex, 1) > 0.5 * spread(plain, 1)
    assert spread(both, 1) < 0.5 * spread(plain, 1)


def test_the_penalty_is_the_mean_logit_distance_to_a_variant():
    # One step that learns nothing, on a set with one variant: no chance is left but the rows.
    model = create("clp", **{**SMALL, "steps": 1, "learning_rate": 0.0, "batch_size": 4000})
    sets = {"sex": Levels(X, 0, (1.0,))}
    model.fit(X, Y, counterfactuals=sets)
    (weight, last), (bias, _) = model.network_.weight, model.network_.bias

    def logits(rows):
        return np.maximum(rows @ weight[0] + bias[0], 0) @ last[0]

    moved = X.copy()
    moved[:, 0] = 1
    distance = ((logits(X) - logits(moved)) ** 2).mean(axis=1)
    wanted = (distance[Y == 0].mean() + distance[Y == 1].mean()) / 2
    assert model.history_["regularizer"][0] == pytest.approx(wanted, rel=0.1)


def test_variants_are_drawn_for_the_rows_asked_and_all_occur():
    rows = np.tile(np.arange(50), 40)
    found = draw_variants(list(SETS.values()), X, rows, np.random.default_rng(0))
    kept = found[:, 2:]
    assert np.array_equal(kept, X[rows][:, 2:])
    from_sex = (found[:, 1] == X[rows, 1]) & np.isin(found[:, 0], [0.0, 1.0])
    assert from_sex.mean() == pytest.approx(0.5, abs=0.05)
    share = [np.mean(found[~from_sex, 1] == level) for level in (-1.0, 0.0, 1.0)]
    assert share == pytest.approx([1 / 3] * 3, abs=0.06)


def test_rows_without_versions_are_charged_nothing():
    having = np.arange(0, len(X), 3)
    # A set that moves every row far, and says that it moves but some.
    some = replace(Levels(X, 0, (50.0, 60.0)), rows=having)
    found = draw_variants([some], X, np.arange(len(X)), np.random.default_rng(0))
    assert np.isin(found[having, 0], (50.0, 60.0)).all()
    rest = np.setdiff1d(np.arange(len(X)), having)
    assert np.array_equal(found[rest], X[rest])
    none = replace(some, rows=np.arange(0))
    model = create("clp", **SMALL).fit(X, Y, counterfactuals={"none": none})
    plain = create("nn", **SMALL).fit(X, Y)
    assert (model.history_["regularizer"] == 0).all()
    assert np.array_equal(model.predict_proba(X), plain.predict_proba(X))


@pytest.mark.parametrize(
    ("parameters", "word"),
    [({"counterfactual_set": "sez"}, "'sex'"), ({"strength": -1}, "strength")],
)
def test_what_cannot_be_is_said(parameters, word):
    with pytest.raises(ConfigError, match=word):
        fit(**parameters)


def test_it_needs_counterfactual_sets():
    assert "declares none" in create("clp").supports(MADE)
    with pytest.raises(ConfigError):
        create("clp", **SMALL).fit(X, Y, counterfactuals={})


@pytest.mark.parametrize("column_draws", [{}, {"max_features": 0.5, "bootstrap": False}])
@pytest.mark.parametrize("rows", [None, np.arange(0, len(X), 3)])
def test_rows_that_were_drawn_without_their_versions_are_refused(rows, column_draws):
    sets = {"sex": replace(SETS["sex"], rows=rows)}
    with config_context(enable_metadata_routing=True):
        pairing = create("clp", **SMALL).set_fit_request(counterfactuals=True)
        bagging = BaggingClassifier(pairing, n_estimators=1, random_state=0, **column_draws)
        with pytest.raises(DataError):
            bagging.fit(X, Y, counterfactuals=sets)


def test_drawn_rows_with_their_own_versions_are_fitted():
    drawn = np.random.default_rng(0).integers(0, len(X), len(X))
    sets = {"sex": SETS["sex"].take(drawn)}
    create("clp", **SMALL).fit(X[drawn], Y[drawn], counterfactuals=sets)
    # Float32 rows are those of float64 sets.
    create("clp", **SMALL).fit(X.astype(np.float32), Y, counterfactuals=SETS)


def test_sets_of_other_rows_are_refused():
    with pytest.raises(DataError, match=f"given 50 rows, and a counterfactual set of {len(X)}"):
        create("clp", **SMALL).fit(X[:50], Y[:50], counterfactuals=SETS)
