"""Options of the flows that no command of the library has.

Neither Prefect nor what trains is imported: a server starts as soon as the options are read.
"""

from __future__ import annotations

from functools import cached_property

from pydantic import Field

from fairfrontier.prepare.config.dataset import read_dataset
from fairfrontier.runtime.errors import ConfigError, nearest
from fairfrontier.runtime.finder import find_yaml
from fairfrontier.runtime.option import ProjectOptions
from fairfrontier.study.config import (
    DEFAULT_PROFILE,
    Cluster,
    Profile,
    Results,
    RunOptions,
    StudyConfig,
    list_studies,
    read_study,
)


class ReproduceOptions(ProjectOptions):
    """How much is reproduced, and where; as in `RunOptions`."""

    profile: Profile = DEFAULT_PROFILE
    cluster: Cluster = "local"
    out: Results = None

    def plan(self) -> list[RunOptions]:
        """Return one frontier run per study that reproduces something and has the profile.

        Studies of small tables come first: they are done within seconds.
        """
        reproducing = self._profiles
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
        return [name for name, known in self._profiles.items() if self.profile not in known]

    def check(self) -> None:
        """Raise a FairfrontierError for whatever is known to be wrong before anything runs."""
        from fairfrontier.study.run import check_options

        for options in self.plan():
            check_options(options)

    @cached_property
    def _profiles(self) -> dict[str, set[str]]:
        """Profiles of every study that reproduces something, those of small tables first."""
        names = list_studies(self.home)
        read = {name: read_study(name, DEFAULT_PROFILE, self.home)[0] for name in names}
        reproducing = [name for name, study in read.items() if study.reproduced]
        reproducing.sort(key=lambda name: self._estimate_bytes(read[name]))
        return {name: {DEFAULT_PROFILE, *read[name].profiles} for name in reproducing}

    def _estimate_bytes(self, study: StudyConfig) -> int:
        from fairfrontier.prepare.loader import estimate_bytes

        file = find_yaml("dataset", study.dataset, self.home)
        return estimate_bytes(read_dataset(file, self.home).source, self.home, file.parent)


class ServeOptions(ProjectOptions):
    """Where the server listens, and which project it serves."""

    port: int = Field(default=4200, ge=1, le=65535, description="Port on loopback.")
