"""How often methods by reduction ask their oracle, and how long it takes to answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fairfrontier.figure.frontier import choose_looks, encode_png, open_figure
from fairfrontier.prepare.config.dataset import DatasetConfig
from fairfrontier.runtime.errors import ConfigError
from fairfrontier.runtime.store import Store
from fairfrontier.study.drawing import Picture, Scene, figure
from fairfrontier.study.expand import Planned
from fairfrontier.train.fit.kept import KIND, read_facts
from fairfrontier.train.fit.key import key

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "oracle_calls"


@dataclass(frozen=True, eq=False)
class Calls:
    """What a row's fits report of their oracle.

    Attributes
    ----------
    label : str
        As the study has it.
    budget : ndarray of float64, shape (n_budgets,)
        ε, ascending; NaN alone where the row has none.
    calls : ndarray of float64, shape (n_budgets,)
        Calls of a fit, mean over the seeds and whatever else the row sweeps.
    seconds : float
        Median over the fits of the seconds that a call takes; NaN where none is reported.
    """

    label: str
    budget: np.ndarray
    calls: np.ndarray
    seconds: float


def _refuse(described: DatasetConfig) -> str | None:
    if described.label.task != "multiclass":
        return None
    return f"reductions are for two classes or a number, and {described.dataset} has more classes"


@figure(
    NAME,
    title="Calls of the oracle",
    what="Left: how many models a fit of each row trains, against the budget ε, averaged over the "
    "seeds. Right: the seconds that one of them takes, median over the fits, on the machine that "
    "ran them.",
    supports=_refuse,
)
def draw_calls(scene: Scene) -> Picture:
    """Draw what the fits of the study's frontier report of their oracle."""
    found = list_calls(scene)
    # As in the figures that show all rows.
    looks = choose_looks(scene.study.methods)
    return Picture(_draw(found, looks), _describe(found))


def list_calls(scene: Scene) -> tuple[Calls, ...]:
    """Collect the reports of the fits of a study's frontier, by row.

    Parameters
    ----------
    scene : Scene
        Fits report ``oracle_calls``, and may report ``oracle_seconds``, in their ``fit.json``.

    Returns
    -------
    tuple of Calls
        In the order of the study; rows that report nothing are left out.

    Raises
    ------
    ConfigError
        When no fit reports calls.

    References
    ----------
    A. Agarwal, M. Dudík, Z. S. Wu. Fair regression: quantitative definitions and reduction-based
    algorithms. ICML 2019, Table 1 and Figure 3.
    """
    rows = _read_reports(scene.plan, scene.store, scene.home)
    if not rows:
        raise ConfigError(
            f"{scene.study.study}: {NAME} shows calls of an oracle, and no row reports any.",
            "Add a row of a method by reduction, fair_classification for example, or take it out.",
        )
    return tuple(_average(label, np.array(found)) for label, found in rows.items())


def time_calls(plan: Sequence[Planned], store: Store, home: Path) -> dict[str, float]:
    """Return, by row label, the median over the fits of the seconds that an oracle's call takes.

    Rows whose fits report nothing are left out; NaN stands where they report calls alone.
    """
    rows = _read_reports(plan, store, home)
    return {label: _average(label, np.array(found)).seconds for label, found in rows.items()}


def _read_reports(
    plan: Sequence[Planned], store: Store, home: Path
) -> dict[str, list[tuple[float, float, float]]]:
    """Return budget, calls and seconds a call of every fit of the frontier's block, by row."""
    rows: dict[str, list[tuple[float, float, float]]] = {}
    for each in plan:
        folder = store.path(KIND, key(each.group, store, home))
        if "frontier" not in each.blocks or not folder.is_dir():
            continue
        reports = read_facts(folder).get("reports", [])
        for member, report in zip(each.group.members, reports, strict=False):
            if "oracle_calls" in report:
                calls = float(report["oracle_calls"])
                seconds = float(report.get("oracle_seconds", np.nan))
                budget = float(member.parameters.get("budget", np.nan))
                rows.setdefault(each.group.method, []).append((budget, calls, seconds / calls))
    return rows


def _average(label: str, found: np.ndarray) -> Calls:
    budget, place = np.unique(found[:, 0], return_inverse=True)
    calls = np.bincount(place, found[:, 1]) / np.bincount(place)
    known = found[np.isfinite(found[:, 2]), 2]
    return Calls(label, budget, calls, float(np.median(known)) if known.size else np.nan)


def _describe(found: Sequence[Calls]) -> str:
    """Return the picture in words."""
    told = []
    for each in found:
        fewest, most = each.calls.min(), each.calls.max()
        span = f"{fewest:.0f}" if fewest == most else f"{fewest:.0f} to {most:.0f}"
        took = f", {each.seconds:.2g} s each" if np.isfinite(each.seconds) else ""
        told.append(f"{each.label} {span}{took}")
    return f"Calls of the oracle in a fit: {'; '.join(told)}."


def _draw(found: Sequence[Calls], looks: dict[str, tuple[str, str]]) -> bytes:
    with open_figure(9.6, 3.7, w_pad=0.1, h_pad=0.1, wspace=0.06) as picture:
        left, right = picture.subplots(1, 2)
        for each in found:
            colour, marker = looks[each.label]
            if np.isnan(each.budget).any():
                # A row without a budget asks as often for every one.
                left.axhline(each.calls[0], color=colour, lw=1.4, ls=(0, (5, 3)), label=each.label)
            else:
                left.plot(
                    each.budget, each.calls, color=colour, marker=marker, ms=5, label=each.label
                )
        left.set_ylim(bottom=0)
        left.set_xlabel("budget ε")
        left.set_ylabel("calls of the oracle")
        left.legend(frameon=False, fontsize=9)
        _draw_seconds(right, found, looks)
        return encode_png(picture)


def _draw_seconds(axes: Axes, found: Sequence[Calls], looks: dict[str, tuple[str, str]]) -> None:
    """Draw the seconds of a call, one line for each row."""
    for place, each in enumerate(found):
        colour, marker = looks[each.label]
        if np.isfinite(each.seconds):
            axes.plot(each.seconds, place, marker, color=colour, ms=8)
            axes.annotate(
                f"{each.seconds:.2g} s",
                (each.seconds, place),
                xytext=(0, 8),
                textcoords="offset points",
                ha="center",
                fontsize=9,
            )
    known = np.log10([each.seconds for each in found if np.isfinite(each.seconds)])
    if known.size:
        # Whole decades, whose marks are plain numbers.
        decades = np.arange(np.floor(known.min() - 0.1), np.ceil(known.max() + 0.1) + 1)
        axes.set_xscale("log")
        axes.set_xticks(10**decades, [f"{10**each:g}" for each in decades])
        axes.minorticks_off()
        axes.set_xlim(10 ** decades[0], 10 ** decades[-1])
    axes.set_yticks(range(len(found)), [each.label for each in found])
    axes.set_ylim(len(found) - 0.5, -0.5)
    axes.set_xlabel("seconds for a call")
