"""The reproduce flow: every study that reproduces a table or a figure of a paper."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prefect import flow
from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings
from pydantic import Field

from fairfrontier.prepare.source.download import UnreachableError
from fairfrontier.runtime.config import Model
from fairfrontier.runtime.errors import ConfigError, FairfrontierError, nearest
from fairfrontier.runtime.home import find_home
from fairfrontier.study.config import DEFAULT_PROFILE
from fairfrontier.study.expand import load_study
from fairfrontier.study.read import studies
from fairfrontier.study.run import RunOptions, check_options
from flows.frontier import frontier, restore
from flows.history import mark_run


class ReproduceOptions(Model):
    """How much is reproduced, and where; see `RunOptions`."""

    profile: str = Field(default=DEFAULT_PROFILE, description="How much is run.")
    cluster: str = Field(
        default="local", description="A name in conf/clusters (inline, local, cuda, ...) or a file."
    )
    out: str | None = Field(
        default=None, description="The folder that gets the results; data/results by default."
    )
    home: str | None = Field(
        default=None, description="The project root; found from the current folder by default."
    )

    def plan(self) -> list[RunOptions]:
        """Return one frontier run per study that reproduces something and has the profile."""
        reproducing = self._read()
        if not reproducing:
            home = Path(self.home) if self.home else find_home()
            raise ConfigError(
                f"No study in {home / 'conf' / 'studies'} reproduces a table or a figure.",
                "Give one a `published` block, or list the figures under `reproduces`.",
            )
        known = set().union(*reproducing.values())
        if self.profile not in known:
            raise ConfigError(
                f"No study that reproduces something has a profile {self.profile!r}.",
                nearest(self.profile, known),
            )
        return [
            RunOptions(
                study=name,
                profile=self.profile,
                cluster=self.cluster,
                out=self.out,
                home=self.home,
            )
            for name, profiles in reproducing.items()
            if self.profile in profiles
        ]

    def list_left_out(self) -> list[str]:
        """Return the studies that reproduce something and do not have the profile."""
        return [name for name, known in self._read().items() if self.profile not in known]

    def check(self) -> None:
        """Raise a FairfrontierError for what can be known to be wrong before anything runs."""
        for each in self.plan():
            check_options(each)

    def _read(self) -> dict[str, set[str]]:
        """Return name -> profiles of every study that reproduces something."""
        home = Path(self.home) if self.home else find_home()
        found = {name: load_study(name, home=home) for name in studies(home)}
        return {
            name: {DEFAULT_PROFILE, *resolved.study.profiles}
            for name, resolved in found.items()
            if resolved.study.reproduced
        }


@flow(name="reproduce", flow_run_name="reproduce {run.profile}", persist_result=False)
def reproduce(run: ReproduceOptions) -> list[dict[str, Any]]:
    """Run every study that reproduces something; one that fails does not stop the others.

    One whose data cannot be reached, as on a machine without a network, is left out and named; data
    that is another than stated is a fault.

    Parameters
    ----------
    run : ReproduceOptions
        Which profile, and where.

    Returns
    -------
    list of dict
        What `flows.frontier.frontier` returns, per study; for one that was left out ``study`` and
        ``unavailable``, a sentence.

    Raises
    ------
    FairfrontierError
        The first fault, after all studies have had their turn.
    """
    mark_run()
    done = []
    faults: list[Exception] = []
    # The heart of this flow beats for all: each of its own would be waited for up to a second.
    with temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}):
        for each in run.plan():
            try:
                # A run of its own takes the server longer than files are put back.
                done.append(restore(each) or frontier(each))
            except UnreachableError as error:
                done.append({"study": each.study, "unavailable": error.fault})
            except FairfrontierError as error:
                faults.append(type(error)(f"Study {each.study}: {error.fault}", error.mend))
            except Exception as error:
                error.add_note(f"In study {each.study}.")
                faults.append(error)
    if faults:
        raise faults[0]
    return done
