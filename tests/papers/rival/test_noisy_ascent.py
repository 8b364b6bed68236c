import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from fairfrontier.models.neural.network import Adam
from fairfrontier.models.noisy.rate import count_cells, project_simplex, sum_scores
from fairfrontier.runtime.arrays import to_numpy
from papers.rival.noisy_ascent import (
    AssignmentAscentPlayer,
    BallAscentPlayer,
    find_floor,
    find_level,
    project_assignment,
    project_leading_simplex,
)
from tests.models.noisy.made import labels_of, make_game, make_rows, make_scores
from tests.models.noisy.reference import (
    ascend_in_ball,
    assigned_mass,
    centre_rows,
    constrain,
    differentiate_assignment,
    evaluate_assignment,
    project_l1_simplex,
)
from tests.models.noisy.test_assignment import assign_jointly, constraints, make_problem
from tests.models.noisy.test_player import (
    CRITERIA,
    LEVEL,
    POSTERIOR,
    M,
    hard_masses,
    lagrangian_slope,
    nominal_masses,
    unmerged,
)
from tests.models.noisy.test_projection import SCALES, assert_nearest, farthest, make_point
from tests.namespaces import namespaces


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
        monkeypatch.setattr("papers.rival.noisy_ascent.MOST_PASSES", passes)
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


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("variant", ["paper", "authors"])
def test_assignments_play_as_the_reference_says(criterion, variant):
    rows = make_rows()
    game, score = make_game(rows, criterion), make_scores(rows)
    posterior = np.tile(POSTERIOR, (M, 1, 1))
    rate = np.full((M, 1, 1), 0.05)
    player = AssignmentAscentPlayer(game, posterior, rate, variant=variant, steps=3)
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
        start = AssignmentAscentPlayer(game, posterior, rate)
        raised = (multiplier * player.evaluate(score, stage).hinge).sum(axis=(1, 2))
        assert (raised > (multiplier * start.evaluate(score, stage).hinge).sum(axis=(1, 2))).all()


def l1_constraints(centre, radius, simplex):
    """Describe q = c + u − v, u, v ≥ 0, Σ (u + v) ≤ r, and q in the simplex if asked."""
    n = centre.size
    eye, ones = np.eye(n), np.ones((1, n))
    rows = [np.hstack([ones, ones])]
    limits = [radius]
    equal = {}
    if simplex:
        rows.append(np.hstack([-eye, eye]))
        limits.extend(centre)
        equal = {"A_eq": np.hstack([ones, -ones]), "b_eq": [0.0]}
    return {"A_ub": np.vstack(rows), "b_ub": limits, **equal}


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(1, 9), scale=SCALES, radius=st.floats(0, 2.5))
@example(seed=0, n=1, scale=1e-3, radius=1e-7)
def test_no_point_of_ball_and_simplex_is_nearer(seed, n, scale, radius):
    x, centre = make_point(seed, n, scale)
    p = project_l1_simplex(x, centre, radius)
    assert p.min() >= 0
    assert p.sum() == pytest.approx(1, abs=1e-9)
    assert np.abs(p - centre).sum() <= radius + 1e-9
    constraints = l1_constraints(centre, radius, simplex=True)
    split = np.concatenate([x - p, p - x])
    best = farthest(split, constraints, (0, None)) + (x - p) @ centre
    assert_nearest(x, p, best, scale)


@pytest.mark.parametrize("m", [1, 2, 3, 4, 6, 9])
@pytest.mark.parametrize("namespace", namespaces())
def test_short_columns_are_projected_as_rows_are(namespace, m):
    rng = np.random.default_rng(m)
    x = rng.standard_normal((m, 40, 5)) * 10.0 ** rng.integers(-3, 3, (1, 40, 5))
    x[:, :10] = np.round(x[:, :10])
    x[:, 10:20] = x[:1, 10:20]
    found = to_numpy(project_leading_simplex(namespace().asarray(x)))
    rows = np.moveaxis(project_simplex(np.moveaxis(x, 0, -1)), -1, 0)
    np.testing.assert_allclose(found, rows, atol=1e-12)
    np.testing.assert_allclose(found.sum(axis=0), 1, atol=1e-12)


def assert_inside(weight, cells, posterior, atol=1e-9):
    """Assert that w lies in W(θ)."""
    assert weight.min() >= -atol
    np.testing.assert_allclose(weight.sum(axis=0), 1, atol=atol)
    size = cells.sum(axis=1)
    total = (weight * cells).sum(axis=-1)
    np.testing.assert_allclose(total, posterior.T * size, atol=atol)


@pytest.mark.parametrize("seed", range(6))
def test_dykstra_ends_at_the_nearest_point(seed):
    cells, posterior = make_problem(seed, sparse=False)
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((posterior.shape[1], *cells.shape))
    ours = project_assignment(x, cells, posterior, rounds=3000)
    assert_inside(ours, cells, posterior, atol=1e-5)
    # ⟨x − w, q − w⟩ ≤ 0 for all q of W(θ): no other is nearer.
    away = x - ours
    best = linprog(-away.ravel(), **constraints(cells, posterior), bounds=(0, None))
    assert -best.fun == pytest.approx((away * ours).sum(), abs=1e-4)


def alternate(weight, cells, posterior, rounds, variant):
    """Alternate the projections of one model as they are written down."""
    share = cells / np.maximum(cells.sum(axis=-1, keepdims=True), 1e-300)
    square = (share**2).sum(axis=-1)
    correction = np.zeros_like(weight)
    for _ in range(rounds):
        missing = posterior.T - (weight * share).sum(axis=-1)
        step = np.where(square > 0, missing / np.where(square > 0, square, 1), 0)
        weight = weight + step[..., None] * share
        if variant == "authors":
            weight = np.maximum(weight - (weight.sum(axis=0) - 1) / len(weight), 0)
            continue
        raised = weight + correction
        weight = np.moveaxis(project_simplex(np.moveaxis(raised, 0, -1)), -1, 0)
        correction = raised - weight
    return weight


@pytest.mark.parametrize("variant", ["paper", "authors"])
@pytest.mark.parametrize("seed", range(8))
def test_projections_alternate_as_written(seed, variant):
    cells, posterior = make_problem(seed)
    if seed % 2:
        cells[0] = 0.0
    rng = np.random.default_rng(seed)
    x = (
        rng.standard_normal((4, posterior.shape[1], *cells.shape))
        * np.logspace(-3, 1, 4)[:, None, None, None]
    )
    found = project_assignment(x, cells, posterior, rounds=7, variant=variant)
    for model in range(4):
        plain = alternate(x[model], cells, posterior, 7, variant)
        np.testing.assert_allclose(found[model], plain, atol=1e-11)


@pytest.mark.parametrize("seed", range(4))
def test_ascent_reaches_the_joint_maximum(seed):
    cells, posterior = make_problem(seed, sparse=False)
    rng = np.random.default_rng(seed)
    score, multiplier = rng.standard_normal(4), rng.random(posterior.shape[1])
    direction = differentiate_assignment(score, multiplier, cells, posterior)
    best = (direction * assign_jointly(score, multiplier, cells, posterior)).sum()
    weight = np.zeros_like(direction)
    for _ in range(150):
        weight = project_assignment(weight + 4 * direction, cells, posterior, rounds=30)
    # A few rounds leave the total probabilities off; many do not.
    weight = project_assignment(weight, cells, posterior, rounds=3000)
    value = multiplier @ evaluate_assignment(score, weight, cells, posterior)
    assert value == pytest.approx(best, abs=0.05 * max(1.0, abs(best)))
    np.testing.assert_allclose(weight.sum(axis=0), 1, atol=1e-12)


def test_the_authors_projection_is_near_but_not_nearest():
    cells, posterior = make_problem(4, sparse=False)
    x = np.random.default_rng(4).standard_normal((posterior.shape[1], *cells.shape))
    ours = project_assignment(x, cells, posterior, rounds=3000)
    theirs = project_assignment(x, cells, posterior, rounds=3000, variant="authors")
    assert_inside(theirs, cells, posterior, atol=1e-5)
    assert np.linalg.norm(theirs - x) > np.linalg.norm(ours - x) + 1e-3
