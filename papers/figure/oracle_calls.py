"""How often methods by reduction call their oracle, and how long a call takes."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fairfrontier.figure.frontier import Looks, choose_looks, encode_png, open_figure
from fairfrontier.models.fit.group import KIND, read_facts
from fairfrontier.models.fit.key import key
from fairfrontier.models.registry import METHODS
from fairfrontier.prepare.config.dataset import DatasetConfig
from fairfrontier.runtime.errors import ConfigError
from fairfrontier.runtime.store import Store
from fairfrontier.study.config import StudyConfig
from fairfrontier.study.drawing import Picture, Scene, figure
from fairfrontier.study.resolve import Planned

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "oracle_calls"


@dataclass(frozen=True, eq=False)
class Calls:
    """What the fits of a row report about their oracle.

    ``budget`` is ε, ascending, or NaN alone without one; ``calls`` are those of a fit, averaged
    over the seeds and all else that the row sweeps, both of shape (n_budgets,). ``seconds`` is the
    median over the fits of the time of a call, NaN where none is reported.
    """

    label: str
    budget: np.ndarray
    calls: np.ndarray
    seconds: float


def _refuse(dataset: DatasetConfig) -> str | None:
    if dataset.label.task != "multiclass":
        return None
    return f"reductions are for two classes or a number, and {dataset.dataset} has more classes"


def _refuse_rows(study: StudyConfig) -> None:
    """Refuse a study none of whose methods leaves a report; a method says so by annotation."""
    methods = [METHODS.get(row.method or label) for label, row in study.methods.items()]
    if not any(
        method is None
        or not method.__module__.startswith(("fairfrontier.", "papers."))
        or any("report_" in inspect.get_annotations(cls) for cls in method.__mro__)
        for method in methods
    ):
        raise _lack(study)


def _lack(study: StudyConfig) -> ConfigError:
    return ConfigError(
        f"{study.study}: {NAME} shows calls of an oracle, and no row reports any.",
        "Add a row of a method by reduction, fair_classification for example, or take it out.",
    )


@figure(
    NAME,
    title="Calls of the oracle",
    what="Left: the number of models that a fit of each row trains, against the budget ε, averaged "
    "over the seeds. Right: the seconds that one of them takes, median over the fits, on the "
    "machine that ran them.",
    supports=_refuse,
    needs=_refuse_rows,
)
def draw_calls(scene: Scene) -> Picture:
    """Draw the reports of the frontier's fits on their oracle."""
    calls = list_calls(scene.plan, scene.store, scene.home)
    if not calls:
        raise _lack(scene.study)
    # The colours are those of the figures that show all rows.
    return Picture(_draw(calls, choose_looks(scene.study.methods)), _describe(calls))


def list_calls(plan: Sequence[Planned], store: Store, home: Path) -> tuple[Calls, ...]:
    """Return the reports of the fits of the frontier, by row, where there are any.

    Their ``fit.json`` has ``oracle_calls``, and may have ``oracle_seconds``: see Agarwal, Dudík and
    Wu, Fair regression, ICML 2019, Table 1 and Figure 3.
    """
    rows: dict[str, list[tuple[float, float, float]]] = {}
    for planned in plan:
        folder = store.path(KIND, key(planned.group, store, home))
        if "frontier" not in planned.blocks or not folder.is_dir():
            continue
        reports = read_facts(folder).get("reports", [])
        for member, report in zip(planned.group.members, reports, strict=False):
            if "oracle_calls" in report:
                calls = float(report["oracle_calls"])
                seconds = float(report.get("oracle_seconds", np.nan))
                budget = float(member.parameters.get("budget", np.nan))
                rows.setdefault(planned.group.method, []).append((budget, calls, seconds / calls))
    return tuple(_average(label, *np.array(reports).T) for label, reports in rows.items())


def time_calls(plan: Sequence[Planned], store: Store, home: Path) -> dict[str, float]:
    """Return the seconds of `list_calls` by row label."""
    return {row.label: row.seconds for row in list_calls(plan, store, home)}


def _average(label: str, budget: np.ndarray, calls: np.ndarray, seconds: np.ndarray) -> Calls:
    budgets, inverse = np.unique(budget, return_inverse=True)
    mean = np.bincount(inverse, calls) / np.bincount(inverse)
    known = seconds[np.isfinite(seconds)]
    return Calls(label, budgets, mean, float(np.median(known)) if known.size else np.nan)


def _describe(rows: Sequence[Calls]) -> str:
    """Return the picture in words."""
    parts = []
    for row in rows:
        fewest, most = row.calls.min(), row.calls.max()
        span = f"{fewest:.0f}" if fewest == most else f"{fewest:.0f} to {most:.0f}"
        seconds = f", {row.seconds:.2g} s each" if np.isfinite(row.seconds) else ""
        parts.append(f"{row.label} {span}{seconds}")
    return f"Calls of the oracle in a fit: {'; '.join(parts)}."


def _draw(rows: Sequence[Calls], looks: Looks) -> bytes:
    with open_figure(9.6, 3.7, w_pad=0.1, h_pad=0.1, wspace=0.06) as picture:
        left, right = picture.subplots(1, 2)
        for row in rows:
            colour, marker = looks[row.label]
            if np.isnan(row.budget).any():
                # A row without a budget makes the same number of calls at every one.
                left.axhline(row.calls[0], color=colour, lw=1.4, ls=(0, (5, 3)), label=row.label)
            else:
                left.plot(row.budget, row.calls, color=colour, marker=marker, ms=5, label=row.label)
        left.set_ylim(bottom=0)
        left.set_xlabel("budget ε")
        left.set_ylabel("calls of the oracle")
        left.legend(frameon=False, fontsize=9)
        _draw_seconds(right, rows, looks)
        return encode_png(picture)


def _draw_seconds(axes: Axes, rows: Sequence[Calls], looks: Looks) -> None:
    for y, row in enumerate(rows):
        colour, marker = looks[row.label]
        if np.isfinite(row.seconds):
            axes.plot(row.seconds, y, marker, color=colour, ms=8)
            axes.annotate(
                f"{row.seconds:.2g} s",
                (row.seconds, y),
                xytext=(0, 8),
                textcoords="offset points",
                ha="center",
                fontsize=9,
            )
    known = np.log10([row.seconds for row in rows if np.isfinite(row.seconds)])
    if known.size:
        # Ticks at powers of ten, labelled with plain numbers.
        decades = np.arange(np.floor(known.min() - 0.1), np.ceil(known.max() + 0.1) + 1)
        axes.set_xscale("log")
        axes.set_xticks(10**decades, [f"{10**decade:g}" for decade in decades])
        axes.minorticks_off()
        axes.set_xlim(10 ** decades[0], 10 ** decades[-1])
    axes.set_yticks(range(len(rows)), [row.label for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlabel("seconds for a call")
