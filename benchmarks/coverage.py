"""How often 95% intervals hold the truth, and certified bounds are broken, in simulated worlds.

Run ``python -m benchmarks.coverage [--draws N] [--workers N] [--record] [--only MEASURE ...]``;
some minutes on two cores. With ``--only`` lines of other measures stay as they were recorded.

A world is a population of cells (group, label, score, decision, weight) with probabilities. Its
cells, weighted by these, are measured as if they were rows: that is the truth, to the last bit. A
draw is a multinomial sample of n rows, measured as a study measures them, and its bounds are those
of a selection. Groups have shares 1:3 alternately, so that the smallest of 8 has 18 of 300 rows;
draws in which a level of too few rows is left out do not count. *Equal* groups have the same rates,
*near* ones differ by .05, *far* ones by .4. In *weighted* worlds rows of weight .5, 1 and 3 are
drawn in inverse proportion to it; *random* decisions are probabilities; in *extreme* worlds 19
of 20 rows that others refuse are accepted, so that rates are near 1. Regressions predict the
scores; of three classes the share decided right differs by group, and two further groups overlap.

For each measure and n: the least coverage of all worlds, and where; the mean coverage, and width.
For what was a bootstrap in 0.2.0, the percentile interval of 300 replicates is beside it: its least
coverage, and how much wider ours is on average where that one covers 93% or more. Of bounds: how
often the truth was beyond, in the worst world, promised 5%, and over all worlds, promised .25%.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Collection
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd

from fairfrontier.auditing.debiased import Tally
from fairfrontier.metrics.measure.registry import MEASURES
from fairfrontier.metrics.statistic.interval import bonferroni, percentile
from fairfrontier.metrics.statistic.rate import NAMES, aggregate_rates, compute_rates, count_cells
from fairfrontier.metrics.verb import tabulate
from fairfrontier.models.prediction import Prediction, task_of
from fairfrontier.prepare.split import Part, Task
from fairfrontier.runtime.home import find_home
from fairfrontier.study.frontier import orient
from fairfrontier.study.query import bound_scores

SIZES = (300, 3000)
LEVELS = (2, 4, 8)
SPREADS = {"equal": 0.0, "near": 0.05, "far": 0.4}
KINDS = ("plain", "weighted", "random", "extreme")
SCORES = np.array([0.05, 0.2, 0.3, 0.45, 0.55, 0.7, 0.8, 0.95])
SHAPE = np.array([0.1, 0.2, 0.3, 0.4, 0.4, 0.3, 0.2, 0.1])
WEIGHTS = np.array([0.5, 1.0, 3.0])
BY_GROUP = ("selection_rate_difference", "tpr_ratio", "tpr_min", "gap_max", "gap_rms", "disparity")
BOUNDED = {"auc", "f1", "log_loss", "balanced_accuracy", "fpr", "error_cost"}
BOUNDED |= {f"{name}:group" for name in BY_GROUP}
CRITERIA = ("parity", "equalized_odds", "average_odds")
ERRORS = (0.05, 0.0025)
BOOTSTRAPPED = ("difference", "ratio", "max", "min", "gap_max", "gap_rms")
REPLICATES = 300
COVERS = 0.93


@dataclass(frozen=True)
class World:
    """What is drawn from; ``spread`` and ``kind`` are of `SPREADS` and `KINDS`."""

    task: Task
    n_levels: int
    spread: str
    kind: str

    def __str__(self) -> str:
        return f"{self.n_levels} {self.spread}, {self.kind}"

    def make(self) -> Population:
        """Return all cells with their probabilities."""
        shift = np.linspace(-0.5, 0.5, self.n_levels) * SPREADS[self.spread]
        share = np.where(np.arange(self.n_levels) % 2, 3.0, 1.0)
        weights = WEIGHTS if self.kind == "weighted" else np.ones(1)
        several = self.task == "multiclass"
        axes = (self.n_levels, 3 if several else 2, 3 if several else SCORES.size, weights.size)
        group, y, drawn, heavy, *members = np.indices((*axes, 2, 2) if several else axes).reshape(
            len(axes) + 2 * several, -1
        )
        if several:
            right = 0.6 + shift[group]
            own = np.where(drawn == y, right, (1.0 - right) / 2)
            for member in members:
                own = own * np.where(
                    member == 1, 0.2 + 0.2 * (drawn == y), 0.8 - 0.2 * (drawn == y)
                )
            score, decision = np.eye(3)[drawn] * 0.7 + 0.1, drawn.astype(np.float64)
        else:
            # P(score above one half) is .65 or .3 by label, and more where the group is ahead.
            high = np.where(y == 1, 0.65, 0.3) + shift[group]
            if self.kind == "extreme":
                high = 1.0 - 0.05 * (1.0 - high)
            score = SCORES[drawn]
            own = np.where(score > 0.5, high, 1.0 - high) * SHAPE[drawn]
            decision = np.where(
                self.kind == "random", np.clip(2.0 * score - 0.5, 0.0, 1.0), score > 0.5
            ).astype(np.float64)
        mass = share[group] * np.array([0.6, 0.4, 0.5])[y] * own
        part = Part(
            dataset="made",
            name="test",
            ids=np.arange(mass.size),
            X=np.zeros((mass.size, 0)),
            y=y.astype(np.float64) if self.task == "regression" else y,
            groups=np.stack([group, *members], axis=1),
            protected=np.zeros((mass.size, 0)),
            weight=mass / mass.sum(),
            attributes={"group": tuple(map(str, range(self.n_levels)))}
            | {f"term{i}": ("no", "yes") for i, _ in enumerate(members)},
            classes=() if self.task == "regression" else tuple("012"[: axes[1]]),
        )
        decided = score if self.task == "regression" else decision
        return Population(part, Prediction(score, decided), weights[heavy])


@dataclass(frozen=True, eq=False)
class Population:
    """Cells as rows that weigh as much as they are probable, and the weights of rows drawn."""

    part: Part
    prediction: Prediction
    weight: np.ndarray

    def draw(self, n: int, rng: np.random.Generator) -> tuple[Part, Prediction]:
        """Draw rows; heavy ones are as much rarer."""
        chance = self.part.weight / self.weight
        rows = rng.choice(chance.size, n, p=chance / chance.sum())
        part = replace(self.part.take(rows), weight=self.weight[rows], ids=np.arange(n))
        return part, Prediction(self.prediction.score[rows], self.prediction.decision[rows])


def measure(
    part: Part, prediction: Prediction, minimum: int = 10, only: Collection[str] = ()
) -> tuple[list[str], np.ndarray]:
    """Return names, and value, low and high of all measures, and of a debiasing's biases."""
    costs = (1.0, 5.0) if part.classes else None
    task = task_of(part)
    chosen = [name for name in only if task in MEASURES.find(name).task]
    table = tabulate(prediction, part, chosen if only else None, minimum=minimum, costs=costs)
    # What it bounds depends on the signs that it has learned.
    table = table[table["measure"] != "subgroup_bias_floor"]
    names = [
        f"{name}:{group}" if group else name
        for name, group in zip(table["measure"], table["group"], strict=True)
    ]
    numbers = table[["value", "low", "high"]].to_numpy()
    # Of other levels there is another truth.
    numbers[table["left_out"].to_numpy() > 0] = np.nan
    if only or len(part.classes) != 2:
        return names, numbers
    tally = Tally(("rule",), ("",), len(part.attributes["group"]), 0)
    codes = np.asarray(part.group("group"))
    label = np.asarray(part.y, dtype=np.float64)
    tally.add(np.zeros_like(codes), codes, part.weight, {"rule": prediction.decision}, label)
    biases = {each: tally.bias("rule", ("",), criterion=each) for each in CRITERIA}
    return [*names, *(f"bias of {each}" for each in biases)], np.vstack([numbers, *biases.values()])


def resample(part: Part, prediction: Prediction, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Return percentile intervals of a bootstrap of whole rows, of what were such in 0.2.0."""
    mass = count_cells(prediction, part)["group"].mass
    n = int(mass.sum())
    draws = rng.multinomial(n, mass.ravel() / n, REPLICATES).reshape(-1, *mass.shape)
    values, drawn = (aggregate_rates(compute_rates(each)) for each in (mass, draws.astype(float)))
    found = {}
    for name in BOOTSTRAPPED:
        if values[name].ndim:
            for k, rate in enumerate(NAMES):
                interval = percentile(float(values[name][k]), drawn[name][:, k])
                found[f"{rate}_{name}:group"] = np.array(interval)
        else:
            found[f"{name}:group"] = np.array(percentile(float(values[name]), drawn[name]))
    return found


def simulate(task: tuple[World, int], draws: int, only: Collection[str] = ()) -> pd.DataFrame:
    """Return a world's measures for one n: coverages, widths, and how often bounds are broken."""
    world, n = task
    population = world.make()
    names, numbers = measure(population.part, population.prediction, 1, only)
    truth = pd.Series(numbers[:, 0], names)
    rng = np.random.default_rng([n, world.n_levels, *map(ord, str(world))])
    tables, peers = [], []
    for _ in range(draws):
        drawn = population.draw(n, rng)
        own, measured = measure(*drawn, only=only)
        tables.append(dict(zip(own, measured, strict=True)))
        if not only and world.task == "binary" and world.kind == "plain":
            peers.append(resample(*drawn, rng))
    sides = {
        side: pd.DataFrame([{name: table[name][k] for name in table} for table in tables])[names]
        for k, side in enumerate(("value", "low", "high"))
    }
    low, high = sides["low"], sides["high"]
    holds = (low <= truth + 1e-9) & (high >= truth - 1e-9)
    found = pd.DataFrame({"draws": low.notna().sum(), "covers": holds.where(low.notna()).mean()})
    found["width"] = (high - low).mean()
    if peers:
        resampled = list(peers[0])
        ends = np.array([[peer[name] for name in resampled] for peer in peers])
        value = truth[resampled].to_numpy()
        inside = (ends[..., 0] <= value + 1e-9) & (ends[..., 1] >= value - 1e-9)
        found.loc[resampled, "percentile"] = inside.mean(axis=0)
        found.loc[resampled, "percentile_width"] = np.ptp(ends, axis=-1).mean(axis=0)
    for name in sorted(BOUNDED & {*truth.index}):
        better = float(orient(name, np.array([truth[name]]))[0])
        for error in ERRORS:
            held = bound_scores(name, sides, bonferroni(error, 1))
            found.loc[name, f"broken_{error}"] = (held > better + 1e-9).mean()
    found = found[found["draws"] > draws / 4].assign(n=n, world=str(world))
    # All levels of a measure in one line.
    found["measure"] = [re.sub("=.*", "=", name) for name in found.index]
    return found.reset_index(drop=True)


def summarise(found: pd.DataFrame) -> pd.DataFrame:
    """Return a line for each measure and n, as the module says."""
    lines = []
    broken = [f"broken_{error}" for error in ERRORS]
    for column in ("percentile", "percentile_width", *broken):
        found[column] = found.get(column, np.nan)
    for (name, n), own in found.groupby(["measure", "n"]):
        by_world = own.groupby("world")[["covers", "percentile"]].min()
        covered = own[own["percentile"] >= COVERS]
        line = {
            "measure": name,
            "n": n,
            "covers": own["covers"].mean(),
            "least": by_world["covers"].min(),
            "world": by_world["covers"].idxmin(),
            "width": own["width"].mean(),
            "percentile_least": by_world["percentile"].min(),
            "width_ratio": (covered["width"] / covered["percentile_width"]).mean(),
            "broken_of_05": own[broken[0]].max(),
            "broken_of_0025": own[broken[1]].mean(),
        }
        lines.append(line)
    return pd.DataFrame(lines).round(4)


def list_worlds() -> list[tuple[World, int]]:
    """Return the worlds, and n."""
    kinds: dict[Task, tuple[str, ...]] = {
        "binary": KINDS,
        "multiclass": KINDS[:2],
        "regression": KINDS[:2],
    }
    return [
        (World(task, *world), n)
        for task, own in kinds.items()
        for world in product(LEVELS, SPREADS, own)
        for n in SIZES
        if world[1] != "near" or world[2] == "plain"
    ]


def main() -> None:
    """Simulate, print the table, and write data/results/benchmarks/coverage.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=400)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--only", nargs="+", default=(), choices=tuple(MEASURES.all()))
    chosen = parser.parse_args()
    with ProcessPoolExecutor(chosen.workers) as pool:
        run = partial(simulate, draws=chosen.draws, only=tuple(chosen.only))
        worlds = [
            each
            for each in list_worlds()
            if not chosen.only or any(each[0].task in MEASURES.find(x).task for x in chosen.only)
        ]
        found = list(pool.map(run, worlds))
    table = summarise(pd.concat(found)).assign(draws=chosen.draws)
    print(table.to_string(index=False))
    lines = json.loads(table.to_json(orient="records"))
    folders = [Path("data", "results", "benchmarks")]
    folders += [Path("data", "reference", "runs")] if chosen.record else []
    for folder in folders:
        path = find_home() / folder / "coverage.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        if chosen.only and path.exists():
            made = {(line["measure"], line["n"]): line for line in lines}
            kept = json.loads(path.read_text())
            lines = [made.get((line["measure"], line["n"]), line) for line in kept]
        path.write_text("[\n " + ",\n ".join(map(json.dumps, lines)) + "\n]\n")
        print(path)


if __name__ == "__main__":
    main()
