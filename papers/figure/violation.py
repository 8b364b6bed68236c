"""Violations as the noise of groups grows: of true groups, of noisy ones, and in the worst case."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fairfrontier.figure.frontier import (
    COLOURS,
    INK,
    MARKERS,
    Looks,
    add_grid,
    add_legend,
    encode_png,
    make_key,
    name_measure,
    open_figure,
)
from fairfrontier.runtime.errors import ConfigError
from fairfrontier.study.drawing import Picture, Scene, figure
from papers.figure.approach import (
    DRO,
    INNER,
    MEASURES,
    NAIVE,
    NAMES,
    ROBUST,
    SOFT,
    TRUE_GROUPS,
    UNCONSTRAINED,
    Line,
    Results,
    Trained,
    choose_budget,
    keep_budget,
    list_trained,
    refuse_groups,
    select,
    trace,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TRUE, NOISY = "violation_by_noise", "noisy_violation"
ROBUST_NAME, BY_RATE = "robust_violation", "violation_by_rate"
Key = tuple[str, Mapping[str, Any]]
DOTS, DASHES = (0, (1, 2)), (0, (4, 2))
# Markers, and error bars with their line.
MARKS: Mapping[str, Any] = {"ms": 6, "mew": 1.4}
BARS: Mapping[str, Any] = {"lw": 1.7, "capsize": 3, "zorder": 3}
TRIVIAL: Mapping[str, Any] = {"color": INK, "lw": 0.9, "ls": DOTS}
# An approach has the same colour in every figure; the marker repeats the distinction.
LOOKS: Mapping[str, tuple[str, str]] = {
    NAIVE: (COLOURS[1], "s"),
    DRO: (COLOURS[0], "o"),
    SOFT: (COLOURS[2], "^"),
    UNCONSTRAINED: (COLOURS[4], "v"),
    TRUE_GROUPS: (COLOURS[3], "D"),
}
# The worst case that each robust approach guards against: its kind of violation, and its name.
WORST = {DRO: ("ball", "distribution"), SOFT: ("assignment", "assignment")}
LINES = (
    "At 0 the constraint is met with equality; the classifier that decides 0 for everyone has the "
    "violation −α. Bars are the standard error over the splits."
)


@dataclass(frozen=True, eq=False)
class Panel:
    """One panel: at least one line, and references, which are drawn thin."""

    title: str
    lines: tuple[Line, ...]
    references: tuple[Line, ...]


@dataclass(frozen=True, eq=False)
class Violations:
    """The panels of one figure, in rows, at the budget α; ``what`` is the label of the axis.

    A reference at one level of noise is drawn across the panel if ``across``: not where the
    violation itself is measured by the noise.
    """

    panels: tuple[tuple[Panel, ...], ...]
    budget: float
    what: str
    across: bool

    def lines(self) -> tuple[Line, ...]:
        """Return the lines of all panels, each row of the study once, those drawn thick first."""
        panels = [panel for row in self.panels for panel in row]
        shown = [line for panel in panels for line in panel.lines]
        shown += [line for panel in panels for line in panel.references]
        return tuple({line.label: line for line in reversed(shown)}.values())[::-1]

    def thick(self) -> frozenset[str]:
        """Return the labels of the lines that are no references in some panel."""
        return frozenset(line.label for row in self.panels for panel in row for line in panel.lines)


@figure(
    TRUE,
    title="Violations on true groups by noise",
    what="By how much the true group with the largest mean violation violates the constraint on "
    "test rows, against the share γ of rows whose group is wrong. " + LINES,
    supports=refuse_groups,
)
def draw_true(scene: Scene) -> Picture:
    """Draw naive training, and both robust approaches by ascent."""
    return _picture(trace_by_approach(scene, TRUE, "true"))


@figure(
    NOISY,
    title="Violations on noisy groups by noise",
    what="By how much the noisy group with the largest mean violation violates the constraint on "
    "test rows, against the share γ of rows whose group is wrong. " + LINES,
    supports=refuse_groups,
)
def draw_noisy(scene: Scene) -> Picture:
    """Draw naive training, and both robust approaches by ascent."""
    return _picture(trace_by_approach(scene, NOISY, "noisy"))


@figure(
    ROBUST_NAME,
    title="Violations in the worst case",
    what="By how much the true group with the largest mean violation may violate the constraint on "
    "test rows, as far as the noise allows: left over the total variation balls, right over the "
    "soft assignments, each an exact maximum. Training by ascent takes one step towards this worst "
    "case at a time, exact training solves for it at every step. " + LINES,
    supports=refuse_groups,
)
def draw_robust(scene: Scene) -> Picture:
    """Draw both robust approaches, by ascent and exact where the study has it."""
    return _picture(trace_robust(scene))


@figure(
    BY_RATE,
    title="Violations on true groups by rate",
    what="The largest mean violation over the true groups on test rows, of true positive rates "
    "above and of false positive ones below, against the share γ of rows whose group is wrong. "
    + LINES,
    supports=refuse_groups,
)
def draw_by_rate(scene: Scene) -> Picture:
    """Draw naive training, and both robust approaches by ascent, for each rate."""
    return _picture(trace_by_rate(scene))


def trace_by_approach(
    scene: Scene, name: str, kind: str, measures: Sequence[str] | None = None
) -> Violations:
    """Return the violations of ``true`` or ``noisy`` groups: a panel each for naive, DRO and soft.

    ``measures`` are some of the criterion's; a ConfigError names a missing approach.
    """
    rows = list_trained(scene, name)
    budget = choose_budget(rows)
    results = Results.of(scene.points, rows)

    def measure(row: Trained) -> tuple[float, float, str]:
        return results.violation(row, kind, budget, measures)

    others = keep_budget(rows, budget, UNCONSTRAINED, TRUE_GROUPS)
    panels = tuple(
        _trace_panel(
            NAMES[approach], select(rows, name, approach, inner), others, name, measure, budget
        )
        for approach, inner in INNER.items()
    )
    return Violations((panels,), budget, f"violation of {kind} groups", kind == "true")


def trace_robust(scene: Scene) -> Violations:
    """Return the violations of all approaches in the exact worst case of each robust one."""
    rows = list_trained(scene, ROBUST_NAME)
    budget = choose_budget(rows)
    results = Results.of(scene.points, rows)
    others = keep_budget(rows, budget, UNCONSTRAINED, TRUE_GROUPS, NAIVE)
    panels = []
    for approach in ROBUST:
        kind, worst = WORST[approach]

        def measure(row: Trained, kind: str = kind) -> tuple[float, float, str]:
            return results.violation(row, kind, budget)

        title = f"{NAMES[approach]}: worst {worst}"
        chosen = select(rows, ROBUST_NAME, approach)
        panels.append(_trace_panel(title, chosen, others, ROBUST_NAME, measure, budget))
    return Violations((tuple(panels),), budget, "violation in the worst case", across=False)


def trace_by_rate(scene: Scene) -> Violations:
    """Return the violations of true groups, a row of panels for each rate.

    A ConfigError names a missing approach, or refuses a criterion with one rate only.
    """
    criterion = list_trained(scene, BY_RATE)[0].criterion
    rates = MEASURES[criterion]
    if len(rates) < 2:
        raise ConfigError(
            f"{scene.study.study}: {BY_RATE} shows true and false positive rates apart, and under "
            f"{criterion} there are no others than in {TRUE}.",
            "Take the figure out, or train with criterion: equalized_odds.",
        )
    by_rate = [trace_by_approach(scene, BY_RATE, "true", (rate,)) for rate in rates]
    panels = tuple(
        tuple(
            replace(panel, title=f"{panel.title}: {name_measure(rate)}")
            for panel in violations.panels[0]
        )
        for rate, violations in zip(rates, by_rate, strict=True)
    )
    return replace(by_rate[0], panels=panels)


def _trace_panel(
    title: str,
    chosen: Sequence[Trained],
    others: Sequence[Trained],
    name: str,
    measure: Callable[[Trained], tuple[float, float, str]],
    budget: float,
) -> Panel:
    """Trace the rows of one approach at a budget, and the references."""
    approach = chosen[0].approach
    kept = keep_budget(chosen, budget, approach)
    if not kept:
        raise ConfigError(
            f"{name} shows all approaches at one budget, and no row of {approach} has "
            f"{budget:g}, as most others have.",
            f"Add budget: {budget:g} to a row of {approach}.",
        )
    return Panel(title, trace(kept, name, "noise", measure), trace(others, name, "noise", measure))


def _picture(violations: Violations) -> Picture:
    return Picture(_draw(violations), _describe(violations))


def _describe(violations: Violations) -> str:
    """Return the picture in words."""
    parts = []
    for row in violations.panels:
        for panel in row:
            lines = [
                f"{line.label} "
                + ", ".join(
                    f"{value:+.3f}{'' if np.isnan(error) else f' ± {error:.3f}'} at {at:g}"
                    f"{f' ({_name_group(worst)})' if worst else ''}"
                    for at, value, error, worst in zip(
                        line.at, line.mean, line.error, line.worst, strict=True
                    )
                )
                for line in panel.lines
            ]
            parts.append(f"{panel.title}: {'; '.join(lines)}")
    return (
        f"The {violations.what} against the noise γ, at α = {violations.budget:g}. "
        + ". ".join(parts)
        + "."
    )


def _name_group(worst: str) -> str:
    return worst.partition("=")[2]


def _draw(violations: Violations) -> bytes:
    looks = choose_line_looks(violations.lines())
    rows, columns = len(violations.panels), len(violations.panels[0])
    width = max(3.1, 8.6 / columns)
    size = width * columns + 0.6, 2.75 * rows + 0.9
    with open_figure(*size, w_pad=0.06, h_pad=0.08) as picture:
        grid = picture.subplots(rows, columns, squeeze=False, sharex=True, sharey="row")
        panels = [panel for row in violations.panels for panel in row]
        for axes, panel in zip(grid.flat, panels, strict=True):
            axes.set_title(panel.title, fontsize=10.5, fontweight="bold", loc="left")
            _draw_panel(axes, panel, violations, looks)
        for axes in grid[-1]:
            axes.set_xlabel("noise γ: share of rows in a wrong group")
        for row in grid:
            row[0].set_ylabel(f"{violations.what}, α = {violations.budget:g}")
        keys = list_line_keys(
            violations.lines(), violations.thick(), looks, across=violations.across
        )
        keys.append(("met with equality", {"color": INK, "lw": 1.1}))
        keys.append(("all decided 0: −α", TRIVIAL))
        add_keys(picture, keys)
        return encode_png(picture)


def _draw_panel(axes: Axes, panel: Panel, violations: Violations, looks: Looks) -> None:
    axes.axhline(0, color=INK, lw=1.1)
    axes.axhline(-violations.budget, **TRIVIAL)
    for line in panel.references:
        draw_reference(axes, line, looks, across=violations.across)
    for line in panel.lines:
        draw_line(axes, line, looks)
    mark_levels(axes, (*panel.lines, *panel.references))


def mark_levels(axes: Axes, lines: Sequence[Line]) -> None:
    """Put ticks at the levels of noise of lines, with room on both sides."""
    levels = sorted({float(at) for line in lines for at in line.at})
    room = 0.12 * (levels[-1] - levels[0]) or 0.05
    axes.set_xlim(levels[0] - room, levels[-1] + room)
    axes.set_xticks(levels, [f"{level:g}".lstrip("0") or "0" for level in levels])
    add_grid(axes, "y")


def draw_line(axes: Axes, line: Line, looks: Looks) -> None:
    """Draw means with their standard errors; dashed and hollow where training is exact."""
    colour, marker = looks[line.label]
    face, dashes = ("white", DASHES) if line.inner == "exact" else (colour, "-")
    style: dict[str, Any] = {"marker": marker, "mfc": face, "ls": dashes, **MARKS, **BARS}
    axes.errorbar(line.at, line.mean, find_error(line), color=colour, **style)


def find_error(line: Line) -> np.ndarray | None:
    """Return the lengths of the error bars of a line; None where it has none."""
    return None if np.isnan(line.error).all() else np.nan_to_num(line.error)


def draw_reference(axes: Axes, line: Line, looks: Looks, *, across: bool) -> None:
    """Draw means thin; ``across`` the panel where they were measured at one level of noise."""
    colour, marker = looks[line.label]
    if across and line.at.size == 1:
        axes.axhline(line.mean[0], color=colour, lw=1.2, ls=DASHES, zorder=2)
    else:
        axes.plot(
            line.at, line.mean, color=colour, marker=marker, ms=3.5, lw=1, alpha=0.8, zorder=2
        )


def choose_line_looks(lines: Sequence[Line]) -> Looks:
    """Return a colour and a marker for each label: the approach's, or another marker of its colour.

    Exact training shares them with training by ascent, and is drawn hollow.
    """
    looks: dict[str, tuple[str, str]] = {}
    taken: set[tuple[str, str, str]] = set()
    for line in lines:
        colour, own = LOOKS.get(line.approach, (COLOURS[5], MARKERS[-1]))
        free = (mark for mark in (own, *MARKERS) if (colour, mark, line.inner) not in taken)
        looks[line.label] = colour, next(free, own)
        taken.add((*looks[line.label], line.inner))
    return looks


def list_line_keys(
    lines: Sequence[Line], thick: frozenset[str], looks: Looks, *, across: bool
) -> list[Key]:
    """Return the legend's text and look of each line, as it is drawn."""
    keys: list[Key] = []
    for line in lines:
        colour, marker = looks[line.label]
        strong = line.label in thick
        exact = strong and line.inner == "exact"
        look: dict[str, Any] = {
            "color": colour,
            "marker": marker,
            "ms": 6 if strong else 3.5,
            "lw": 1.7 if strong else 1,
            "mfc": "white" if exact else colour,
            "ls": DASHES if exact else "-",
        }
        if not strong and line.at.size == 1:
            look |= {"marker": "", "lw": 1.2, "ls": DASHES} if across else {"ls": ""}
        plain = line.label.replace("-", " ").replace("_", " ").lower()
        keys.append((plain if plain == line.name else f"{line.label}: {line.name}", look))
    return keys


def add_keys(picture: Figure, keys: Sequence[Key]) -> None:
    """Put keys below the panels, in as many columns as fit."""
    longest = max(len(name) for name, _ in keys)
    # At the font size of the legend; a key and the space around it are as wide as seven letters.
    fitting = int(picture.get_figwidth() * 14.0 / (longest + 7))
    handles = [make_key(name, **look) for name, look in keys]
    add_legend(picture, handles, max(1, min(5, fitting)), fontsize=8.5)
