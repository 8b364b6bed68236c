"""From kept results of the contenders to wins, ties and losses."""

from __future__ import annotations

import itertools
import json
import platform
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import ttest_1samp

from fairfrontier.figure.frontier import COLOURS, STYLE
from fairfrontier.runtime.writer import filling

CRITERIA = ("parity", "equal_opportunity", "equalized_odds")
OBJECTIVES = ("accuracy", "balanced_accuracy")
BUDGETS = (0.0, 0.01, 0.02, 0.03, 0.05, 0.08, 0.1, 0.15)
TOLERANCES = (0.02, 0.05, 0.1)
# Ours by track. That labels are smoothed was chosen on validation rows, where it beat observed ones
# at equal gaps on five tables of six.
OURS = {"thresholds": "smoothed_thresholds", "training": "fairfrontier", "tuned": "study"}
# The base model. Neither it nor others of ours are peers.
PLAIN = "plain"
# What one user of a library has: rules of all of these, among which validation rows choose.
JOINED = {"training": ("fair_gbm", "linear_post", PLAIN)}
OTHERS = (PLAIN, "group_thresholds", "fair_gbm", "linear_post")
# Where anybody's rule may be drawn with the constant decision, or with any other, as `select
# --mixture` does. Thresholds on one model's scores draw by themselves.
MIXED = {"training": "constant", "tuned": "any"}
SPLIT = ["track", "table", "contender", "seed"]
CELL = ["track", "table", "criterion", "objective", "tolerance"]
REACHED = ["value", "gap", "held", "volume", "seconds"]
COMPARED = ["difference", "low", "high", "p"]
LEVEL = 0.05
VERDICTS = {"win": COLOURS[2], "tie": "#8b949e", "loss": COLOURS[1]}


def measure(probability: np.ndarray, y: np.ndarray, group: np.ndarray) -> dict[str, np.ndarray]:
    """Return objectives and gaps in expectation.

    Parameters
    ----------
    probability : ndarray, shape (n_criteria, n_objectives, n_budgets, n_samples)
        P(decision 1).
    y, group : ndarray of int64, shape (n_samples,)

    Returns
    -------
    dict of ndarray
        ``objective`` and ``gap``, (n_criteria, n_objectives, n_budgets). A group without rows of a
        class has no rate there, and counts for no gap.
    """
    n_groups = group.max() + 1
    cell = 2 * group + y
    mass = np.bincount(cell, minlength=2 * n_groups).reshape(n_groups, 2).astype(float)
    chosen = probability @ np.eye(2 * n_groups)[cell]
    chosen = chosen.reshape(*probability.shape[:-1], n_groups, 2)
    negatives, positives = mass.sum(axis=0)
    false, true = np.moveaxis(chosen.sum(axis=-2), -1, 0)
    accuracy = (true + negatives - false) / len(y)
    balanced = (true / positives + 1.0 - false / negatives) / 2.0
    with np.errstate(invalid="ignore"):
        rate = chosen / mass
        selection = chosen.sum(axis=-1) / mass.sum(axis=1)

    def spread(values: np.ndarray) -> np.ndarray:
        return np.fmax.reduce(values, axis=-1) - np.fmin.reduce(values, axis=-1)

    odds = np.maximum(spread(rate[2, ..., 0]), spread(rate[2, ..., 1]))
    return {
        "objective": np.stack([accuracy[:, 0], balanced[:, 1]], axis=1),
        "gap": np.stack([spread(selection[0]), spread(rate[1, ..., 1]), odds]),
    }


def measure_constant(y: np.ndarray, decision: int) -> list[float]:
    """Return the objectives of one decision for all, whose gaps are 0."""
    return [float((y == decision).mean()), 0.5]


def choose(
    objective: np.ndarray, gap: np.ndarray, tolerance: float, *, mixed: str = ""
) -> tuple[int, int, float]:
    """Return the best on validation whose gap there is within the tolerance: two rules, a share.

    The first rule is drawn with the share, else the second. Unmixed they are one rule, of equally
    good ones that with the smallest gap. Mixed with the ``constant``, which is the last rule and
    has no gap, or with ``any`` within the tolerance, a rule beyond it has the largest share at
    which their gap is within it: that is at most the gaps' own mixture.
    """
    within, beyond = np.flatnonzero(gap <= tolerance), np.flatnonzero(gap > tolerance)
    best = within[np.lexsort([gap[within], -objective[within]])[0]]
    partners = {"": within[:0], "constant": within[-1:], "any": within}[mixed]
    if partners.size and beyond.size:
        tight, tight_objective = gap[partners, None], objective[partners, None]
        share = (tolerance - tight) / (gap[beyond] - tight)
        worth = tight_objective + share * (objective[beyond] - tight_objective)
        i, j = np.unravel_index(worth.argmax(), worth.shape)
        if worth[i, j] > objective[best]:
            return int(beyond[j]), int(partners[i]), float(share[i, j])
    return int(best), int(best), 1.0


def sum_volume(objective: np.ndarray, gap: np.ndarray, reference: tuple[float, float]) -> float:
    """Return the area that rules dominate up to a reference objective and gap."""
    area, best = 0.0, reference[0]
    for i in np.argsort(gap):
        if gap[i] < reference[1] and objective[i] > best:
            area += (objective[i] - best) * (reference[1] - gap[i])
            best = objective[i]
    return area


def find_undominated(objective: np.ndarray, gap: np.ndarray) -> np.ndarray:
    """Return the positions of rules that no other surpasses in both."""
    order = np.lexsort([-objective, gap])
    best = np.maximum.accumulate(np.append(-np.inf, objective[order]))[:-1]
    return order[objective[order] > best]


def join(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return one result with the rules of several, and their seconds together."""
    joined = dict(results[0])
    for part, name in itertools.product(("validation", "test"), ("objective", "gap")):
        key = f"{part}_{name}"
        joined[key] = np.concatenate(
            [np.array(result[key], dtype=float) for result in results], axis=2
        )
    joined["seconds"] = sum(np.array(result["seconds"], dtype=float) for result in results)
    return joined


def judge(
    result: Mapping[str, Any], plain: Mapping[str, Any], *, mixed: str = ""
) -> Iterator[dict[str, Any]]:
    """Yield what a contender reaches on test, by criterion, objective and tolerance."""
    for i, criterion in enumerate(CRITERIA):
        for j, objective in enumerate(OBJECTIVES):
            if result["seconds"][i][j] is None:  # it has no such constraint
                continue
            seen, true = (
                tuple(
                    np.array([*result[f"{part}_{name}"][i][j], last], dtype=float)
                    for name, last in (("objective", result[f"{part}_constant"][j]), ("gap", 0.0))
                )
                for part in ("validation", "test")
            )
            made = np.flatnonzero(~np.isnan([*seen, *true]).any(axis=0))
            seen, true = ([each[made] for each in pair] for pair in (seen, true))
            reference = (result["test_constant"][j], plain["test_gap"][i][j][0])
            undominated = find_undominated(*seen)
            for tolerance in TOLERANCES:
                one, other, share = choose(*seen, tolerance, mixed=mixed)
                value, gap = (share * each[one] + (1 - share) * each[other] for each in true)
                yield {
                    "criterion": criterion,
                    "objective": objective,
                    "tolerance": tolerance,
                    "value": value,
                    "gap": gap,
                    "held": float(gap <= tolerance),
                    "volume": sum_volume(*(each[undominated] for each in true), reference),
                    "seconds": result["seconds"][i][j],
                }


def read_results(folder: Path) -> pd.DataFrame:
    """Return what all contenders whose results are kept reach, by seed."""
    rows = []
    for path in sorted(folder.glob(f"*/*/*-{PLAIN}.json")):
        track, table = path.parts[-3:-1]
        seed = path.stem.partition("-")[0]
        kept = {
            each.stem.partition("-")[2]: json.loads(each.read_text())
            for each in sorted(path.parent.glob(f"{seed}-*.json"))
        }
        own = JOINED.get(track, ())
        if own and set(own) <= set(kept):
            kept[OURS[track]] = join([kept[name] for name in own])
        for contender, result in kept.items():
            fixed = {"track": track, "table": table, "contender": contender, "seed": int(seed)}
            judged = judge(result, kept[PLAIN], mixed=MIXED.get(track, ""))
            rows += [fixed | row for row in judged]
    return pd.DataFrame(rows)


def correct(p: pd.Series) -> pd.Series:
    """Return p-values corrected for their number by Holm's steps; those that are missing stay."""
    rising = p.dropna().sort_values()
    steps = (len(rising) - np.arange(len(rising))) * rising
    return steps.cummax().clip(upper=1.0).reindex(p.index)


def compare(ours: pd.Series, peer: pd.Series) -> dict[str, float]:
    """Return the mean difference over seeds that both have, its 95% interval and p-value.

    Splits of one table share rows, so that the intervals are narrower than those of new tables.
    """
    difference = (ours - peer).dropna().to_numpy()
    mean = float(difference.mean()) if difference.size else np.nan
    if difference.size < 2:
        return {"difference": mean}
    if np.ptp(difference) == 0:
        return {"difference": mean, "low": mean, "high": mean, "p": 1.0}
    test = ttest_1samp(difference, 0.0)
    low, high = test.confidence_interval()
    return {"difference": mean, "low": low, "high": high, "p": float(test.pvalue)}


def summarise(results: pd.DataFrame, ours: Mapping[str, str] = OURS) -> pd.DataFrame:
    """Return the means over seeds by cell and contender, and how ours compares to each peer."""
    rows = []
    for cell, found in results.groupby(CELL, sort=False):
        track = found["track"].iloc[0]
        values = found.pivot_table("value", index="seed", columns="contender")
        means = found.groupby("contender", sort=False)[REACHED].mean()
        for contender, mean in means.iterrows():
            row = dict(zip(CELL, cell, strict=True)) | {"contender": contender}
            row |= {"seeds": int(values[contender].count()), **mean}
            if contender not in (ours[track], *OTHERS) and ours[track] in values:
                row |= compare(values[ours[track]], values[contender])
            rows.append(row)
    summary = pd.DataFrame(rows, columns=[*CELL, "contender", "seeds", *REACHED, *COMPARED])
    summary["p"] = summary.groupby("track")["p"].transform(correct)
    compared = summary["p"].notna()
    outcome = np.where(summary["difference"] > 0, "win", "loss")
    summary["verdict"] = np.where(summary["p"] < LEVEL, outcome, np.where(compared, "tie", ""))
    return summary


def contain(results: pd.DataFrame) -> pd.DataFrame:
    """Return how our thresholds compare to every contender that does not know the groups.

    Whether post-processing the most accurate model contains all else (Cruz and Hardt, Unprocessing
    seven years of algorithmic fairness, ICLR 2024).
    """
    own = OURS["thresholds"]
    knowing = results[(results["track"] == "thresholds") & (results["contender"] == own)]
    blind = results[results["track"] == "training"]
    return summarise(pd.concat([blind, knowing.assign(track="training")]), {"training": own})


def count_verdicts(summary: pd.DataFrame) -> pd.DataFrame:
    """Return "wins / ties / losses" by track, table and peer."""
    compared = summary[summary["verdict"] != ""]
    return compared.pivot_table(
        "verdict",
        index=["track", "table"],
        columns="contender",
        aggfunc=lambda each: " / ".join(str((each == verdict).sum()) for verdict in VERDICTS),
        sort=False,
    )


def draw(summary: pd.DataFrame, path: Path) -> None:
    """Draw the mean differences of ours to each peer, a panel each."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    compared = summary[summary["verdict"] != ""]
    peers = {track: list(cells.groupby("contender", sort=False))
             for track, cells in compared.groupby("track", sort=False)}  # fmt: skip
    columns = max(map(len, peers.values()))
    tables = list(dict.fromkeys(compared["table"]))
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(2.6 * columns + 1.2, (0.3 * len(tables) + 1.1) * len(peers)))
        axes = figure.subplots(len(peers), columns, sharex=True, sharey=True, squeeze=False)
        pairs = itertools.product(peers, range(columns))
        for panel, (track, column) in zip(axes.flat, pairs, strict=True):
            if column >= len(peers[track]):
                panel.set_visible(False)
                continue
            peer, cells = peers[track][column]
            for verdict, colour in VERDICTS.items():
                some = cells[cells["verdict"] == verdict]
                heights = [tables.index(name) for name in some["table"]]
                panel.scatter(some["difference"], heights, s=14, alpha=0.6, c=colour, label=verdict)
            panel.axvline(0.0, color="#30363d", linewidth=0.8)
            panel.set_title(f"{track}: {peer}", fontsize=9, loc="left")
            panel.set_yticks(range(len(tables)), tables)
            panel.tick_params(labelbottom=True)
        axes[0, 0].legend(frameon=False, fontsize=8)
        figure.supxlabel("objective on test, ours − peer", fontsize=9)
        figure.tight_layout()
        figure.savefig(path, dpi=110, metadata={"Software": None})


def add_recorded(
    measured: pd.DataFrame, recorded: pd.DataFrame, names: Sequence[str]
) -> pd.DataFrame:
    """Return rows after those of a kept run that they share no names with."""
    again = pd.MultiIndex.from_frame(recorded[[*names]]).isin(
        pd.MultiIndex.from_frame(measured[[*names]])
    )
    recorded = recorded[~again]
    return pd.concat([recorded, measured], ignore_index=True) if len(recorded) else measured


def read_cells(run: Mapping[str, Any], columns: Sequence[str]) -> pd.DataFrame:
    """Return the cells of a kept run, of these columns where there is none."""
    return pd.DataFrame(run.get("cells", ()), columns=run.get("columns", [*columns]))


def add_splits(measured: pd.DataFrame, path: Path, names: Sequence[str]) -> pd.DataFrame:
    """Return results by split after those kept in a file that they share no names with."""
    recorded = pd.read_csv(path) if path.is_file() else measured.iloc[:0]
    return add_recorded(measured, recorded, names)


def record(folder: Path, home: Path) -> str:
    """Write the kept run and its figure, and return the table of wins, ties and losses.

    Splits are added to those that were recorded before. A table of a track without any stays as it
    was recorded; its p-values were corrected for the cells of its own run.
    """
    reference = home / "data" / "reference"
    path = reference / "runs" / "scoreboard.json"
    before = json.loads(path.read_text()) if path.is_file() else {}
    splits = path.with_suffix(".csv")
    results = add_splits(read_results(folder), splits, SPLIT)
    summary, contained = summarise(results), count_verdicts(contain(results))
    summary = add_recorded(summary, read_cells(before, [*summary]), ["track", "table"])
    rounded = summary.round({"p": 4} | dict.fromkeys(["value", "gap", "held", "volume"], 5))
    rounded = rounded.round(dict.fromkeys(["difference", "low", "high", "seconds"], 5))
    lines = [json.dumps(row) for row in json.loads(rounded.to_json(orient="values"))]
    about = {
        "run": "python -m benchmarks.frontier",
        "machine": f"{platform.machine()}, 2 threads",
        "versions": {name: version(name) for name in ("fairfrontier", "numpy", "xgboost-cpu")},
        "contained": {
            table: counts.dropna().to_dict() for (_, table), counts in contained.iterrows()
        }
        or before.get("contained", {}),
        "columns": list(summary),
    }
    head = json.dumps(about, indent=1)[:-2]
    text = f'{head},\n "cells": [\n  ' + ",\n  ".join(lines) + "\n ]\n}\n"
    with filling(path.parent, what="the run", mend="Mend its permissions.") as work:
        (work / path.name).write_text(text)
        results.round(5).to_csv(work / splits.name, index=False)
    draw(summary, reference / "figures" / "scoreboard.png")
    return f"{count_verdicts(summary).to_string()}\n\nContained:\n{contained.to_string()}"
