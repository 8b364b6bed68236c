"""What robustness to noisy groups costs in error: by approach, and of the exact worst case."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fairfrontier.figure.frontier import GREY, INK, choose_looks, encode_png, open_figure
from fairfrontier.prepare.split import Part
from fairfrontier.reproduce.figure.approach import (
    DRO,
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
    refer_to_trivial,
    refuse_groups,
    select,
    trace,
)
from fairfrontier.reproduce.figure.violation import (
    DOTS,
    Key,
    add_legend,
    choose_line_looks,
    draw_line,
    draw_reference,
    list_line_keys,
    mark_levels,
)
from fairfrontier.runtime.errors import ConfigError
from fairfrontier.study.drawing import Picture, Scene, figure
from fairfrontier.train.noisy.lagrangian import TOLERANCE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ERROR, COST = "error_by_noise", "worst_case_cost"
MARK = (0, (5, 2, 1, 2))


@dataclass(frozen=True, eq=False)
class Errors:
    """Error rates on test against noise.

    Attributes
    ----------
    lines, references : tuple of Line
        Naive, DRO and soft assignments by ascent; unconstrained and by true groups.
    trivial : float
        Error of the classifier that decides 0 for everyone.
    budget : float
        α.
    """

    lines: tuple[Line, ...]
    references: tuple[Line, ...]
    trivial: float
    budget: float


@dataclass(frozen=True, eq=False)
class Cost:
    """The cost of one exact worst case.

    Attributes
    ----------
    approach : str
        Which.
    noise : tuple of float
        γ, ascending.
    lines : tuple of Line
        Error on test against α, for each γ.
    turning : tuple of float
        For each γ the α below which whoever satisfies the constraints has a TPR of at most α;
        ∞ where that is so at every α, 0 where at none.
    met : tuple of ndarray of bool
        For each line and α, whether the models of all splits satisfy the constraints in training.
    """

    approach: str
    noise: tuple[float, ...]
    lines: tuple[Line, ...]
    turning: tuple[float, ...]
    met: tuple[np.ndarray, ...]


@figure(
    ERROR,
    title="Error by noise",
    what="Error rate on test rows against the share γ of rows whose group is wrong, with the "
    "standard error over the splits; robust approaches by ascent. The dotted line is the error of "
    "the classifier that decides 0 for everyone.",
    supports=refuse_groups,
)
def draw_error(scene: Scene) -> Picture:
    """Draw the error of every approach."""
    found = trace_error(scene)
    return Picture(_draw_error(found), _describe_error(found))


def trace_error(scene: Scene) -> Errors:
    """Return the error of every approach at the budget of most rows.

    Raises
    ------
    ConfigError
        When the study lacks naive training or a robust approach by ascent.
    """
    rows = list_trained(scene, ERROR)
    budget = choose_budget(rows)
    results = Results.of(scene.points, rows)
    lines: list[Line] = []
    for approach in (NAIVE, DRO, SOFT):
        chosen = select(rows, ERROR, approach, "ascent" if approach in ROBUST else "")
        kept = [each for each in chosen if each.budget == budget]
        lines += trace(kept, ERROR, "noise", results.error_rate)
    others = [
        each
        for each in rows
        if each.approach == UNCONSTRAINED
        or (each.approach == TRUE_GROUPS and each.budget == budget)
    ]
    references = trace(others, ERROR, "noise", results.error_rate)
    return Errors(tuple(lines), references, refer_to_trivial(rows[0], scene), budget)


def _describe_error(found: Errors) -> str:
    told = []
    for each in (*found.lines, *found.references):
        values = [f"{value:.3f} at {at:g}" for at, value in zip(each.at, each.mean, strict=True)]
        told.append(f"{each.label} {', '.join(values)}")
    return (
        f"Error on test against the noise γ, at α = {found.budget:g}: {'; '.join(told)}. "
        f"Deciding 0 for everyone: {found.trivial:.3f}."
    )


def _draw_error(found: Errors) -> bytes:
    shown = (*found.lines, *found.references)
    looks = choose_line_looks(shown)
    with open_figure(6.4, 4.4, w_pad=0.1, h_pad=0.1) as picture:
        axes = picture.subplots()
        axes.axhline(found.trivial, color=INK, lw=0.9, ls=DOTS)
        for line in found.references:
            draw_reference(axes, line, looks, across=True)
        for line in found.lines:
            draw_line(axes, line, looks)
        mark_levels(axes, sorted({float(at) for line in shown for at in line.at}))
        axes.set_xlabel("noise γ: share of rows in a wrong group")
        axes.set_ylabel(f"error rate on test, α = {found.budget:g}")
        keys = list_line_keys(
            shown, frozenset(each.label for each in found.lines), looks, across=True
        )
        keys.append(("all decided 0", {"color": INK, "lw": 0.9, "ls": DOTS}))
        add_legend(picture, keys)
        return encode_png(picture)


@figure(
    COST,
    title="The cost of the exact worst case",
    what="Error rate on test rows against the allowed difference α, for each share γ of rows whose "
    "group is wrong, when the exact worst case is satisfied in training: left over the total "
    "variation balls, right over the soft assignments. Left of a vertical mark in the colour of γ, "
    "or everywhere where the panel says so, whoever satisfies the constraints has a true positive "
    "rate of at most α, and so an error above the dashed line. The dotted line is the error of the "
    "classifier that decides 0 for everyone. Hollow marks: on some split training found no model "
    "that satisfies the constraints on its own rows.",
    supports=refuse_groups,
)
def draw_cost(scene: Scene) -> Picture:
    """Draw error against budget under both exact worst cases."""
    found, trivial = trace_cost(scene)
    return Picture(_draw_cost(found, trivial), _describe_cost(found, trivial))


def trace_cost(scene: Scene) -> tuple[tuple[Cost, ...], float]:
    """Return what both exact worst cases cost, and the error of the trivial classifier.

    Raises
    ------
    ConfigError
        When the study lacks rows with ``inner: exact`` that sweep the budget.
    """
    rows = list_trained(scene, COST)
    results = Results.of(scene.points, rows)
    found = []
    for approach in ROBUST:
        chosen = select(rows, COST, approach, "exact")
        if len({each.budget for each in chosen}) < 2:
            raise ConfigError(
                f"{COST} shows the error of {approach} by exact against the budget, and all rows "
                "have the same.",
                "Give a row of it several: budget: [0.05, 0.1, 0.2].",
            )
        parts = [
            [each for each in chosen if (each.noise, each.label) == place]
            for place in sorted({(each.noise, each.label) for each in chosen})
        ]
        found.append(
            Cost(
                approach,
                noise=tuple(own[0].noise for own in parts),
                lines=tuple(
                    line for own in parts for line in trace(own, COST, "budget", results.error_rate)
                ),
                turning=tuple(find_turning(own[0], scene) for own in parts),
                met=tuple(_find_met(own) for own in parts),
            )
        )
    return tuple(found), refer_to_trivial(rows[0], scene)


def _find_met(rows: Sequence[Trained]) -> np.ndarray:
    ordered = sorted(rows, key=lambda each: each.budget)
    return np.array(
        [
            all(each.model().violation_ <= TOLERANCE for each in trained.row.fits.values())
            for trained in ordered
        ]
    )


def find_turning(trained: Trained, scene: Scene) -> float:
    """Return the α below which whoever satisfies the exact worst case has a TPR of at most α.

    Told of the training rows of the first split, where the constraints were imposed, and the noise
    model that training took. See ``turn_balls`` and ``turn_assignments``.
    """
    stored = trained.first()
    model = stored.model()
    train = stored.split(scene.home).train
    share, positive = _count_positives(train, trained.attribute)
    if trained.approach == DRO:
        return turn_balls(share, positive, model.level_)
    return turn_assignments(share, positive, model.joint_)


def turn_balls(share: np.ndarray, positive: np.ndarray, level: np.ndarray) -> float:
    """Return the α below which total variation balls leave no classifier with TPR > α.

    Over the ball of group j the least TPR is max(0, t_j − r_j), with t_j the TPR of the noisy group
    and r_j = γ_j / P(Y=1 | Ĝ=j). With TPR > α, TPR − max(0, t_j − r_j) ≤ α for all j needs
    t_j ≥ TPR − α + r_j, hence r_j < 1, and with weights P(Ĝ=j | Y=1), of which the t_j have the
    mean TPR,

        α ≥ Σ_j P(Ĝ=j | Y=1) r_j = Σ_j P(Ĝ=j) γ_j / P(Y=1) ≥ min_j r_j

    Parameters
    ----------
    share : ndarray of float64, shape (m,)
        P(Ĝ=j).
    positive : ndarray of float64, shape (m,)
        P(Y=1 | Ĝ=j).
    level : ndarray of float64, shape (m,)
        γ_j.

    Returns
    -------
    float
        ∞ where some r_j ≥ 1.

    Notes
    -----
    A classifier without a single error on positive rows is left out: its TPR is 1 under every
    distribution on these rows.
    """
    if (level >= positive).any():
        return np.inf
    return float(share @ level / (share @ positive))


def turn_assignments(share: np.ndarray, positive: np.ndarray, joint: np.ndarray) -> float:
    """Return ∞ where W(θ) leaves no classifier with TPR > α at any α, else 0.

    The least TPR of true group j is 0 unless in some noisy group k the rows of other true groups
    are fewer than the accepted positive ones: P(G≠j | Ĝ=k) < P(Ŷ=1, Y=1 | Ĝ=k). Where
    P(G≠j | Ĝ=k) ≥ P(Y=1 | Ĝ=k) for all k, the constraint TPR − TPR_j ≤ α of that j is TPR ≤ α.

    Parameters
    ----------
    share, positive : ndarray of float64, shape (m̂,)
        As in ``turn_balls``; noisy groups without rows have no say.
    joint : ndarray of float64, shape (m, m̂)
        P(G=j, Ĝ=k).
    """
    stranger = 1.0 - joint / joint.sum(axis=0)
    covered = (stranger >= positive) | (share <= 0)
    return np.inf if covered.all(axis=1).any() else 0.0


def _count_positives(part: Part, attribute: str) -> tuple[np.ndarray, np.ndarray]:
    """Return P(Ĝ=j) and P(Y=1 | Ĝ=j)."""
    codes, size = part.group(attribute), len(part.attributes[attribute])
    mass = np.bincount(codes, part.weight, size)
    positive = np.bincount(codes, part.weight * part.y, size)
    return mass / mass.sum(), positive / np.where(mass > 0, mass, 1.0)


def _describe_cost(found: Sequence[Cost], trivial: float) -> str:
    told = []
    for each in found:
        lines = [
            f"γ = {noise:g}{'' if met.all() else ' (not met in training everywhere)'}: "
            + ", ".join(
                f"{value:.3f} at {at:g}" for at, value in zip(line.at, line.mean, strict=True)
            )
            + f" ({_name_turning(turning)})"
            for noise, line, turning, met in zip(
                each.noise, each.lines, each.turning, each.met, strict=True
            )
        ]
        told.append(f"{NAMES[each.approach]}, exact: {'; '.join(lines)}")
    return f"Error on test against α. {'. '.join(told)}. Deciding 0 for everyone: {trivial:.3f}."


def _name_turning(turning: float) -> str:
    if np.isinf(turning):
        return "TPR ≤ α at every α"
    return f"TPR ≤ α below α = {turning:.3f}" if turning > 0 else "no such limit"


def _draw_cost(found: Sequence[Cost], trivial: float) -> bytes:
    levels = sorted({level for each in found for level in each.noise})
    colours = choose_looks([f"{level:g}" for level in levels])
    with open_figure(4.3 * len(found) + 0.4, 4.2, w_pad=0.08, h_pad=0.08) as picture:
        panels = picture.subplots(1, len(found), sharex=True, sharey=True, squeeze=False)[0]
        for axes, each in zip(panels, found, strict=True):
            axes.set_title(
                f"{NAMES[each.approach]}, exact", fontsize=10.5, fontweight="bold", loc="left"
            )
            _draw_cost_panel(axes, each, trivial, colours)
            axes.set_xlabel("α: allowed difference")
        panels[0].set_ylabel("error rate on test")
        keys: list[Key] = [
            (f"γ = {level:g}", {"color": colours[f"{level:g}"][0],
                                "marker": colours[f"{level:g}"][1], "lw": 1.7, "ms": 6})
            for level in levels
        ]  # fmt: skip
        if not all(met.all() for cost in found for met in cost.met):
            keys.append(
                (
                    "hollow: not met in training",
                    {"color": GREY, "marker": "o", "mfc": "white", "ls": ""},
                )
            )
        if any(0 < each < np.inf for cost in found for each in cost.turning):
            keys.append(("TPR ≤ α left of it", {"color": INK, "lw": 1.2, "ls": MARK}))
        keys.append(("least error with TPR ≤ α", {"color": GREY, "lw": 1.2, "ls": "--"}))
        keys.append(("all decided 0", {"color": INK, "lw": 0.9, "ls": DOTS}))
        add_legend(picture, keys)
        return encode_png(picture)


def _draw_cost_panel(
    axes: Axes, cost: Cost, trivial: float, colours: dict[str, tuple[str, str]]
) -> None:
    axes.axhline(trivial, color=INK, lw=0.9, ls=DOTS)
    finite = [each for each in cost.turning if np.isfinite(each)]
    most = max([float(line.at.max()) for line in cost.lines] + finite)
    ends = np.array([0.0, min(1.0, 1.05 * most)])
    axes.plot(ends, (1 - ends) * trivial, color=GREY, lw=1.2, ls="--", zorder=1)
    everywhere = []
    for noise, line, turning, met in zip(
        cost.noise, cost.lines, cost.turning, cost.met, strict=True
    ):
        colour, marker = colours[f"{noise:g}"]
        axes.errorbar(
            line.at,
            line.mean,
            yerr=None if np.isnan(line.error).all() else np.nan_to_num(line.error),
            color=colour, lw=1.7, capsize=3, zorder=3,
        )  # fmt: skip
        for faces, some in ((colour, met), ("white", ~met)):
            axes.plot(
                line.at[some], line.mean[some],
                color=colour, marker=marker, mfc=faces, ls="none", ms=6, mew=1.4, zorder=4,
            )  # fmt: skip
        if np.isinf(turning):
            everywhere.append(f"{noise:g}")
        elif turning > 0:
            axes.axvline(turning, color=colour, lw=1.2, ls=MARK, zorder=2)
    if everywhere:
        # Nothing lies below the dashed line, which falls to the right.
        told = f"TPR ≤ α at every α\nfor γ = {', '.join(everywhere)}"
        axes.text(0.03, 0.04, told, fontsize=9, va="bottom", transform=axes.transAxes)
