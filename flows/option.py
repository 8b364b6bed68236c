"""Options of the flows that no command of the library has; Prefect is not imported."""

from __future__ import annotations

from pydantic import Field

from fairfrontier.runtime.errors import ConfigError, nearest
from fairfrontier.runtime.option import ProjectOptions
from fairfrontier.study.config import DEFAULT_PROFILE
from fairfrontier.study.expand import load_study
from fairfrontier.study.option import Cluster, Profile, Results, RunOptions
from fairfrontier.study.read import list_studies
from fairfrontier.study.run import check_options


class ReproduceOptions(ProjectOptions):
    """How much is reproduced, and where; as in `RunOptions`."""

    profile: Profile = DEFAULT_PROFILE
    cluster: Cluster = "local"
    out: Results = None

    def plan(self) -> list[RunOptions]:
        """Return one frontier run per study that reproduces something and has the profile."""
        reproducing = self._read()
        if not reproducing:
            raise ConfigError(
                f"No study in {self.home / 'conf' / 'studies'} reproduces a table or a figure.",
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
                study=name, profile=self.profile, cluster=self.cluster, out=self.out, conf=self.conf
            )
            for name, profiles in reproducing.items()
            if self.profile in profiles
        ]

    def list_skipped(self) -> list[str]:
        """Return the studies that reproduce something and do not have the profile."""
        return [name for name, known in self._read().items() if self.profile not in known]

    def check(self) -> None:
        """Raise a FairfrontierError for whatever is known to be wrong before anything runs."""
        for options in self.plan():
            check_options(options)

    def _read(self) -> dict[str, set[str]]:
        """Return name -> profiles of every study that reproduces something."""
        loaded = {name: load_study(name, home=self.home).study for name in list_studies(self.home)}
        return {
            name: {DEFAULT_PROFILE, *study.profiles}
            for name, study in loaded.items()
            if study.reproduced
        }


class ServeOptions(ProjectOptions):
    """Where the server listens, and which project it serves."""

    port: int = Field(default=4200, ge=1, le=65535, description="Port on loopback.")
