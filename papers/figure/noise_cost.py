"""The cost of robustness to noisy groups in error: by approach, and of the exact worst case."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fairfrontier.figure.frontier import GREY, INK, Looks, choose_looks, encode_png, open_figure
from fairfrontier.models.noisy.problem import TOLERANCE
from fairfrontier.prepare.split import Part
from fairfrontier.runtime.errors import ConfigError
from fairfrontier.study.drawing import Picture, Scene, figure
from papers.figure.approach import (
    DRO,
    INNER,
    NAMES,
    ROBUST,
    TRUE_GROUPS,
    UNCONSTRAINED,
    Line,
    Results,
    Trained,
    choose_budget,
    keep_budget,
    list_trained,
    refer_to_trivial,
    refuse_groups,
    select,
    trace,
)
from papers.figure.violation import (
    BARS,
    MARKS,
    TRIVIAL,
    Key,
    add_keys,
    choose_line_looks,
    draw_line,
    draw_reference,
    find_error,
    list_line_keys,
    mark_levels,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ERROR, COST = "error_by_noise", "worst_case_cost"
MARK = (0, (5, 2, 1, 2))
LEAST: Mapping[str, Any] = {"color": GREY, "lw": 1.2, "ls": "--"}


@dataclass(frozen=True, eq=False)
class Errors:
    """Error rates on test against noise, at the budget α.

    ``lines`` are naive training, DRO and soft assignments by ascent, ``references`` unconstrained
    training and that on true groups; ``trivial`` is the error of deciding 0 for everyone.
    """

    lines: tuple[Line, ...]
    references: tuple[Line, ...]
    trivial: float
    budget: float


class Cost(NamedTuple):
    """The cost of an exact worst case at one noise γ.

    ``line`` is the error on test against α, and ``met`` says for each α whether the models of all
    splits satisfy the constraints in training. Below α = ``turning``, whoever satisfies the
    constraints has a TPR of at most α: ∞ where that holds at every α, 0 where at none.
    """

    noise: float
    line: Line
    turning: float
    met: np.ndarray


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
    errors = trace_error(scene)
    return Picture(_draw_error(errors), _describe_error(errors))


def trace_error(scene: Scene) -> Errors:
    """Return the error of every approach at the most frequent budget.

    A ConfigError names naive training or a robust approach by ascent that is missing.
    """
    rows = list_trained(scene, ERROR)
    budget = choose_budget(rows)
    results = Results.of(scene.points, rows)
    lines: list[Line] = []
    for approach, inner in INNER.items():
        kept = keep_budget(select(rows, ERROR, approach, inner), budget, approach)
        lines += trace(kept, ERROR, "noise", results.error_rate)
    others = keep_budget(rows, budget, UNCONSTRAINED, TRUE_GROUPS)
    references = trace(others, ERROR, "noise", results.error_rate)
    return Errors(tuple(lines), references, refer_to_trivial(rows[0], scene), budget)


def _describe_error(errors: Errors) -> str:
    parts = [f"{line.label} {_list_means(line)}" for line in (*errors.lines, *errors.references)]
    return (
        f"Error on test against the noise γ, at α = {errors.budget:g}: {'; '.join(parts)}. "
        f"Deciding 0 for everyone: {errors.trivial:.3f}."
    )


def _list_means(line: Line) -> str:
    return ", ".join(f"{mean:.3f} at {at:g}" for at, mean in zip(line.at, line.mean, strict=True))


def _draw_error(errors: Errors) -> bytes:
    shown = (*errors.lines, *errors.references)
    looks = choose_line_looks(shown)
    with open_figure(6.4, 4.4, w_pad=0.1, h_pad=0.1) as picture:
        axes = picture.subplots()
        axes.axhline(errors.trivial, **TRIVIAL)
        for line in errors.references:
            draw_reference(axes, line, looks, across=True)
        for line in errors.lines:
            draw_line(axes, line, looks)
        mark_levels(axes, shown)
        axes.set_xlabel("noise γ: share of rows in a wrong group")
        axes.set_ylabel(f"error rate on test, α = {errors.budget:g}")
        thick = frozenset(line.label for line in errors.lines)
        keys = list_line_keys(shown, thick, looks, across=True)
        add_keys(picture, [*keys, ("all decided 0", TRIVIAL)])
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
    costs, trivial = trace_cost(scene)
    return Picture(_draw_cost(costs, trivial), _describe_cost(costs, trivial))


def trace_cost(scene: Scene) -> tuple[dict[str, tuple[Cost, ...]], float]:
    """Return the costs of both exact worst cases by approach, and the trivial classifier's error.

    A ConfigError names rows with ``inner: exact`` that are missing, or do not sweep the budget.
    """
    rows = list_trained(scene, COST)
    results = Results.of(scene.points, rows)
    costs = {}
    for approach in ROBUST:
        chosen = select(rows, COST, approach, "exact")
        if len({row.budget for row in chosen}) < 2:
            raise ConfigError(
                f"{COST} shows the error of {approach} by exact against the budget, and all rows "
                "have the same.",
                "Give a row of it several: budget: [0.05, 0.1, 0.2].",
            )
        levels = []
        for level in sorted({(row.noise, row.label) for row in chosen}):
            own = [row for row in chosen if (row.noise, row.label) == level]
            (line,) = trace(own, COST, "budget", results.error_rate)
            levels.append(Cost(level[0], line, find_turning(own[0], scene), _find_met(own)))
        costs[approach] = tuple(levels)
    return costs, refer_to_trivial(rows[0], scene)


def _find_met(rows: Sequence[Trained]) -> np.ndarray:
    return np.array(
        [
            all(stored.model().violation_ <= TOLERANCE for stored in row.row.fits.values())
            for row in sorted(rows, key=lambda row: row.budget)
        ]
    )


def find_turning(row: Trained, scene: Scene) -> float:
    """Return the α below which whoever satisfies the exact worst case has a TPR of at most α.

    The training rows are those of the first split, where the constraints were imposed, with the
    noise model that training used. See `turn_balls` and `turn_assignments`.
    """
    stored = row.row.first
    model = stored.model()
    share, positive = _count_positives(stored.split(scene.home).train, row.attribute)
    if row.approach == DRO:
        return turn_balls(share, positive, model.level_)
    return turn_assignments(share, positive, model.joint_)


def turn_balls(share: np.ndarray, positive: np.ndarray, level: np.ndarray) -> float:
    """Return the α below which total variation balls leave no classifier with TPR > α.

    Over the ball of group j the least TPR is max(0, t_j − r_j), with t_j the TPR of the noisy group
    and r_j = γ_j / P(Y=1 | Ĝ=j). With TPR > α, TPR − max(0, t_j − r_j) ≤ α for all j needs
    t_j ≥ TPR − α + r_j, hence r_j < 1, and with weights P(Ĝ=j | Y=1), of which the t_j have the
    mean TPR,

        α ≥ Σ_j P(Ĝ=j | Y=1) r_j = Σ_j P(Ĝ=j) γ_j / P(Y=1) ≥ min_j r_j

    ``share`` is P(Ĝ=j), ``positive`` P(Y=1 | Ĝ=j) and ``level`` γ_j, of shape (m,). The result is ∞
    where some r_j ≥ 1. A classifier without a single error on positive rows is left out: its TPR is
    1 under every distribution on these rows.
    """
    if (level >= positive).any():
        return np.inf
    return float(share @ level / (share @ positive))


def turn_assignments(share: np.ndarray, positive: np.ndarray, joint: np.ndarray) -> float:
    """Return ∞ where W(θ) leaves no classifier with TPR > α at any α, else 0.

    The least TPR of true group j is 0 unless in some noisy group k the rows of other true groups
    are fewer than the accepted positive ones: P(G≠j | Ĝ=k) < P(Ŷ=1, Y=1 | Ĝ=k). Where
    P(G≠j | Ĝ=k) ≥ P(Y=1 | Ĝ=k) for all k, the constraint TPR − TPR_j ≤ α of that j is TPR ≤ α.

    ``share`` and ``positive``, shape (m̂,), are as in `turn_balls`; noisy groups without rows do not
    count. ``joint``, shape (m, m̂), is P(G=j, Ĝ=k).
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


def _describe_cost(costs: Mapping[str, Sequence[Cost]], trivial: float) -> str:
    parts = []
    for approach, levels in costs.items():
        lines = [
            f"γ = {noise:g}{'' if met.all() else ' (not met in training everywhere)'}: "
            f"{_list_means(line)} ({_name_turning(turning)})"
            for noise, line, turning, met in levels
        ]
        parts.append(f"{NAMES[approach]}, exact: {'; '.join(lines)}")
    return f"Error on test against α. {'. '.join(parts)}. Deciding 0 for everyone: {trivial:.3f}."


def _name_turning(turning: float) -> str:
    if np.isinf(turning):
        return "TPR ≤ α at every α"
    return f"TPR ≤ α below α = {turning:.3f}" if turning > 0 else "no such limit"


def _draw_cost(costs: Mapping[str, Sequence[Cost]], trivial: float) -> bytes:
    every = [cost for levels in costs.values() for cost in levels]
    looks = choose_looks(f"{noise:g}" for noise in sorted({cost.noise for cost in every}))
    with open_figure(4.3 * len(costs) + 0.4, 4.2, w_pad=0.08, h_pad=0.08) as picture:
        panels = picture.subplots(1, len(costs), sharex=True, sharey=True, squeeze=False)[0]
        for axes, (approach, levels) in zip(panels, costs.items(), strict=True):
            title = f"{NAMES[approach]}, exact"
            axes.set_title(title, fontsize=10.5, fontweight="bold", loc="left")
            _draw_cost_panel(axes, levels, trivial, looks)
            axes.set_xlabel("α: allowed difference")
        panels[0].set_ylabel("error rate on test")
        keys: list[Key] = [
            (f"γ = {noise}", {"color": colour, "marker": marker, "lw": 1.7, "ms": 6})
            for noise, (colour, marker) in looks.items()
        ]
        if not all(cost.met.all() for cost in every):
            hollow = {"color": GREY, "marker": "o", "mfc": "white", "ls": ""}
            keys.append(("hollow: not met in training", hollow))
        if any(0 < cost.turning < np.inf for cost in every):
            keys.append(("TPR ≤ α left of it", {"color": INK, "lw": 1.2, "ls": MARK}))
        keys += [("least error with TPR ≤ α", LEAST), ("all decided 0", TRIVIAL)]
        add_keys(picture, keys)
        return encode_png(picture)


def _draw_cost_panel(axes: Axes, costs: Sequence[Cost], trivial: float, looks: Looks) -> None:
    axes.axhline(trivial, **TRIVIAL)
    finite = [cost.turning for cost in costs if np.isfinite(cost.turning)]
    most = max([float(cost.line.at.max()) for cost in costs] + finite)
    ends = np.array([0.0, min(1.0, 1.05 * most)])
    axes.plot(ends, (1 - ends) * trivial, **LEAST, zorder=1)
    everywhere = []
    for noise, line, turning, met in costs:
        colour, marker = looks[f"{noise:g}"]
        axes.errorbar(line.at, line.mean, find_error(line), color=colour, **BARS)
        for face, part in ((colour, met), ("white", ~met)):
            style: dict[str, Any] = {"marker": marker, "mfc": face, "ls": "none", **MARKS}
            axes.plot(line.at[part], line.mean[part], color=colour, zorder=4, **style)
        if np.isinf(turning):
            everywhere.append(f"{noise:g}")
        elif turning > 0:
            axes.axvline(turning, color=colour, lw=1.2, ls=MARK, zorder=2)
    if everywhere:
        # The lower left corner is free, since the dashed line falls to the right.
        text = f"TPR ≤ α at every α\nfor γ = {', '.join(everywhere)}"
        axes.text(0.03, 0.04, text, fontsize=9, va="bottom", transform=axes.transAxes)
