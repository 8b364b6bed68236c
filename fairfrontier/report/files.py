"""The files that a study leaves behind."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import math
import re
import shlex
import shutil
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from markdown_it import MarkdownIt
from markupsafe import Markup

from fairfrontier.figure.certificate import Exposure, expose_chosen
from fairfrontier.figure.frontier import (
    COLOURS,
    MARKERS,
    choose_looks,
    draw_charts,
    greater_is_better,
    name_measure,
    name_within,
    trace_chart,
)
from fairfrontier.metrics.measure.registry import MEASURES, split_name
from fairfrontier.metrics.statistic.interval import wilson
from fairfrontier.metrics.statistic.rate import BINS, SUMS, divide
from fairfrontier.models.fit.group import FitGroup, load_split
from fairfrontier.models.registry import METHODS
from fairfrontier.prepare.config.dataset import read_dataset
from fairfrontier.prepare.embedding.feature import list_changes, name_encoder
from fairfrontier.report.finding import embed, list_versions, name_pool, open_template, show_setting
from fairfrontier.report.view import RATES, SHAPES, list_views
from fairfrontier.runtime.errors import ConfigError
from fairfrontier.runtime.finder import find_yaml, is_path, list_names
from fairfrontier.runtime.option import check_again
from fairfrontier.runtime.seeds import derive_generator
from fairfrontier.runtime.source import PACKAGES, file_digest
from fairfrontier.runtime.store import Store, canonical_json, hash_file
from fairfrontier.runtime.text_file import list_rows, to_csv
from fairfrontier.runtime.writer import filling, recover
from fairfrontier.study import drawing
from fairfrontier.study.config import DEFAULT_PROFILE, StudyConfig
from fairfrontier.study.frontier import (
    SCHEMA,
    StudyResults,
    list_fits,
    name_columns,
    orient,
    pivot_measures,
    summarise,
)
from fairfrontier.study.points import read_counts
from fairfrontier.study.price import price, state_finding
from fairfrontier.study.reproduction import Reproduction, load_laboratory
from fairfrontier.study.resolve import Planned, list_models, needs_groups
from fairfrontier.study.run import StudyRun

# The report of a study: one HTML file that needs no network.

# summary.json: what was run, the frontier, and which claims held.


def build_summary(
    results: StudyResults, claims: Sequence[Mapping[str, Any]], seconds: float
) -> dict[str, Any]:
    """Return a study's outcome in plain values, ready for JSON.

    ``seconds`` is the wall-clock time of the run, cached parts included.
    """
    study, frontier, searched = results.study, results.frontier, results.searched
    failed = searched.list_failed() if searched else []
    chosen = frontier.loc[frontier["on_frontier"] | frontier["on_joint_frontier"]]
    return {
        "study": study.study,
        "profile": study.profile,
        # The folders of a path are those of this machine.
        "dataset": Path(study.dataset).name if is_path(study.dataset) else study.dataset,
        "seconds": round(float(seconds), 3),
        "versions": list_versions(),
        "counts": {
            "fits": len(results.plan),
            "points": len(results.points),
            "settings": len(frontier.drop_duplicates(["method", "setting"])),
            "on_frontier": int(frontier.groupby(["method", "setting"])["on_frontier"].any().sum()),
            "claims": len(claims),
            "claims_held": sum(claim["held"] is True for claim in claims),
            **(
                {"trials": searched.trials, "failed_trials": len(searched.failed)}
                if searched
                else {}
            ),
        },
        "select_on": study.select_on,
        "objective": study.objective,
        "accuracy": study.frontier.accuracy,
        "fairness": list(study.frontier.fairness),
        "frontier": [
            {
                **row,
                "setting": json.loads(row["setting"]),
                **results.budgets.get((row["method"], row["setting"]), {}),
            }
            for row in list_rows(chosen)
        ],
        "worse_than_plain": [
            {"method": method, "setting": json.loads(setting), **why}
            for (method, setting), why in find_worse(study, results.plan, results.points).items()
        ],
        "claims": list(claims),
        "skipped": dict(results.skipped),
        "failed_trials": failed,
    }


# Smaller differences of means are no reason to warn.
MARGIN = 0.01
# By how much more a row loses from training to test rows than the plain method, if it overfits.
OVERFIT = 0.05

Key = tuple[str, str]


def find_worse(
    study: StudyConfig, plan: Sequence[Planned], points: pd.DataFrame
) -> dict[Key, dict[str, Any]]:
    """Return the rows that the plain method beats in the objective and in their kind of fairness.

    Plain is the method's ``plain`` or, behind a post-processor, the method without it. The kinds
    are measures on counterfactual versions for methods with a fair metric or such versions, and all
    others. Both means on test rows are worse by more than ``MARGIN``.

    Returns
    -------
    dict
        (method, setting as canonical JSON) -> ``plain``, the row that beats it, and ``reason``.
    """
    fits, names = list_fits(plan, "frontier"), (study.frontier.accuracy, *study.frontier.fairness)
    part = {name: _tabulate(points, fits, name) for name in ("train", "test")}
    groups = find_groups(plan)
    worse = {}
    for key, group in groups.items():
        own = [
            names[0],
            *(name for name in names[1:] if _is_individual(name) == aims_at_individuals(group)),
        ]
        beaten = [
            base
            for base in _list_plain(group, groups)
            if len(own) > 1 and all(_differ(part["test"], name, base, key) > MARGIN for name in own)
        ]
        if beaten:
            base = max(beaten, key=lambda base: _differ(part["test"], names[0], base, key))
            worse[key] = {"plain": base[0], "reason": _explain_worse(part, names[0], base, key)}
    return worse


def find_groups(plan: Sequence[Planned]) -> dict[Key, FitGroup]:
    """Return the fit groups of the frontier's settings."""
    return {
        (planned.group.method, canonical_json(member.setting)): planned.group
        for planned in plan
        if "frontier" in planned.blocks
        for member in planned.group.members
    }


def list_asking(plan: Sequence[Planned]) -> set[Key]:
    """Return the frontier's settings whose models ask for the group of a row."""
    return {key for key, group in find_groups(plan).items() if needs_groups(group)}


def _tabulate(points: pd.DataFrame, fits: pd.DataFrame, part: str) -> pd.DataFrame:
    """Return means by (method, setting), a column for each measure."""
    table = summarise(points, fits, part)
    return table.pivot_table(index=["method", "setting"], columns="name", values="value")


def _is_individual(name: str) -> bool:
    needs = MEASURES.find(split_name(name)[0]).needs
    return bool(needs & {"counterfactuals", "counterfactual_score"})


def aims_at_individuals(group: FitGroup) -> bool:
    """Return whether the last thing done for fairness is for individuals."""
    method = METHODS.get(group.estimator)
    individual = {"metric", "counterfactuals"}
    return group.then is None and method is not None and bool(method.fit_needs & individual)


def _list_plain(group: FitGroup, groups: Mapping[Key, FitGroup]) -> Iterator[Key]:
    method = METHODS.get(group.estimator)
    if method is None:
        return
    plain = method.plain if group.then is None else group.estimator
    for key, other in groups.items():
        same = group.then is None and other.estimator == group.estimator
        if other.estimator == plain and other.then is None and not same:
            yield key


def _differ(table: pd.DataFrame, name: str, base: Key, key: Key) -> float:
    """Return by how much a row is better than another one in a measure; NaN where not known."""
    if name not in table or base not in table.index or key not in table.index:
        return np.nan
    column = table[name]
    better, worse = orient(name, np.array([column[base], column[key]]))
    return float(better - worse)


def _explain_worse(part: Mapping[str, pd.DataFrame], accuracy: str, base: Key, key: Key) -> str:
    """Return the likely reason why a row is worse than the plain one."""
    lost = _differ(part["test"], accuracy, base, key) - _differ(part["train"], accuracy, base, key)
    if lost > OVERFIT:
        return (
            "it loses more from training to test rows, and so overfits: fewer or shallower rounds, "
            "or early_stopping with validation rows, may help"
        )
    order = _differ(part["test"], "auc", base, key)
    if order > 2 * MARGIN:
        return (
            f"its AUC is {order:.2f} lower: so tight a constraint leaves little to learn from, and "
            "a smaller budget or strength may help"
        )
    if order <= MARGIN:
        return "its scores order rows as well, so that it is the cut that was chosen on other rows"
    return "nothing in its numbers says why; more seeds would show whether it is chance"


SHOWN = 200


def list_text_changes(groups: Sequence[FitGroup], home: Path) -> pd.DataFrame | None:
    """Return what counterfactual texts changed in the test part of a study's first split.

    At most 200 replaced words, a random sample, each with the row, the set, the version, and an
    excerpt before and after; None for datasets without texts.
    """
    if not groups:
        return None
    group = groups[0]
    if read_dataset(find_yaml("dataset", group.dataset, home), home).features.text is None:
        return None
    split = load_split(group, group.members[0], home)
    table = list_changes(split.test or split.train)
    if table.empty:
        return None
    drawn = derive_generator("changes", split.dataset).permutation(len(table))[:SHOWN]
    return table.iloc[np.sort(drawn)]


# The explorer of a report: every setting with all its measures, for the page to draw.

SCRIPT = Path(__file__).with_name("explorer.js")
# The figures' colours on a light and on a dark page, each of a contrast of 3 or more.
LIGHT = [{"#E69F00": "#B57C00", "#56B4E9": "#3A93C9"}.get(each, each) for each in COLOURS]
DARK = [{"#555555": "#BBBBBB"}.get(each, each) for each in COLOURS]


def read_script() -> tuple[str, str]:
    """Return the explorer's script, and its source in a Content-Security-Policy."""
    script = SCRIPT.read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return script, f"'sha256-{digest}'"


def pack(text: str) -> str:
    """Return a text compressed and in base 64: less than half its length, and no markup."""
    return base64.b64encode(zlib.compress(text.encode())).decode()


def tabulate_explorer(
    results: StudyResults,
    table: pd.DataFrame,
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
    looks = choose_looks(key[0] for key in keys)
    groups = find_groups(results.plan)
    chosen = frontier.loc[frontier["on_frontier"]].groupby(["method", "setting"])["fairness"]
    frontiers = {key: list(names) for key, names in chosen}
    seeds = table.groupby(["method", "setting"])["n_seeds"].max()
    return {
        "accuracy": study.frontier.accuracy,
        "fairness": list(study.frontier.fairness),
        "methods": [
            {"name": method, "colour": COLOURS.index(colour), "shape": MARKERS.index(marker)}
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
        "shapes": SHAPES,
        "scores": [] if counts is None else tabulate_scores(counts, keys, study.minimum),
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


def list_commands(
    results: StudyResults, models: pd.DataFrame | None, asked: Sequence[str] = ()
) -> dict[tuple[str, str], str]:
    """Return what exports a setting of the frontier, or the Python that loads another one's model.

    ``models`` is from `list_models`; study and folder are named as they were ``asked`` for. By
    (method, setting).
    """
    commands: dict[tuple[str, str], str] = {}
    study, frontier = results.study, results.frontier
    name, *options = name_study(study, asked)
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
            lines[1] = f"ff.load_model({row['post_processor']!r}).behind({lines[1]})"
        commands.setdefault((row["method"], row["setting"]), "\n".join(lines))
    return commands


def name_study(study: StudyConfig, asked: Sequence[str]) -> list[str]:
    """Return the words that name a study and its folder in a command, as they were asked for."""
    profile = [] if study.profile == DEFAULT_PROFILE else ["--profile", study.profile]
    return [*(asked or (study.study,)), *profile]


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


AGGREGATES = ("selection_rate_ratio", "gap_max", "gap_rms", "disparity", "square_loss_max")
FOUR_FIFTHS = 0.8
# Proposition 2.3 is applied at this difference of log-odds: odds that are e times as high.
LOG_ODDS = 1.0
TEMPLATE = Path(__file__).with_name("report.html.j2")
# What a report is made of, besides Python.
SOURCES = tuple(sorted(path for path in TEMPLATE.parent.iterdir() if path.suffix in (".j2", ".js")))
# Images would be fetched from the network.
_NOTES = MarkdownIt("commonmark", {"html": False}).disable("image")


def render_report(
    results: StudyResults,
    summary: Mapping[str, Any],
    reproduction: Reproduction,
    pictures: Mapping[str, drawing.Picture] = MappingProxyType({}),
    exposed: Mapping[tuple[str, str], Exposure] = MappingProxyType({}),
    models: pd.DataFrame | None = None,
    counts: pd.DataFrame | None = None,
    asked: Sequence[str] = (),
) -> str:
    """Return the report as HTML, in which all text from data or configuration is escaped.

    ``pictures`` are further figures by their registered names, and ``exposed`` has the worst moves
    behind the certificates by (method, setting). ``models`` is from `list_models`, ``counts`` from
    `average_counts`, and commands name study and folder as they were ``asked`` for.
    """
    study = results.study
    table = summarise(results.points, list_fits(results.plan, "frontier"), "test")
    commands = list_commands(results, models, asked)
    prices = summary.get("prices", {})
    asks, name = list_asking(results.plan), name_study(study, asked)
    objective, rows = study.frontier.accuracy, prices.get("rows", ())
    views = list_views(table, rows, objective, asks, name, study.minimum)
    shown = [row for view in views for row in view["rows"]]
    named = {(row["method"], row["setting"]): row["letter"] for row in shown}
    # As short as they can be.
    commands |= {(row["method"], row["setting"]): row["command"] for row in shown if row["command"]}
    explorer = tabulate_explorer(results, table, commands, counts)
    script, allowed = read_script()
    return open_template(TEMPLATE).render(
        study=study,
        summary=summary,
        pictures=[
            {"about": drawing.FIGURES.find(name), **embed(picture)}
            for name, picture in pictures.items()
        ],
        settings=_tabulate_settings(results, summary["worse_than_plain"]),
        # A package's own, which escapes text from data.
        reproduced=Markup(reproduction.html),  # noqa: S704
        cards=_make_cards(results, table, exposed, named),
        notes=render_notes(study.notes),
        measures=list(study.frontier.fairness),
        finding=state_title(study, prices),
        views=views,
        objective=name_within(objective),
        shapes=SHAPES,
        log_odds=LOG_ODDS,
        tau=LOG_ODDS**2 / 4,
        # The project's own, which no text from data is part of.
        script=Markup(script),  # noqa: S704
        allowed=allowed,
        palette={"light": LIGHT, "dark": DARK},
        data=pack(json.dumps(explorer, allow_nan=False)),
    )


def state_title(study: StudyConfig, prices: Mapping[str, Any]) -> str:
    """Return what the price list says of the first attribute whose gap is estimable."""
    rows = prices.get("rows", ())
    known = [row for row in rows if row["gap"] is not None]
    return state_finding(study.study, {**prices, "rows": known or rows}, study.frontier.accuracy)


def render_notes(text: str) -> Markup:
    """Return notes in Markdown as HTML; HTML in them is escaped."""
    # markdown-it escapes everything, and refuses links that run scripts.
    return Markup(_NOTES.render(text))  # noqa: S704


def _tabulate_settings(
    results: StudyResults, worse: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return the settings with all their measures, the chosen ones first.

    Those of a method whose numbers are the same are one row, with all their ``settings``.
    """
    frontier, accuracy = results.frontier, results.study.frontier.accuracy
    remarks = {(row["method"], canonical_json(row["setting"])): row for row in worse}
    rows: dict[Any, dict[Any, Any]] = {}
    for (method, setting), table in frontier.groupby(["method", "setting"], sort=False):
        key, by_measure = (str(method), str(setting)), table.to_dict("records")
        numbers = table.drop(columns="setting").to_json(orient="values")
        row = rows.setdefault(
            (numbers, key in remarks),
            {
                **by_measure[0],
                "settings": [],
                "worse": remarks.get(key),
                "chosen": bool(table["on_frontier"].any()),
                "fairness": {each["fairness"]: each for each in by_measure},
            },
        )
        row["settings"].append(show_setting(key[1], results.budgets.get(key, {})))

    def rank(row: Mapping[str, Any]) -> tuple[bool, bool, float]:
        score = orient(accuracy, np.array([row["accuracy"]], dtype=np.float64))[0]
        return not row["chosen"], not row["on_joint_frontier"], -float(score)

    return sorted(rows.values(), key=rank)


def _make_cards(
    results: StudyResults,
    table: pd.DataFrame,
    exposed: Mapping[tuple[str, str], Exposure],
    named: Mapping[tuple[str, str], str],
) -> list[dict[str, Any]]:
    """Return an audit card, on the part test, for every setting that has a name or worst moves.

    For those on some frontier where no setting has either.
    """
    frontier = results.frontier
    chosen = frontier.loc[frontier["on_frontier"]]
    frontiers: dict[tuple[str, str], list[str]] = {}
    for row in chosen.itertuples():
        frontiers.setdefault((str(row.method), str(row.setting)), []).append(str(row.fairness))
    cards = []
    for method, setting in dict.fromkeys([*named, *exposed]) or [*frontiers]:
        rows = table.loc[(table["method"] == method) & (table["setting"] == setting)]
        found = {str(row["name"]): row for row in rows.to_dict("records")}
        split = {name: split_name(name) for name in found}
        consistency = {
            group: found[name]
            for name, (measure, group) in split.items()
            if measure == "consistency"
        }
        certified = [
            {
                "budget": group.partition("=")[2],
                "box": found.get(f"dif_box:{group}", {}).get("value"),
                "gap": found.get(f"adversarial_gap:{group}"),
                "errors": found.get(f"adversarial_error_gap:{group}"),
                **found[name],
            }
            for name, (measure, group) in split.items()
            if measure == "dif"
        ]
        cards.append(
            {
                "method": method,
                "setting": show_setting(setting),
                "attributes": _audit_attributes(found, split, results.study.minimum),
                "consistency": consistency,
                "certificates": sorted(certified, key=lambda row: float(row["budget"])),
                "exposure": exposed.get((method, setting)),
                "letter": named.get((method, setting), ""),
                "frontiers": frontiers.get((method, setting), []),
            }
        )
    return cards


def _audit_attributes(
    found: Mapping[str, Mapping[Any, Any]], split: Mapping[str, tuple[str, str]], minimum: int
) -> list[dict[str, Any]]:
    """Return the rates of every level and the aggregates, by attribute; crossed ones last.

    Levels with fewer rows than the minimum have no rates, and are one row.
    """
    levels: dict[str, dict[str, str]] = {}
    for measure, group in split.values():
        if measure in RATES and "=" in group:
            attribute, _, level = group.partition("=")
            levels.setdefault(attribute, {})[group] = level
    audited = []
    for attribute, groups in sorted(levels.items(), key=lambda item: ("×" in item[0], item[0])):
        rates = [rate for rate in RATES if any(f"{rate}:{group}" in found for group in groups)]
        cells = {group: [found.get(f"{rate}:{group}") for rate in rates] for group in groups}
        rows = [
            {
                "level": level,
                "n": max(cell["n"] for cell in cells[group] if cell is not None),
                "rates": cells[group],
            }
            for group, level in groups.items()
        ]
        small = [row for row in rows if row["n"] < minimum]
        if small:
            pooled = {"level": name_pool(len(small)), "n": sum(row["n"] for row in small)}
            rows = [row for row in rows if row["n"] >= minimum]
            rows.append({**pooled, "rates": [None] * len(rates)})
        ratio = found.get(f"selection_rate_ratio:{attribute}")
        names = {name: f"{name}:{attribute}" for name in AGGREGATES}
        audited.append(
            {
                "attribute": attribute,
                "rates": rates,
                "levels": rows,
                "aggregates": {
                    short: found[name] for short, name in names.items() if name in found
                },
                "below_four_fifths": ratio is not None and ratio["value"] < FOUR_FIFTHS,
            }
        )
    return audited


KIND = "results"


def write_results(
    results: StudyResults,
    folder: Path,
    seconds: float,
    *,
    home: Path,
    store: Store | None = None,
    reproduction: Reproduction | None = None,
    asked: Sequence[str] = (),
) -> dict[str, Path]:
    """Write everything that a study leaves behind, and return file name -> path.

    Without a store, models.csv, scores.parquet and the study's further figures are left out;
    scores.parquet is written where there are two classes, changes.csv is written
    where the dataset has texts, published.csv where a table is reproduced. The report's commands
    name study and folder as they were ``asked`` for. All files are made
    before the first one is replaced: with StoreError, when the folder cannot be written, no file in
    it has changed. Equal points are equal bytes of points.parquet, with one version of pyarrow.
    """
    study, plan, points, frontier = results.study, results.plan, results.points, results.frontier
    reproduction = reproduction or Reproduction()
    summary = build_summary(results, reproduction.claims, seconds)
    models = changes = counts = None
    # The table of the points may have no YAML.
    with suppress(ConfigError):
        if store is not None:
            models = list_models(plan, store, home)
            changes = list_text_changes([planned.group for planned in plan], home)
            counts = average_counts(plan, store, home, study.minimum)
        encoder = name_encoder(study.dataset, home)
        summary |= {} if encoder is None else {"encoder": encoder}
        if models is not None and len(models):
            summary["prices"] = price(results, models, home)
    pictures: dict[str, drawing.Picture] = {}
    exposed: dict[tuple[str, str], Exposure] = {}
    if store is not None:
        scene = drawing.Scene(study, plan, points, frontier, store, home)
        pictures = {name: drawing.FIGURES.find(name).draw(scene) for name in study.figures}
        exposed = expose_chosen(scene)
    report = render_report(results, summary, reproduction, pictures, exposed, models, counts, asked)
    files = {
        "points.parquet": _to_parquet(points, SCHEMA),
        "frontier.csv": to_csv(name_columns(frontier, study.frontier.accuracy)),
        "report.html": report.encode(),
        "summary.json": (json.dumps(summary, indent=2, ensure_ascii=False) + "\n").encode(),
    }
    files |= draw_frontier(results, summary)
    files |= {f"{name}.png": picture.png for name, picture in pictures.items()}
    if models is not None:
        files["models.csv"] = to_csv(models)
    if counts is not None and len(counts):
        files["scores.parquet"] = _to_parquet(counts)
    if changes is not None:
        files["changes.csv"] = to_csv(changes)
    if reproduction.published is not None:
        files["published.csv"] = to_csv(reproduction.published)
    return _replace_files(folder, files)


def draw_frontier(results: StudyResults, summary: Mapping[str, Any]) -> dict[str, bytes]:
    """Return frontier.png, the chart of the first attribute, and attributes.png with several.

    Of the study's measures of fairness where no gap is priced.
    """
    study, prices = results.study, summary.get("prices", {})
    table = summarise(results.points, list_fits(results.plan, "frontier"), "test")
    rows = [row for row in prices.get("rows", ()) if row["gap"] is not None]
    measures = dict.fromkeys(row["measure"] for row in rows) or study.frontier.fairness
    asks = list_asking(results.plan)
    charts = [trace_chart(table, study.frontier.accuracy, each, rows, asks) for each in measures]
    files = {"frontier.png": draw_charts(charts[:1], state_title(study, prices))}
    if len(charts) > 1:
        files["attributes.png"] = draw_charts(charts, study.study)
    return files


def describe_results(run: StudyRun) -> dict[str, Any]:
    """Return everything on which the files of a study depend, except the seconds that it took."""
    modules = [drawing.FIGURES.find(name).draw.__module__ for name in run.study.figures]
    packages = {module.partition(".")[0] for module in modules}
    references = list_names("publication", run.home).values()
    laboratory = load_laboratory()
    beside = Path(laboratory.__file__).parent.glob("*.j2") if laboratory else ()
    return {
        "study": run.study.model_dump(mode="json"),
        "plan": [
            {
                "points": key,
                "blocks": planned.blocks,
                "method": planned.group.method,
                "members": [[member.seed, member.setting] for member in planned.group.members],
            }
            for planned, key in zip(run.plan, run.points, strict=True)
        ],
        "references": {path.name: hash_file(path) for path in references},
        "template": [hash_file(path) for path in (*SOURCES, *sorted(beside))],
        # To write a report again costs less than to find what an edit changes in it.
        "source": file_digest(tuple(sorted({*PACKAGES, *packages}))),
        "libraries": list_versions(),
        # The report counts failed trials, which are no fits of the plan.
        "searched": run.searched
        and {
            "trials": run.searched.trials,
            "failed": run.searched.list_failed(),
            "absent": dict(run.searched.absent),
        },
        # The report's commands name it.
        "asked": run.options.shown,
    }


def keep_results(files: Mapping[str, Path], store: Store, description: Mapping[str, Any]) -> None:
    """Keep the files of a study in the store."""
    with store.writing(KIND, store.key(KIND, description), description) as folder:
        for name, path in files.items():
            shutil.copyfile(path, folder / name)


def restore_results(folder: Path, store: Store, description: Mapping[str, Any]) -> bool:
    """Restore the kept files of a study to its folder; False where none are kept."""
    recover(folder)
    files = store.list_files(KIND, store.key(KIND, description))
    if files is None:
        return False
    kept = {name: path.read_bytes() for name, path in files.items()}
    paths = {name: folder / name for name in kept}
    if any(not path.is_file() or path.read_bytes() != kept[name] for name, path in paths.items()):
        _replace_files(folder, kept)
    return True


def _to_parquet(frame: pd.DataFrame, schema: pa.Schema | None = None) -> bytes:
    """Return Parquet without pandas' own metadata, which contains versions."""
    table = pa.Table.from_pandas(frame, schema=schema, preserve_index=False)
    sink = io.BytesIO()
    pq.write_table(table.replace_schema_metadata(None), sink, compression="zstd", version="2.6")
    return sink.getvalue()


def _replace_files(folder: Path, files: Mapping[str, bytes]) -> dict[str, Path]:
    """Replace the files of a study in its folder, all at once."""
    owned = drawing.list_files()
    with filling(folder, owned, check=check_again(folder, owned, "run")) as work:
        for name, content in files.items():
            (work / name).write_bytes(content)
    return {name: folder / name for name in files}
