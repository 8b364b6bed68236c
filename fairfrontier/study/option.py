"""Options that the commands and flows of studies share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from fairfrontier.runtime.option import File, NameOrFile, ProjectOptions
from fairfrontier.study.config import DEFAULT_PROFILE, StudyConfig

# With no more fits than this, starting worker processes would take longer than training.
FEW = 12
Profile = Annotated[str, Field(description="How much is run: default, or one of the study's.")]
Cluster = Annotated[
    NameOrFile,
    Field(
        description="A name in conf/clusters (inline, local, cuda, ...) or a YAML file; auto is "
        f"local for more than {FEW} fits and for a search, else inline."
    ),
]
Results = Annotated[
    File | None, Field(description="The folder that gets the results; data/results by default.")
]


class StudyOptions(ProjectOptions):
    """Which study, how much of it, and where its results are."""

    study: NameOrFile = Field(description="A name in conf/studies, or a YAML file.")
    profile: Profile = DEFAULT_PROFILE
    out: Results = None

    def find_folder(self, study: StudyConfig) -> Path:
        """Return the folder of the study's results."""
        return (self.out or self.home / "data" / "results") / study.slug

    @property
    def shown(self) -> tuple[str, ...]:
        """How a command names the study and its results, by paths as of `shorten`."""
        out = ("--out", shorten(self.out, self.home)) if self.out else ()
        return (shorten(Path(self.study), self.home), *out)


def shorten(path: Path, home: Path) -> str:
    """Return a path relative to the project, or its name alone: files name no other folder."""
    return str(path.relative_to(home)) if path.is_relative_to(home) else path.name


class RunOptions(StudyOptions):
    """Which study, how much of it, and where it is run."""

    cluster: Cluster = "auto"
