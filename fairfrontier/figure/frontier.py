"""The frontier as a picture: one panel per fairness measure, better towards the upper right."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from string import ascii_uppercase
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd

from fairfrontier.metrics.measure.registry import MEASURES, split_name
from fairfrontier.runtime.errors import ConfigError
from fairfrontier.runtime.text_file import read_plain
from fairfrontier.study.frontier import find_pareto, orient

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

# Okabe and Ito's colours, which colour-blind readers can distinguish; markers repeat the coding.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F6A00", "#555555")
# As many as have no common factor with the colours, so that the first 72 pairs differ.
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "h", "p")
LEGEND_COLUMNS = 5
# At the font size of the legend; a key and the space around it are as wide as seven letters.
LETTERS_PER_INCH, KEY_LETTERS = 14.0, 7
INK, GREY = "#30363d", "#8b949e"
HEADING: Any = {"fontsize": 10.5, "fontweight": "bold", "loc": "left"}
# Of groups; longer names would leave too little width for the panels.
ROWS_AT_MOST, NAME_LENGTH = 40, 34
# More labels of settings than this in a panel would overlap.
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
    # Dollar signs in labels are literal.
    "text.parse_math": False,
    "xtick.color": "#57606a",
    "ytick.color": "#57606a",
}
# Names that do not follow from those of the first word.
NAMES = {
    "counterfactual_fairness": "CTF score",
    "accuracy_spread": "Spread of accuracy",
    "balanced_accuracy_spread": "Spread of balanced accuracy",
    "dif": "Output shift among similar rows",
    "dif_box": "Output shift in the box, lower bound",
    "gap_rms": "RMS gap",
    "gap_abs": "Mean absolute gap",
    "gap_max": "Largest gap",
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
    "ppv": "PPV",
    "npv": "NPV",
    "mae": "MAE",
    "rmse": "RMSE",
    "r2": "R²",
    "disparity": "Statistical-parity disparity",
    "logistic_loss_nats": "Logistic loss in nats",
    "square_loss_max": "Largest square loss",
    "absolute_loss_max": "Largest absolute loss",
    "logistic_loss_max": "Largest logistic loss",
}
Looks = dict[str, tuple[str, str]]


def import_matplotlib() -> ModuleType:
    """Import and return matplotlib; ConfigError where its settings cannot be read.

    A pipe of their name in the current folder would be waited for, and a device read without end.
    """
    settings = Path("matplotlibrc")
    try:
        if settings.exists() and not settings.is_dir():
            read_plain(settings, 2**20)
        import matplotlib as mpl
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"The file matplotlibrc, which matplotlib has found, cannot be read: {error}.",
            "Remove or correct that of the current folder, or of your own settings.",
        ) from error
    return mpl


@contextmanager
def open_figure(width: float, height: float, **layout: Any) -> Iterator[Figure]:
    """Yield an empty figure in the common style, which also applies to drawing within the block.

    Width and height are in inches; the layout is that of matplotlib's ConstrainedLayoutEngine.
    """
    # A worker that measures models does not need matplotlib.
    mpl = import_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    with mpl.rc_context():
        # Not what matplotlibrc says, of which one may lie in the current folder.
        mpl.rcdefaults()
        mpl.rcParams.update(STYLE)
        engine = ConstrainedLayoutEngine(**layout)
        figure = Figure(figsize=(width, height), dpi=140, layout=engine)
        FigureCanvasAgg(figure)
        yield figure


def encode_png(figure: Figure) -> bytes:
    """Return a figure as a PNG without metadata: the same figure gives the same bytes."""
    buffer = io.BytesIO()
    # No software version, no date. `savefig` would draw twice.
    figure.canvas.print_png(buffer, metadata={"Software": None})  # type: ignore[attr-defined]
    return buffer.getvalue()


def add_panels(figure: Figure, count: int, columns: int, **shared: Any) -> list[Axes]:
    """Return so many panels, row by row; the remaining ones of the last row are hidden."""
    panels = figure.subplots(math.ceil(count / columns), columns, squeeze=False, **shared).ravel()
    for axes in panels[count:]:
        axes.set_visible(False)
    return list(panels[:count])


def add_grid(axes: Axes, axis: Literal["both", "x", "y"] = "both") -> None:
    """Draw faint lines at the ticks, behind everything else."""
    axes.grid(True, axis=axis, color="#d0d7de", lw=0.6, alpha=0.7)
    axes.set_axisbelow(True)


def label_rows(axes: Axes, ticks: Sequence[tuple[float, str]], headings: Collection[str]) -> None:
    """Label the rows of a panel, downwards from 0, by height and text; headings are bold."""
    heights, names = zip(*ticks, strict=True)
    axes.set_yticks(heights, names)
    for label in axes.get_yticklabels():
        if label.get_text() in headings:
            label.set(fontweight="bold", color=INK)
    axes.set_ylim(heights[-1] - 0.65, 0.7)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    add_grid(axes, "x")


def place_rows(rows: pd.DataFrame) -> tuple[pd.DataFrame, list[tuple[float, str]], int]:
    """Return the rows that are drawn with their heights ``y``, their ticks, and the number omitted.

    ``rows`` have the columns attribute, level and n, and follow each other below the attribute's
    name, downwards from 0. Beyond ``ROWS_AT_MOST`` those of the smallest levels are omitted.
    """
    rows = rows.reset_index(drop=True)
    kept = rows.loc[rows["n"].nlargest(ROWS_AT_MOST).index.sort_values()]
    y, heights, ticks = 0.0, list[float](), list[tuple[float, str]]()
    for attribute, own in kept.groupby("attribute", sort=False):
        ticks.append((y, str(attribute)))
        for level, n in zip(own["level"], own["n"], strict=True):
            y -= 1.0
            heights.append(y)
            ticks.append((y, f"{shorten(level, NAME_LENGTH)}  (n = {n:,})"))
        y -= 1.25
    return kept.assign(y=heights), ticks, len(rows) - len(kept)


def make_key(label: str, **look: Any) -> Line2D:
    """Return a legend's key."""
    from matplotlib.lines import Line2D

    return Line2D([], [], label=label, **look)


def add_legend(figure: Figure, keys: Sequence[Line2D], columns: int, **options: Any) -> None:
    """Put a legend below the panels, or where the options say."""
    placed = {"loc": "outside lower left", "frameon": False, **options}
    figure.legend(handles=keys, ncols=columns, **placed)


def name_measure(name: str) -> str:
    """Return a measure's name for readers: ``gap_rms:sex`` is "RMS gap, sex"."""
    measure, group = split_name(name)
    first, _, remainder = measure.partition("_")
    shown = NAMES.get(measure)
    if shown is None:
        shown = f"{NAMES.get(first, first.capitalize())} {remainder.replace('_', ' ')}".strip()
    group = group.replace("_", " and ").replace("budget=", "ε = ")
    return f"{shown}, {group}" if group else shown


def name_within(name: str) -> str:
    """Return a measure's name within a sentence: of "AUC" no letter is small."""
    shown = name_measure(name)
    return shown if shown[1:2].isupper() else shown[:1].lower() + shown[1:]


def greater_is_better(name: str) -> bool:
    """Return whether larger values of a measure are better; of others, smaller or nearer to 0."""
    return MEASURES.find(split_name(name)[0]).direction == "higher"


def shorten(name: str, length: int) -> str:
    """Cut the middle of a long name, because names of groups often differ at their ends."""
    half = length // 2
    return name if len(name) <= length else f"{name[:half]}…{name[-half + 1 :]}"


def choose_looks(methods: Iterable[str]) -> Looks:
    """Return a colour and a marker for every method; the first 72 pairs differ."""
    return {
        method: (COLOURS[i % len(COLOURS)], MARKERS[i % len(MARKERS)])
        for i, method in enumerate(sorted(methods))
    }


def find_swept(settings: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the keys in which settings differ, in order of first appearance."""
    listed = list(settings)
    return [
        key
        for key in dict.fromkeys(key for setting in listed for key in setting)
        if len({json.dumps(setting.get(key), default=str) for setting in listed}) > 1
    ]


def list_swept(table: pd.DataFrame) -> dict[str, list[str]]:
    """Return the swept keys of every method, sorted, from the columns method and setting."""
    settings = table.groupby("method")["setting"].unique()
    return {
        str(method): sorted(find_swept(map(json.loads, own))) for method, own in settings.items()
    }


@dataclass(frozen=True, eq=False)
class Chart:
    """A study's settings by a measure of fairness and the objective, both on test rows.

    ``points`` has a row for each setting of which both are known, with those of the price list
    last: method, setting, ``place`` (among all settings), ``x`` and ``y`` with their ``_low`` and
    ``_high``, ``asks`` (whether it looks at the group of a row), ``free`` (the best without a
    bound), and ``letter``, empty for most. Shares are in percent, as is ``bound``, the suggested
    one. ``across`` and ``up`` are the ends of the axes.
    """

    measure: str
    objective: str
    points: pd.DataFrame
    bound: float | None
    across: tuple[float, float]
    up: tuple[float, float]
    units: tuple[str, str]

    @property
    def inside(self) -> pd.DataFrame:
        """The points within the axes."""
        (left, right), (low, high) = self.across, self.up
        return self.points[
            self.points["x"].between(left, right) & self.points["y"].between(low, high)
        ]


def find_scale(name: str, values: Iterable[float]) -> float:
    """Return 100 where the values of a measure are shares, to be shown in percent, else 1."""
    units = MEASURES.find(split_name(name)[0]).has_units
    return 1.0 if units or np.nanmax(np.abs([0.0, *values])) > 1.0 else 100.0


def name_priced(prices: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], str]:
    """Return the letter of each setting that a bound of a price list chooses."""
    keys = dict.fromkeys(
        (row["method"], row["setting"]) for row in prices if row["bound"] is not None
    )
    return {
        key: ascii_uppercase[place % 26] + str(place // 26 or "") for place, key in enumerate(keys)
    }


def trace_chart(
    table: pd.DataFrame,
    objective: str,
    measure: str,
    prices: Sequence[Mapping[str, Any]] = (),
    asks: Collection[tuple[str, str]] = (),
) -> Chart:
    """Return the chart of a measure.

    ``table`` is from `summarise`, on test, ``prices`` are the rows of the price list, and ``asks``
    has the (method, setting) that ask for the group. The axes fit what the price list names, and
    whatever is better.
    """
    columns, units = {}, []
    for axis, name, unit in (("x", measure, "points"), ("y", objective, "%")):
        for end, side in (("", "value"), ("_low", "low"), ("_high", "high")):
            own = table.loc[table["name"] == name].set_index(["method", "setting"])[side]
            columns[axis + end] = own
        scale = find_scale(name, columns[axis])
        units.append(unit if scale > 1 else "")
        for end in ("", "_low", "_high"):
            columns[axis + end] = scale * columns[axis + end]
    settings = table[["method", "setting"]].drop_duplicates().sort_values(["method", "setting"])
    settings["place"] = range(len(settings))
    points = settings.merge(pd.DataFrame(columns).dropna(subset=["x", "y"]).reset_index())
    listed = [row for row in prices if row["measure"] == measure]
    letters, keys = name_priced(prices), [*zip(points["method"], points["setting"], strict=True)]
    chosen = {(row["method"], row["setting"]): row["bound"] is None for row in listed}
    points["free"] = [chosen.get(key, False) for key in keys]
    points["letter"] = [letters[key] if chosen.get(key) is False else "" for key in keys]
    points["asks"] = [key in asks for key in keys]
    points = points.sort_values(["letter", "free"], kind="stable", ignore_index=True)
    scale = find_scale(measure, table.loc[table["name"] == measure, "value"])
    bound = next((scale * row["bound"] for row in listed if row["suggested"]), None)
    named = points[points["free"] | (points["letter"] != "")]
    across = _fit_axis(points if named.empty else named, points, "x", measure)
    near = points[points["x"].between(*across)]
    up = _fit_axis(near if named.empty else named, near, "y", objective)
    return Chart(measure, objective, points, bound, across, up, (units[0], units[1]))


def _fit_axis(named: pd.DataFrame, near: pd.DataFrame, axis: str, name: str) -> tuple[float, float]:
    """Return the ends of an axis: of the named points' intervals, and of all that is better."""
    ends = named[[axis, f"{axis}_low", f"{axis}_high"]].to_numpy(dtype=np.float64)
    low, high = np.nanmin(ends, initial=np.inf), np.nanmax(ends, initial=-np.inf)
    if greater_is_better(name):
        high = max(high, near[axis].max())
    else:
        low = min(low, near[axis].min())
    if not low <= high:
        return 0.0, 1.0
    margin = 0.06 * (high - low or 1.0)
    # A gap is seen from 0.
    whole = axis == "x" and not greater_is_better(name)
    return (min(low, 0.0) if whole or low <= margin else low - margin), high + margin


def draw_frontier(
    frontier: pd.DataFrame,
    accuracy: str,
    select_on: str,
    published: pd.DataFrame | None = None,
    title: str = "",
    mixtures: pd.DataFrame | None = None,
) -> bytes:
    """Return the PNG of a frontier: a panel for each fairness measure, better towards top right.

    ``frontier`` is as from `build_frontier`, chosen on the part ``select_on``; ``published`` is as
    from `compare`, and shows the paper's results as large hollow markers and ours as filled ones.
    The step line joins the chosen settings at their values on the reported part; a chosen setting
    that another one dominates there lies below it. ``mixtures``, as from `trace_mixtures`, are a
    dashed line: what two settings attain of which one, drawn for every row, decides.
    """
    fairness = list(dict.fromkeys(frontier["fairness"]))
    shown = set(frontier["method"])
    if published is not None:
        published = published.loc[published["measure"].isin([accuracy, *fairness])]
        shown |= set(published.loc[published["ours_mean"].notna(), "row"])
        published = published.loc[published["row"].isin(shown)]
    looks, swept = choose_looks(shown), list_swept(frontier)
    columns = min(2, len(fairness))
    height = 3.9 * math.ceil(len(fairness) / columns) + 1.0
    with open_figure(5.4 * columns, height, w_pad=0.12, h_pad=0.12) as figure:
        panels = add_panels(figure, len(fairness), columns)
        for axes, name in zip(panels, fairness, strict=True):
            table = frontier.loc[frontier["fairness"] == name]
            _draw_panel(axes, table, name, accuracy, looks)
            _name_chosen(axes, table, looks, swept)
            if mixtures is not None:
                for _, piece in mixtures.loc[mixtures["fairness"] == name].groupby("piece"):
                    line: Any = {"color": INK, "lw": 0.9, "ls": "--", "alpha": 0.6, "zorder": 2}
                    axes.plot(piece["accuracy"], piece["fairness_value"], **line)
            if not table["on_frontier"].any():
                axes.set_title(
                    f"not estimable on {select_on}: nothing chosen", fontsize=9, color=GREY
                )
            if published is not None:
                _draw_published(axes, published, name, accuracy, looks)
            _fit_to_points(axes)
            _label_panel(axes, name, accuracy)
        figure.suptitle(title, fontsize=13, fontweight="bold", x=0.012, ha="left")
        mixed = mixtures is not None and not mixtures.empty
        _draw_legend(figure, looks, swept, select_on, published is not None, mixed)
        return encode_png(figure)


def _draw_panel(axes: Axes, table: pd.DataFrame, name: str, accuracy: str, looks: Looks) -> None:
    """Draw every setting with its intervals, the chosen ones emphasised, and the step line."""
    table = table.loc[table["accuracy"].notna() & table["fairness_value"].notna()]
    chosen = table.loc[table["on_frontier"]]
    attained = chosen[["accuracy", "fairness_value"]].to_numpy(dtype=np.float64)
    scores = np.column_stack([orient(accuracy, attained[:, 0]), orient(name, attained[:, 1])])
    best = attained[find_pareto(scores)]
    best = best[np.lexsort((best[:, 1], best[:, 0]))]
    if len(best):
        # Every accuracy up to a chosen setting's is attained with that setting's fairness.
        axes.step(best[:, 0], best[:, 1], where="pre", color=INK, lw=1.3, alpha=0.75, zorder=2)
    for (method, on_frontier), rows in table.groupby(["method", "on_frontier"]):
        colour, marker = looks[str(method)]
        x, y = rows["accuracy"].to_numpy(), rows["fairness_value"].to_numpy()
        axes.errorbar(
            x,
            y,
            xerr=_find_errors(x, rows["accuracy_low"], rows["accuracy_high"]),
            yerr=_find_errors(y, rows["fairness_low"], rows["fairness_high"]),
            fmt="none",
            ecolor=colour,
            elinewidth=0.9,
            alpha=0.55 if on_frontier else 0.25,
            zorder=1,
        )
        strong = {"s": 46, "edgecolors": INK, "zorder": 4}
        faint = {"s": 26, "edgecolors": "none", "zorder": 3, "alpha": 0.45}
        look: Any = strong if on_frontier else faint
        axes.scatter(x, y, marker=marker, color=colour, linewidths=1.0, **look)


def _name_chosen(
    axes: Axes, table: pd.DataFrame, looks: Looks, swept: Mapping[str, list[str]]
) -> None:
    """Write the swept values beside the chosen settings unless there are too many to read."""
    chosen = table.loc[table["on_frontier"] & table["accuracy"].notna()]
    if len(chosen) > NAMED_AT_MOST:
        return
    for row in chosen.itertuples():
        setting = json.loads(str(row.setting))
        axes.annotate(
            ", ".join(str(setting.get(key, "–")) for key in swept[str(row.method)]),
            (row.accuracy, row.fairness_value),
            xytext=(5, 5),
            textcoords="offset points",
            fontsize=7.5,
            color=looks[str(row.method)][0],
            zorder=6,
        )


def _find_errors(value: np.ndarray, low: pd.Series, high: pd.Series) -> np.ndarray:
    """Return how far intervals extend below and above, shape (2, n); 0 where unknown."""
    errors = np.vstack([value - low.to_numpy(), high.to_numpy() - value])
    return np.asarray(np.maximum(np.nan_to_num(errors), 0.0))


def _draw_published(
    axes: Axes, published: pd.DataFrame, name: str, accuracy: str, looks: Looks
) -> None:
    """Draw the paper's results hollow and ours under its protocol filled, joined by a line."""
    means = published.pivot_table(
        index="row", columns="measure", values=["published_mean", "ours_mean"], dropna=False
    )
    for method in means.index:
        colour, marker = looks[method]
        ends = []
        for side, face in (("published_mean", "none"), ("ours_mean", f"{colour}66")):
            if (side, accuracy) not in means or (side, name) not in means:
                continue
            x, y = means.loc[method, (side, accuracy)], means.loc[method, (side, name)]
            if np.isfinite(x) and np.isfinite(y):
                ends.append((x, y))
                axes.scatter(
                    x, y, marker=marker, s=95, facecolors=face, edgecolors=colour, lw=1.6, zorder=2
                )
        if len(ends) == 2:
            axes.plot(*zip(*ends, strict=True), color=colour, lw=1.1, ls=":", zorder=1)


def _fit_to_points(axes: Axes) -> None:
    """Fit the limits to the points: intervals over a few splits may extend far beyond them."""
    from matplotlib.collections import PathCollection

    scattered = [marks for marks in axes.collections if isinstance(marks, PathCollection)]
    points = np.concatenate([np.zeros((0, 2)), *(marks.get_offsets() for marks in scattered)])
    if not len(points):
        return
    for values, set_limits in ((points[:, 0], axes.set_xlim), (points[:, 1], axes.set_ylim)):
        margin = 0.09 * (np.ptp(values) or 0.1)
        set_limits(values.min() - margin, values.max() + margin)


def _label_panel(axes: Axes, name: str, accuracy: str) -> None:
    """Label the axes, and invert those of measures of which smaller values are better."""
    add_grid(axes)
    axes.set_xlabel(f"{name_measure(accuracy)}   (better →)")
    axes.set_ylabel(f"{name_measure(name)}   (better ↑)")
    if not greater_is_better(accuracy):
        axes.invert_xaxis()
    if not greater_is_better(name):
        axes.invert_yaxis()


def _draw_legend(
    figure: Figure,
    looks: Looks,
    swept: Mapping[str, list[str]],
    select_on: str,
    published: bool,
    mixed: bool,
) -> None:
    """Put keys below the panels: the methods, then what sizes and outlines mean."""
    methods = []
    for method, (colour, marker) in looks.items():
        by = f" (by {', '.join(swept[method])})" if swept.get(method) else ""
        methods.append(make_key(f"{method}{by}", marker=marker, ls="none", color=colour, ms=7))
    grey: Any = {"color": GREY, "marker": "o"}
    chosen = f"chosen on {select_on}, shown on test"
    meaning = [
        make_key(chosen, markeredgecolor=INK, ms=7, ls="-", **grey),
        make_key("other settings", alpha=0.5, ms=5, ls="none", **grey),
    ]
    if mixed:
        meaning.append(make_key("mixtures of two settings", color=INK, lw=0.9, ls="--", alpha=0.6))
    if published:
        large: Any = {**grey, "mew": 1.6, "ms": 9, "ls": "none"}
        meaning += [
            make_key("published", markerfacecolor="white", **large),
            make_key("ours, published setting", markerfacecolor=f"{GREY}66", **large),
        ]
    longest = max(len(str(key.get_label())) for key in (*methods, *meaning))
    fitting = max(2, int(figure.get_figwidth() * LETTERS_PER_INCH / (longest + KEY_LETTERS)))
    columns = min(LEGEND_COLUMNS, fitting, max(len(methods), len(meaning)))
    lines = [methods[first : first + columns] for first in range(0, len(methods), columns)]
    blank = make_key(" ", marker="", ls="none")
    padded = [[*line, *[blank] * (columns - len(line))] for line in (*lines, meaning)]
    # matplotlib fills a legend column by column.
    keys = [line[column] for column in range(columns) for line in padded]
    add_legend(figure, keys, columns, fontsize=9, columnspacing=1.6)
