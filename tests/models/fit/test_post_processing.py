"""Rules behind stored scores decide what they decide behind the model itself."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fairfrontier import create
from fairfrontier.models.fit.post_processing import fit_behind
from fairfrontier.models.prediction import predict_part, predict_variants
from fairfrontier.prepare.split import Variant
from tests.models.tables import make_split


class Variants(tuple):
    """The variants of a set, of the rows with these numbers, or of all."""

    rows = None

    def take(self, rows):
        return Variants(replace(each, X=each.X[rows], groups=each.groups[rows]) for each in self)


class Told:
    """A model of the chances in its first feature, which counts the rows that it is asked for."""

    def __init__(self):
        self.asked = 0

    def predict_proba(self, X):
        self.asked += len(X)
        return np.column_stack([1 - X[:, 0], X[:, 0]])


def flip(part):
    """Return a part with the set of its rows in both groups."""
    variants = Variants(
        Variant(name, part.X, np.full_like(part.groups, code))
        for code, name in enumerate(("Female", "Male"))
    )
    return replace(part, counterfactuals={"sex": variants})


def make_scored(score):
    """Return a split whose one feature is a chance: a function of a part."""
    split = make_split(n=400)
    parts = {"train": split.train, "validation": split.train, "test": split.test}
    scored = {
        name: flip(replace(part, name=name, X=score(part)[:, None])) for name, part in parts.items()
    }
    return split.replace(feature_names=("chance",), **scored)


@pytest.mark.parametrize("randomized", [True, False])
def test_stored_scores_decide_as_the_model_does(randomized):
    draw = np.random.default_rng(0)

    def score(part):
        # Ties, and neighbours of the same 32 bits.
        chance = draw.choice(np.linspace(0.1, 0.9, 7), part.n_samples)
        return chance + draw.integers(-2, 3, part.n_samples) * np.spacing(chance)

    asked = rows = 0
    for _ in range(5):
        split, model = make_scored(score), Told()
        stored = {name: predict_part(model, part) for name, part in split.parts()}
        rule = create("group_thresholds", bound=0.03, randomized=randomized)
        model.asked = 0
        found = fit_behind(rule, lambda model=model: model, stored, split)
        asked += model.asked
        for name, part in split.parts():
            rows += 2 * part.n_samples
            decided, _ = predict_variants(rule.behind(model), part)
            for (_, ours), (_, theirs) in zip(
                found[name].counterfactuals["sex"], decided["sex"], strict=True
            ):
                assert np.array_equal(ours, theirs)
            assert found[name].counterfactual_scores is stored[name].counterfactual_scores
    # Some cuts lie among rows that differ beyond 32 bits.
    assert 0 < asked < rows / 2


def test_a_model_is_not_loaded_where_its_scores_are_enough():
    split = make_scored(lambda part: 0.2 + 0.5 * (part.X[:, 1] > 0))
    stored = {name: predict_part(Told(), part) for name, part in split.parts()}
    loaded = []
    fit_behind(create("group_thresholds"), lambda: loaded.append(1), stored, split)
    assert not loaded
