"""The command line's audit of decisions whose groups are noisy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairfrontier.cli.terminal import print_table, settle_home, with_server

# What is heavy is imported where it is used.
if TYPE_CHECKING:
    import pandas as pd

ROWS_AT_MOST = 24
PATHS = ("table", "model", "confusion", "auxiliary", "out")


def audit(
    table: Annotated[
        str | None, typer.Argument(help="Parquet or CSV with a decision in every row.")
    ] = None,
    decisions: Annotated[str | None, typer.Option(help="Column of decisions, 0 and 1.")] = None,
    accepted: Annotated[str | None, typer.Option(help="The level of decisions that is 1.")] = None,
    scores: Annotated[str | None, typer.Option(help="Column of scores, for decisions.")] = None,
    threshold: Annotated[
        float | None, typer.Option(help="The score from which on a row is decided 1.")
    ] = None,
    randomised: Annotated[
        bool, typer.Option("--randomised", help="Scores are probabilities of deciding 1.")
    ] = False,
    labels: Annotated[str | None, typer.Option(help="Column of true outcomes, 0 and 1.")] = None,
    positive: Annotated[str | None, typer.Option(help="The level of labels that is 1.")] = None,
    group: Annotated[str | None, typer.Option(help="Column of noisy groups.")] = None,
    weights: Annotated[str | None, typer.Option(help="Column of case weights.")] = None,
    model: Annotated[
        Path | None, typer.Option(help="In place of a table: the folder of a saved model.")
    ] = None,
    dataset: Annotated[
        str | None, typer.Option(help="What the model decides on: conf/datasets, or a YAML file.")
    ] = None,
    part: Annotated[str | None, typer.Option(help="Of the dataset; test by default.")] = None,
    attribute: Annotated[str | None, typer.Option(help="The dataset's noisy attribute.")] = None,
    noise: Annotated[
        float | None, typer.Option(help="Share of wrong groups to inject into the dataset.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Which split of the dataset.")] = None,
    level: Annotated[
        float | None, typer.Option(help="The noise: share of groups that moved, uniformly.")
    ] = None,
    confusion: Annotated[
        Path | None,
        typer.Option(help="The noise: CSV of P(noisy | true), true groups in rows by name."),
    ] = None,
    auxiliary: Annotated[
        Path | None, typer.Option(help="The noise: a table with true and noisy groups.")
    ] = None,
    true_group: Annotated[
        str | None, typer.Option(help="Column of true groups in the auxiliary table.")
    ] = None,
    prior: Annotated[
        str | None,
        typer.Option(help="Shares of true groups, as a=0.8,b=0.2; from the noise by default."),
    ] = None,
    criterion: Annotated[
        str | None, typer.Option(help="Rates or criteria, as tpr,fpr; all rates by default.")
    ] = None,
    budget: Annotated[
        float | None, typer.Option(help="Margin against all rows; 0.05 by default.")
    ] = None,
    confidence: Annotated[
        float | None, typer.Option(help="In noise that is estimated; 0.95 by default.")
    ] = None,
    conf: Annotated[
        Path | None, typer.Option(help="The conf folder, or the project root that holds it.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="The folder that gets the files; data/results/audit/NAME by default."),
    ] = None,
) -> None:
    """Say what holds of the rates of true groups when only noisy groups are seen."""
    asked_for = locals()
    given = {name: asked_for[name] for name in asked_for if asked_for[name] is not None}
    given.pop("conf", None)
    given |= {
        name: str(Path(given[name]).expanduser().absolute()) for name in PATHS if name in given
    }
    if dataset is not None and dataset.endswith((".yaml", ".yml")):
        given["dataset"] = str(Path(dataset).expanduser().absolute())
    if criterion is not None:
        given["criterion"] = [name.strip() for name in criterion.split(",")]
    home = settle_home(conf)

    def parameters() -> Any:
        from flows.audit import read_options

        asked = read_options({**given, "home": str(home)})
        asked.check()
        return asked

    def start(asked: Any) -> dict[str, Any]:
        from flows.audit import audit as flow

        return flow(asked)

    kept = ("No file was changed", "start again")
    show_audit(with_server(home, parameters, start, kept))


def show_audit(done: dict[str, Any]) -> None:
    """Print what holds for every assignment of rows to true groups, and what stays open."""
    conclusions = done["conclusions"]
    held = [each for each in conclusions if each["verdict"] != "open"]
    # What no assignment decides between two groups stands in the report.
    left = [each for each in conclusions if each["verdict"] == "open" and not each["other"]]
    rows = f"{done['counts']['rows']:,} rows"
    if held:
        print_table(
            f"{done['name']}: holds for every assignment of {rows}", _tabulate(held, done["budget"])
        )
    else:
        typer.echo(f"{done['name']}: nothing holds for every assignment of {rows}.")
    if left:
        print_table("stays open, against all rows", _tabulate(left, done["budget"]))
    between = done["counts"]["open"] - len(left)
    folder = Path(done["folder"])
    typer.echo(
        f"{done['counts']['held']} of {done['counts']['conclusions']} conclusions hold"
        + (f"; {between} between two groups stay open too. " if between else ". ")
        + f"All: {folder / 'conclusions.csv'}. Report: {folder / 'report.html'}"
    )


def _tabulate(conclusions: list[dict[str, Any]], budget: float) -> pd.DataFrame:
    import pandas as pd

    shown = [
        {
            "rate": each["measure"],
            "group": each["group"],
            "against": each["other"] or "all rows",
            "difference": _join(each["low"], each["high"]),
            "holds": _name_verdict(each, budget),
        }
        for each in conclusions[:ROWS_AT_MOST]
    ]
    if len(conclusions) > ROWS_AT_MOST:
        shown.append({"rate": f"and {len(conclusions) - ROWS_AT_MOST} more"})
    return pd.DataFrame(shown).fillna("")


def _name_verdict(conclusion: dict[str, Any], budget: float) -> str:
    """Write a verdict with its margin: between two groups there is none."""
    verdict = str(conclusion["verdict"])
    if conclusion["other"] or verdict == "open":
        return verdict
    return f"{verdict} {budget:g}" if verdict == "within" else f"{verdict} by more than {budget:g}"


def _join(low: float | None, high: float | None) -> str:
    return "unknown" if low is None or high is None else f"{low:+.3f} to {high:+.3f}"
