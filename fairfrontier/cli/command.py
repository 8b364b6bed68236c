"""The command line: fairfrontier run, debias, audit, record, list, prepare."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairfrontier.cli.audit_command import audit
from fairfrontier.cli.debias_command import debias
from fairfrontier.cli.option import command_from
from fairfrontier.cli.table import join_interval, print_table, write_settings
from fairfrontier.cli.terminal import (
    find_project,
    log_to_terminal,
    say_error,
    telling_how_to_resume,
)
from fairfrontier.runtime.errors import ConfigError, FairfrontierError, explain_missing, nearest

# Dask's workers import this module again: what is heavy is imported where it is used.
if TYPE_CHECKING:
    import pandas as pd

    from fairfrontier.prepare.description import PrepareConfig
    from fairfrontier.study.option import RunOptions, StudyOptions

KINDS = ("datasets", "methods", "metrics", "measures", "figures", "studies")

app = typer.Typer(
    name="fairfrontier",
    help="The fairness-accuracy frontier of a table.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


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
    from fairfrontier.prepare.loader import load

    log_to_terminal()
    rows = describe_split(load(config.dataset, config.seed, home=config.home))
    # As objects, whole numbers stay whole beside shares.
    table = pd.DataFrame(rows).set_index("part").astype(object).T
    print_table(f"{config.dataset}, split {config.seed}", table.reset_index(names=""))


command_from(app, "fairfrontier.debias.config:DebiasConfig", "table")(debias)
command_from(app, "fairfrontier.audit.config:AuditConfig", "table")(audit)


@command_from(app, "fairfrontier.study.option:StudyOptions", "study")
def record(options: StudyOptions) -> None:
    """Keep a finished run as a short table in data/reference/runs, to be committed."""
    from fairfrontier.reproduce.record import record_run
    from fairfrontier.study.expand import load_study

    study = load_study(options.study, options.profile, options.home).study
    typer.echo(record_run(study, options.find_folder(study), options.home))


@app.command(name="list")
def list_known(
    kind: Annotated[str, typer.Argument(help=", ".join(KINDS))],
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
        typer.echo(json.dumps(entries, indent=1, ensure_ascii=False))
        return
    import pandas as pd

    whole = f"fairfrontier list {kind} --json"
    print_table(kind, pd.DataFrame(entries), keep=("name", "about"), whole=whole)


@app.callback(invoke_without_command=True)
def say_version(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Print the version when asked."""
    if version:
        typer.echo(_find_version())
        raise typer.Exit


def _find_version() -> str:
    """Return the installed version, or that of the checkout where nothing is installed."""
    import importlib.metadata
    import tomllib

    try:
        return importlib.metadata.version("fairfrontier")
    except importlib.metadata.PackageNotFoundError:
        place = Path(__file__).resolve().parents[2] / "pyproject.toml"
        return str(tomllib.loads(place.read_text(encoding="utf-8"))["project"]["version"])


def main() -> None:
    """Run the command line; a fault of the user's is one line and exit code 2."""
    try:
        app()
    except FairfrontierError as error:
        say_error(str(error))
        sys.exit(2)
    except ModuleNotFoundError as error:
        missing = explain_missing(error)
        if missing is None:
            raise
        say_error(str(missing))
        sys.exit(2)


def show_frontier(done: dict[str, Any]) -> None:
    """Print the frontier that a run left, a table for each fairness measure."""
    import pandas as pd

    folder = Path(done["folder"])
    table = pd.read_csv(folder / "frontier.csv")
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    accuracy = summary["accuracy"]
    for fairness, rows in table.groupby("fairness", sort=False):
        shown = pd.DataFrame(
            {
                "": rows["on_frontier"].map({True: "*", False: ""}),
                "method and setting": [
                    f"{method} {setting}"
                    for method, setting in zip(
                        rows["method"], write_settings(rows["method"], rows["setting"]), strict=True
                    )
                ],
                accuracy: _join_intervals(rows, accuracy, accuracy),
                str(fairness): _join_intervals(rows, "fairness_value", "fairness"),
            }
        )
        print_table(
            f"{done['study']}: {accuracy} against {fairness}, * on the frontier",
            shown,
            keep=("", "method and setting"),
            whole=str(folder / "frontier.csv"),
        )
    _show_end(done)


def _join_intervals(table: pd.DataFrame, name: str, prefix: str) -> list[str]:
    columns = [table[name], table[f"{prefix}_low"], table[f"{prefix}_high"]]
    return [join_interval(*each) for each in zip(*columns, strict=True)]


def show_reproduced(studies: list[dict[str, Any]]) -> None:
    """Print published numbers beside ours, or claims, for each study."""
    for done in studies:
        if "unavailable" in done:
            typer.echo(f"{done['study']} is left out: {done['unavailable']}")
        else:
            _show_published(done)


def _show_published(done: dict[str, Any]) -> None:
    import pandas as pd

    path = Path(done["folder"]) / "published.csv"
    if not path.is_file():
        # A study that reproduces figures has its claims in their place.
        _show_claims(done)
        return
    table = pd.read_csv(path)
    shown = pd.DataFrame(
        {
            "table": table["table"],
            "row": table["row"],
            "measure": table["measure"],
            "published": [_join_spread(*each) for each in _pairs(table, "published", "spread")],
            "ours": [_join_spread(*each) for each in _pairs(table, "ours", "sd")],
            "splits": table["n_splits"],
        }
    )
    print_table(f"{done['study']}: published / ours ± sd", shown, whole=str(path))
    _show_end(done)


def _show_claims(done: dict[str, Any]) -> None:
    import pandas as pd

    summary = json.loads((Path(done["folder"]) / "summary.json").read_text(encoding="utf-8"))
    held = {True: "held", False: "not held", None: "not known"}
    rows = [(held[each["held"]], each["sentence"]) for each in summary["claims"]]
    print_table(f"{done['study']}: claims", pd.DataFrame(rows, columns=["", "claim"]))
    _show_end(done)


def _pairs(table: pd.DataFrame, whose: str, spread: str) -> Iterator[tuple[float, float]]:
    return zip(table[f"{whose}_mean"], table[f"{whose}_{spread}"], strict=True)


def _join_spread(mean: float, spread: float) -> str:
    """Write a mean with its spread; NaN stands for what one side does not have."""
    if mean != mean:
        return "-"
    # A spread stays beside its mean.
    return (
        f"{mean:.3f}"
        if spread != spread
        else f"{mean:.3f}\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}{spread:.3f}"
    )


def _show_end(done: dict[str, Any]) -> None:
    for method, reason in done["skipped"].items():
        typer.echo(f"{method} was left out: {reason}")
    typer.echo(
        f"{done['fits']} fits, {done['trained']} of them new, in {done['seconds']:.0f} s. "
        f"Report: {Path(done['folder']) / 'report.html'}"
    )


if __name__ == "__main__":
    main()
