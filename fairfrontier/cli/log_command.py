"""The command line's way into MLflow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairfrontier.cli.terminal import log_to_terminal, show

# Heavy modules are imported where they are used.
if TYPE_CHECKING:
    from fairfrontier.choose.config import LogConfig


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
