import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairfrontier.models.neural.network import Adam
from fairfrontier.models.noisy.noise import bound_rate_of_cells, maximise_over_ball
from fairfrontier.models.noisy.player import BallAscentPlayer, BallMaximumPlayer
from fairfrontier.models.noisy.rate import (
    RATE_CELLS,
    arrange_rows,
    find_floor,
    find_level,
    sum_scores,
)
from tests.models.noisy.made import labels_of, make_game, make_rows, make_scores, make_table
from tests.models.noisy.reference import ascend_in_ball, bound_hinge, centre_rows, constrain
from tests.models.noisy.test_player import (
    CRITERIA,
    M,
    hard_masses,
    lagrangian_slope,
    nominal_masses,
)

LEVEL = np.tile([0.1, 0.25, 0.4], (M, 1))


def unmerged(n=60, seed=0):
    """Return a game on merged rows, and the rows as they were, with the place of each."""
    X, y, _, noisy = make_table(n=n, seed=seed, d=2)
    rows = arrange_rows(X, y, noisy, 3, np.ones(n), "float64")
    label, group = labels_of(rows)
    keys = np.column_stack([rows.x, label, group])
    given_keys = np.column_stack([X, y, noisy])
    place = np.array([np.flatnonzero((keys == key).all(axis=1))[0] for key in given_keys])
    return rows, y, noisy, place


def dense_mass(player, block_place, rows, y, noisy, place):
    """Return p̃ of every row as it was, (M, m, n)."""
    block = player._blocks[block_place]
    event = block.event
    mass = np.zeros((M, 3, len(y)))
    for i in range(len(y)):
        row = place[i]
        if event.rows.start <= row < event.rows.stop:
            mass[:, :, i] = block.mass[:, :, row - event.rows.start]
        else:
            mass[:, :, i] = block.mass[:, :, event.n + list(event.codes[event.n :]).index(noisy[i])]
    return mass / len(y)


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("variant", ["paper", "authors"])
@pytest.mark.parametrize("rate", [1e-4, 3e-3, 0.1])
def test_steps_on_merged_rows_are_steps_on_rows(criterion, variant, rate):
    rows, y, noisy, place = unmerged()
    game = make_game(rows, criterion)
    player = BallAscentPlayer(game, LEVEL, np.full((M, 1, 1), rate), variant=variant)
    rng = np.random.default_rng(1)
    centre = np.broadcast_to(centre_rows(noisy, 3), (M, 3, len(y)))
    blocks = [[place] for place in range(len(game.rates))]
    if variant == "authors":
        blocks = [list(range(len(game.rates)))]
    points = [centre + 0.0 if variant == "paper" else 0.0 * centre for _ in blocks]
    nominal = nominal_masses(game, hard_masses(rows))
    optimisers = [Adam([each], np.full((M, 1, 1), rate)) for each in points]
    for step in range(4):
        score = make_scores(rows, seed=step)
        full = score[:, place]
        multiplier = rng.random((M, len(game.rates), 3))
        player.move(multiplier, score, game.sum_rates(sum_scores(rows, score)))
        for number, members in enumerate(blocks):
            gradient = 0.0
            for each in members:
                if variant == "authors" and step == 0:
                    # All masses are 0: nothing is divided by.
                    gradient = gradient + authors_start(game, each, full, y, multiplier)
                    continue
                found = constrain(
                    game.rates[each],
                    full,
                    y,
                    points[number],
                    weight=np.full(len(y), 1 / len(y)),
                    budget=0.05,
                    slack=1.25,
                    form="linear" if variant == "paper" else "ratio",
                    nominal=nominal[each],
                )
                gradient = gradient + multiplier[:, each, :, None] * found.pull
            direction = optimisers[number].step([gradient])[0]
            points[number] = ascend_in_ball(points[number], direction, centre, LEVEL, variant)
            mass = dense_mass(player, number, rows, y, noisy, place)
            np.testing.assert_allclose(mass, points[number], atol=1e-9)
    if variant == "paper":
        assert mass.min() >= 0
        np.testing.assert_allclose(mass.sum(axis=-1), 1.0)
        assert (np.abs(mass - centre).sum(axis=-1) <= 2 * LEVEL + 1e-9).all()


def authors_start(game, place, score, y, multiplier):
    sign = np.array(game.rates[place].sign)[y]
    return multiplier[:, place, :, None] * (np.maximum(1 + sign * score, 0) * np.abs(sign))[:, None]


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("variant", ["paper", "authors"])
def test_constraints_and_slopes_are_those_of_the_reference(criterion, variant):
    rows, y, noisy, place = unmerged()
    game, score = make_game(rows, criterion), make_scores(rows)
    player = BallAscentPlayer(game, LEVEL, np.full((M, 1, 1), 0.01), variant=variant)
    stage = game.sum_rates(sum_scores(rows, score))
    multiplier = np.random.default_rng(2).random((M, len(game.rates), 3))
    for _ in range(3):
        player.move(multiplier, score, stage)
    label, _ = labels_of(rows)
    nominal = nominal_masses(game, hard_masses(rows))
    masses, values = [], []
    for each in range(len(game.rates)):
        dense = dense_mass(player, each if variant == "paper" else 0, rows, y, noisy, place)
        # What rows outside of the event hold is of no concern to the slope.
        mass = np.zeros((M, 3, rows.n))
        np.add.at(mass, (slice(None), slice(None), place), dense)
        masses.append(mass)
        exact = constrain(
            game.rates[each], score, label, mass, weight=rows.weight, budget=0.05
        ).value
        values.append(exact)
    form = "ratio" if variant == "authors" else "linear"
    slope, hinge = lagrangian_slope(game, score, masses, multiplier, form, nominal)
    found = player.evaluate(score, stage)
    np.testing.assert_allclose(found.hinge, hinge, atol=1e-9)
    np.testing.assert_allclose(found.exact, np.stack(values, axis=1), atol=1e-9)
    np.testing.assert_allclose(player.slope(multiplier, score, stage), slope, atol=1e-9)
    # What is carried to other rows tells the same constraints on these.
    for each in range(len(game.rates)):
        mass = found.cell_mass[:, each] * stage.count[:, None]
        wrong = (mass * game.wrong[each]).sum(axis=(2, 3))
        among = (mass * (game.up + game.down)[each]).sum(axis=(2, 3))
        np.testing.assert_allclose(
            wrong / among - stage.overall[:, each, None], found.exact[:, each], atol=1e-9
        )


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
        low, high = bound_rate_of_cells(stage.count, LEVEL, RATE_CELLS[rate.cells])
        bad = 1 - low if rate.floor else high
        np.testing.assert_allclose(
            found.exact[:, each], bad - stage.overall[:, each, None], atol=1e-12
        )
    slope = player.slope(multiplier, score, stage)
    step = 1e-7 * np.random.default_rng(4).normal(size=score.shape)
    step[np.minimum(np.abs(score), np.abs(np.abs(score) - 1)) < 1e-5] = 0
    label, _ = labels_of(rows)

    def value(score):
        found = (multiplier * evaluate(score).hinge).sum(axis=(1, 2))
        return bound_hinge(score, label, rows.weight)[0] + found

    change = value(score + step) - value(score - step)
    np.testing.assert_allclose(change, 2 * (slope * rows.weight * step).sum(axis=1), rtol=1e-4)


@settings(max_examples=20)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(1, 30),
    scale=st.sampled_from([1e-4, 1.0, 50.0]),
    dtype=st.sampled_from(["float32", "float64"]),
)
def test_roots_are_found_from_anywhere(seed, n, scale, dtype):
    rng = np.random.default_rng(seed)
    values = (scale * rng.standard_normal((2, n))).astype(dtype)
    if seed % 2:
        values = np.round(values / scale) * scale
        values = values.astype(dtype)
    count = rng.integers(1, 5, n).astype(dtype)
    total = rng.random((2, 1)).astype(dtype)
    start = (scale * rng.standard_normal((2, 1)) * 3).astype(dtype)
    tolerance = {"float32": 2e-4, "float64": 1e-10}[dtype]
    level = find_level(values, count, total, start)
    reached = (np.maximum(values - level, 0) @ count)[:, None]
    # A float32 root near 50 leaves its rounding in every row.
    slack = tolerance * (1 + scale * count.sum())
    np.testing.assert_allclose(reached, total, atol=slack)
    base = np.asarray(scale * rng.random() + 1e-3, dtype=dtype)
    part = (total * base * count.sum() * 0.99).astype(dtype)
    floor = find_floor(values, base, count, part, start)
    filled = (np.clip(floor - values, 0, base) @ count)[:, None]
    np.testing.assert_allclose(filled, part, atol=slack)


@pytest.mark.parametrize("seed", range(8))
def test_rounding_does_not_keep_the_search_for_a_root_going(seed, monkeypatch):
    rng = np.random.default_rng(seed)
    count = rng.integers(1, 9, 3000).astype(np.float32)
    count /= count.sum()
    values = np.zeros((8, 3000), np.float32)
    values[1:] = np.round(rng.standard_normal((7, 3000)), 1)
    total = np.full((8, 1), 0.09581695, np.float32)
    found = []
    for passes in (20, 21):
        monkeypatch.setattr("fairfrontier.models.noisy.rate.MOST_PASSES", passes)
        found.append(find_level(values, count, total, np.zeros((8, 1), np.float32)))
    np.testing.assert_array_equal(*found)
    alone = [
        find_level(values[row : row + 1], count, total[:1], np.zeros((1, 1), np.float32))
        for row in range(8)
    ]
    # Sums of some thousand terms in float32.
    np.testing.assert_allclose(np.concatenate(alone), found[0], atol=1e-5)


def test_a_level_of_zero_leaves_the_groups_alone():
    rows = make_rows()
    game, score = make_game(rows), make_scores(rows)
    stage = game.sum_rates(sum_scores(rows, score))
    player = BallAscentPlayer(game, 0 * LEVEL, np.full((M, 1, 1), 0.1))
    before = [block.mass.copy() for block in player._blocks]
    for _ in range(3):
        player.move(np.ones((M, 2, 3)), score, stage)
    for block, old in zip(player._blocks, before, strict=True):
        np.testing.assert_allclose(block.mass, old, atol=1e-9)
