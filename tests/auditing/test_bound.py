from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.optimize import linprog

from fairfrontier.auditing.noisy_groups import RATES, audit_decisions, judge, tabulate_noise
from fairfrontier.models.noisy.assignment import bound_rates
from fairfrontier.models.noisy.noise import NoiseModel
from fairfrontier.models.noisy.rate import RATE_CELLS, count_cells
from tests.models.noisy.made import flip_uniformly


def rate_of(name, decision, y, rows):
    """Return a rate of some rows; a row counts by its decision probability."""
    outcome = np.where(y == 1, decision, 1 - decision) if name == "accuracy" else decision
    among = {"tpr": y == 1, "fpr": y == 0}.get(name, np.ones(y.size, dtype=bool)) & rows
    return outcome[among].mean() if among.any() else np.nan


def assignments(codes, counts):
    """Yield all true groups of the rows with counts[k][j] rows of group j in noisy group k."""
    places = [np.flatnonzero(codes == k) for k in range(len(counts))]

    def deal(rows, numbers):
        if len(numbers) == 1:
            yield [rows]
            return
        for first in itertools.combinations(rows, numbers[0]):
            rest = [row for row in rows if row not in first]
            for others in deal(rest, numbers[1:]):
                yield [list(first), *others]

    for dealt in itertools.product(
        *(deal(list(p), c) for p, c in zip(places, counts, strict=True))
    ):
        true = np.empty(codes.size, dtype=int)
        for groups in dealt:
            for j, rows in enumerate(groups):
                true[rows] = j
        yield true


def make_rows(seed, whole=True):
    rng = np.random.default_rng(seed)
    decision = rng.integers(0, 2, 12).astype(float) if whole else rng.random(12).round(1)
    y = (rng.random(12) < 0.6).astype(int)
    return decision, y, np.repeat([0, 1], 6)


def noise_of(counts):
    """Return the model in which noisy group k has counts[k][j] rows of group j among them."""
    counts = np.array(counts)
    m = counts.shape[1]
    names = tuple("abc"[:m])
    return NoiseModel(counts.T / counts.sum(), names, names if m == 2 else ("x", "y"))


COUNTS = [[[5, 1], [2, 4]], [[3, 3], [3, 3]], [[6, 0], [1, 5]], [[4, 1, 1], [1, 3, 2]]]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("counts", COUNTS, ids=str)
def test_bounds_and_conclusions_equal_brute_force_over_all_assignments(seed, counts):
    decision, y, codes = make_rows(seed)
    noise = noise_of(counts)
    audited = audit_decisions(decision, y, codes, noise, budget=0.1)
    m = len(counts[0])
    found = {
        name: np.array(
            [
                [rate_of(name, decision, y, true == j) for j in range(m)]
                for true in assignments(codes, counts)
            ]
        )
        for name in RATES
    }
    table = audited.bounds
    table = table[(table.bound == "assignment") & (table.noise == "model")]
    for name in RATES:
        for j, group in enumerate(noise.names):
            row = table[(table.measure == name) & (table.group == group)].iloc[0]
            values = found[name][:, j]
            # Where a group may have no row of the denominator, the others decide.
            if np.isnan(values).all():
                assert np.isnan(row.low)
                continue
            assert row.low == pytest.approx(np.nanmin(values))
            assert row.high == pytest.approx(np.nanmax(values))
    overall = {name: rate_of(name, decision, y, np.ones(12, dtype=bool)) for name in RATES}
    for each in audited.conclusions.itertuples():
        i = noise.names.index(each.group)
        if each.other:
            gap = found[each.measure][:, i] - found[each.measure][:, noise.names.index(each.other)]
            margin = 0.0
        else:
            gap = found[each.measure][:, i] - overall[each.measure]
            margin = 0.1
        if np.isnan(gap).any():
            continue
        assert each.low == pytest.approx(gap.min())
        assert each.high == pytest.approx(gap.max())
        expected = "open"
        if (gap < -margin - 1e-9).all():
            expected = "below"
        elif (gap > margin + 1e-9).all():
            expected = "above"
        elif (np.abs(gap) <= margin + 1e-9).all():
            expected = "within"
        assert each.verdict == expected


@pytest.mark.parametrize("seed", range(4))
def test_hard_assignments_are_inside_where_numbers_or_decisions_are_not_whole(seed):
    # A soft assignment may split a row, or the coin of a randomised decision.
    decision, y, codes = make_rows(seed, whole=False)
    counts = [[5, 1], [2, 4]]
    audited = audit_decisions(decision, y, codes, noise_of(counts))
    table = audited.bounds
    for name in RATES:
        values = np.array(
            [
                [rate_of(name, decision, y, true == j) for j in range(2)]
                for true in assignments(codes, counts)
            ]
        )
        for j, group in enumerate("ab"):
            rows = table[(table.measure == name) & (table.group == group)]
            row = rows[rows.bound == "assignment"].iloc[0]
            assert row.low <= np.nanmin(values[:, j]) + 1e-12
            assert row.high >= np.nanmax(values[:, j]) - 1e-12


@pytest.mark.parametrize("seed", range(4))
def test_every_group_within_the_level_lies_in_the_ball(seed):
    decision, y, codes = make_rows(seed, whole=seed % 2 == 0)
    noise = noise_of([[4, 2], [2, 4]])
    assert noise.valid_level == pytest.approx([1 / 3, 1 / 3])
    table = audit_decisions(decision, y, codes, noise).bounds
    centre = (codes == 0) / 6
    values = {name: [] for name in RATES}
    for chosen in itertools.product([False, True], repeat=12):
        rows = np.array(chosen)
        if rows.any() and np.abs(rows / rows.sum() - centre).sum() / 2 <= 1 / 3 + 1e-12:
            for name in RATES:
                values[name].append(rate_of(name, decision, y, rows))
    for name in RATES:
        rows = table[(table.measure == name) & (table.group == "a") & (table.noise == "model")]
        ball = rows[rows.bound == "ball"].iloc[0]
        theorem = rows[rows.bound == "theorem_1"].iloc[0]
        assert ball.low <= np.nanmin(values[name]) + 1e-12
        assert ball.high >= np.nanmax(values[name]) - 1e-12
        assert theorem.low <= ball.low + 1e-12 or np.isnan(theorem.low)
        assert theorem.high >= ball.high - 1e-12 or np.isnan(theorem.high)


def transport(p, q, cost):
    """Return W_c of two distributions on the same points, by a linear programme."""
    n = p.size
    rows = np.kron(np.eye(n), np.ones(n))
    columns = np.kron(np.ones(n), np.eye(n))
    solved = linprog(cost.ravel(), A_eq=np.vstack([rows, columns]), b_eq=np.concatenate([p, q]))
    return solved.fun


@pytest.mark.parametrize("seed", range(6))
def test_theorem_3_holds_every_group_within_its_wasserstein_distance(seed):
    # Decisions of a randomised rule that never is sure: the metric has s < 1.
    decision, y, codes = make_rows(seed, whole=False)
    decision = 0.3 + 0.4 * decision if seed % 2 else np.round(decision)
    noise = noise_of([[4, 2], [2, 4]])
    table = audit_decisions(decision, y, codes, noise).bounds.query("noise == 'model'")
    centre = (codes == 0) / 6
    for name in RATES:
        outcome = np.where(y == 1, decision, 1 - decision) if name == "accuracy" else decision
        among = {"tpr": y == 1, "fpr": y == 0}.get(name, np.ones(y.size, dtype=bool))
        spread = np.ptp(outcome[among])
        rows = table[(table.measure == name) & (table.group == "a")].set_index("bound")
        found, first, ball = (rows.loc[each] for each in ("theorem_3", "theorem_1", "ball"))
        if np.isnan(found.low):
            assert not (among & (codes == 0)).any()
            continue
        assert first.low - 1e-12 <= found.low <= ball.low + 1e-12
        assert ball.high - 1e-12 <= found.high <= first.high + 1e-12
        if spread == 1:
            assert (found.low, found.high) == pytest.approx((first.low, first.high))
        for chosen in itertools.product([False, True], repeat=12):
            group = np.array(chosen)
            if np.abs(group / max(group.sum(), 1) - centre).sum() / 2 > 1 / 3 + 1e-12:
                continue
            value = rate_of(name, decision, y, group)
            if not np.isnan(value):
                assert found.low - 1e-12 <= value <= found.high + 1e-12
    # The distance in that metric is s times the total variation.
    other = np.random.default_rng(seed).dirichlet(np.ones(12))
    cost = 0.4 * (1 - np.eye(12))
    assert transport(centre, other, cost) == pytest.approx(0.2 * np.abs(centre - other).sum())


def test_theorem_3_knows_a_rate_of_which_all_decisions_are_the_same():
    _, y, codes = make_rows(0)
    noise = noise_of([[4, 2], [2, 4]])
    table = audit_decisions(np.full(12, 0.3), y, codes, noise, rates=["tpr"]).bounds
    known = table[(table.bound == "theorem_3") & table.low.notna()]
    assert len(known) == 2
    np.testing.assert_allclose(known[["low", "high"]], 0.3)


def test_the_ball_is_reached_where_enough_rows_take_the_mass():
    # Noisy group 0: four of six positives chosen; two other positives outside are not.
    y = np.ones(12, dtype=int)
    decision = np.array([1, 1, 1, 1, 0, 0, 0, 0, 0, 1, 1, 1], dtype=float)
    codes = np.repeat([0, 1], 6)
    noise = noise_of([[4, 2], [2, 4]])
    table = audit_decisions(decision, y, codes, noise, rates=["tpr"]).bounds
    row = table[(table.bound == "ball") & (table.group == "a")].iloc[0]
    # Two of the chosen are exchanged for two that are not.
    assert row.value == pytest.approx(4 / 6)
    assert row.low == pytest.approx(2 / 6)
    assert row.high == pytest.approx(1.0)
    theorem = table[(table.bound == "theorem_1") & (table.group == "a")].iloc[0]
    assert (theorem.low, theorem.high) == pytest.approx((row.low, row.high))
    kallus = table[(table.bound == "assignment") & (table.group == "a")].iloc[0]
    # A ball around one group knows less than the noise model.
    assert kallus.low >= row.low
    assert kallus.high <= row.high


def test_without_noise_everything_is_known():
    decision, y, codes = make_rows(0)
    noise = noise_of([[6, 0], [0, 6]])
    table = audit_decisions(decision, y, codes, noise).bounds
    groups = table[table.group != ""]
    assert set(groups.noise) == {"model"}
    np.testing.assert_allclose(groups.low, groups.value)
    np.testing.assert_allclose(groups.high, groups.value)
    for each in audit_decisions(decision, y, codes, noise).conclusions.itertuples():
        assert each.low == pytest.approx(each.high)


def test_the_papers_level_is_marked_where_it_is_no_bound():
    rng = np.random.default_rng(0)
    codes = (rng.random(500) < 0.2).astype(int)
    decision, y = rng.integers(0, 2, (2, 500))
    noise = flip_uniformly(0.1, [0.9, 0.1])
    table = audit_decisions(decision, y, codes, noise, rates=["tpr"]).bounds
    paper = table[table.noise == "paper"]
    assert set(paper.group) == {"1"}
    assert not paper.guaranteed.any()
    assert set(paper.level.round(9)) == {0.1}
    assert table[table.noise != "paper"].guaranteed.all()


def test_limits_of_an_estimated_model_are_wider():
    rng = np.random.default_rng(1)
    codes = rng.integers(0, 2, 400)
    decision, y = rng.integers(0, 2, (2, 400))
    true = np.where(rng.random(60) < 0.8, codes[:60], 1 - codes[:60])
    noise = NoiseModel.from_table(true, codes[:60], names="ab")
    audited = audit_decisions(decision, y, codes, noise)
    table = audited.bounds.set_index(["measure", "group", "bound", "noise"])
    for name, group, bound in itertools.product(RATES, "ab", ("assignment", "ball", "theorem_3")):
        model, limit = (table.loc[(name, group, bound, kind)] for kind in ("model", "limit"))
        assert limit.low <= model.low
        assert limit.high >= model.high
        width = model.high - model.low
        assert width > 1 - 1e-9 or limit.high - limit.low > width
    rows = audited.conclusions
    assert set(rows.noise) == {"model", "limit"}
    described = tabulate_noise(noise)
    assert (described.low <= described.level).all()
    assert (described.level <= described.high).all()
    assert (described.valid_level <= described.valid_level_limit).all()
    assert tabulate_noise(flip_uniformly(0.1, [0.5, 0.5])).low.isna().all()


def test_limits_of_assignments_are_those_of_a_statement_about_two_groups():
    # Two shares of every noisy group at once: 2 m̂ intervals share the error.
    rng = np.random.default_rng(1)
    codes = rng.integers(0, 3, 400)
    decision, y = rng.integers(0, 2, (2, 400))
    true = np.where(rng.random(90) < 0.8, codes[:90], (codes[:90] + 1) % 3)
    noise = NoiseModel.from_table(true, codes[:90], names="abc")
    table = audit_decisions(decision, y, codes, noise, confidence=0.9).bounds
    cells = count_cells(decision.astype(float), y, codes, 3, np.ones(400))
    for name in RATES:
        low, high = bound_rates(
            cells, noise.posterior, RATE_CELLS[name], noise.interval(0.9, 6).posterior
        )
        mine = table[
            (table.measure == name) & (table.bound == "assignment") & (table.noise == "limit")
        ].set_index("group")
        np.testing.assert_allclose(mine.loc[list("abc"), "low"], low, atol=1e-12)
        np.testing.assert_allclose(mine.loc[list("abc"), "high"], high, atol=1e-12)


def test_limits_cover_the_truth():
    # The truth of many populations lies within the limits found from a small table of each.
    rng = np.random.default_rng(2)
    misses = 0
    for _ in range(60):
        true = (rng.random(800) < 0.4).astype(int)
        codes = np.where(rng.random(800) < rng.choice([0.1, 0.3]), 1 - true, true)
        y = (rng.random(800) < 0.3 + 0.3 * true).astype(int)
        decision = (rng.random(800) < 0.2 + 0.3 * y + 0.2 * true).astype(float)
        table = rng.choice(800, size=80, replace=False)
        noise = NoiseModel.from_table(true[table], codes[table])
        rows = audit_decisions(decision, y, codes, noise, rates=["tpr"]).bounds
        for j in range(2):
            truth = rate_of("tpr", decision, y, true == j)
            mine = rows[(rows.group == str(j)) & (rows.noise == "limit")]
            misses += int(((mine.low > truth) | (mine.high < truth)).any())
    assert misses <= 3


def test_groups_of_other_numbers_and_absent_ones():
    decision, y, codes = make_rows(0)
    noise = NoiseModel.from_confusion(
        [[0.8, 0.1, 0.1], [0.1, 0.7, 0.2]], prior=[0.5, 0.5], names="ab", noisy_names="xyz"
    )
    audited = audit_decisions(decision, y, codes, noise)
    table = audited.bounds
    assert table[table.bound == "assignment"].low.notna().all()
    assert set(audited.conclusions.group) == {"a", "b"}
    # Noisy group 1 has no row here: nothing is known of a ball around it, all else is.
    few = audit_decisions(
        decision, y, np.zeros(12, dtype=int), flip_uniformly(0.1, [0.5] * 2)
    ).bounds
    gone = few[(few.group == "1") & few.bound.isin(["ball", "theorem_1", "theorem_3"])]
    assert gone.low.isna().all()
    assert (gone.n == 0).all()
    assert few[few.bound == "assignment"].low.notna().all()


def test_verdicts():
    assert judge(-0.3, -0.11, 0.1) == "below"
    assert judge(0.11, 0.2, 0.1) == "above"
    assert judge(-0.1, 0.1, 0.1) == "within"
    assert judge(-0.2, -0.05, 0.1) == "open"
    assert judge(np.nan, np.nan, 0.1) == "open"
