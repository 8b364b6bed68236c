"""Violations as the noise of groups grows: of true groups, of noisy ones, and of the worst case."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fairfrontier.figure.frontier import (
    COLOURS,
    INK,
    KEY_LETTERS,
    LEGEND_COLUMNS,
    LETTERS_PER_INCH,
    MARKERS,
    add_grid,
    encode_png,
    name_measure,
    open_figure,
)
from fairfrontier.reproduce.figure.approach import (
    DRO,
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
    list_trained,
    refuse_groups,
    select,
    trace,
)
from fairfrontier.runtime.errors import ConfigError
from fairfrontier.study.drawing import Picture, Scene, figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TRUE, NOISY, ROBUST_NAME, BY_RATE = (
    "violation_by_noise",
    "noisy_violation",
    "robust_violation",
    "violation_by_rate",
)
Key = tuple[str, Mapping[str, Any]]
Looks = Mapping[str, tuple[str, str]]
DOTS, DASHES = (0, (1, 2)), (0, (4, 2))
# An approach has the same colour in every figure; the marker says the same again.
LOOKS: Mapping[str, tuple[str, str]] = {
    NAIVE: (COLOURS[1], "s"),
    DRO: (COLOURS[0], "o"),
    SOFT: (COLOURS[2], "^"),
    UNCONSTRAINED: (COLOURS[4], "v"),
    TRUE_GROUPS: (COLOURS[3], "D"),
}
# The worst case that each robust approach guards against.
WORST = {DRO: "ball", SOFT: "assignment"}
LINES = (
    "At 0 the constraint is met with equality; the classifier that decides 0 for everyone has the "
    "violation −α. Bars are the standard error over the splits."
)


@dataclass(frozen=True, eq=False)
class Panel:
    """One panel.

    Attributes
    ----------
    title : str
        What it shows.
    lines : tuple of Line
        At least one.
    references : tuple of Line
        Drawn thin.
    """

    title: str
    lines: tuple[Line, ...]
    references: tuple[Line, ...]


@dataclass(frozen=True, eq=False)
class Violations:
    """The panels of one figure, in rows.

    Attributes
    ----------
    panels : tuple of tuple of Panel
    budget : float
        α.
    what : str
        What is violated, for the axis.
    across : bool
        Whether what a reference came to at one noise says something of others: not where the
        violation itself is measured by the noise.
    """

    panels: tuple[tuple[Panel, ...], ...]
    budget: float
    what: str
    across: bool

    def lines(self) -> tuple[Line, ...]:
        """Return the lines of all panels, a row of the study once, those drawn thick first."""
        panels = [panel for row in self.panels for panel in row]
        shown = [line for panel in panels for line in panel.lines]
        shown += [line for panel in panels for line in panel.references]
        return tuple({each.label: each for each in reversed(shown)}.values())[::-1]

    def thick(self) -> frozenset[str]:
        """Return the labels of the lines that some panel is about."""
        return frozenset(each.label for row in self.panels for panel in row for each in panel.lines)


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
    "soft assignments, each an exact maximum. Training by ascent seeks this worst case a step at a "
    "time, exact training finds it at every step. " + LINES,
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
    """Return the violations of one kind: a panel each for naive, DRO and soft assignments.

    Parameters
    ----------
    scene : Scene
    name : str
        Which figure asks, for messages.
    kind : {"true", "noisy"}
        Of which groups.
    measures : sequence of str, optional
        Among the criterion's; all of them by default.

    Raises
    ------
    ConfigError
        When the study lacks one of the three.
    """
    rows = list_trained(scene, name)
    budget = choose_budget(rows)
    results = Results.of(scene.points, rows)

    def measure(row: Trained) -> tuple[float, float, str]:
        return results.violation(row, kind, budget, measures)

    references = trace(_keep(rows, budget, UNCONSTRAINED, TRUE_GROUPS), name, "noise", measure)
    panels = []
    for approach in (NAIVE, DRO, SOFT):
        chosen = select(rows, name, approach, "ascent" if approach in ROBUST else "")
        own = trace(_keep(chosen, budget, approach), name, "noise", measure)
        panels.append(Panel(NAMES[approach], _require(own, name, approach, budget), references))
    return Violations((tuple(panels),), budget, f"violation of {kind} groups", kind == "true")


def trace_robust(scene: Scene) -> Violations:
    """Return what the exact worst case makes of both robust approaches, and of the others.

    Raises
    ------
    ConfigError
        When the study lacks one of the two.
    """
    rows = list_trained(scene, ROBUST_NAME)
    budget = choose_budget(rows)
    results = Results.of(scene.points, rows)
    panels = []
    for approach in ROBUST:

        def measure(row: Trained, kind: str = WORST[approach]) -> tuple[float, float, str]:
            return results.violation(row, kind, budget)

        others = _keep(rows, budget, UNCONSTRAINED, TRUE_GROUPS, NAIVE)
        chosen = _keep(select(rows, ROBUST_NAME, approach), budget, approach)
        lines = trace(chosen, ROBUST_NAME, "noise", measure)
        panels.append(
            Panel(
                f"{NAMES[approach]}: worst {'distribution' if approach == DRO else 'assignment'}",
                _require(lines, ROBUST_NAME, approach, budget),
                trace(others, ROBUST_NAME, "noise", measure),
            )
        )
    return Violations((tuple(panels),), budget, "violation in the worst case", across=False)


def trace_by_rate(scene: Scene) -> Violations:
    """Return the violations of true groups, a row of panels for each rate.

    Raises
    ------
    ConfigError
        When the study lacks one of the three approaches, or has one rate only.
    """
    rows = list_trained(scene, BY_RATE)
    rates = MEASURES[rows[0].criterion]
    if len(rates) < 2:
        raise ConfigError(
            f"{scene.study.study}: {BY_RATE} shows true and false positive rates apart, and under "
            f"{rows[0].criterion} there are no others than in {TRUE}.",
            "Take the figure out, or train with criterion: equalized_odds.",
        )
    found = [trace_by_approach(scene, BY_RATE, "true", (rate,)) for rate in rates]
    panels = tuple(
        tuple(
            Panel(f"{panel.title}: {name_measure(rate)}", panel.lines, panel.references)
            for panel in each.panels[0]
        )
        for rate, each in zip(rates, found, strict=True)
    )
    return Violations(panels, found[0].budget, found[0].what, found[0].across)


def _keep(rows: Sequence[Trained], budget: float, *approaches: str) -> tuple[Trained, ...]:
    """Return the rows of some approaches at a budget, which training without limits lacks."""
    return tuple(
        each
        for each in rows
        if each.approach in approaches and (each.budget == budget or each.approach == UNCONSTRAINED)
    )


def _require(lines: tuple[Line, ...], name: str, approach: str, budget: float) -> tuple[Line, ...]:
    if not lines:
        raise ConfigError(
            f"{name} shows all approaches at one budget, and no row of {approach} has "
            f"{budget:g}, as most others have.",
            f"Add budget: {budget:g} to a row of {approach}.",
        )
    return lines


def _all_lines(panel: Panel) -> tuple[Line, ...]:
    return (*panel.lines, *panel.references)


def _picture(found: Violations) -> Picture:
    return Picture(_draw(found), _describe(found))


def _describe(found: Violations) -> str:
    """Return the picture in words."""
    told = []
    for row in found.panels:
        for panel in row:
            lines = [
                f"{each.label} "
                + ", ".join(
                    f"{value:+.3f}{'' if np.isnan(error) else f' ± {error:.3f}'} at {at:g}"
                    f"{f' ({_name_worst(worst)})' if worst else ''}"
                    for at, value, error, worst in zip(
                        each.at, each.mean, each.error, each.worst, strict=True
                    )
                )
                for each in panel.lines
            ]
            told.append(f"{panel.title}: {'; '.join(lines)}")
    return (
        f"The {found.what} against the noise γ, at α = {found.budget:g}. " + ". ".join(told) + "."
    )


def _name_worst(worst: str) -> str:
    return worst.partition("=")[2]


def _draw(found: Violations) -> bytes:
    looks = choose_line_looks(found.lines())
    columns = len(found.panels[0])
    height = 2.75 * len(found.panels) + 0.9
    width = max(3.1, 8.6 / columns)
    with open_figure(width * columns + 0.6, height, w_pad=0.06, h_pad=0.08) as picture:
        grid = picture.subplots(
            len(found.panels), columns, squeeze=False, sharex=True, sharey="row"
        )
        for axes, panel in zip(
            grid.flat, (each for row in found.panels for each in row), strict=True
        ):
            axes.set_title(panel.title, fontsize=10.5, fontweight="bold", loc="left")
            _draw_panel(axes, panel, found, looks)
        for axes in grid[-1]:
            axes.set_xlabel("noise γ: share of rows in a wrong group")
        for row in grid:
            row[0].set_ylabel(f"{found.what}, α = {found.budget:g}")
        add_legend(picture, _list_keys(found, looks))
        return encode_png(picture)


def _draw_panel(axes: Axes, panel: Panel, found: Violations, looks: Looks) -> None:
    axes.axhline(0, color=INK, lw=1.1)
    axes.axhline(-found.budget, color=INK, lw=0.9, ls=DOTS)
    levels = sorted({float(at) for line in _all_lines(panel) for at in line.at})
    for line in panel.references:
        draw_reference(axes, line, looks, across=found.across)
    for line in panel.lines:
        draw_line(axes, line, looks)
    mark_levels(axes, levels)


def mark_levels(axes: Axes, levels: Sequence[float]) -> None:
    """Put ticks at the levels of noise, and room beside them."""
    room = 0.12 * (max(levels) - min(levels)) or 0.05
    axes.set_xlim(min(levels) - room, max(levels) + room)
    axes.set_xticks(list(levels), [f"{each:g}".lstrip("0") or "0" for each in levels])
    add_grid(axes, "y")


def draw_line(axes: Axes, line: Line, looks: Looks) -> None:
    """Draw means with their standard errors; dashed and hollow where training is exact."""
    colour, marker = looks[line.label]
    exact = line.inner == "exact"
    axes.errorbar(
        line.at,
        line.mean,
        yerr=None if np.isnan(line.error).all() else np.nan_to_num(line.error),
        color=colour,
        marker=marker,
        mfc="white" if exact else colour,
        ls=DASHES if exact else "-",
        lw=1.7,
        ms=6,
        mew=1.4,
        capsize=3,
        zorder=3,
    )


def draw_reference(axes: Axes, line: Line, looks: Looks, *, across: bool) -> None:
    """Draw means thin; ``across`` the panel where they were measured at one level of noise."""
    colour, marker = looks[line.label]
    if across and line.at.size == 1:
        axes.axhline(line.mean[0], color=colour, lw=1.2, ls=DASHES, zorder=2)
    else:
        axes.plot(
            line.at, line.mean, color=colour, marker=marker, ms=3.5, lw=1, alpha=0.8, zorder=2
        )


def _list_keys(found: Violations, looks: Looks) -> list[Key]:
    return [
        *list_line_keys(found.lines(), found.thick(), looks, across=found.across),
        ("met with equality", {"color": INK, "lw": 1.1}),
        ("all decided 0: −α", {"color": INK, "lw": 0.9, "ls": DOTS}),
    ]


def choose_line_looks(lines: Sequence[Line]) -> Looks:
    """Return a colour and a marker for each label: the approach's, or another marker of its colour.

    Exact training shares them with training by ascent, and is drawn hollow.
    """
    looks: dict[str, tuple[str, str]] = {}
    taken: set[tuple[str, str, str]] = set()
    for line in lines:
        colour, own = LOOKS.get(line.approach, (COLOURS[5], MARKERS[-1]))
        free = (each for each in (own, *MARKERS) if (colour, each, line.inner) not in taken)
        looks[line.label] = colour, next(free, own)
        taken.add((*looks[line.label], line.inner))
    return looks


def list_line_keys(
    lines: Sequence[Line], thick: frozenset[str], looks: Looks, *, across: bool
) -> list[Key]:
    """Return the words and look of each line for a legend, as they are drawn."""
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


def add_legend(picture: Figure, keys: Sequence[Key]) -> None:
    """Put keys below the panels, as many beside each other as there is room for."""
    from matplotlib.lines import Line2D

    longest = max(len(name) for name, _ in keys)
    fitting = int(picture.get_figwidth() * LETTERS_PER_INCH / (longest + KEY_LETTERS))
    handles = [Line2D([], [], label=name, **look) for name, look in keys]
    picture.legend(
        handles=handles,
        loc="outside lower left",
        ncols=max(1, min(LEGEND_COLUMNS, fitting)),
        frameon=False,
        fontsize=8.5,
    )
