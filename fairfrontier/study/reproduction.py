"""What holds a study to its paper: a module of another package, which is found by an entry point.

It has these functions, which raise ConfigError:

- ``list_mentions(study, where)``: the measures of claims: the claim's id, the part, and
  ``measure:group``;
- ``refuse_claims(study, settings, where)``: refuse claims of a file that the rows, block -> pairs
  of (label, setting), cannot answer;
- ``follows_curve(study, home)``: whether the published table is a curve, of which settings are
  points;
- ``hold_to_paper(results, store, home)``: check the claims of a study's `StudyResults`, and compare
  it with its published table; a `Reproduction`;
- ``describe_claim(generator)``: the JSON Schema of a claim.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import Any

import pandas as pd

from fairfrontier.runtime.errors import ConfigError
from fairfrontier.study.config import StudyConfig

# Its entry point names the module.
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
    html : str
        Both for the report.
    """

    claims: Sequence[Mapping[str, Any]] = ()
    published: pd.DataFrame | None = None
    html: str = ""


@cache
def load_laboratory() -> Any:
    """Return what is installed, if anything is."""
    return next((point.load() for point in entry_points(group=GROUP)), None)


def find_laboratory(study: StudyConfig) -> Any:
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
