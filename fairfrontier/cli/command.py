"""The command line: init, run, select, score, explain, log, debias, audit, monitor."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairfrontier.cli.option import command_from
from fairfrontier.cli.project_command import clean, doctor, init, log
from fairfrontier.cli.result_command import audit, debias, explain, monitor, score, select
from fairfrontier.cli.table import join_interval, print_table, write_settings
from fairfrontier.cli.terminal import (
    find_project,
    log_to_terminal,
    run_app,
    show,
    telling_how_to_resume,
)
from fairfrontier.runtime.errors import ConfigError, nearest
from fairfrontier.runtime.finder import FOLDERS
from fairfrontier.runtime.text_file import read_csv

# Dask's workers import this module again: heavy modules are imported where they are used.
if TYPE_CHECKING:
    import pandas as pd

    from fairfrontier.prepare.description import PrepareConfig
    from fairfrontier.study.option import RunOptions

# Published numbers are the project's own, and have no schema.
SCHEMAS = tuple(kind for kind in FOLDERS if kind != "publication")
KINDS = ("datasets", "methods", "metrics", "measures", "figures", "studies")

app = typer.Typer(
    name="fairfrontier",
    help="The fairness-accuracy frontier of a table.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


command_from(app, "fairfrontier.prepare.draft.config:InitConfig", "table")(init)


@command_from(app, "fairfrontier.study.option:RunOptions", "study")
def run(options: RunOptions) -> None:
    """Train a study and leave its frontier and report behind."""
    from fairfrontier.cli.progress import FitProgress
    from fairfrontier.runner import run_plain
    from fairfrontier.study.run import start_study

    log_to_terminal()
    started = start_study(options)
    with telling_how_to_resume("What is finished is kept", "go on"):
        done = run_plain(started, lambda run: FitProgress(run.slug))
    show_frontier(done)


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


command_from(app, "fairfrontier.choose.config:SelectConfig", "study", "query")(select)
command_from(app, "fairfrontier.deployment.config:ScoreConfig", "bundle", "table")(score)
command_from(app, "fairfrontier.deployment.config:ExplainConfig", "bundle", "table")(explain)
command_from(app, "fairfrontier.choose.config:LogConfig", "study")(log)
command_from(app, "fairfrontier.auditing.option:DebiasConfig", "table")(debias)
command_from(app, "fairfrontier.auditing.option:AuditConfig", "table")(audit)
command_from(app, "fairfrontier.deployment.config:MonitorConfig", "bundle", "table")(monitor)


command_from(app, "fairfrontier.cli.upkeep.config:CleanConfig")(clean)
command_from(app, "fairfrontier.cli.upkeep.config:DoctorConfig")(doctor)


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
    from fairfrontier.cli.schema import MODELS, make_schema

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


def show_frontier(done: dict[str, Any]) -> None:
    """Print the frontier of a finished run, a table for each fairness measure."""
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
    show_end(done)


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


if __name__ == "__main__":
    main()
