"""Which split is meant: a dataset, a seed, and how much of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from fairfrontier.prepare.fingerprint import fingerprint
from fairfrontier.prepare.loader import load
from fairfrontier.prepare.source.download import Progress
from fairfrontier.prepare.split import Split
from fairfrontier.prepare.splitting.plan import SelectOn
from fairfrontier.runtime.recall import recall


@dataclass(frozen=True)
class SplitRequest:
    """The arguments of ``fairfrontier.prepare.load`` that name a split.

    Attributes
    ----------
    dataset : str
        Name of a dataset or path of its YAML.
    seed : int
    rows : int or None
        Training rows kept; all when None.
    select_on : {"train", "validation"} or None
    noise : float or None
        Share of wrong groups; what the dataset's YAML says when None.
    """

    dataset: str
    seed: int = 0
    rows: int | None = None
    select_on: SelectOn | None = None
    noise: float | None = None

    def fingerprint(self, home: Path) -> str:
        """Return the digest of what the split is made from; see `fingerprint`."""
        return _fingerprint(self, home)

    def load(self, home: Path, progress: Progress | None = None) -> Split:
        """Return the split; the last few of a process are kept."""
        return _load(self, home, self.fingerprint(home), Unseen(progress))


class Unseen:
    """An argument that makes no difference to a cache."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Unseen)

    def __hash__(self) -> int:
        return 0


@lru_cache(maxsize=4)
def _load(
    request: SplitRequest,
    home: Path,
    digest: str,  # noqa: ARG001 - an edited table or YAML is another split
    progress: Unseen,
) -> Split:
    return load(
        request.dataset,
        request.seed,
        rows=request.rows,
        select_on=request.select_on,
        home=home,
        noise=request.noise,
        progress=progress.value,
    )


@recall
def _fingerprint(request: SplitRequest, home: Path) -> str:
    return fingerprint(
        request.dataset,
        request.seed,
        rows=request.rows,
        select_on=request.select_on,
        home=home,
        noise=request.noise,
    )
