"""The command line of the flows: python -m flows reproduce, python -m flows serve."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from fairfrontier.cli.command import Cluster, Conf, Out, Profile, show_reproduced
from fairfrontier.cli.terminal import resolve, say, say_error, settle_home
from fairfrontier.runtime.errors import FairfrontierError
from flows.terminal import run_on_server

app = typer.Typer(
    name="flows",
    help="What is scheduled: studies that reproduce papers, and the server.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.command()
def reproduce(
    profile: Profile = "default", cluster: Cluster = "local", conf: Conf = None, out: Out = None
) -> None:
    """Run every study that reproduces a paper, and compare with what was published."""
    home = settle_home(conf)

    def check() -> Any:
        from flows.reproduce import ReproduceOptions

        options = ReproduceOptions(
            profile=profile,
            cluster=resolve(cluster),
            out=None if out is None else str(out.absolute()),
            home=str(home),
        )
        options.check()
        if left_out := options.list_left_out():
            say(f"Left out, without a profile {profile!r}: {', '.join(left_out)}.")
        return options

    def start(options: Any) -> list[dict[str, Any]]:
        from flows.reproduce import reproduce as flow

        return flow(options)

    show_reproduced(run_on_server(home, check, start))


@app.command()
def run(
    study: Annotated[str, typer.Argument(help="A name in conf/studies, or a YAML file.")],
    profile: Profile = "default",
    cluster: Cluster = "auto",
    conf: Conf = None,
    out: Out = None,
) -> None:
    """Run a study as a flow, which the server keeps: as `fairfrontier run`, with its graph."""
    home = settle_home(conf)

    def check() -> Any:
        from fairfrontier.study.run import RunOptions, check_options

        options = RunOptions(
            study=resolve(study),
            profile=profile,
            cluster=resolve(cluster),
            out=None if out is None else str(out.absolute()),
            home=str(home),
        )
        check_options(options)
        return options

    def start(options: Any) -> dict[str, Any]:
        from flows.frontier import frontier

        return frontier(options)

    from fairfrontier.cli.command import show_frontier

    show_frontier(run_on_server(home, check, start))


@app.command()
def serve(
    port: Annotated[int, typer.Option(help="Port on loopback.", min=1, max=65535)] = 4200,
    conf: Conf = None,
) -> None:
    """Start the Prefect server, register the deployments, and work on scheduled runs."""
    from flows.service import serve_all

    serve_all(settle_home(conf), port, typer.echo)


def main() -> None:
    """Run the command line; a fault of the user's is one line and exit code 2."""
    try:
        app()
    except FairfrontierError as error:
        say_error(str(error))
        sys.exit(2)


if __name__ == "__main__":
    main()
