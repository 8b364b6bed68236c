import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from fairfrontier.models.noisy.assignment import bound_rates, maximise_by_group
from fairfrontier.models.noisy.noise import bound_rate_of_cells, maximise_over_ball
from fairfrontier.models.noisy.player import AssignmentPlayer, BallMaximumPlayer, hard_player
from fairfrontier.models.noisy.rate import RATE_CELLS, arrange_rows, sum_scores
from tests.models.noisy.made import labels_of, make_game, make_rows, make_scores, make_table
from tests.models.noisy.reference import bound_hinge, centre_rows, constrain

M = 3
CRITERIA = ["equal_opportunity", "equalized_odds", "demographic_parity", "accuracy"]
LEVEL = np.tile([0.1, 0.25, 0.4], (M, 1))
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


def check_exact(game, stage, found, bound):
    """Check the exact violations against bounds of rates by their cells."""
    for place, rate in enumerate(game.rates):
        low, high = bound(RATE_CELLS[rate.cells])
        bad = 1 - low if rate.floor else high
        np.testing.assert_allclose(
            found.exact[:, place], bad - stage.overall[:, place, None], atol=1e-12
        )


def check_slope(rows, score, multiplier, slope, hinge, length):
    """Check the slope of the Lagrangian against differences, away from its kinks."""
    step = length * np.random.default_rng(4).normal(size=score.shape)
    step[np.minimum(np.abs(score), np.abs(np.abs(score) - 1)) < 100 * length] = 0
    label, _ = labels_of(rows)

    def value(score):
        bounded = (multiplier * hinge(score)).sum(axis=(1, 2))
        return bound_hinge(score, label, rows.weight)[0] + bounded

    change = value(score + step) - value(score - step)
    np.testing.assert_allclose(change, 2 * (slope * rows.weight * step).sum(axis=1), rtol=1e-4)


@pytest.mark.parametrize("criterion", CRITERIA)
def test_exact_assignments_are_worst_and_their_slope_is_that_of_the_maximum(criterion):
    rows = make_rows()
    game, score = make_game(rows, criterion), make_scores(rows)
    posterior = np.tile(POSTERIOR, (M, 1, 1))
    multiplier = np.random.default_rng(3).random((M, len(game.rates), 3))

    def play(score):
        player = AssignmentPlayer(game, posterior)
        stage = game.sum_rates(sum_scores(rows, score))
        return player, stage, player.evaluate(score, stage)

    player, stage, found = play(score)
    check_exact(game, stage, found, lambda cells: bound_rates(stage.count, posterior, cells))
    # Decisions do not change under small steps, so W(θ) stays, and the envelope theorem holds.
    slope = player.slope(multiplier, score, stage)
    check_slope(rows, score, multiplier, slope, lambda score: play(score)[2].hinge, 1e-6)


def unmerged(n=60, seed=0):
    """Return a game on merged rows, and the rows as they were, with the place of each."""
    X, y, _, noisy = make_table(n=n, seed=seed, d=2)
    rows = arrange_rows(X, y, noisy, 3, np.ones(n), "float64")
    label, group = labels_of(rows)
    keys = np.column_stack([rows.x, label, group])
    given_keys = np.column_stack([X, y, noisy])
    place = np.array([np.flatnonzero((keys == key).all(axis=1))[0] for key in given_keys])
    return rows, y, noisy, place


@pytest.mark.parametrize("criterion", CRITERIA)
def test_the_maximum_is_that_over_all_rows(criterion):
    rows, y, noisy, place = unmerged()
    game, score = make_game(rows, criterion), make_scores(rows)
    multiplier = np.random.default_rng(2).random((M, len(game.rates), 3))
    player = BallMaximumPlayer(game, LEVEL)

    def evaluate(score):
        return player.evaluate(score, game.sum_rates(sum_scores(rows, score)))

    found = evaluate(score)
    stage = game.sum_rates(sum_scores(rows, score))
    nominal = nominal_masses(game, hard_masses(rows))
    for each, rate in enumerate(game.rates):
        sign = np.array(rate.sign)[y]
        full = score[:, place]
        h = np.maximum(1 + sign * full, 0) + stage.offset[:, each, None]
        h = np.where(sign != 0, h, 0.0)
        expected = maximise_over_ball(h, noisy, LEVEL, np.ones(len(y))).value / nominal[each]
        np.testing.assert_allclose(found.hinge[:, each], expected, atol=1e-9)
    check_exact(game, stage, found, lambda cells: bound_rate_of_cells(stage.count, LEVEL, cells))
    slope = player.slope(multiplier, score, stage)
    check_slope(rows, score, multiplier, slope, lambda score: evaluate(score).hinge, 1e-7)


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
