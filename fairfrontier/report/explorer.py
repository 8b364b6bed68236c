"""The explorer of a report: every setting with all its measures, for the page to draw."""

from __future__ import annotations

import base64
import hashlib
import math
import re
import shlex
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fairfrontier.figure.frontier import MARKERS, choose_looks, greater_is_better, name_measure
from fairfrontier.metrics.measure.registry import MEASURES
from fairfrontier.metrics.statistic.interval import wilson
from fairfrontier.metrics.statistic.rate import BINS, SUMS, divide
from fairfrontier.report.finding import name_pool, show_setting
from fairfrontier.report.summary import aims_at_individuals, find_groups
from fairfrontier.runtime.store import Store
from fairfrontier.study.config import DEFAULT_PROFILE, split_name
from fairfrontier.study.expand import Planned, needs_groups
from fairfrontier.study.mixture import pivot_measures
from fairfrontier.study.points import read_counts
from fairfrontier.study.reproduction import Reproduction
from fairfrontier.study.results import StudyResults

# Rates of a level, where the results have them; some of them are of all of its rows.
RATES = (
    "selection_rate", "mean_prediction", "tpr", "fpr", "accuracy", "disparity", "square_loss",
)  # fmt: skip
# Bundled, because Python packages that carry it need seconds to give it out, or draw on a canvas,
# which neither screen readers nor the keyboard reach.
LIBRARY = Path(__file__).with_name("vega.js")
SCRIPT = Path(__file__).with_name("explorer.js")
# The figures' markers as paths between -1 and 1.
SHAPES = dict(
    zip(
        MARKERS,
        (
            "M-1,0A1,1,0,1,1,1,0A1,1,0,1,1,-1,0Z",
            "M-.85,-.85H.85V.85H-.85Z",
            "M0,-1L.95,.75H-.95Z",
            "M0,-1L1,0L0,1L-1,0Z",
            "M0,1L.95,-.75H-.95Z",
            "M-.35,-1H.35V-.35H1V.35H.35V1H-.35V.35H-1V-.35H-.35Z",
            "M-1,-.6L-.6,-1L0,-.4L.6,-1L1,-.6L.4,0L1,.6L.6,1L0,.4L-.6,1L-1,.6L-.4,0Z",
            "M0,-1L.87,-.5V.5L0,1L-.87,.5V-.5Z",
            "M0,-1L.95,-.31L.59,.81H-.59L-.95,-.31Z",
        ),
        strict=True,
    )
)
# The colour of the figures that is too dark on a dark page.
LIGHTER = {"#555555": "#BBBBBB"}


def read_script() -> tuple[str, str]:
    """Return the explorer's script, and its source in a Content-Security-Policy."""
    script = SCRIPT.read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return script, f"'sha256-{digest}'"


def read_library() -> str:
    """Return the library that the script draws with, packed."""
    return pack(LIBRARY.read_text(encoding="utf-8"))


def pack(text: str) -> str:
    """Return a text compressed and in base 64: less than half its length, and no markup."""
    return base64.b64encode(zlib.compress(text.encode())).decode()


def tabulate_explorer(
    results: StudyResults,
    table: pd.DataFrame,
    reproduction: Reproduction,
    commands: Mapping[tuple[str, str], str],
    counts: pd.DataFrame | None = None,
) -> dict[str, Any]:
    """Return what the explorer shows, to be written as JSON.

    ``table`` has the measures of the frontier's block on the part test, from `summarise`; they are
    rounded to four digits, their intervals to three, and None is not estimable. Levels with fewer
    rows than the study's ``minimum`` are left out. ``commands`` are from `list_commands`,
    ``counts`` from `average_counts`.
    """
    study, frontier = results.study, results.frontier
    columns = {
        side: pivot_measures(table, ["method", "setting"], side)
        for side in ("value", "low", "high", "n", "left_out")
    }
    keys = list(columns["value"].index)
    published = _list_published(reproduction)
    looks = choose_looks({key[0] for key in keys} | {row["method"] for row in published})
    groups = find_groups(results.plan)
    chosen = frontier.loc[frontier["on_frontier"]].groupby(["method", "setting"])["fairness"]
    frontiers = {key: list(names) for key, names in chosen}
    seeds = table.groupby(["method", "setting"])["n_seeds"].max()
    return {
        "accuracy": study.frontier.accuracy,
        "fairness": list(study.frontier.fairness),
        "methods": [
            {
                "name": method,
                "colour": colour,
                "dark": LIGHTER.get(colour, colour),
                "shape": SHAPES[marker],
            }
            for method, (colour, marker) in looks.items()
        ],
        "settings": [
            {
                "method": key[0],
                "setting": show_setting(key[1], results.budgets.get(key, {})),
                "asks": needs_groups(groups[key]),
                "individual": aims_at_individuals(groups[key]),
                "frontiers": frontiers.get(key, []),
                "splits": int(seeds[key]),
                "command": commands.get(key),
            }
            for key in keys
        ],
        "measures": _list_measures(columns, study.minimum),
        "minimum": study.minimum,
        "shapes": list(SHAPES.values()),
        "scores": [] if counts is None else tabulate_scores(counts, keys, study.minimum),
        "published": published,
    }


def _list_measures(columns: Mapping[str, pd.DataFrame], minimum: int) -> list[dict[str, Any]]:
    """Return every measure with its values by setting, without levels of few rows."""
    names = {str(name): split_name(str(name)) for name in columns["value"].columns}
    few = {
        name: f" (small groups left out: {left_out:.0f})"
        for name, left_out in columns["left_out"].max().items()
        if left_out > 0
    }
    rows: dict[str, float] = {}
    for name, (measure, group) in names.items():
        if measure in RATES:
            rows[group] = max(rows.get(group, 0.0), float(columns["n"][name].max()))
    return [
        {
            "name": name,
            "label": name_measure(name) + few.get(name, ""),
            "measure": name_measure(measure),
            "attribute": group.partition("=")[0],
            "level": group.partition("=")[2],
            "better": MEASURES.find(measure).direction,
            "value": _shorten(columns["value"][name], 4),
            **{side: _shorten(columns[side][name], 3) for side in ("low", "high")},
            "n": _count(columns["n"][name]),
        }
        for name, (measure, group) in names.items()
        # A budget is not a level.
        if "=" not in group
        or group.startswith("budget=")
        or rows.get(group, columns["n"][name].max()) >= minimum
    ]


def _shorten(values: pd.Series, digits: int) -> list[float | None]:
    """Return numbers with so many decimals, or digits where they are small; None for NaN."""
    return [
        None
        if not math.isfinite(value)
        else round(value, digits)
        if abs(value) >= 0.1
        else float(f"{value:.{digits}g}")
        for value in values.tolist()
    ]


def _count(values: pd.Series) -> int | list[int | None]:
    """Return the rows behind a measure, one number where all settings have the same."""
    counts = [None if math.isnan(value) else round(value) for value in values.tolist()]
    return counts if len(set(counts)) > 1 or counts[0] is None else counts[0]


def _list_published(reproduction: Reproduction) -> list[dict[str, Any]]:
    """Return the rows of the paper's table and ours under its protocol, by measure."""
    if reproduction.points is None:
        return []
    return [
        {
            "method": str(row),
            **{
                side: dict(zip(cells["measure"], _shorten(cells[f"{side}_mean"], 4), strict=True))
                for side in ("published", "ours")
            },
        }
        for row, cells in reproduction.points.groupby("row", sort=False)
    ]


def list_commands(
    results: StudyResults, models: pd.DataFrame | None, asked: Sequence[str] = ()
) -> dict[tuple[str, str], str]:
    """Return what exports a setting of the frontier, or the Python that loads another one's model.

    ``models`` is from `list_models`; study and folder are named as they were ``asked`` for. By
    (method, setting).
    """
    commands: dict[tuple[str, str], str] = {}
    study, frontier = results.study, results.frontier
    name, *options = asked or (study.study,)
    options += [] if study.profile == DEFAULT_PROFILE else ["--profile", study.profile]
    chosen = frontier.loc[frontier["on_frontier"]]
    # Of equal settings the first is selected.
    traded = ["fairness", "selected_accuracy", "selected_fairness"]
    for row in chosen.drop_duplicates(traded, keep=False).to_dict("records"):
        measure, value = row["fairness"], row["selected_fairness"]
        # Others cannot be said in a query.
        if re.search(r"[\s<>≤≥]", measure) is None:
            bound = f">= {value!r}" if greater_is_better(measure) else f"<= {abs(value)!r}"
            words = ["fairfrontier", "select", name, f"subject to {measure} {bound}"]
            commands.setdefault((row["method"], row["setting"]), shlex.join([*words, *options]))
    for row in [] if models is None else models.to_dict("records"):
        lines = ["import fairfrontier as ff", f"ff.load_model({row['model']!r})"]
        if row["post_processor"]:
            lines[0] += "\nfrom fairfrontier.models.thresholds.model import PostProcessed"
            lines[1] = f"PostProcessed({lines[1]}, ff.load_model({row['post_processor']!r}))"
        commands.setdefault((row["method"], row["setting"]), "\n".join(lines))
    return commands


KEYS = ["method", "setting", "group"]
COLUMNS = (*KEYS, "score_low", "score_high", *SUMS)
# As many as there are colours for.
LEVELS = 8
# Calibration is shown by tenths of the scores, which have twice the rows of a bin.
MERGED = 2
TINY = np.finfo(np.float64).tiny


def average_counts(plan: Sequence[Planned], store: Store, home: Path, minimum: int) -> pd.DataFrame:
    """Return the scores of the frontier's settings on test, counted by group and bin.

    The columns are ``COLUMNS``: the `count_scores` of a split, means over the seeds. Levels of
    fewer rows than the minimum, and those beyond the largest ``LEVELS``, are pooled, and left out
    where they are fewer still.
    """
    frontier = [planned.group for planned in plan if "frontier" in planned.blocks]
    read = [read_counts(group, store, home) for group in frontier]
    counted = [table for table in read if table is not None and len(table)]
    if not counted:
        return pd.DataFrame(columns=list(COLUMNS))
    counts = pd.concat(counted, ignore_index=True)
    seeds = counts.groupby(["method", "setting"])["seed"].transform("nunique")
    counts[list(SUMS)] = counts[list(SUMS)].div(seeds, axis=0)
    pooled, summed = _pool_levels(counts, minimum), [*KEYS, "bin"]
    counts = counts.assign(group=[pooled.get(group, group) for group in counts["group"]])
    table = counts.groupby(summed, as_index=False)[list(SUMS)].sum()
    few = table.groupby(KEYS)["n"].transform("sum") < minimum
    table = table.assign(score_low=table["bin"] / BINS, score_high=(table["bin"] + 1) / BINS)
    return table.loc[~few, list(COLUMNS)].reset_index(drop=True)


def _pool_levels(counts: pd.DataFrame, minimum: int) -> dict[str, str]:
    """Return level -> the pool of its attribute, for every level that has no curve of its own."""
    sizes = counts.groupby(KEYS)["n"].sum().groupby("group").max().drop("", errors="ignore")
    sizes = sizes.sort_values(ascending=False, kind="stable")
    pools: dict[str, str] = {}
    for attribute, own in sizes.groupby([str(group).partition("=")[0] for group in sizes.index]):
        pooled = own < minimum
        if len(own) > LEVELS or pooled.any():
            pooled |= np.arange(len(own)) >= LEVELS - 1
        pools |= dict.fromkeys(own.index[pooled], f"{attribute}={name_pool(int(pooled.sum()))}")
    return pools


def tabulate_scores(
    counts: pd.DataFrame, keys: Sequence[tuple[str, str]], minimum: int
) -> list[dict[str, Any]]:
    """Return what the explorer draws of `average_counts`: for every group, by setting of ``keys``.

    ``share`` has the thousandths of the group's weight in each bin, and ``calibration`` a row for
    each tenth with the minimum of rows or more: mean score, share of positives and its Wilson
    interval at Kish's effective size, in percent. None where a setting has no scores.
    """
    places = pd.MultiIndex.from_tuples(keys).get_indexer(pd.MultiIndex.from_frame(counts[KEYS[:2]]))
    bins = np.rint(counts["score_low"].to_numpy(dtype=np.float64) * BINS).astype(int)
    values = counts[list(SUMS)].to_numpy(dtype=np.float64)
    shown: list[dict[str, Any]] = []
    for group, rows in sorted(counts.groupby("group").indices.items()):
        sums = np.zeros((len(SUMS), len(keys), BINS))
        sums[:, places[rows], bins[rows]] = values[rows].T
        attribute, _, level = str(group).partition("=")
        shown.append({"attribute": attribute, "level": level, **_draw_scores(sums, minimum)})
    return shown


def _draw_scores(sums: np.ndarray, minimum: int) -> dict[str, list[Any]]:
    """Return the numbers of one group for `tabulate_scores`; sums by setting and bin."""
    n, negative, positive, _, _ = sums
    weight = negative + positive
    share = 1000 * weight / np.maximum(weight.sum(axis=1, keepdims=True), TINY)
    tenths = sums.reshape(len(SUMS), len(n), -1, MERGED).sum(axis=3)
    rows, below, above, score, square = tenths
    total = below + above
    rate = divide(above, total)
    interval = wilson(rate, divide(total**2, square))
    lines = np.stack([divide(score, total), rate, *interval], axis=2)
    kept = (rows >= minimum) & (total > 0)
    found = n.sum(axis=1)
    return {
        "n": [round(each) or None for each in found.tolist()],
        "share": [
            np.rint(each).astype(int).tolist() if known else None
            for each, known in zip(share, found, strict=True)
        ],
        "calibration": [
            np.rint(100 * each[where]).astype(int).tolist() if known else None
            for each, where, known in zip(lines, kept, found, strict=True)
        ],
    }
