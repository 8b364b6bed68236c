"""The command line of the papers: python -m papers record."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from fairfrontier.cli.option import command_from
from fairfrontier.cli.terminal import run_app, show

if TYPE_CHECKING:
    from fairfrontier.study.config import StudyOptions

app = typer.Typer(
    name="papers",
    help="What is kept of studies that reproduce papers.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@command_from(app, "fairfrontier.study.config:StudyOptions", "study")
def record(options: StudyOptions) -> None:
    """Keep a finished run as a short table in data/reference/runs, to be committed."""
    from fairfrontier.study.check import load_study
    from papers.record import record_run

    study = load_study(options.study, options.profile, options.home).study
    show(str(record_run(study, options.find_folder(study), options.home)))


@app.callback()
def describe() -> None:
    """Keep what studies of papers found."""


if __name__ == "__main__":
    run_app(app, "python -m papers")
