import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from fairfrontier.models.neural.network import Network, draw_network, forward
from fairfrontier.models.noisy.player import AssignmentPlayer, BallMaximumPlayer, hard_player
from fairfrontier.models.noisy.problem import carry_back, rank_iterates, score_rows, train
from fairfrontier.runtime.arrays import to_numpy
from papers.rival.noisy_ascent import AssignmentAscentPlayer, BallAscentPlayer
from tests.models.noisy.made import labels_of, make_game, make_rows, start_network
from tests.models.noisy.test_player import POSTERIOR
from tests.namespaces import namespaces

RATES = {"learning_rate": [0.1, 0.05], "multiplier_rate": [0.5, 1.0], "radius": [1.0, 0.4]}


def make_player(kind, game, models=2, xp=np):
    level = xp.asarray(np.tile([0.1, 0.2, 0.3], (models, 1)))
    rate = xp.asarray(np.full((models, 1, 1), 0.01))
    posterior = xp.asarray(np.tile(POSTERIOR, (models, 1, 1)))
    if kind == "hard":
        return hard_player(game, models)
    if kind == "ball exact":
        return BallMaximumPlayer(game, level)
    variant = "authors" if kind.endswith("authors") else "paper"
    if kind.startswith("ball"):
        return BallAscentPlayer(game, level, rate, variant=variant)
    if kind == "soft exact":
        return AssignmentPlayer(game, posterior)
    return AssignmentAscentPlayer(game, posterior, rate, variant=variant)


KINDS = ["hard", "ball", "ball authors", "ball exact", "soft", "soft authors", "soft exact"]


def run(kind, xp=np, models=2, dtype="float64", criterion="equalized_odds", **changes):
    rows = make_rows(xp, dtype)
    game = make_game(rows, criterion, models)
    rates = {key: xp.asarray(np.resize(each, models)) for key, each in RATES.items()}
    options = {"iterations": 40, "record_every": 10, **rates, **changes}
    # From 0 on many scores would be equal but for rounding, and so would be the worst rows.
    drawn = np.random.default_rng(0).normal(scale=0.1, size=(rows.x.shape[1], 1))
    start = start_network(rows, models, xp)
    weight = start.weight[0] + xp.asarray(drawn, dtype=rows.x.dtype)
    return train(
        game, lambda: make_player(kind, game, models, xp), Network((weight,), start.bias), **options
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("namespace", namespaces())
def test_namespaces_agree(kind, namespace):
    # Where two iterates tie, rounding chooses the one that is kept.
    ours, plain = (run(kind, xp, iterations=8, best="last") for xp in (namespace(), np))
    np.testing.assert_allclose(to_numpy(ours.network.weight[0]), plain.network.weight[0], atol=1e-8)
    for key, each in plain.history.items():
        np.testing.assert_allclose(ours.history[key], each, atol=1e-8, err_msg=key)


@pytest.mark.parametrize("kind", KINDS)
def test_multipliers_stay_in_their_set(kind):
    found = run(kind, iterations=60, multiplier_rate=np.array([2.0, 2.0]))
    assert found.history["multiplier"].max(axis=1) == pytest.approx([1.0, 0.4])


@pytest.mark.parametrize("kind", KINDS)
def test_models_do_not_see_each_other(kind):
    together = run(kind, iterations=20)
    rates = {key: np.array([each[1]]) for key, each in RATES.items()}
    alone = run(kind, models=1, iterations=20, **rates)
    np.testing.assert_allclose(together.network.weight[0][1:], alone.network.weight[0], atol=1e-9)
    np.testing.assert_allclose(together.history["hinge"][1:], alone.history["hinge"], atol=1e-9)


def solve_hinge_programme(rows):
    """Return min_θ E[(1 − ỹφ)₊], a linear programme in θ, its bias and the rows' losses."""
    label, _ = labels_of(rows)
    sign = np.where(label == 1, 1.0, -1.0)
    d = rows.x.shape[1]
    # Losses ≥ 1 − ỹ (x θ + b) and ≥ 0.
    inequality = np.hstack([-sign[:, None] * rows.x, -sign[:, None], -np.eye(rows.n)])
    found = linprog(
        np.concatenate([np.zeros(d + 1), rows.weight]),
        A_ub=inequality,
        b_ub=-np.ones(rows.n),
        bounds=[(None, None)] * (d + 1) + [(0, None)] * rows.n,
    )
    return found.fun


def test_the_objective_is_minimised_and_constraints_bind():
    free = run("hard", iterations=400, constrained=False, record_every=100)
    least = solve_hinge_programme(make_rows())
    assert free.history["objective"][:, -1] == pytest.approx([least, least], abs=0.005)
    assert (free.history["objective"] >= least - 1e-9).all()
    assert free.history["multiplier"].max() == 0
    held = run("hard", iterations=400, record_every=100, criterion="equal_opportunity")
    assert (held.violation <= 1e-6).all()
    assert free.history["violation"][:, -1].min() > 0.05
    assert (held.error >= free.error - 1e-9).all()


@pytest.mark.parametrize("best", ["paper", "last", "ranks"])
def test_the_iterate_that_is_kept(best):
    rows = make_rows()
    game = make_game(rows, "equal_opportunity", 2)
    rates = {key: np.asarray(each) for key, each in RATES.items()}
    found = train(
        game,
        lambda: hard_player(game, 2),
        start_network(rows, 2),
        iterations=30,
        record_every=1,
        best=best,
        snapshots=True,
        **rates,
    )
    assert len(found.snapshots) == 30
    error, violation = found.history["error"][:, 1:], found.history["violation"][:, 1:]
    for model in range(2):
        if best == "last":
            place = 29
        elif best == "paper":
            keys = [
                (v > 1e-6, v if v > 1e-6 else e)
                for e, v in zip(error[model], violation[model], strict=True)
            ]
            place = min(range(30), key=keys.__getitem__)
        else:
            place = int(rank_iterates(error, violation)[model])
        assert found.step[model] == place + 1
        assert found.error[model] == error[model, place]
        assert found.violation[model] == violation[model, place]
        np.testing.assert_array_equal(
            found.network.weight[0][model], found.snapshots[place].weight[0][model]
        )


@settings(max_examples=20)
@given(seed=st.integers(0, 10**6), n=st.integers(1, 9))
def test_ranks_are_those_of_the_definition(seed, n):
    rng = np.random.default_rng(seed)
    error, violation = rng.integers(5, size=(2, n)) / 10, rng.integers(-3, 4, size=(2, n)) / 10
    chosen = rank_iterates(error, violation)
    for model in range(2):
        violated = np.maximum(violation[model], 0)
        ranks = [
            max(1 + (error[model] < error[model, s]).sum(), 1 + (violated < violated[s]).sum())
            for s in range(n)
        ]
        best = [s for s in range(n) if ranks[s] == min(ranks)]
        least = min(error[model, s] for s in best)
        assert chosen[model] == max(s for s in best if error[model, s] == least)


@pytest.mark.parametrize("hidden", [(), (5,), (4, 3)])
def test_gradients_of_nets_equal_finite_differences(hidden):
    rows = make_rows()
    sizes = (rows.x.shape[1], *hidden, 1)
    drawn = [draw_network(sizes, np.random.default_rng(seed)) for seed in (1, 2)]
    network = Network.of([np.concatenate(each) for each in zip(*drawn, strict=True)])
    score = score_rows(rows, network)
    np.testing.assert_allclose(score, forward(network, rows.x).logits[..., 0], atol=1e-12)
    slope = np.random.default_rng(3).normal(size=score.shape)
    gradient = carry_back(rows, network, slope)
    step = [1e-6 * np.random.default_rng(4).normal(size=each.shape) for each in network.arrays]
    above, below = (
        score_rows(
            rows, Network.of([a + side * s for a, s in zip(network.arrays, step, strict=True)])
        )
        for side in (1, -1)
    )
    change = ((above - below) * slope * rows.weight).sum(axis=1)
    predicted = 2 * sum(
        (g * s).reshape(2, -1).sum(axis=1) for g, s in zip(gradient.arrays, step, strict=True)
    )
    np.testing.assert_allclose(change, predicted, rtol=1e-5)


def test_progress_is_told_to_the_end():
    told = []
    run("hard", iterations=25, record_every=10, progress=lambda *each: told.append(each))
    assert told == [(10, 25), (20, 25), (25, 25)]
