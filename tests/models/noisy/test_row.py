import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairfrontier.models.noisy.rate import arrange_rows, fill_slopes, sum_scores
from fairfrontier.runtime.arrays import to_numpy
from tests.models.noisy.made import labels_of, make_rows, make_scores, make_table
from tests.namespaces import namespaces


def test_equal_rows_are_merged_and_others_are_not():
    X, y, _, noisy = make_table(n=200)
    rows = arrange_rows(X, y, noisy, 3, np.ones(200), "float64")
    label, group = labels_of(rows)
    keys = np.column_stack([rows.x, label, group])
    assert rows.n == len(np.unique(keys, axis=0)) == len(keys) < 200
    given_keys = np.column_stack([X, y, noisy])
    for key, weight in zip(keys, rows.weight, strict=True):
        assert weight == pytest.approx((given_keys == key).all(axis=1).mean())
    assert rows.total == 200
    np.testing.assert_allclose(rows.weighted, rows.weight[:, None] * rows.x)


@settings(max_examples=15)
@given(seed=st.integers(0, 10**6), scale=st.sampled_from([1.0, 0.3]))
def test_order_and_repetition_leave_no_trace(seed, scale):
    rng = np.random.default_rng(seed)
    X, y, _, noisy = make_table(n=60, seed=seed)
    counts = rng.integers(0, 4, 60)
    weighted = arrange_rows(X, y, noisy, 3, scale * counts)
    places = rng.permutation(np.repeat(np.arange(60), counts))
    repeated = arrange_rows(X[places], y[places], noisy[places], 3, np.full(len(places), scale))
    assert weighted.borders == repeated.borders
    assert weighted.x.tobytes() == repeated.x.tobytes()
    np.testing.assert_allclose(weighted.weight, repeated.weight, rtol=1e-6)
    shuffled = rng.permutation(60)
    again = arrange_rows(X[shuffled], y[shuffled], noisy[shuffled], 3, scale * counts[shuffled])
    assert again.weight.tobytes() == weighted.weight.tobytes()


def test_signed_zeros_are_equal():
    X = np.array([[0.0, 1.0], [-0.0, 1.0]])
    assert arrange_rows(X, np.ones(2, int), np.zeros(2, int), 1, np.ones(2)).n == 1


@pytest.mark.parametrize("namespace", namespaces())
def test_sums_and_slopes_equal_loops(namespace):
    xp = namespace()
    rows = make_rows(xp)
    score = make_scores(rows)
    sums = sum_scores(rows, score)
    rng = np.random.default_rng(1)
    rise, fall = (xp.asarray(rng.random((3, 3, 4))) for _ in range(2))
    slope = to_numpy(fill_slopes(rows, score, rise, fall, by_decision=True))
    phi, weight = to_numpy(score), to_numpy(rows.weight)
    label, group = labels_of(rows)
    up, down = np.maximum(1 + phi, 0), np.maximum(1 - phi, 0)
    ups, downs, counts = (to_numpy(each) for each in (sums.up, sums.down, sums.count))
    for model in range(3):
        cell = 2 * (phi[model] >= 0) + label
        for k in range(3):
            for c in range(4):
                chosen = weight * ((group == k) & (cell == c))
                assert ups[model, k, c] == pytest.approx(chosen @ up[model])
                assert downs[model, k, c] == pytest.approx(chosen @ down[model])
                assert counts[model, k, c] == pytest.approx(chosen.sum())
        place = (model, group, cell)
        expected = to_numpy(rise)[place] * (phi[model] > -1) - to_numpy(fall)[place] * (
            phi[model] < 1
        )
        np.testing.assert_allclose(slope[model], expected, atol=1e-12)
    # What does not depend on the decision takes one pass less.
    rise, fall = (xp.stack([each[:, :, c % 2] for c in range(4)], axis=-1) for each in (rise, fall))
    both = [
        to_numpy(fill_slopes(rows, score, rise, fall, by_decision=flag)) for flag in (True, False)
    ]
    np.testing.assert_allclose(*both, atol=1e-12)


def test_counts_are_never_negative():
    rows = make_rows(dtype="float32")
    score = np.full((1, rows.n), 2.0, dtype=np.float32)
    assert sum_scores(rows, score).count.min() >= 0
