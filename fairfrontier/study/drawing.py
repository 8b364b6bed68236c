"""The registry of further figures that a study may name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from fairfrontier.prepare.config.dataset import DatasetConfig
from fairfrontier.runtime.option import RESULTS
from fairfrontier.runtime.registry import Registry
from fairfrontier.runtime.store import Store
from fairfrontier.study.config import StudyConfig

if TYPE_CHECKING:
    from fairfrontier.study.resolve import Planned

# Every study has these figures.
TAKEN = ("frontier", "attributes")


@dataclass(frozen=True, eq=False)
class Scene:
    """A study that was run: what figures are drawn from.

    ``points`` has the columns of points.parquet, and ``frontier`` is from `build_frontier`; the
    ``store`` of the project at ``home`` holds the models and scores of the fits in ``plan``.
    """

    study: StudyConfig
    plan: Sequence[Planned]
    points: pd.DataFrame
    frontier: pd.DataFrame
    store: Store
    home: Path


@dataclass(frozen=True)
class Picture:
    """A figure as PNG, and ``alt``, the same in words.

    The bytes are the same for the same scene and version of matplotlib.
    """

    png: bytes
    alt: str


@dataclass(frozen=True)
class Drawing:
    """A registered figure; see `figure`."""

    name: str
    title: str
    what: str
    draw: Callable[[Scene], Picture]
    supports: Callable[[DatasetConfig], str | None]
    needs: Callable[[StudyConfig], object]


FIGURES: Registry[Drawing] = Registry(
    "figure", "figure", ("fairfrontier.figure",), "fairfrontier.figures"
)


def list_files() -> list[str]:
    """Return the files that a run may leave, with those of all figures."""
    return [*RESULTS["run"], *(f"{name}.png" for name in FIGURES.all())]


def figure(
    name: str,
    *,
    title: str,
    what: str,
    supports: Callable[[DatasetConfig], str | None] = lambda _: None,
    needs: Callable[[StudyConfig], object] = lambda _: None,
) -> Callable[[Callable[[Scene], Picture]], Callable[[Scene], Picture]]:
    """Register a function Scene -> Picture as a figure.

    Parameters
    ----------
    name : str
        What a study lists under ``figures``, and the file's stem.
    title : str
        Its heading in the report.
    what : str
        Its caption in the report.
    supports : callable
        DatasetConfig -> why it cannot be drawn of that dataset, or None.
    needs : callable
        Raises ConfigError for a StudyConfig that lacks what is drawn; called before any training.

    Raises
    ------
    ValueError
        When the name is taken: a fault of the code, not of a user.
    """

    def register(draw: Callable[[Scene], Picture]) -> Callable[[Scene], Picture]:
        if name in TAKEN:
            raise ValueError(f"every study has a figure {name!r}")
        FIGURES.add(name, Drawing(name, title, what, draw, supports, needs), draw)
        return draw

    return register
