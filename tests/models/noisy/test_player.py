import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from fairfrontier.models.noisy.assignment import bound_rates, maximise_by_group
from fairfrontier.models.noisy.player import AssignmentPlayer, hard_player
from fairfrontier.models.noisy.rate import RATE_CELLS, count_cells, sum_scores
from tests.models.noisy.made import labels_of, make_game, make_rows, make_scores
from tests.models.noisy.reference import assigned_mass, bound_hinge, centre_rows, constrain

M = 3
CRITERIA = ["equal_opportunity", "equalized_odds", "demographic_parity", "accuracy"]
POSTERIOR = np.array([[0.8, 0.1, 0.1], [0.2, 0.7, 0.1], [0.15, 0.2, 0.65]])


def lagrangian_slope(game, score, masses, multiplier, form, nominal=None):
    """Return the slopes over the weights, and the constraints, by the reference."""
    rows = game.rows
    label, _ = labels_of(rows)
    slope, values = bound_hinge(score, label, rows.weight)[1], []
    for place, rate in enumerate(game.rates):
        found = constrain(
            rate,
            score,
            label,
            masses[place],
            weight=rows.weight,
            budget=0.05,
            slack=1.25,
            form=form,
            nominal=None if nominal is None else nominal[place],
        )
        values.append(found.value)
        slope = slope + np.sum(multiplier[:, place, :, None] * found.gradient, axis=1)
    return slope / rows.weight, np.stack(values, axis=1)


def hard_masses(rows):
    _, group = labels_of(rows)
    mass = centre_rows(group, rows.n_groups, rows.weight)
    return np.broadcast_to(mass, (M, *mass.shape))


def nominal_masses(game, mass):
    """Return the mass in each rate's event, (R, M, m)."""
    label, _ = labels_of(game.rows)
    return [(mass * (np.array(rate.sign)[label] != 0)).sum(axis=-1) for rate in game.rates]


@pytest.mark.parametrize("criterion", CRITERIA)
def test_hard_groups_play_as_the_reference_says(criterion):
    rows = make_rows()
    game, score = make_game(rows, criterion), make_scores(rows)
    player, stage = hard_player(game, M), game.sum_rates(sum_scores(rows, score))
    multiplier = np.random.default_rng(2).random((M, len(game.rates), 3))
    masses = [hard_masses(rows)] * len(game.rates)
    slope, values = lagrangian_slope(game, score, masses, multiplier, "ratio")
    found = player.evaluate(score, stage)
    np.testing.assert_allclose(found.hinge, values, atol=1e-12)
    np.testing.assert_allclose(player.slope(multiplier, score, stage), slope, atol=1e-11)
    label, _ = labels_of(rows)
    for place, rate in enumerate(game.rates):
        exact = constrain(rate, score, label, masses[place], weight=rows.weight, budget=0.05)
        np.testing.assert_allclose(found.exact[:, place], exact.value, atol=1e-12)


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("variant", ["paper", "authors"])
def test_assignments_play_as_the_reference_says(criterion, variant):
    rows = make_rows()
    game, score = make_game(rows, criterion), make_scores(rows)
    posterior = np.tile(POSTERIOR, (M, 1, 1))
    player = AssignmentPlayer(
        game, posterior, inner="ascent", rate=np.full((M, 1, 1), 0.05), variant=variant, steps=3
    )
    stage = game.sum_rates(sum_scores(rows, score))
    label, group = labels_of(rows)
    # Were all groups to pull alike, Adam's steps would be alike and the simplices undo them.
    multiplier = np.random.default_rng(2).random((M, len(game.rates), 3))
    multiplier[:, :, 1:] = 0
    prior = POSTERIOR.T @ np.bincount(group, weights=rows.weight)

    def mass_of(weight):
        return assigned_mass(weight, score, label, group, rows.weight, prior)

    plain = np.broadcast_to(POSTERIOR.T[None, :, :, None], (M, 3, 3, 4))
    nominal = nominal_masses(game, mass_of(plain))
    before = player._weight.copy()
    player.move(multiplier, score, stage)
    assert np.abs(player._weight - before).max() > 0.01
    masses = [mass_of(player._weight)] * len(game.rates)
    form = "ratio" if variant == "authors" else "linear"
    slope, values = lagrangian_slope(game, score, masses, multiplier, form, nominal)
    np.testing.assert_allclose(player.evaluate(score, stage).hinge, values, atol=1e-11)
    np.testing.assert_allclose(player.slope(multiplier, score, stage), slope, atol=1e-10)
    # Ascent raises Σ λ g as long as it stays within W(θ).
    cells = count_cells((score >= 0).astype(float), label, group, 3, rows.weight)
    share = cells / cells.sum(axis=-1, keepdims=True)
    kept = np.einsum("mjkc,mkc->mkj", player._weight, share)
    np.testing.assert_allclose(kept, posterior, atol=0.02)
    if variant == "paper":
        start = AssignmentPlayer(game, posterior, inner="ascent", rate=np.full((M, 1, 1), 0.05))
        raised = (multiplier * player.evaluate(score, stage).hinge).sum(axis=(1, 2))
        assert (raised > (multiplier * start.evaluate(score, stage).hinge).sum(axis=(1, 2))).all()


@pytest.mark.parametrize("criterion", CRITERIA)
def test_exact_assignments_are_worst_and_their_slope_is_that_of_the_maximum(criterion):
    rows = make_rows()
    game, score = make_game(rows, criterion), make_scores(rows)
    posterior = np.tile(POSTERIOR, (M, 1, 1))
    multiplier = np.random.default_rng(3).random((M, len(game.rates), 3))

    def play(score):
        player = AssignmentPlayer(game, posterior, inner="exact", rate=np.full((M, 1, 1), 0.05))
        stage = game.sum_rates(sum_scores(rows, score))
        return player, stage, player.evaluate(score, stage)

    player, stage, found = play(score)
    for place, rate in enumerate(game.rates):
        low, high = bound_rates(stage.count, posterior, RATE_CELLS[rate.cells])
        bad = 1 - low if rate.floor else high
        np.testing.assert_allclose(
            found.exact[:, place], bad - stage.overall[:, place, None], atol=1e-12
        )
    plain = AssignmentPlayer(game, posterior, inner="ascent", rate=np.full((M, 1, 1), 0.05))
    assert (found.hinge >= plain.evaluate(score, stage).hinge - 1e-12).all()
    # Decisions do not change under small steps, so W(θ) stays, and the envelope theorem holds.
    slope = player.slope(multiplier, score, stage)
    step = 1e-6 * np.random.default_rng(4).normal(size=score.shape)
    step[np.minimum(np.abs(score), np.abs(np.abs(score) - 1)) < 1e-4] = 0
    label, _ = labels_of(rows)

    def value(score):
        hinge = play(score)[2].hinge
        return bound_hinge(score, label, rows.weight)[0] + (multiplier * hinge).sum(axis=(1, 2))

    change = value(score + step) - value(score - step)
    predicted = 2 * (slope * rows.weight * step).sum(axis=1)
    np.testing.assert_allclose(change, predicted, rtol=1e-4)


@settings(max_examples=25)
@given(seed=st.integers(0, 10**6), empty=st.booleans())
def test_filling_cells_solves_the_programme(seed, empty):
    rng = np.random.default_rng(seed)
    cells = rng.dirichlet(np.ones(8)).reshape(1, 2, 4)
    if empty:
        cells[0, 0, rng.integers(4)] = 0
    gain = rng.normal(size=(1, 2, 4)) * cells
    posterior = rng.dirichlet(np.ones(3), size=(1, 2))
    found = maximise_by_group(gain, cells, posterior)
    for j in range(3):
        best = 0.0
        for k in range(2):
            size = cells[0, k].sum()
            solved = linprog(
                -gain[0, k], A_eq=cells[0, k][None], b_eq=[posterior[0, k, j] * size], bounds=(0, 1)
            )
            best -= solved.fun
            assert cells[0, k] @ found[0, j, k] == pytest.approx(posterior[0, k, j] * size)
        assert (gain[0] * found[0, j]).sum() == pytest.approx(best, abs=1e-9)
    assert found.min() >= 0
    assert found.max() <= 1 + 1e-12
