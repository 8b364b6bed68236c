from types import MappingProxyType

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairfrontier import create, learn
from fairfrontier.metrics.certificate.certificate import certify_gaps, trace_gap
from fairfrontier.metrics.certificate.worst_move import describe_moves, list_worst_moves
from fairfrontier.models.prediction import Prediction, predict_part
from fairfrontier.runtime.errors import ConfigError
from tests.models.tables import make_split

BUDGETS = (0.0, 0.05, 0.4, 50.0)


def rows(seed, n=40, ties=False):
    generator = np.random.default_rng(seed)
    losses, z = -np.log(generator.dirichlet(np.ones(2), size=n)), generator.normal(size=(n, 2))
    if ties:
        losses, z = np.round(losses), np.round(z)
    return losses, generator.integers(2, size=n), z, generator.integers(1, 4, size=n)


@settings(max_examples=15)
@given(st.integers(0, 10**6), st.booleans(), st.sampled_from(BUDGETS))
def test_moves_add_up_to_the_gap_within_the_budget(seed, ties, budget):
    losses, label, z, weight = rows(seed, ties=ties)
    found = trace_gap(losses, label, z, BUDGETS, weight=weight, replicates=0)
    moves = list_worst_moves(found, budget, None)
    told = found.find_gap(budget).value
    assert sum(each.carries for each in moves) == pytest.approx(told, rel=1e-9, abs=1e-12)
    assert sum(each.mass * each.distance for each in moves) <= budget + 1e-9
    for each in moves:
        assert each.gain > 0
        own = losses[each.row, label[each.row]]
        assert each.gain == pytest.approx(losses[each.becomes, label[each.row]] - own)
        assert each.distance == pytest.approx(np.sum((z[each.row] - z[each.becomes]) ** 2))
    carried = [round(each.carries, 9) for each in moves]
    assert carried == sorted(carried, reverse=True)
    assert list_worst_moves(found, budget, 3) == moves[:3]


def content(moves, *arrays):
    return [
        (
            *(tuple(np.ravel(array[i])) for i in (each.row, each.becomes) for array in arrays),
            round(each.mass, 12),
        )
        for each in moves
    ]


@pytest.mark.parametrize("ties", [False, True])
def test_neither_the_order_of_rows_nor_copies_change_them(ties):
    losses, label, z, weight = rows(3, ties=ties)
    once = trace_gap(losses, label, z, [0.3], weight=weight, replicates=0)
    expected = content(list_worst_moves(once, 0.3), losses, label, z)
    order = np.random.default_rng(1).permutation(len(z))
    copies = np.repeat(order, weight[order])
    for some, mass in ((order, weight[order]), (copies, np.ones(len(copies)))):
        there = [each[some] for each in (losses, label, z)]
        found = trace_gap(*there, [0.3], weight=mass, replicates=0)
        assert content(list_worst_moves(found, 0.3), *there) == expected


def test_where_gains_tie_the_most_similar_come_first():
    z = np.array([[0.0], [0.1], [5.0], [5.5]])
    losses = np.array([[0.0, 0.0], [0.0, 1.0], [0.0, 0.0], [0.0, 1.0]])
    found = trace_gap(losses, np.ones(4, dtype=np.int64), z, [1.0], loss="error", replicates=0)
    assert [(each.row, each.becomes) for each in list_worst_moves(found, 1.0)] == [(0, 1), (2, 3)]
    with pytest.raises(ConfigError):
        list_worst_moves(found, 0.5)


def test_positions_are_those_of_the_part():
    split = make_split(200)
    metric = learn("subspace", split)
    model = create("linear").fit(split.train.X, split.train.y)
    predicted = predict_part(model, split.test)
    (found,) = certify_gaps(
        predicted, split.test, metric, [0.2], rows=40, losses=["log"], replicates=0
    )
    p = np.where(split.test.y == 1, predicted.score, 1 - predicted.score)
    for each in list_worst_moves(found, 0.2):
        there = predicted.score[each.becomes]
        reached = there if split.test.y[each.row] == 1 else 1 - there
        assert each.gain == pytest.approx(np.log(p[each.row]) - np.log(reached))
        apart = metric.distance(split.test.X[[each.row]], split.test.X[[each.becomes]])[0]
        assert each.distance == pytest.approx(apart)


def test_pairs_say_what_differs_and_what_was_decided():
    part = make_split(8).test
    decision = np.array([0.0, 1.0, 0.25, 1.0])
    predicted = Prediction(np.array([0.2, 0.9, 0.3, 0.6]), decision, MappingProxyType({}))
    z = np.array([[0.0], [0.1], [3.0], [3.2]])
    losses = np.stack([decision, 1 - decision], axis=1)
    found = trace_gap(losses, np.zeros(4, dtype=np.int64), z, [1.0], replicates=0)
    shown = pd.DataFrame(
        {"job": ["cook", "cook", "clerk", "cook"], "age": [30.0, 31.5, np.nan, 40.0]}
    )
    part = part.take(np.arange(4))
    part.y[:] = 0
    moves = list_worst_moves(found, 1.0)
    pairs = describe_moves(moves, part, predicted, shown, found.find_gap(1.0).value)
    assert sum(each.share for each in pairs) == pytest.approx(1)
    first, second = pairs
    assert (first.label, first.before, first.after) == ("no", "no", "yes")
    assert (first.score_before, first.score_after) == (0.2, 0.9)
    assert [(c.column, c.before, c.after) for c in first.changes] == [("age", "30", "31.5")]
    assert first.same == 1
    assert second.before == "yes with probability 0.25"
    assert [c.before for c in second.changes] == ["clerk", "missing"]
    assert [(c.column, c.after) for c in second.changes] == [("job", "cook"), ("age", "40")]
