from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from benchmarks.coverage import World, measure, simulate, summarise


def test_the_truth_is_that_of_the_population():
    population = World("binary", 2, "far", "weighted").make()
    names, numbers = measure(population.part, population.prediction, minimum=1)
    truth = dict(zip(names, numbers[:, 0], strict=True))
    assert truth["tpr_difference:group"] == pytest.approx(0.4)
    assert truth["tpr:group=1"] == pytest.approx(0.85)
    rng = np.random.default_rng(0)
    # Rows of other weights are drawn more often, and weigh as much less.
    names, numbers = measure(*population.draw(20_000, rng))
    drawn = dict(zip(names, numbers[:, 0], strict=True))
    assert drawn["tpr:group=1"] == pytest.approx(0.85, abs=0.02)


def test_a_world_is_summarised_by_measure():
    found = simulate((World("multiclass", 2, "equal", "plain"), 300), 4)
    other = simulate((World("binary", 2, "far", "plain"), 300), 3)
    lines = summarise(pd.concat([found, other])).set_index("measure")
    assert lines.loc["gap_abs:group", "world"] == "2 equal, plain"
    assert 0 <= lines.loc["gap_max:group", "percentile_least"] <= 1
    assert lines.loc["auc", "broken_of_05"] in (0, 0.3333, 0.6667, 1)
    assert (lines["least"] <= lines["covers"] + 1e-9).all()
