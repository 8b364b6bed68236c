import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairfrontier.models.noisy.rate import (
    CRITERIA,
    RATES,
    count_cells,
    find_rate,
    find_rates,
    sum_cells,
)
from fairfrontier.runtime.arrays import to_numpy
from fairfrontier.runtime.errors import ConfigError
from tests.models.noisy.reference import assigned_mass, bound_hinge, centre_rows, constrain
from tests.namespaces import namespaces

N, M, GROUPS = 40, 2, 3


def make_case(seed, xp=np):
    rng = np.random.default_rng(seed)
    score = rng.normal(scale=1.5, size=(M, N))
    label = rng.integers(2, size=N)
    label[:6], codes = [0, 1] * 3, rng.integers(GROUPS, size=N)
    codes[:6] = [0, 0, 1, 1, 2, 2]
    weight = rng.dirichlet(np.ones(N))
    arrays = [xp.asarray(each) for each in (score, label, codes, weight)]
    masses = {
        "hard": np.broadcast_to(centre_rows(codes, GROUPS), (M, GROUPS, N)),
        "distribution": rng.dirichlet(np.ones(N), size=(M, GROUPS)),
        "soft": assigned_mass(
            np.moveaxis(rng.dirichlet(np.ones(GROUPS), size=(M, GROUPS, 4)), -1, 1),
            score,
            label,
            codes,
            weight,
            np.full(GROUPS, 1 / GROUPS),
        ),
    }
    return *arrays, {key: xp.asarray(each.copy()) for key, each in masses.items()}


@pytest.mark.parametrize("name", RATES)
def test_hard_groups_give_the_rates_of_the_paper(name):
    score, label, codes, weight, _ = make_case(0)
    weight = np.full(N, 1 / N)
    mass = np.broadcast_to(centre_rows(codes, GROUPS), (M, GROUPS, N))
    found = constrain(RATES[name], score, label, mass, weight=weight, budget=0.05).value
    for model in range(M):
        d = score[model] >= 0
        right = d == label
        overall = {
            "tpr": d[label == 1].mean(),
            "fpr": d[label == 0].mean(),
            "selection_floor": d.mean(),
            "selection_cap": d.mean(),
            "accuracy": right.mean(),
        }[name]
        for j in range(GROUPS):
            g = codes == j
            own = {
                "tpr": d[g & (label == 1)].mean(),
                "fpr": d[g & (label == 0)].mean(),
                "selection_floor": d[g].mean(),
                "selection_cap": d[g].mean(),
                "accuracy": right[g].mean(),
            }[name]
            expected = overall - own if RATES[name].floor else own - overall
            assert found[model, j] == pytest.approx(expected - 0.05)


@settings(max_examples=20)
@given(
    seed=st.integers(0, 10**6),
    name=st.sampled_from(sorted(RATES)),
    kind=st.sampled_from(["hard", "distribution", "soft"]),
    form=st.sampled_from(["ratio", "linear"]),
)
def test_hinges_are_upper_bounds_and_forms_agree_in_sign(seed, name, kind, form):
    score, label, _, weight, masses = make_case(seed)
    rate, mass = RATES[name], masses[kind]
    known = {"weight": weight, "budget": 0.03, "form": form}
    exact = constrain(rate, score, label, mass, **known)
    hinge = constrain(rate, score, label, mass, slack=0.0, **known)
    assert (hinge.value >= exact.value - 1e-12).all()
    assert (exact.gradient == 0).all()
    slacker = constrain(rate, score, label, mass, slack=0.5, **known)
    np.testing.assert_allclose(slacker.value, hinge.value - 0.5)
    # Lemmas 2 to 5: E[h] has the sign of the ratio's constraint.
    other = constrain(
        rate, score, label, mass, **{**known, "form": "linear"}, nominal=np.ones((M, GROUPS))
    )
    ratio = constrain(rate, score, label, mass, **{**known, "form": "ratio"})
    assert (np.sign(np.round(other.value, 12)) == np.sign(np.round(ratio.value, 12))).all()


@settings(max_examples=15)
@given(
    seed=st.integers(0, 10**6),
    name=st.sampled_from(sorted(RATES)),
    kind=st.sampled_from(["hard", "distribution", "soft"]),
    form=st.sampled_from(["ratio", "linear"]),
)
def test_gradients_equal_finite_differences(seed, name, kind, form):
    score, label, _, weight, masses = make_case(seed)
    mass, rate = masses[kind], RATES[name]
    nominal = np.full((M, GROUPS), 0.4)

    def value(score, mass):
        return constrain(
            rate,
            score,
            label,
            mass,
            weight=weight,
            budget=0.05,
            slack=0.2,
            form=form,
            nominal=nominal,
        )

    rng = np.random.default_rng(seed)
    found = value(score, mass)
    step = 1e-6 * rng.normal(size=score.shape)
    # Away from the kinks the hinges are linear.
    step[(np.abs(np.abs(score) - 1) < 1e-4)] = 0
    change = value(score + step, mass).value - value(score - step, mass).value
    predicted = 2 * np.sum(found.gradient * step[:, None, :], axis=-1)
    np.testing.assert_allclose(change, predicted, rtol=1e-5, atol=1e-11)
    step = 1e-6 * rng.normal(size=mass.shape) * mass
    change = value(score, mass + step).value - value(score, mass - step).value
    predicted = 2 * np.sum(found.pull * step, axis=-1)
    np.testing.assert_allclose(change, predicted, rtol=1e-4, atol=1e-10)


@pytest.mark.parametrize("namespace", namespaces())
def test_namespaces_agree(namespace):
    xp = namespace()
    plain, ours = make_case(3), make_case(3, xp)
    for name, rate in RATES.items():
        for kind in ("hard", "soft"):
            expected, found = (
                constrain(
                    rate, each[0], each[1], each[4][kind], weight=each[3], budget=0.1, slack=1.0
                )
                for each in (plain, ours)
            )
            for field in ("value", "gradient", "pull"):
                np.testing.assert_allclose(
                    to_numpy(getattr(found, field)), getattr(expected, field), err_msg=name
                )
    np.testing.assert_allclose(
        to_numpy(bound_hinge(ours[0], ours[1], ours[3])[1]),
        bound_hinge(plain[0], plain[1], plain[3])[1],
    )


def test_the_objective_and_its_gradient():
    score, label, _, weight, _ = make_case(5)
    value, gradient = bound_hinge(score, label, weight)
    margin = np.where(label == 1, score, -score)
    np.testing.assert_allclose(value, (weight * np.maximum(1 - margin, 0)).sum(axis=1))
    step = 1e-6
    shifted = bound_hinge(score + step, label, weight)[0] - value
    np.testing.assert_allclose(shifted, step * gradient.sum(axis=1), atol=1e-12)


def test_no_constant_beats_a_slack_of_one_minus_alpha():
    # The hinge constraints' weighted mean over groups is at least 1 − α − β, whatever the scores.
    score, label, codes, _, _ = make_case(7)
    weight = np.full(N, 1 / N)
    mass = np.broadcast_to(centre_rows(codes, GROUPS), (M, GROUPS, N))
    for rate in RATES.values():
        for scores in (score, 0 * score):
            found = constrain(
                rate, scores, label, mass, weight=weight, budget=0.05, slack=0.95
            ).value
            assert found.max() >= -1e-12
        assert found == pytest.approx(0, abs=1e-12), "0 for all rows meets them just so"


def test_criteria_are_known_by_name():
    assert [rate.name for rate in find_rates("equalized_odds")] == ["tpr", "fpr"]
    assert all(find_rates(name) for name in CRITERIA)
    with pytest.raises(ConfigError):
        find_rates("equal_oportunity")


@pytest.mark.parametrize("namespace", namespaces())
def test_cells_equal_a_loop(namespace):
    xp = namespace()
    rng = np.random.default_rng(0)
    models, n, m = 3, 40, 4
    decision = rng.random((models, n)).round(1)
    y = rng.integers(0, 2, n)
    codes = rng.integers(0, m, (models, n))
    weight = rng.random(n)
    expected = np.zeros((models, m, 4))
    for model in range(models):
        for i in range(n):
            h, k = decision[model, i], codes[model, i]
            expected[model, k, y[i]] += weight[i] * (1 - h)
            expected[model, k, 2 + y[i]] += weight[i] * h
    expected /= weight.sum()
    ours = count_cells(*map(xp.asarray, (decision, y, codes)), m, xp.asarray(weight))
    np.testing.assert_allclose(to_numpy(ours), expected, atol=1e-14)
    alone = count_cells(*map(xp.asarray, (decision[1], y, codes[1])), m)
    assert alone.shape == (m, 4)
    assert float(xp.sum(alone)) == pytest.approx(1)


def test_rates_are_shares_of_cells():
    rng = np.random.default_rng(1)
    decision, y = rng.integers(0, 2, (2, 60))
    codes = np.zeros(60, dtype=np.int64)
    cells = count_cells(decision.astype(float), y, codes, 1)[0]
    expected = {
        "tpr": decision[y == 1].mean(),
        "fpr": decision[y == 0].mean(),
        "selection_rate": decision.mean(),
        "accuracy": (decision == y).mean(),
    }
    for name, value in expected.items():
        rate = find_rate(name)
        assert sum_cells(cells, rate.good) / sum_cells(cells, rate.among) == pytest.approx(value)
    with pytest.raises(ConfigError, match="Did you mean 'tpr'"):
        find_rate("tp")
