from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairfrontier.models.noisy.problem import TUNED, list_candidates, rank_candidates
from fairfrontier.runtime.errors import ConfigError
from tests.models.noisy.test_estimator import SMALL, make, make_part, table

RATES = {"learning_rate": [0.02, 0.1], "multiplier_rate": [0.1, 1.0], "inner_rate": [0.01, 0.1]}


def fit(approach, part, validation=None, **changes):
    model = make(approach, **{"iterations": 30, **changes})
    return model.fit(**table(model, part), validation=validation)


@pytest.mark.parametrize(
    ("approach", "inner", "count"),
    [
        ("unconstrained", "exact", 2),
        ("naive", "exact", 8),
        ("true_groups", "exact", 8),
        ("dro", "exact", 8),
        ("dro", "ascent", 16),
        ("soft_assignment", "ascent", 16),
    ],
)
def test_only_what_an_approach_uses_is_crossed(approach, inner, count):
    model = make(approach, inner=inner, slack=[1.0, 1.5], **RATES)
    candidates = list_candidates(model.setting())
    assert len(candidates) == count
    settings = {(c.slack, c.learning_rate, c.multiplier_rate, c.inner_rate) for c in candidates}
    assert len(settings) == len(candidates)
    assert all(np.ndim(each.learning_rate) == 0 for each in candidates)
    assert model.learning_rate == RATES["learning_rate"]


@pytest.mark.parametrize("approach", ["unconstrained", "true_groups", "naive", "dro"])
def test_the_chosen_model_is_the_best_of_those_trained_alone(approach):
    part, validation = make_part(), make_part(seed=1)
    model = fit(approach, part, validation, level=0.1, **RATES)
    candidates = list_candidates(make(approach, level=0.1, **RATES).setting())
    settings = [{name: getattr(each, name) for name in TUNED} for each in candidates]
    alone = [fit(approach, part, level=0.1, **each) for each in settings]
    told = []
    for each in alone:
        error = np.mean(each.predict(validation.X) != validation.y)
        worst = each.violation(
            validation.X, validation.y, validation.groups, true_groups=validation.true_groups
        )
        told.append((worst > 1e-6, error if worst <= 1e-6 else worst, error))
    # Batches round otherwise than single models, so that an equal choice is one of equal standing.
    np.testing.assert_allclose(model.trials_[:, 0], [each[2] for each in told], atol=0.01)
    best = min(told)
    chosen = told[
        next(
            i
            for i, each in enumerate(alone)
            if all(getattr(each, name) == model.chosen_[name] for name in model.chosen_)
        )
    ]
    assert chosen[:2] == pytest.approx(best[:2], abs=0.01)


@pytest.mark.parametrize("approach", ["naive", "dro", "soft_assignment"])
def test_models_that_do_not_fit_at_once_train_in_turn(approach, monkeypatch):
    part = make_part()
    whole = fit(approach, part, level=0.1, iterations=20, **RATES)
    steps = []
    monkeypatch.setattr("fairfrontier.models.noisy.solver.BATCH_ENTRIES", 3 * 240 * 27)
    model = make(approach, level=0.1, iterations=20, **RATES)
    data = {"X": part.X, "y": part.y, "sensitive_features": part.groups}
    type(model).fit_batch([model], [data], progress=lambda *told: steps.append(told))
    np.testing.assert_allclose(model.trials_, whole.trials_, atol=1e-9)
    assert model.chosen_ == whole.chosen_
    rounds = -(-len(list_candidates(model.setting())) // 3)
    assert steps == [(20 * (number + 1), 20 * rounds) for number in range(rounds)]


def test_validation_rows_change_the_choice_and_training_rows_stand_in_for_them():
    part = make_part()
    model = fit("naive", part, **RATES)
    again = fit("naive", part, validation=part, **RATES)
    np.testing.assert_allclose(model.trials_, again.trials_, atol=1e-9)
    assert model.chosen_ == again.chosen_
    flipped = make_part(seed=5)
    other = fit("naive", part, validation=replace(flipped, y=1 - flipped.y), **RATES)
    assert not np.allclose(other.trials_, model.trials_)


@pytest.mark.parametrize("approach", ["dro", "soft_assignment"])
def test_true_groups_of_validation_rows_choose_where_asked(approach):
    part, validation = make_part(), make_part(seed=1)
    model = fit(approach, part, validation, level=0.3, validation_groups="true", **RATES)
    own = fit(approach, part, validation, level=0.3, **RATES)
    np.testing.assert_array_equal(model.trials_[:, 0], own.trials_[:, 0])
    chosen = model.decide(validation.X)[:, 0] > 0
    positive, true = validation.y == 1, validation.true_groups[:, 0]
    by_hand = max(
        chosen[positive].mean() - chosen[positive & (true == j)].mean() - SMALL["budget"]
        for j in range(3)
    )
    place = rank_candidates(model.trials_)
    assert model.trials_[place, 1] == pytest.approx(by_hand)
    assert not np.allclose(model.trials_[:, 1], own.trials_[:, 1])


def test_weights_of_validation_rows_are_copies_of_them():
    part, validation = make_part(), make_part(seed=1, n=90)
    copies = np.random.default_rng(0).integers(1, 4, 90)
    weighted = fit("naive", part, replace(validation, weight=copies.astype(float)), **RATES)
    rows = np.repeat(np.arange(90), copies)
    repeated = fit("naive", part, validation.take(rows), **RATES)
    np.testing.assert_allclose(weighted.trials_, repeated.trials_, rtol=1e-12)


@given(
    st.lists(
        st.tuples(st.sampled_from([0.1, 0.2, 0.3]), st.sampled_from([-0.2, 0.0, 0.1, 0.4, np.nan])),
        min_size=1,
        max_size=6,
    )
)
def test_the_rule_is_the_least_error_of_the_feasible_else_the_least_violation(trials):
    place = rank_candidates(np.array(trials))
    error, violation = trials[place]
    feasible = [each for each in trials if each[1] <= 0]
    if feasible:
        assert violation <= 0
        assert error == min(each[0] for each in feasible)
    else:
        known = [each[1] for each in trials if not np.isnan(each[1])]
        least = min(known, default=np.nan)
        equal = [each for each in trials if each[1] == least or (np.isnan(least) and not known)]
        assert (error, violation) == pytest.approx(
            (min(each[0] for each in equal), least), nan_ok=True
        )
    assert place == next(i for i, each in enumerate(trials) if repr(each) == repr(trials[place]))


@pytest.mark.parametrize(
    ("name", "value"),
    [("slack", []), ("learning_rate", [0.1, 0.0]), ("inner_rate", [np.inf]), ("slack", -1.0)],
)
def test_values_that_cannot_be_are_refused(name, value):
    part = make_part(n=60)
    with pytest.raises(ConfigError, match=f"'{name}'"):
        fit("dro", part, **{name: value})


def test_a_model_says_what_was_chosen_when_it_is_read_again(tmp_path):
    model = fit("dro", make_part(), make_part(seed=1), level=0.1, **RATES)
    again = type(model).load(model.save(tmp_path / "model"))
    assert again.chosen_ == model.chosen_
    assert again.learning_rate == RATES["learning_rate"]
    np.testing.assert_array_equal(again.trials_, model.trials_)
