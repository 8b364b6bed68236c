"""The command line's draft of a dataset and a study."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from fairfrontier.cli.terminal import say, show

# Heavy modules are imported where they are used.
if TYPE_CHECKING:
    from fairfrontier.prepare.draft.config import InitConfig


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
