"""What holds a study to its paper: a package of its own, which is found by an entry point."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pandas as pd

from fairfrontier.runtime.errors import ConfigError
from fairfrontier.study.config import Block, StudyConfig

if TYPE_CHECKING:
    from pydantic.json_schema import GenerateJsonSchema

    from fairfrontier.runtime.store import Store

# Its entry point names a module that is a `Laboratory`.
GROUP = "fairfrontier.reproduction"


@dataclass(frozen=True, eq=False)
class Reproduction:
    """A study compared with its paper.

    Attributes
    ----------
    claims : sequence of mapping
        The study's claims, checked: ``id``, ``sentence``, ``held``, ``evidence``.
    published : DataFrame or None
        The paper's numbers beside ours: columns table, row, measure, published_mean,
        published_spread, spread_kind, ours_mean, ours_sd, n_splits, profile.
    shown : mapping or None
        The same for the report: measures, rows with their cells, and what is said of the table.
    points : DataFrame or None
        ``published`` where its rows are points beside the frontier, not points of a curve.
    """

    claims: Sequence[Mapping[str, Any]] = ()
    published: pd.DataFrame | None = None
    shown: Mapping[str, Any] | None = None
    points: pd.DataFrame | None = None


class Laboratory(Protocol):
    """What a package does that holds studies to their papers; all raise ConfigError."""

    def list_mentions(self, study: StudyConfig, where: str) -> Iterable[tuple[str, str, str]]:
        """Return the measures of claims: the claim's id, the part, and ``measure:group``."""

    def refuse_claims(
        self,
        study: StudyConfig,
        settings: Mapping[Block, Sequence[tuple[str, Mapping[str, Any]]]],
        where: str,
    ) -> None:
        """Refuse claims of a file that the rows, (label, setting) of each block, cannot answer."""

    def follows_curve(self, study: StudyConfig, home: Path) -> bool:
        """Return whether the published table is a curve, of which settings are points."""

    def hold_to_paper(self, results: Any, store: Store | None, home: Path) -> Reproduction:
        """Check the claims of a study's `StudyResults`, and compare it with its published table."""

    def describe_claim(self, generator: type[GenerateJsonSchema]) -> dict[str, Any]:
        """Return the JSON Schema of a claim."""


@cache
def load_laboratory() -> Laboratory | None:
    """Return what is installed, if anything is."""
    return next((point.load() for point in entry_points(group=GROUP)), None)


def find_laboratory(study: StudyConfig) -> Laboratory | None:
    """Return what holds a study to its paper; None for one of no paper.

    Raises
    ------
    ConfigError
        When nothing that does is installed.
    """
    if not study.claims and study.published is None:
        return None
    laboratory = load_laboratory()
    if laboratory is None:
        raise ConfigError(
            f"The study {study.study} has claims or published numbers, and fairfrontier-papers, "
            "which checks them, is not installed.",
            "Install the folder papers/ of a checkout, or take claims and published out.",
        )
    return laboratory
