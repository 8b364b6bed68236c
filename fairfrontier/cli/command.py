"""The command line: init, run, select, score, explain, log, debias, audit, monitor."""

from __future__ import annotations

import itertools
import json
import math
import os
import re
import shlex
import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairfrontier.cli.apart import apart
from fairfrontier.cli.option import command_from
from fairfrontier.cli.terminal import (
    find_project,
    join_interval,
    log_to_terminal,
    print_table,
    print_unseen,
    run_app,
    say,
    show,
    show_filled,
    telling_how_to_resume,
    write_bytes,
    write_setting,
    write_settings,
)
from fairfrontier.runtime.errors import ConfigError, DataError, nearest
from fairfrontier.runtime.finder import FOLDERS
from fairfrontier.runtime.text_file import read_csv

# Dask's workers import this module again: heavy modules are imported where they are used.
if TYPE_CHECKING:
    import pandas as pd

    from fairfrontier.auditing.option import AuditConfig, DebiasConfig
    from fairfrontier.choose.config import LogConfig, SelectConfig
    from fairfrontier.cli.cleaning import CleanConfig, Cleaning, Item
    from fairfrontier.cli.doctor import DoctorConfig
    from fairfrontier.deployment.config import ExplainConfig, MonitorConfig, ScoreConfig
    from fairfrontier.deployment.scoring import Scored
    from fairfrontier.prepare.description import PrepareConfig
    from fairfrontier.prepare.draft.config import InitConfig
    from fairfrontier.study.config import PricesOptions, RunOptions, StudyOptions

# Published numbers are the project's own, and have no schema.
SCHEMAS = tuple(kind for kind in FOLDERS if kind != "publication")
KINDS = ("datasets", "methods", "metrics", "measures", "figures", "studies")
ROWS_AT_MOST = 24
# Of the price list, rows of each where these are so many, and the columns of a terminal.
ATTRIBUTES_AT_MOST, LIMITS_AT_MOST = 3, 3
WIDTH, SHORT = 80, 9
# Decisions that are counted in the last line.
KINDS_AT_MOST = 6
# Categories that the terminal shows of each of several crosses.
CELLS_AT_MOST = 5
# What the terminal shows of an audited regression.
ERRORS = ("mae", "rmse", "mean_residual_difference", "mae_ratio", "kolmogorov_smirnov")
# The key of an audit's tables.
TERMS = (
    "{above}ratio: {measure} over the highest one, < 4/5 by less than four fifths, (few) of fewer "
    "than 30 persons. SD: standard deviations from the highest, from -2 on beyond chance. "
    "shortfall: persons fewer than if both had one rate."
)
ABOVE = "scoring_rate: share that scores above the median. "
# The exit code where a limit is exceeded.
LIMIT_EXCEEDED = 4
DAY = 86_400.0

app = typer.Typer(
    name="fairfrontier",
    help="The fairness-accuracy frontier of a table.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@command_from(app, "fairfrontier.prepare.draft.config:InitConfig", "table")
def init(config: InitConfig) -> None:
    """Draft a dataset and a study for a table, as commented YAML to be corrected."""
    from fairfrontier.study.draft import draft_project

    draft = draft_project(config.table, config)
    show(f"{draft.table.name}: {draft.summary}.")
    for warning in draft.warnings:
        say(f"Look at: {warning}.")
    elsewhere = "" if draft.home.samefile(Path.cwd()) else f", in the project {draft.home}"
    show(f"Drafted {os.path.relpath(draft.dataset)} and {os.path.relpath(draft.study)}{elsewhere}.")
    show(f"Next: {draft.command}")


@command_from(app, "fairfrontier.study.config:RunOptions", "study")
def run(options: RunOptions) -> None:
    """Train a study and leave its frontier and report behind."""
    from fairfrontier.cli.progress import FitProgress
    from fairfrontier.runner import run_plain
    from fairfrontier.study.run import start_study

    log_to_terminal()
    started = start_study(options)
    with telling_how_to_resume("What is finished is kept", "go on"):
        done = run_plain(started, lambda run: FitProgress(run.slug))
    show_result(options, done)


@command_from(app, "fairfrontier.study.config:PricesOptions", "study")
def prices(options: PricesOptions) -> None:
    """Show again what bounds cost in a finished study, or all of its settings."""
    from fairfrontier.choose.choosing import read_finished

    done = {"folder": str(read_finished(options).folder)}
    if options.all:
        show_frontiers({**read_summary(done), **done})
    else:
        show_prices(options, read_summary(done))


def show_result(options: RunOptions, done: dict[str, Any]) -> None:
    """Print what bounds cost in a finished run, and how it ended."""
    show_prices(options, read_summary(done))
    show_end(done)


def show_prices(options: StudyOptions, summary: Mapping[str, Any]) -> None:
    """Print what bounds cost, in at most 25 lines of 80 columns, and the next command."""
    from fairfrontier.metrics.measure.registry import MEASURES, split_name
    from fairfrontier.study.price import find_scale, has_units, state_gap, state_need, state_trivial
    from fairfrontier.study.query import WORDS

    if "prices" not in summary:
        return  # No model could be trained.
    prices, objective = summary["prices"], str(summary["accuracy"])
    fields = type(options).model_fields
    given = {key: getattr(options, key) for key in ("profile", "out", "conf")}
    more = [(f"--{key}", str(v)) for key, v in given.items() if v != fields[key].default]
    name = shlex.join([options.study, *itertools.chain(*more)])
    show_filled(
        f"{summary['study']}: {summary['counts']['settings']} settings, chosen on "
        f"{prices['n_chosen']:,} {summary['select_on']} rows, shown on {prices['n_test']:,} test "
        "rows."
    )
    show_filled(state_trivial(prices, objective))
    listed: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in prices["rows"]:
        own = listed[row["measure"]]
        same = all(own and own[-1][key] == row[key] for key in ("method", "setting"))
        if same and own[-1]["bound"] >= 0:
            own.pop()  # A tighter limit has the same setting.
        # Numbers that are not known are null in JSON.
        own.append({k: math.nan if v is None else v for k, v in row.items()})
    if not listed:
        if need := state_need(prices):
            show(f"No gap between groups can be estimated{need}.")
            show("minimum in the study's YAML says how many a group needs.")
        else:
            show("No gap between groups is among the study's fairness measures.")
        show(f"Next: fairfrontier select {name}")
        return
    if len(listed) >= ATTRIBUTES_AT_MOST:
        # The tightest limit but a suggested one has no room.
        for own in listed.values():
            last = int(own[-1]["suggested"])
            del own[LIMITS_AT_MOST - last : len(own) - last]
    blocks = list(listed.values())[:ATTRIBUTES_AT_MOST]
    head, *lines = _align_prices(blocks, objective)
    for number, own in enumerate(blocks):
        show("")
        show_filled(state_gap(own[0]))
        for line in ([] if number else [head]) + lines[: len(own)]:
            for part in line.split("\n"):
                show(part)
        del lines[: len(own)]
        if unmet := own[0]["unmet"]:
            scale = find_scale([row["gap"] for row in own], own[0]["measure"])
            bounds = " or ".join(f"{bound * scale:.3g}" for bound in unmet)
            show(f"   No setting is within {bounds} on the rows of the choice.")
    if len(blocks) < ATTRIBUTES_AT_MOST:
        show("")
    shown = [row for own in blocks for row in own]
    if len(listed) > len(blocks):
        show(f"More attributes: fairfrontier prices {name} --all")
    most = "1%" if has_units(objective) else "a point"
    if any(row["suggested"] for row in shown):
        show(f"<- the tightest limit that costs at most {most} on the rows it was chosen on.")
    if any(row["gap"] > row["bound"] for row in shown):
        show("!  does not hold on test: select --certified asks that it hold on fresh rows.")
    if any(row["asks_groups"] for row in shown):
        show("*  its rule asks for the group when it decides, which the law may forbid.")
    query = ""
    if limits := [row for row in shown if row["bound"] >= 0]:
        best = WORDS[MEASURES.find(split_name(objective)[0]).direction][0]
        first = max(limits, key=lambda row: bool(row["suggested"]))
        query = f' "{best} {objective} subject to {first["measure"]} <= {first["bound"]:g}"'
    show(f"Next: fairfrontier select {name}{query}")
    show(f"All settings: fairfrontier prices {name} --all")


def _align_prices(blocks: Sequence[Sequence[Mapping[str, Any]]], objective: str) -> list[str]:
    """Return the lines of a price list, the names of its columns first."""
    from fairfrontier.metrics.measure.registry import split_name
    from fairfrontier.study.price import find_scale

    size = find_scale([row["objective"] for own in blocks for row in own], objective)
    cells = [("limit", objective if len(objective) < SHORT else "value", "gap on test", "cost")]
    marks, models = ["  "], ["model"]
    for own in blocks:
        measure = own[0]["measure"]
        scale = find_scale([row["gap"] for row in own], measure)
        for row in own:
            value, gap, cost = (
                join_interval(
                    *(by * row[end] for end in ends),
                    digits=1 if by > 1 or abs(row[ends[0]]) >= 100 else 3,
                )
                for by, *ends in (
                    (size, "objective"),
                    (scale, "gap", "gap_low", "gap_high"),
                    (size, "cost", "cost_low", "cost_high"),
                )
            )
            free = math.isnan(row["bound"])
            gap += "!" if row["gap"] > row["bound"] else ""
            limit = "none" if free else f"{row['bound'] * scale:.3g}"
            cells.append((limit, value, gap, "" if free else cost))
            marks.append("<-" if row["suggested"] else "  ")
            # The sentence above the rows names the attribute.
            own_name = re.sub(rf" {re.escape(split_name(measure)[1])}(?![^ )])", "", row["method"])
            models.append("*" * row["asks_groups"] + own_name)
    wide = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for mark, (limit, value, gap, cost), model in zip(marks, cells, models, strict=True):
        start = f"{mark} {limit:<{wide[0]}} {value:>{wide[1]}} {gap:<{wide[2]}} {cost:<{wide[3]}} "
        # A name that has no room follows below, so that models can be told apart.
        below = f"\n{model:>{WIDTH}}" if len(start) + len(model) > WIDTH else ""
        lines.append(f"{start.rstrip()}{below}" if below else f"{start}{model}")
    return lines


def show_frontiers(done: dict[str, Any]) -> None:
    """Print a table of all settings for each fairness measure."""
    import pandas as pd

    folder = Path(done["folder"])
    table = read_csv(folder / "frontier.csv", dtype={"method": "str"})
    accuracy = read_summary(done)["accuracy"]
    for fairness, rows in table.groupby("fairness", sort=False):
        settings = write_settings(rows["method"], rows["setting"])
        shown = pd.DataFrame(
            {
                "": rows["on_frontier"].map({True: "*", False: ""}),
                "method and setting": rows["method"] + " " + settings,
                accuracy: _join_columns(rows, accuracy, accuracy),
                str(fairness): _join_columns(rows, "fairness_value", "fairness", "left_out"),
            }
        )
        print_table(
            f"{done['study']}: {accuracy} against {fairness}, * on the frontier",
            shown,
            keep=("", "method and setting"),
            complete=str(folder / "frontier.csv"),
        )


def _join_columns(table: pd.DataFrame, name: str, prefix: str, *more: str) -> list[str]:
    columns = [table[each] for each in (name, f"{prefix}_low", f"{prefix}_high", *more)]
    return [join_interval(*row) for row in zip(*columns, strict=True)]


def read_summary(done: dict[str, Any]) -> dict[str, Any]:
    """Return the summary.json of a finished run."""
    text = (Path(done["folder"]) / "summary.json").read_text(encoding="utf-8")
    return dict(json.loads(text))


def show_end(done: dict[str, Any]) -> None:
    """Print how a run ended, and where its report is."""
    for method, reason in done["skipped"].items():
        show(f"{method} was skipped: {reason}")
    for failed in done.get("failed_trials", ()):
        times, reason = f"{failed['trials']} of {done['trials']} trials", failed["reason"]
        show(f"{times} failed: {failed['row']}: {reason}")
    show(
        f"{done['fits']} fits, {done['trained']} of them new, in {done['seconds']:.0f} s. "
        f"Report: {Path(done['folder']) / 'report.html'}"
    )


@command_from(app, "fairfrontier.prepare.description:PrepareConfig", "dataset")
def prepare(config: PrepareConfig) -> None:
    """Load a table as its YAML describes it, and show its parts."""
    import pandas as pd

    from fairfrontier.prepare.description import describe_split
    from fairfrontier.prepare.loader import SplitRequest
    from fairfrontier.runtime.store import CACHE
    from fairfrontier.runtime.writer import sharing

    log_to_terminal()
    with sharing(config.home / CACHE):
        rows = describe_split(SplitRequest(config.dataset, config.seed).load(config.home))
    # As objects, integers are not shown as floats beside shares.
    table = pd.DataFrame(rows).set_index("part").astype(object).T
    print_table(f"{config.dataset}, split {config.seed}", table.reset_index(names=""))


@command_from(app, "fairfrontier.choose.config:SelectConfig", "study", "query")
def select(config: SelectConfig) -> None:
    """Choose one model of a finished study, and leave its bundle and card behind."""
    from fairfrontier.choose.choosing import choose, write_choice
    from fairfrontier.runtime.store import CACHE
    from fairfrontier.runtime.writer import sharing

    log_to_terminal()
    with sharing(config.home / CACHE):
        summary = write_choice(choose(config), config)
    show_choice(summary)


def show_choice(summary: dict[str, Any]) -> None:
    """Print the chosen model, its measures on the rows it was chosen on and of test; what next."""
    import pandas as pd

    measures = summary["measures"].set_index("name")
    rows = []
    for name, value in summary["selected"].items():
        row = {"measure": name, f"on {summary['part']}": join_interval(value)}
        if summary["certified"]:
            certified = summary["certified"].get(name)
            row["certified"] = "-" if certified is None else join_interval(certified)
        if name in measures.index:
            tested = measures.loc[name, ["value", "low", "high", "left_out"]]
            row["on test"] = join_interval(*map(float, tested))
        rows.append(row)
    title = f"chosen: {_name_models(summary['models'], summary['swept'])}"
    complete = str(Path(summary["folder"]) / "measures.csv")
    print_table(
        title, pd.DataFrame(rows).fillna("-"), keep=("measure", "certified"), complete=complete
    )
    for row in summary["passed"]:
        found = (
            "cannot be checked on test, which has too few rows"
            if math.isnan(row["value"])
            else "does not hold on test, where the value is "
            f"{join_interval(row['value'], row['low'], row['high'])}"
        )
        say(
            f"Warning: {row['bound']} was asked for on {summary['part']}, and {found}"
            f"{'.' if summary['certified'] else '; --certified asks that it hold on fresh rows.'}"
        )
    needed = summary["needed_groups"]
    if needed:
        show(
            f"Its rule looks at {', '.join(needed)} of every row, which the law may forbid: the "
            "card says where."
        )
    show("Rows of the study's table trained it: an audit of fresh ones tells more.")
    show(f"Bundle and card: {summary['folder']}. Next:")
    for name, command in summary["commands"].items():
        if name not in ("run", "select"):
            show(f"  {command}")


def _name_models(models: Sequence[Mapping[str, Any]], swept: Mapping[str, Sequence[str]]) -> str:
    """Return the chosen models with their settings, the likelier of a mixture first."""
    ordered = sorted(models, key=lambda model: -model["probability"])
    names = [
        f"{model['method']} {write_setting(model['setting'], swept[model['method']])}".strip()
        for model in ordered
    ]
    if len(names) == 1:
        return names[0]
    share = ordered[0]["probability"]
    written = f"{share:.3f}" if share < 0.9995 else f"{share:.6f}"
    return f"{names[0]} with probability {written}, else {names[1]}"


@command_from(app, "fairfrontier.deployment.config:ScoreConfig", "bundle", "table")
@apart(lambda config: config.bundle)
def score(config: ScoreConfig) -> None:
    """Decide on the raw rows of a table, with a bundle that select wrote."""
    from fairfrontier.cli.progress import PassProgress
    from fairfrontier.deployment.scoring import PASSES
    from fairfrontier.deployment.scoring import score as decide

    log_to_terminal()
    with (
        telling_how_to_resume("No file was changed", "start again"),
        PassProgress(config.name, PASSES) as progress,
    ):
        scored = decide(
            config.bundle,
            config.table,
            config.out,
            row_id=config.row_id,
            keep=config.keep,
            drop_refused=config.drop_refused,
            places=config.places,
            floor=config.floor,
            ceiling=config.ceiling,
            progress=progress,
        )
    show_scored(scored, config)


def show_scored(scored: Scored, config: ScoreConfig) -> None:
    """Print how many rows were decided, and why others were not."""
    import pandas as pd

    if scored.refused:
        reasons = pd.DataFrame({"refused": scored.refused.keys(), "rows": scored.refused.values()})
        print_table(f"{sum(scored.refused.values()):,} rows were refused", reasons)
        if not config.drop_refused:
            show("--drop-refused leaves them out of the file, as an audit needs it.")
    if len(scored.places):
        print_table("Places by group", scored.places.rename_axis("group").reset_index())
    if scored.randomized and scored.row_id is None:
        show(
            "Decisions are drawn by the number of the row, since no column names rows: they change "
            "when rows change places. --row-id names one."
        )
    decided = scored.rows - sum(scored.refused.values())
    print_unseen(scored.unseen, decided)
    counts = [f"{count:,} × {name}" for name, count in scored.decided.items()]
    if len(counts) > KINDS_AT_MOST:
        counts = [*counts[:KINDS_AT_MOST], "…"]
    kinds = f" ({', '.join(counts)})" if counts else ""
    show(
        f"{decided:,} of {scored.rows:,} rows decided{kinds} in {scored.seconds:.0f} s. "
        f"Decisions: {scored.path}"
    )


@command_from(app, "fairfrontier.deployment.config:ExplainConfig", "bundle", "table")
@apart(lambda config: config.bundle)
def explain(config: ExplainConfig) -> None:
    """Say which columns a bundle's scores are made of, for all rows and by group."""
    import pandas as pd

    from fairfrontier.cli.progress import show_passes
    from fairfrontier.deployment.explanation import (
        COLUMNS_AT_MOST,
        PASSES,
        check_options,
        explain_table,
        write_explanation,
    )
    from fairfrontier.report.finding import show_number

    with show_passes(config, check_options, PASSES) as progress:
        explanation = explain_table(config, progress)
        table = write_explanation(explanation, config)
    rows = table.loc[table["attribute"] == ""].head(COLUMNS_AT_MOST)
    means = rows[["mean_abs", "mean"]].map(show_number)
    shown = pd.concat([rows["column"], means], axis=1)
    print_table(f"{config.name}: SHAP values in {explanation.unit}", shown)
    print_unseen(explanation.unseen, len(explanation.values))
    show(
        f"Means over {len(explanation.values):,} rows; scores start from {explanation.base:.3f}. "
        f"All columns, and by group: {config.folder / 'explain.csv'} and explain.png"
    )


@command_from(app, "fairfrontier.choose.config:LogConfig", "study")
def log(config: LogConfig) -> None:
    """Log a finished study, and the bundle of its choice, to MLflow."""
    from fairfrontier.choose.tracking import log_study

    log_to_terminal()
    logged = log_study(config)
    what = f"run {logged.run} with {logged.settings:,} nested ones, in {logged.experiment}"
    show(f"Logged: {what}." if logged.new else f"Logged before: {what}.")
    show(f"Its files: {logged.files}")
    if logged.model is None:
        show("There is no choice yet: `fairfrontier select` makes one, and log adds its bundle.")
    else:
        show(f"The choice is {logged.model}{'' if logged.new_model else ', as before'}.")


@command_from(app, "fairfrontier.auditing.option:DebiasConfig", "table")
def debias(config: DebiasConfig) -> None:
    """Turn any model's scores into decisions of equal rates between groups."""
    from fairfrontier.auditing.debias import PASSES, fit_debiasing
    from fairfrontier.auditing.debiased import check_options, write_debiasing
    from fairfrontier.cli.progress import show_passes

    started = time.monotonic()
    with show_passes(config, check_options, PASSES) as progress:
        debiasing = fit_debiasing(config, progress)
        summary = write_debiasing(debiasing, config.folder, started, progress)
    show_debiasing(config.folder, summary)


def show_debiasing(folder: Path, summary: dict[str, Any]) -> None:
    """Print the bias before and after, on the reported rows."""
    import pandas as pd

    from fairfrontier.auditing.debias import describe_doubt

    shown: dict[str, dict[str, str]] = {}
    for bias in summary["bias"]:
        # Rules of parity on one column alone are in the report.
        if bias["part"] == summary["reported_on"] and bias["rule"] in ("unmodified", "debiased"):
            row = shown.setdefault(bias["attribute"], {"bias between": bias["attribute"]})
            row[bias["rule"]] = join_interval(bias["value"], bias["low"], bias["high"])
    expected = summary["expected"]
    for bias in expected.get("bias", ()):
        shown[bias["attribute"]]["expected on fresh rows"] = (
            f"{bias['before']:.3f} → {bias['after']:.3f}"
        )
    rows = summary["counts"][summary["reported_on"]]
    print_table(f"{summary['name']}: bias on {rows:,} rows", pd.DataFrame(shown.values()))
    if doubt := describe_doubt(expected):
        show(f"Not recommended: {doubt[0].lower()}{doubt[1:]}")
    for line in tell_rows({"zeros": summary.get("zeros", {})}, rows):
        show(line)
    # An earlier rule does not say how it was found.
    if not summary["fit"].get("converged", True):
        show("The rule may not be the best of its kind: that none is better is not proven.")
    show(
        f"{summary['counts']['rows']:,} rows decided in {summary['seconds']:.0f} s. "
        f"Rule: {folder / 'thresholds.json'}. Report: {folder / 'report.html'}"
    )


@command_from(app, "fairfrontier.auditing.option:AuditConfig", "table")
@apart(lambda config: config.model)
def audit(config: AuditConfig) -> None:
    """Compare groups in decisions or scores; of noisy groups, say what holds of the true ones.

    The exit code is 4 when a limit is exceeded.
    """
    from fairfrontier.auditing.audit import audit as run_audit
    from fairfrontier.auditing.audit import check_options, list_passes, write
    from fairfrontier.cli.progress import show_passes

    started = time.monotonic()
    with show_passes(config, check_options, list_passes(config)) as progress:
        summary = write(run_audit(config, progress), config.folder, started)
    if config.noisy:
        show_audit(config.folder, summary)
    else:
        show_plain_audit(config.folder, summary)


def show_audit(folder: Path, summary: dict[str, Any]) -> None:
    """Print what holds for every assignment of rows to true groups, and what stays open."""
    name, counts, budget = summary["name"], summary["counts"], summary["budget"]
    held = [row for row in summary["conclusions"] if row["verdict"] != "open"]
    unsettled = [row for row in summary["conclusions"] if row["verdict"] == "open"]
    # Open comparisons of two groups are in the report.
    against_all = [row for row in unsettled if not row["other"]]
    rows = f"{counts['rows']:,} rows"
    if held:
        print_table(f"{name}: holds for every assignment of {rows}", _tabulate(held, budget))
    else:
        show(f"{name}: nothing holds for every assignment of {rows}.")
    if against_all:
        print_table("stays open, against all rows", _tabulate(against_all, budget))
    between = counts["open"] - len(against_all)
    for line in tell_rows(summary["subject"], counts["rows"]):
        show(line)
    show(
        f"{counts['held']} of {counts['conclusions']} conclusions hold"
        + (f"; open between two groups: {between:,}. " if between else ". ")
        + f"All: {folder / 'conclusions.csv'}. Report: {folder / 'report.html'}"
    )


def show_plain_audit(folder: Path, summary: dict[str, Any]) -> None:
    """Print impact ratios and limits; raise Exit where a limit is exceeded."""
    import pandas as pd

    from fairfrontier.report.finding import show_number

    complete, counts = str(folder / "impact.csv"), summary["counts"]
    # Scoring rates of what was decided, too, are in the files.
    measure = summary["impact"][0]["measure"]
    selected = f" of {chosen}" if (chosen := summary["subject"].get("selected")) else ""
    names = summary["attributes"]
    crossed = {*map("×".join, itertools.combinations(names, 2))}
    for attribute in names:
        table = [
            row
            for row in summary["impact"]
            if (row["measure"], row["attribute"]) == (measure, attribute)
        ]
        most = ROWS_AT_MOST
        if attribute in crossed and len(names) > ATTRIBUTES_AT_MOST:
            # Of several crosses those whose ratios are lowest.
            most = CELLS_AT_MOST
            table.sort(key=lambda row: (row["status"] != "compared", row["ratio"] or 0))
        title = f"{summary['name']}: {measure}{selected} by {attribute}; more is better"
        shown = pd.DataFrame(map(_describe, table[:most]))
        print_table(title, shown, keep=("category", "n", "rate", "ratio"), complete=complete)
        if len(table) > most:
            show(f"and {len(table) - most} more: {complete}")
    show_filled(TERMS.format(measure=measure, above=ABOVE * (measure == "scoring_rate")))
    errors = [
        {"measure": f"{row['measure']}:{row['group']}".removesuffix(":")}
        | {"value": join_interval(row["value"], row["low"], row["high"], row["left_out"])}
        for row in summary["measures"]
        if row["measure"] in ERRORS and row["value"] is not None
    ]
    if errors:
        print_table("errors", pd.DataFrame(errors))
    if summary["limits"]:
        limits = [
            {
                "limit": f"{row['limit']}={row['bound']:g}",
                "of": row["group"] or "all rows",
                "value": show_number(row["value"]),
                "": row["verdict"],
            }
            for row in summary["limits"]
        ]
        print_table("limits", pd.DataFrame(limits))
    if individual := [row for row in summary["measures"] if row["measure"] == "consistency"]:
        shares = ", ".join(f"{show_number(row['value'])} of {row['group']}" for row in individual)
        show(f"The same decision in all versions of a row: {shares}.")
    for line in tell_rows(summary["subject"], counts["rows"]):
        show(line)
    print_unseen(summary["subject"].get("unseen", {}), counts["rows"])
    if refused := sum(summary["subject"].get("refused", {}).values()):
        show(f"{refused:,} further rows were refused, and are in no rate.")
    show(
        f"{counts['compared']} of {counts['categories']} categories of {counts['rows']:,} rows "
        "compared, "
        f"{counts['below_four_fifths']} below four fifths. Report: {folder / 'report.html'}"
    )
    _judge(summary["limits"])


def tell_rows(subject: dict[str, Any], rows: int) -> list[str]:
    """Return sentences on which rows of a table count, and as what."""
    told = []
    if read := subject.get("table_rows"):
        told.append(
            f"{subject['weights']} counts persons: {read:,} rows of the table are {rows:,} persons."
        )
    if undecided := subject.get("undecided"):
        levels = ", ".join(f"{level} ({n:,})" for level, n in undecided.items())
        told.append(f"Rows without a decision, left out: {levels}.")
    for column, zeros in subject.get("zeros", {}).items():
        levels = ", ".join(f"{level} ({n:,})" for level, n in zeros.items())
        mend = "--undecided leaves out those that are no decision"
        if column != subject.get("decisions"):
            mend = "name further levels that mean 1 with --positive"
        told.append(f"Counted as 0 of {column}: {levels}; {mend}.")
    return told


def _describe(row: dict[str, Any]) -> dict[str, str]:
    """Return a category's line on the terminal."""
    from fairfrontier.report.finding import show_number

    ratio = "not estimable" if row["ratio"] is None else show_number(row["ratio"])
    if row["status"] != "compared":
        ratio += f" ({row['status']})"
    elif row["four_fifths"]:
        ratio += " < 4/5"
    if row["status"] == "compared" and row["small_sample"]:
        ratio += " (few)"
    return {
        "category": row["level"],
        "n": f"{row['n']:,}",
        "rate": show_number(row["rate"]),
        "ratio": ratio,
        "SD": show_number(row["deviations"], 1),
        "shortfall": show_number(row["shortfall"], 0),
    }


def _judge(limits: list[dict[str, Any]]) -> None:
    """End the command where a limit is exceeded, or could not be judged at all."""
    verdicts: dict[str, set[str]] = {}
    for row in limits:
        verdicts.setdefault(row["limit"], set()).add(row["verdict"])
    if any("exceeded" in seen for seen in verdicts.values()):
        raise typer.Exit(LIMIT_EXCEEDED)
    for limit, seen in verdicts.items():
        if seen == {"not estimable"}:
            raise DataError(
                f"The limit of {limit} can be judged of no group: too few rows.",
                "Audit more rows, lower --minimum or --exclude-below, or leave the limit out.",
            )


def _tabulate(conclusions: list[dict[str, Any]], budget: float) -> pd.DataFrame:
    import pandas as pd

    shown = []
    for row in conclusions[:ROWS_AT_MOST]:
        low, high, verdict = row["low"], row["high"], str(row["verdict"])
        # Between two groups there is no margin.
        if not row["other"] and verdict != "open":
            verdict += f" {budget:g}" if verdict == "within" else f" by more than {budget:g}"
        known = low is not None and high is not None
        shown.append(
            {
                "rate": row["measure"],
                "group": row["group"],
                "against": row["other"] or "all rows",
                "difference": f"{low:+.3f} to {high:+.3f}" if known else "unknown",
                "holds": verdict,
            }
        )
    if len(conclusions) > ROWS_AT_MOST:
        shown.append({"rate": f"and {len(conclusions) - ROWS_AT_MOST} more"})
    return pd.DataFrame(shown).fillna("")


@command_from(app, "fairfrontier.deployment.config:MonitorConfig", "bundle", "table")
@apart(lambda config: config.bundle)
def monitor(config: MonitorConfig) -> None:
    """Count a new period of a bundle's rows, and say which rates changed or passed a limit.

    The exit code is 4 when there is an alarm, from an earlier period too.
    """
    from fairfrontier.cli.progress import show_passes
    from fairfrontier.deployment.monitoring import PASSES, check_options, watch, write_monitor
    from fairfrontier.runtime.writer import holding

    started = time.monotonic()
    with show_passes(config, check_options, PASSES) as progress, holding(config.folder):
        summary = write_monitor(watch(config, progress), started)
    show_monitor(config.folder, summary)
    if summary["alarms"]:
        raise typer.Exit(LIMIT_EXCEEDED)


def show_monitor(folder: Path, summary: dict[str, Any]) -> None:
    """Print the limits, the alarms, and the columns that drifted beyond chance."""
    import pandas as pd

    name, period, new, counts = (summary[key] for key in ("name", "period", "new", "counts"))
    if not any(new.values()):
        show(f"{name}: the table was counted before, as the period {period}.")
    if summary["limits"]:
        rows = [
            {
                "limit": limit["name"],
                "": f"≤ {limit['high']:g}" if limit["low"] == 0 else f"≥ {limit['low']:g}",
                "reference": _write(limit["reference"]),
                period: _write(limit["value"]),
                "alarm": f"since {limit['alarm']}" if limit["alarm"] else "no",
            }
            for limit in summary["limits"]
        ]
        print_table(f"{name}: limits", pd.DataFrame(rows))
    changed = [alarm for alarm in summary["alarms"] if alarm["kind"] == "reference"]
    if changed:
        rows = [
            {
                "rate": alarm["name"],
                "reference": f"{alarm['low']:.3f} to {alarm['high']:.3f}",
                period: _write(alarm["value"]),
                "p": f"{alarm['p']:.1e}",
                "alarm": f"since {alarm['alarm']}",
            }
            for alarm in changed[:ROWS_AT_MOST]
        ]
        complete = str(folder / "checks.csv")
        keep = ("rate", "alarm")
        print_table(f"{name}: rates that changed", pd.DataFrame(rows), keep=keep, complete=complete)
    else:
        seen = counts["periods"]
        periods = "one period" if seen == 1 else f"{seen:,} periods"
        show(f"{name}: no rate is known to have changed in {periods}.")
    (own,) = (each for each in summary["periods"] if each["period"] == period)
    for attribute, rows in own["unknown"].items():
        if rows:
            of_all = f"{rows:,} of {own['rows']:,} rows of {period}"
            show(f"{of_all} are of no known group of {attribute}.")
    drifted = [each["column"] for each in summary["drift"] if (each["beyond"] or 0) > 1]
    if drifted:
        show(f"Drifted beyond chance in {period}: {', '.join(drifted[:ROWS_AT_MOST])}.")
    show(
        f"{new['rows']:,} rows and {new['labels']:,} labels counted, {counts['rows']:,} and "
        f"{counts['labels']:,} in all. Report: {folder / 'report.html'}"
    )
    if ignored := new["ignored"]:
        show(f"{ignored:,} labels were ignored: their rows have one already.")


def _write(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3f}"


@command_from(app, "fairfrontier.cli.cleaning:CleanConfig")
def clean(config: CleanConfig) -> None:
    """Show what the project holds in data/cache and data/results, by study and age; remove some.

    Nothing is removed without --yes, and results only where --kind names them. What a running
    command uses stays.
    """
    from fairfrontier.cli.cleaning import clean as run_clean

    done = run_clean(config)
    rows = summarise(done, removed=config.yes)
    freed = sum(item.bytes for item in (done.removed if config.yes else done.chosen))
    if config.as_json:
        links = [str(link) for link in done.links]
        said = {"removed": config.yes, "bytes": freed, "held": len(done.held), "links": links}
        kept = {str(path): reason for path, reason in done.kept.items()}
        show(json.dumps({**said, "kept": kept, "holds": rows}))
        return
    show_cleaning(done, rows, freed, removed=config.yes)


def show_cleaning(
    done: Cleaning, rows: Sequence[dict[str, Any]], freed: int, *, removed: bool
) -> None:
    """Print a table of what there is, what of it goes, and what stays and why."""
    import pandas as pd

    goes = "freed" if removed else "would be freed"
    if not rows:
        show("The project holds nothing in data/cache and data/results.")
    else:
        shown = [
            {
                "kind": row["kind"],
                "study": row["study"],
                "entries": row["entries"],
                "size": write_bytes(row["bytes"]),
                "days old": _write_days(row["newest_days"], row["oldest_days"]),
                goes: write_bytes(row["chosen_bytes"]) if row["chosen_bytes"] else "",
            }
            for row in rows
        ]
        print_table("What the project holds", pd.DataFrame(shown), keep=("kind", "study", goes))
    for link in done.links:
        say(f"{link} is a link, which is not followed: what it leads to stays.")
    if done.held:
        held = sum(item.bytes for item in done.held)
        say(
            f"{len(done.held):,} of the entries ({write_bytes(held)}) stay: a running command uses "
            "them, or their file system has no locks."
        )
    for path, reason in done.kept.items():
        say(f"{path} cannot be removed and stays: {reason}.")
    if removed:
        show(f"{len(done.removed):,} entries removed, {write_bytes(freed)} freed.")
    elif done.chosen:
        command = shlex.join(["fairfrontier", *sys.argv[1:], "--yes"])
        show(f"{write_bytes(freed)} would be freed by: {command}")
    elif rows:
        show("Nothing of it was chosen.")


def summarise(done: Cleaning, *, removed: bool) -> list[dict[str, Any]]:
    """Return a row for every kind and study, in the order of the kinds; ages are in days."""
    from fairfrontier.cli.cleaning import KINDS

    gone = {item.path for item in (done.removed if removed else done.chosen)}
    rows: dict[tuple[int, str], list[Item]] = defaultdict(list)
    for item in done.items:
        studies = "several" if len(item.studies) > 1 else next(iter(item.studies), "")
        rows[KINDS.index(item.kind), studies].append(item)
    now = time.time()
    return [
        {
            "kind": KINDS[kind],
            "study": study,
            "entries": len(items),
            "bytes": sum(item.bytes for item in items),
            "newest_days": (now - max(item.written for item in items)) / DAY,
            "oldest_days": (now - min(item.written for item in items)) / DAY,
            "chosen_bytes": sum(item.bytes for item in items if item.path in gone),
        }
        for (kind, study), items in sorted(rows.items(), key=lambda row: row[0])
    ]


def _write_days(newest: float, oldest: float) -> str:
    return f"{oldest:.0f}" if round(newest) == round(oldest) else f"{newest:.0f} to {oldest:.0f}"


@command_from(app, "fairfrontier.cli.doctor:DoctorConfig")
def doctor(config: DoctorConfig) -> None:
    """Say what works here and what does not, with the command that mends it.

    The exit code is 2 when something that is needed does not work.
    """
    from fairfrontier.cli.doctor import examine

    log_to_terminal()
    findings = []
    for finding in examine(config):
        findings.append(finding)
        if not config.as_json:
            show(f"{finding.state:7} {finding.about}: {finding.found}")
            if finding.mend:
                show(f"{'':7}   {finding.mend}")
    wrong = [finding for finding in findings if finding.state == "wrong"]
    if config.as_json:
        show(json.dumps({"works": not wrong, "findings": [asdict(each) for each in findings]}))
    elif wrong:
        names = ", ".join(finding.about for finding in wrong)
        show(f"To be mended: {names}.")
    else:
        show("All that is needed works.")
    if wrong:
        raise typer.Exit(ConfigError.exit_code)


@app.command(name="list")
def list_known(
    kind: Annotated[str, typer.Argument(help=", ".join(KINDS), autocompletion=lambda: KINDS)],
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
    conf: Annotated[
        Path | None, typer.Option(help="The conf folder, or the project root that holds it.")
    ] = None,
) -> None:
    """List what is known here, with a line on each."""
    if kind not in KINDS:
        raise ConfigError(f"There is nothing called {kind!r} to list.", nearest(kind, KINDS))
    from fairfrontier.cli.catalog import list_entries

    entries = list_entries(kind, find_project(conf))
    if as_json:
        # ASCII, so that no name steers the terminal; JSON leaves DEL as it is.
        typer.echo(json.dumps(entries, indent=1).replace("\x7f", r"\u007f"))
        return
    import pandas as pd

    complete = f"fairfrontier list {kind} --json"
    print_table(kind, pd.DataFrame(entries), keep=("name", "about"), complete=complete)


@app.command()
def schema(
    kind: Annotated[str, typer.Argument(help=", ".join(SCHEMAS), autocompletion=lambda: SCHEMAS)],
) -> None:
    """Print the JSON Schema of a kind of YAML file, by which editors complete and check."""
    from fairfrontier.cli.catalog import MODELS, make_schema

    if kind not in MODELS:
        raise ConfigError(f"There are no files of kind {kind!r}.", nearest(kind, MODELS))
    typer.echo(json.dumps(make_schema(kind), indent=1))


@app.callback(invoke_without_command=True)
def say_version(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Print the version when asked."""
    if version:
        from fairfrontier.runtime.version import find_own_version

        typer.echo(find_own_version())
        raise typer.Exit


def main() -> None:
    """Run the command line."""
    run_app(app, "fairfrontier")
