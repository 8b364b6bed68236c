"""The frontier as a picture: one panel per fairness measure, better towards the upper right."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd

from fairfrontier.evaluate.measure.registry import MEASURES
from fairfrontier.study.config import split_name
from fairfrontier.study.frontier import find_pareto, orient

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which colour-blind readers tell apart; the marker says the same again.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F6A00", "#555555")
# One more than a multiple of the colours, so that no pair of colour and marker comes twice soon.
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "h", "p")
LEGEND_COLUMNS = 5
# At the legend's size; the key and the space around it take as much room as some letters.
LETTERS_PER_INCH, KEY_LETTERS = 14.0, 7
INK, GREY = "#30363d", "#8b949e"
NAMED_AT_MOST = 12
STYLE: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 9.5,
    "axes.edgecolor": "#8b949e",
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "text.color": INK,
    # A dollar sign in a label is a dollar sign.
    "text.parse_math": False,
    "xtick.color": "#57606a",
    "ytick.color": "#57606a",
}
NAMES = {
    "consistency": "Consistency",
    "counterfactual_fairness": "CTF score",
    "accuracy_spread": "Spread of accuracy",
    "balanced_accuracy_spread": "Spread of balanced accuracy",
    "dif": "Output shift among similar rows",
    "dif_box": "Output shift in the box, lower bound",
    "gap_rms": "RMS gap",
    "gap_abs": "Mean absolute gap",
    "gap_max": "Largest gap",
    "balanced_accuracy": "Balanced accuracy",
    "tpr_shortfall": "TPR shortfall",
    "fpr_excess": "FPR excess",
    "true_tpr_shortfall": "TPR shortfall of the true group",
    "true_fpr_excess": "FPR excess of the true group",
    "tpr_shortfall_assignment": "TPR shortfall, worst assignment",
    "fpr_excess_assignment": "FPR excess, worst assignment",
    "tpr_shortfall_ball": "TPR shortfall, worst distribution",
    "fpr_excess_ball": "FPR excess, worst distribution",
    "auc": "AUC",
    "tpr": "TPR",
    "tnr": "TNR",
    "fpr": "FPR",
    "fnr": "FNR",
    "mae": "MAE",
    "rmse": "RMSE",
    "r2": "R²",
    "disparity": "Statistical-parity disparity",
    "square_loss": "Square loss",
    "absolute_loss": "Absolute loss",
    "logistic_loss": "Logistic loss",
    "logistic_loss_nats": "Logistic loss in nats",
    "square_loss_max": "Largest square loss",
    "absolute_loss_max": "Largest absolute loss",
    "logistic_loss_max": "Largest logistic loss",
}


@contextmanager
def open_figure(width: float, height: float, **layout: Any) -> Iterator[Figure]:
    """Yield an empty figure; what is drawn and encoded in the block has the style of the house.

    Parameters
    ----------
    width, height : float
        Inches.
    **layout
        Room between and around the panels; see matplotlib's ConstrainedLayoutEngine.
    """
    # A worker that measures models has no need of matplotlib.
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    with mpl.rc_context(STYLE):
        engine = ConstrainedLayoutEngine(**layout)
        figure = Figure(figsize=(width, height), dpi=140, layout=engine)
        FigureCanvasAgg(figure)
        yield figure


def encode_png(figure: Figure) -> bytes:
    """Return a figure as a PNG: the same picture is the same file."""
    buffer = io.BytesIO()
    # No software version, no date.
    figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()


def add_grid(axes: Axes, axis: Literal["both", "x", "y"] = "both") -> None:
    """Draw faint lines at the ticks, below all else."""
    axes.grid(True, axis=axis, color="#d0d7de", lw=0.6, alpha=0.7)
    axes.set_axisbelow(True)


def name_measure(name: str) -> str:
    """Return a measure's name for readers: ``gap_rms:sex`` is "RMS gap, sex"."""
    measure, group = split_name(name)
    first, _, rest = measure.partition("_")
    shown = NAMES.get(measure)
    if shown is None:
        shown = f"{NAMES.get(first, first.capitalize())} {rest.replace('_', ' ')}".strip()
    group = group.replace("_", " and ").replace("budget=", "ε = ")
    return f"{shown}, {group}" if group else shown


def choose_looks(methods: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Return a colour and a marker for every method, a pair that no other of 72 has."""
    return {
        method: (COLOURS[i % len(COLOURS)], MARKERS[i % len(MARKERS)])
        for i, method in enumerate(sorted(methods))
    }


def draw_frontier(
    frontier: pd.DataFrame,
    accuracy: str,
    select_on: str,
    published: pd.DataFrame | None = None,
    title: str = "",
) -> bytes:
    """Draw the frontier.

    Parameters
    ----------
    frontier : DataFrame
        What ``build_frontier`` returns.
    accuracy : str
        The accuracy measure, for the axis.
    select_on : str
        The part that the frontier was chosen on, for the caption.
    published : DataFrame, optional
        What ``compare`` returns: large markers, hollow for the paper's and filled for ours.
    title : str
        Above the panels.

    Returns
    -------
    bytes
        A PNG; the same for the same input and version of matplotlib.

    Notes
    -----
    Axes of measures of which less is better run downward, so that better is up in every panel.
    The step line joins what the chosen settings attain on the reported part; a chosen setting
    that another one beats there lies below the line.
    """
    fairness = list(dict.fromkeys(frontier["fairness"]))
    shown = set(frontier["method"])
    if published is not None:
        published = published.loc[published["measure"].isin([accuracy, *fairness])]
        shown |= set(published.loc[published["ours_mean"].notna(), "row"])
        published = published.loc[published["row"].isin(shown)]
    looks = choose_looks(shown)
    swept = {
        str(method): sorted(find_swept(map(json.loads, settings)))
        for method, settings in frontier.groupby("method")["setting"].unique().items()
    }
    columns = min(2, len(fairness))
    rows = math.ceil(len(fairness) / columns)
    with open_figure(5.4 * columns, 3.9 * rows + 1.0, w_pad=0.12, h_pad=0.12) as figure:
        panels = figure.subplots(rows, columns, squeeze=False)
        for axes in panels.flat[len(fairness) :]:
            axes.set_visible(False)
        for axes, name in zip(panels.flat, fairness, strict=False):
            table = frontier.loc[frontier["fairness"] == name]
            _draw_panel(axes, table, name, accuracy, looks)
            _name_chosen(axes, table, looks, swept)
            if not table["on_frontier"].any():
                axes.set_title(
                    f"not estimable on {select_on}: nothing chosen", fontsize=9, color=GREY
                )
            if published is not None:
                _draw_published(axes, published, name, accuracy, looks)
            _fit_to_points(axes)
            _label_panel(axes, name, accuracy)
        figure.suptitle(title, fontsize=13, fontweight="bold", x=0.012, ha="left")
        _draw_legend(figure, looks, swept, select_on, published is not None)
        return encode_png(figure)


def _draw_panel(
    axes: Axes, table: pd.DataFrame, name: str, accuracy: str, looks: dict[str, tuple[str, str]]
) -> None:
    """Draw every setting with its intervals, the chosen ones strong, and the step line."""
    table = table.loc[table["accuracy"].notna() & table["fairness_value"].notna()]
    chosen = table.loc[table["on_frontier"]]
    attained = chosen[["accuracy", "fairness_value"]].to_numpy(dtype=np.float64)
    scores = np.column_stack([orient(accuracy, attained[:, 0]), orient(name, attained[:, 1])])
    best = attained[find_pareto(scores)]
    best = best[np.lexsort((best[:, 1], best[:, 0]))]
    if len(best):
        # Every accuracy below the next chosen setting's is attained with that one's fairness.
        axes.step(best[:, 0], best[:, 1], where="pre", color=INK, lw=1.3, alpha=0.75, zorder=2)
    for method, (colour, marker) in looks.items():
        for on_frontier in (False, True):
            some = table.loc[(table["method"] == method) & (table["on_frontier"] == on_frontier)]
            if some.empty:
                continue
            x, y = some["accuracy"].to_numpy(), some["fairness_value"].to_numpy()
            axes.errorbar(
                x,
                y,
                xerr=_reach(x, some["accuracy_low"], some["accuracy_high"]),
                yerr=_reach(y, some["fairness_low"], some["fairness_high"]),
                fmt="none",
                ecolor=colour,
                elinewidth=0.9,
                alpha=0.55 if on_frontier else 0.25,
                zorder=1,
            )
            axes.scatter(
                x,
                y,
                marker=marker,
                s=46 if on_frontier else 26,
                color=colour,
                alpha=1.0 if on_frontier else 0.45,
                edgecolors=INK if on_frontier else "none",
                linewidths=1.0,
                zorder=4 if on_frontier else 3,
            )


def _name_chosen(
    axes: Axes, table: pd.DataFrame, looks: dict[str, tuple[str, str]], swept: dict[str, list[str]]
) -> None:
    """Write the swept values beside the chosen settings, where there are few enough to read."""
    chosen = table.loc[table["on_frontier"] & table["accuracy"].notna()]
    if len(chosen) > NAMED_AT_MOST:
        return
    for row in chosen.itertuples():
        setting = json.loads(str(row.setting))
        values = ", ".join(str(setting.get(key, "–")) for key in swept[str(row.method)])
        axes.annotate(
            values,
            (row.accuracy, row.fairness_value),
            xytext=(5, 5),
            textcoords="offset points",
            fontsize=7.5,
            color=looks[str(row.method)][0],
            zorder=6,
        )


def _reach(value: np.ndarray, low: pd.Series, high: pd.Series) -> np.ndarray:
    """Return how far an interval reaches below and above, 0 where it is not known."""
    reach = np.vstack([value - low.to_numpy(), high.to_numpy() - value])
    return np.asarray(np.maximum(np.nan_to_num(reach), 0.0))


def _draw_published(
    axes: Axes, published: pd.DataFrame, name: str, accuracy: str, looks: dict[str, tuple[str, str]]
) -> None:
    """Draw the paper's numbers hollow, ours under its protocol filled, and join the two."""
    means = published.pivot_table(
        index="row", columns="measure", values=["published_mean", "ours_mean"], dropna=False
    )
    for method in means.index:
        colour, marker = looks[method]
        ends = {}
        for side, face in (("published_mean", "none"), ("ours_mean", f"{colour}66")):
            if (side, accuracy) not in means or (side, name) not in means:
                continue
            x, y = means.loc[method, (side, accuracy)], means.loc[method, (side, name)]
            if np.isfinite(x) and np.isfinite(y):
                ends[side] = (x, y)
                axes.scatter(
                    x, y, marker=marker, s=95, facecolors=face, edgecolors=colour, lw=1.6, zorder=2
                )
        if len(ends) == 2:
            x, y = zip(*ends.values(), strict=True)
            axes.plot(x, y, color=colour, lw=1.1, ls=":", zorder=1)


def _fit_to_points(axes: Axes) -> None:
    """Let the points fill the panel: an interval of a few splits may reach far beyond it."""
    points = np.concatenate([np.zeros((0, 2)), *(each.get_offsets() for each in _scattered(axes))])
    if not len(points):
        return
    for values, set_limits in ((points[:, 0], axes.set_xlim), (points[:, 1], axes.set_ylim)):
        room = 0.09 * (np.ptp(values) or 0.1)
        set_limits(values.min() - room, values.max() + room)


def _scattered(axes: Axes) -> list[Any]:
    from matplotlib.collections import PathCollection

    return [each for each in axes.collections if isinstance(each, PathCollection)]


def _label_panel(axes: Axes, name: str, accuracy: str) -> None:
    """Name the axes with their better direction, and turn those of which less is better."""
    add_grid(axes)
    for measure, which in ((accuracy, "x"), (name, "y")):
        arrow = "→" if which == "x" else "↑"
        label = f"{name_measure(measure)}   (better {arrow})"
        axes.set(**{f"{which}label": label})
        if MEASURES.find(split_name(measure)[0]).direction in ("lower", "zero"):
            (axes.invert_xaxis if which == "x" else axes.invert_yaxis)()


def find_swept(settings: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the keys in which settings differ, in the order in which they come up."""
    listed = list(settings)
    return [
        key
        for key in dict.fromkeys(key for each in listed for key in each)
        if len({json.dumps(each.get(key), default=str) for each in listed}) > 1
    ]


def _draw_legend(
    figure: Any,
    looks: dict[str, tuple[str, str]],
    swept: dict[str, list[str]],
    select_on: str,
    published: bool,
) -> None:
    """Put keys below the panels: what colours are, then in a line what sizes and rings are."""
    from matplotlib.lines import Line2D

    def key(label: str, marker: str = "o", ls: str = "none", **look: Any) -> Any:
        return Line2D([], [], marker=marker, ls=ls, label=label, **look)

    methods = []
    for method, (colour, marker) in looks.items():
        by = f" (by {', '.join(swept[method])})" if swept.get(method) else ""
        methods.append(key(f"{method}{by}", marker, color=colour, ms=7))
    chosen = f"chosen on {select_on}, shown on test"
    meaning = [
        key(chosen, color=GREY, markeredgecolor=INK, ms=7, ls="-"),
        key("other settings", color=GREY, alpha=0.5, ms=5),
    ]
    if published:
        meaning += [
            key("published", markerfacecolor="white", color=GREY, mew=1.6, ms=9),
            key("ours, published setting", markerfacecolor=f"{GREY}66", color=GREY, mew=1.6, ms=9),
        ]
    longest = max(len(str(each.get_label())) for each in (*methods, *meaning))
    fitting = max(2, int(figure.get_figwidth() * LETTERS_PER_INCH / (longest + KEY_LETTERS)))
    columns = min(LEGEND_COLUMNS, fitting, max(len(methods), len(meaning)))
    lines = [methods[first : first + columns] for first in range(0, len(methods), columns)]
    nothing = key(" ", marker="")
    padded = [[*line, *[nothing] * (columns - len(line))] for line in (*lines, meaning)]
    # A legend is filled column by column.
    handles = [line[column] for column in range(columns) for line in padded]
    figure.legend(
        handles=handles,
        loc="outside lower left",
        ncols=columns,
        frameon=False,
        fontsize=9,
        columnspacing=1.6,
    )
