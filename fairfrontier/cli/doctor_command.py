"""The command line's look at an installation and a project."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from fairfrontier.cli.terminal import log_to_terminal, show
from fairfrontier.runtime.errors import ConfigError

# Heavy modules are imported where they are used.
if TYPE_CHECKING:
    from fairfrontier.cli.upkeep.config import DoctorConfig


def doctor(config: DoctorConfig) -> None:
    """Say what works here and what does not, with the command that mends it.

    The exit code is 2 when something that is needed does not work.
    """
    from fairfrontier.cli.upkeep.doctor import examine

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
