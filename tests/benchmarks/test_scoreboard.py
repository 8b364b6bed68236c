from __future__ import annotations

import itertools
import json
import shutil

import numpy as np
import pandas as pd
import pytest

from benchmarks.scoreboard import (
    CRITERIA,
    OBJECTIVES,
    choose,
    compare,
    correct,
    count_verdicts,
    find_undominated,
    measure,
    read_results,
    record,
    sum_volume,
)

LIMIT = 1e-12


def test_objectives_and_gaps_are_those_of_rows_counted_one_by_one():
    generator = np.random.default_rng(0)
    y, group = generator.integers(2, size=60), generator.integers(3, size=60)
    decision = generator.integers(2, size=60)
    probability = np.broadcast_to(decision, (len(CRITERIA), len(OBJECTIVES), 1, 60))
    found = measure(probability.astype(float), y, group)

    def spread(rows):
        rates = [decision[rows & (group == level)].mean() for level in range(3)]
        return max(rates) - min(rates)

    accuracy = (decision == y).mean()
    balanced = ((decision == y)[y == 1].mean() + (decision == y)[y == 0].mean()) / 2
    assert found["objective"][:, 0, 0] == pytest.approx([accuracy] * 3, abs=LIMIT)
    assert found["objective"][:, 1, 0] == pytest.approx([balanced] * 3, abs=LIMIT)
    gaps = [spread(y >= 0), spread(y == 1), max(spread(y == 0), spread(y == 1))]
    assert found["gap"][:, 0, 0] == pytest.approx(gaps, abs=LIMIT)


def test_coins_count_with_their_probability_and_an_empty_cell_for_no_gap():
    y, group = np.array([1, 0, 1, 1]), np.array([0, 0, 1, 1])
    probability = np.broadcast_to([0.5, 0.5, 1.0, 0.5], (3, 2, 1, 4))
    found = measure(probability, y, group)
    assert found["objective"][0, 0, 0] == pytest.approx(2.5 / 4, abs=LIMIT)
    assert found["gap"][0, 0, 0] == pytest.approx(0.25, abs=LIMIT)
    # Group 1 has no row of class 0.
    assert found["gap"][2, 0, 0] == pytest.approx(0.25, abs=LIMIT)


def test_the_choice_is_the_best_within_the_tolerance():
    objective, gap = np.array([0.9, 0.8, 0.8, 0.6]), np.array([0.2, 0.04, 0.03, 0.0])
    assert [choose(objective, gap, each) for each in (0.01, 0.05, 0.3)] == [
        (3, 3, 1.0), (2, 2, 1.0), (0, 0, 1.0)
    ]  # fmt: skip


def test_a_mixture_is_just_within_the_tolerance():
    objective, gap = np.array([0.9, 0.8, 0.6]), np.array([0.2, 0.02, 0.0])
    # .6 + .3 / 20 or .6 + .2 / 2, then .6 + .3 / 2 or .8.
    assert choose(objective, gap, 0.01, mixed="constant") == (1, 2, 0.5)
    assert choose(objective, gap, 0.1, mixed="constant") == (1, 1, 1.0)
    assert choose(objective, gap, 0.19, mixed="constant") == (0, 2, pytest.approx(0.95))
    assert choose(objective, gap, 0.11, mixed="any") == (0, 1, pytest.approx(0.5))


@pytest.mark.parametrize("mixed", ["", "constant", "any"])
def test_no_mixture_of_two_is_better(mixed):
    draw = np.random.default_rng(0)
    for _ in range(50):
        objective, gap = draw.random((2, 6))
        gap[-1] = 0
        partners = {"": (), "constant": (5,), "any": range(6)}[mixed]
        tried = [objective[gap <= 0.4].max()]
        for one, other in itertools.product(range(6), partners):
            shares = np.linspace(0, 1, 201)
            within = shares * gap[one] + (1 - shares) * gap[other] <= 0.4
            tried += list((shares * objective[one] + (1 - shares) * objective[other])[within])
        i, j, share = choose(objective, gap, 0.4, mixed=mixed)
        assert share * gap[i] + (1 - share) * gap[j] <= 0.4 + LIMIT
        assert max(tried) - LIMIT <= share * objective[i] + (1 - share) * objective[j]
        assert share * objective[i] + (1 - share) * objective[j] < max(tried) + 0.02


def test_the_volume_is_what_a_fine_grid_counts():
    objective, gap = np.random.default_rng(1).random((2, 8))
    reference = (0.3, 0.7)
    cells = (np.arange(1000) + 0.5) / 1000
    dominated = (objective[:, None, None] >= cells[:, None]) & (gap[:, None, None] <= cells)
    inside = (cells[:, None] >= reference[0]) & (cells <= reference[1])
    counted = (dominated.any(axis=0) & inside).mean()
    # Every cell on the border, which has 2 × 1000 at most, counts whole or not at all.
    assert sum_volume(objective, gap, reference) == pytest.approx(counted, abs=2e-3)
    kept = find_undominated(objective, gap)
    assert sum_volume(objective[kept], gap[kept], reference) == sum_volume(
        objective, gap, reference
    )
    assert all(((objective > objective[i]) & (gap <= gap[i])).sum() == 0 for i in kept)


def test_holm_corrects_step_by_step_and_leaves_missing_ones():
    p = pd.Series([0.04, np.nan, 0.01, 0.03], index=[5, 6, 7, 8])
    corrected = correct(p)
    assert corrected.loc[[7, 8, 5]].tolist() == pytest.approx([0.03, 0.06, 0.06], abs=LIMIT)
    assert np.isnan(corrected.loc[6])


def test_equal_results_are_a_tie_and_constant_differences_prove_nothing():
    seeds = pd.Series([0.5, 0.6, 0.7])
    assert compare(seeds, seeds)["p"] == 1.0
    found = compare(seeds + np.array([0.1, 0.11, 0.12]), seeds)
    assert found["p"] < 0.05
    assert found["low"] < 0.11 < found["high"]


def keep_results(folder, contender, seed, value):
    """Write results with one rule, of this value, in every cell."""
    cells = np.full((3, 2, 1), value).tolist()
    gaps = np.full((3, 2, 1), 0.01).tolist()
    result = {"failed": [], "seconds": np.ones((3, 2)).tolist()}
    for part in ("validation", "test"):
        result |= {f"{part}_constant": [0.5, 0.5]}
        result |= {f"{part}_objective": cells, f"{part}_gap": gaps}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{seed}-{contender}.json").write_text(json.dumps(result))


def test_kept_results_become_wins_and_losses_and_a_run(tmp_path):
    folder = tmp_path / "results"
    for seed in range(4):
        noise = seed / 1000
        levels = {"plain": 0.8, "smoothed_thresholds": 0.7 + noise, "weak": 0.6, "strong": 0.75}
        for contender, value in levels.items():
            keep_results(folder / "thresholds" / "table", contender, seed, value)
        keep_results(folder / "training" / "table", "plain", seed, 0.8)
        keep_results(folder / "training" / "table", "fair_gbm", seed, 0.65)
        keep_results(folder / "training" / "table", "linear_post", seed, 0.6 + noise)
    results = read_results(folder)
    # Seeds x contenders x criteria x objectives x tolerances.
    assert len(results) == 4 * 8 * 18
    joined = results[results["contender"] == "fairfrontier"]
    assert joined["value"].tolist() == [0.8] * len(joined)
    assert joined["seconds"].tolist() == [3.0] * len(joined)
    (tmp_path / "data" / "reference" / "figures").mkdir(parents=True)
    shown = record(folder, tmp_path)
    assert "18 / 0 / 0" in shown
    assert "0 / 0 / 18" in shown
    run = json.loads((tmp_path / "data" / "reference" / "runs" / "scoreboard.json").read_text())
    assert run["contained"] == {"table": {"fairfrontier": "0 / 0 / 18"}}
    cells = pd.DataFrame(run["cells"], columns=run["columns"])
    assert count_verdicts(cells).loc[("thresholds", "table"), "strong"] == "0 / 0 / 18"
    assert (cells.loc[cells["contender"] == "plain", "verdict"] == "").all()
    assert (tmp_path / "data" / "reference" / "figures" / "scoreboard.png").stat().st_size > 1000
    # The splits of later runs are added to those that were recorded.
    shutil.rmtree(folder)
    for contender in ("plain", "fair_gbm", "linear_post"):
        keep_results(folder / "training" / "table", contender, 4, 0.9)
    record(folder, tmp_path)
    runs = tmp_path / "data" / "reference" / "runs"
    again = json.loads((runs / "scoreboard.json").read_text())
    seeds = pd.DataFrame(again["cells"], columns=again["columns"]).groupby("track")["seeds"]
    assert seeds.max().to_dict() == {"thresholds": 4, "training": 5}
    assert len(pd.read_csv(runs / "scoreboard.csv")) == 4 * 8 * 18 + 4 * 18
    # Of a table of a track without splits what was recorded stays.
    (runs / "scoreboard.csv").unlink()
    shutil.rmtree(folder)
    keep_results(folder / "training" / "another", "plain", 0, 0.8)
    record(folder, tmp_path)
    last = json.loads((runs / "scoreboard.json").read_text())
    assert last["contained"] == again["contained"]
    kept = [str(cell) for cell in last["cells"] if "another" not in cell]
    assert len(kept) == len(last["cells"]) - 18
    assert sorted(kept) == sorted(map(str, again["cells"]))
