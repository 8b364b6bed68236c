"""Alarms over all groups, rates and limits: few false ones in a year of looking every week."""

from __future__ import annotations

import numpy as np
import pytest

from fairfrontier.deployment.config import read_limit
from fairfrontier.deployment.history import COUNTED
from fairfrontier.deployment.monitoring import LIMIT, find_rate, list_checks
from fairfrontier.metrics.statistic.drift import (
    BATCHES,
    accumulate_evidence,
    within,
    within_difference,
)
from fairfrontier.runtime.errors import ConfigError

# P(label, decision) of each group, in the order 00, 01, 10, 11.
GROUPS = {"a": (0.40, 0.10, 0.10, 0.40), "b": (0.45, 0.10, 0.15, 0.30), "c": (0.35, 0.15, 0.1, 0.4)}
DIFFERENCE = read_limit("selection_rate_difference:sex", 0.15)


def draw_sums(rng, n, cells, shape):
    """Draw sums in the order of COUNTED, shape (*shape, len(COUNTED))."""
    drawn = rng.multinomial(n, cells, shape)
    labels = drawn.sum(-1), drawn[..., 2:].sum(-1), drawn[..., 3], drawn[..., 1]
    return np.stack([labels[0], drawn[..., 1] + drawn[..., 3], *labels], axis=-1)


def test_a_reference_of_few_rows_is_none():
    few = dict(zip(COUNTED, (9, 5, 9, 4, 3, 2), strict=True))
    with pytest.raises(ConfigError, match="fewer than 10 rows"):
        list_checks({"counts": few, "groups": {"sex": {"a": few}}}, [DIFFERENCE], 0.05, 10)


def simulate(rng, runs, weeks, n, reference):
    """Return for each run whether there was any alarm; rates are those of the reference rows."""
    counted = np.stack([draw_sums(rng, reference, GROUPS[k], runs) for k in GROUPS], axis=1)
    sizes = [round(share * n) for share in BATCHES]
    weekly = np.stack(
        [
            np.stack([draw_sums(rng, size, GROUPS[k], (runs, weeks)) for size in sizes], axis=-2)
            for k in GROUPS
        ],
        axis=-2,
    )
    every = [
        list_checks(
            {
                "counts": dict(zip(COUNTED, own.sum(axis=0), strict=True)),
                "groups": {
                    "sex": {
                        k: dict(zip(COUNTED, row, strict=True))
                        for k, row in zip(GROUPS, own, strict=True)
                    }
                },
            },
            [DIFFERENCE],
            0.05,
            10,
        )
        for own in counted
    ]
    alarm = np.zeros(runs, dtype=bool)
    for checks in zip(*every, strict=True):
        check = checks[0]
        kept = weekly if check.attribute else weekly.sum(axis=-2, keepdims=True)
        if check.attribute:
            kept = kept[..., [list(GROUPS).index(name) for name in check.groups], :]
        hits, rows = find_rate(check.rate, kept)
        ends = [
            np.array([getattr(each, end) for each in checks])[:, None, None]
            for end in ("low", "high")
        ]
        project = within_difference(0.15) if check.kind == LIMIT else within(*ends)
        prior = np.stack([each.prior for each in checks])
        log_e = accumulate_evidence(hits, rows, prior, project)
        alarm |= (log_e >= check.threshold).any(axis=-1)
    return alarm


def test_false_alarms_in_a_year_of_weeks_are_rare():
    alarms = simulate(np.random.default_rng(0), runs=40, weeks=52, n=320, reference=1000)
    # At most 5%; 6 or more of 40 would have a probability of 1.4%.
    assert alarms.sum() < 6


def test_a_group_that_changed_is_found(monkeypatch):
    rng = np.random.default_rng(1)
    state = {"drawn": 0}
    honest = draw_sums

    def draw(rng, n, cells, shape):
        state["drawn"] += 1
        # The reference is drawn first, for three groups.
        changed = cells == GROUPS["b"] and state["drawn"] > 3
        return honest(rng, n, (0.45, 0.02, 0.23, 0.30) if changed else cells, shape)

    monkeypatch.setitem(globals(), "draw_sums", draw)
    assert simulate(rng, runs=10, weeks=8, n=480, reference=2000).all()


def test_rates_are_those_of_the_sums():
    sums = np.array([10.0, 4.0, 8.0, 5.0, 3.0, 1.0])
    found = {
        rate: find_rate(rate, sums)
        for rate in ("selection_rate", "accuracy", "tpr", "tnr", "fpr", "fnr")
    }
    assert {rate: tuple(map(float, each)) for rate, each in found.items()} == {
        "selection_rate": (4, 10),
        "accuracy": (5, 8),
        "tpr": (3, 5),
        "tnr": (2, 3),
        "fpr": (1, 3),
        "fnr": (2, 5),
    }


@pytest.mark.parametrize("alpha", [0.05, 0.2])
def test_thresholds_spend_alpha_once(alpha):
    counts = dict(zip(COUNTED, (900, 400, 900, 450, 300, 100), strict=True))
    checks = list_checks(
        {"counts": counts, "groups": {"sex": {"a": counts, "b": counts}}}, [DIFFERENCE], alpha, 10
    )
    spent = sum(np.exp(-check.threshold) for check in checks)
    # A quarter is spent on the intervals of the reference.
    assert spent == pytest.approx(0.75 * alpha)
    alone = list_checks({"counts": counts, "groups": {}}, [], alpha, 10)
    assert sum(np.exp(-check.threshold) for check in alone) == pytest.approx(alpha / 2)
