"""The command line of the flows: python -m flows run, reproduce, serve."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from fairfrontier.cli.command import show_result
from fairfrontier.cli.option import command_from
from fairfrontier.cli.terminal import run_app, say, show
from flows.terminal import run_on_server

if TYPE_CHECKING:
    from fairfrontier.study.config import RunOptions
    from flows.option import ReproduceOptions, ServeOptions

app = typer.Typer(
    name="flows",
    help="What is scheduled: studies that reproduce papers, and the server.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@command_from(app, "flows.option:ReproduceOptions")
def reproduce(options: ReproduceOptions) -> None:
    """Run every study that reproduces a paper, and compare with the published results."""

    def check() -> None:
        options.check()
        if skipped := options.list_skipped():
            say(f"Skipped, without a profile {options.profile!r}: {', '.join(skipped)}.")

    def start() -> None:
        from flows.reproduce import reproduce as flow

        flow(options)

    run_on_server(options.home, check, start)


@command_from(app, "fairfrontier.study.config:RunOptions", "study")
def run(options: RunOptions) -> None:
    """Run a study as a flow, which the server keeps: as `fairfrontier run`, with its graph."""

    def check() -> None:
        from fairfrontier.study.run import check_options

        check_options(options)

    def start() -> None:
        from flows.frontier import frontier

        show_result(options, frontier(options))

    run_on_server(options.home, check, start)


@command_from(app, "flows.option:ServeOptions")
def serve(options: ServeOptions) -> None:
    """Start the Prefect server, register the deployments, and work on scheduled runs."""
    from flows.service import serve_all

    serve_all(options.home, options.port, show)


def main() -> None:
    """Run the command line."""
    run_app(app)


if __name__ == "__main__":
    main()
