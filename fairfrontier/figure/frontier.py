"""Pictures: their common style, and the settings of a study by a gap and the objective."""

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
from fairfrontier.study.price import find_scale

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

# Okabe and Ito's colours, which colour-blind readers can distinguish; markers repeat the coding.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F6A00", "#555555")
# As many as have no common factor with the colours, so that the first 72 pairs differ.
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "h", "p")
INK, GREY = "#30363d", "#8b949e"
HEADING: Any = {"fontsize": 10.5, "fontweight": "bold", "loc": "left"}
# Of groups; longer names would leave too little width for the panels.
ROWS_AT_MOST, NAME_LENGTH = 40, 34
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
    group = group.replace("_", " ").replace("budget=", "ε = ")
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
        scale = find_scale(columns[axis], name)
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
    scale = find_scale(table.loc[table["name"] == measure, "value"], measure)
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


def draw_charts(charts: Sequence[Chart], title: str = "") -> bytes:
    """Return the PNG of charts, a panel each: better is up, and towards what is fair.

    The models of the price list are named by its letters, with their intervals. All else is grey.
    """
    columns = min(2, len(charts))
    rows = math.ceil(len(charts) / columns)
    width = 7.6 if columns == 1 else 11.0
    with open_figure(width, 4.2 * rows + 0.9, w_pad=0.12, h_pad=0.12) as figure:
        for axes, chart in zip(add_panels(figure, len(charts), columns), charts, strict=True):
            _draw_panel(axes, chart)
        figure.suptitle(title, fontsize=11, fontweight="bold", x=0.012, ha="left")
        looks = (
            ("the best without a limit", _look(free=True)),
            ("chosen within a limit", _look(letter="A")),
            ("asks for the group when it decides", _look(letter="A", asks=True)),
            ("other settings", _look()),
        )
        keys = [make_key(label, **look) for label, look in looks]
        add_legend(figure, keys, columns * 2, fontsize=9, columnspacing=1.6)
        return encode_png(figure)


def _look(letter: str = "", free: bool = False, asks: bool = False) -> dict[str, Any]:
    """Return the look of a point: a named one says by colour whether it asks for groups."""
    shape: dict[str, Any] = {"marker": "D" if asks else "o", "ls": "none"}
    if free:
        return {**shape, "ms": 8, "color": INK, "markerfacecolor": "white", "mew": 1.6}
    return {**shape, "ms": 7.5 if letter else 3.5, "color": COLOURS[asks] if letter else GREY}


def _draw_panel(axes: Axes, chart: Chart) -> None:
    """Draw a chart as the report does."""
    add_grid(axes)
    axes.set_xlim(*chart.across)
    axes.set_ylim(*chart.up)
    if chart.inside.empty:
        axes.set_title("not estimable on test rows", fontsize=9, color=GREY)
    if chart.bound is not None:
        axes.axvspan(chart.across[0], chart.bound, color=COLOURS[0], alpha=0.1, lw=0)
    named = chart.inside["free"] | (chart.inside["letter"] != "")
    for asks, own in chart.inside[~named].groupby("asks"):
        axes.plot(own["x"], own["y"], **_look(asks=bool(asks)))
    beside: Any = {"xytext": (6, 6), "textcoords": "offset points", "weight": "bold", "size": 11}
    for row in chart.inside[named].to_dict("records"):
        ends = {
            f"{axis}err": np.nan_to_num(
                [[row[axis] - row[f"{axis}_low"]], [row[f"{axis}_high"] - row[axis]]]
            ).clip(0.0)
            for axis in "xy"
        }
        look = _look(row["letter"], row["free"], row["asks"])
        axes.errorbar(row["x"], row["y"], **ends, **look, elinewidth=1.2)
        axes.annotate(row["letter"], (row["x"], row["y"]), zorder=6, **beside)
    x, y = (f", {unit}" if unit else "" for unit in chart.units)
    better = "→" if greater_is_better(chart.measure) else "←"
    axes.set_xlabel(f"{name_measure(chart.measure)}{x}   (fairer {better})")
    axes.set_ylabel(f"{name_measure(chart.objective)}{y}   (better ↑)")
    if not greater_is_better(chart.objective):
        axes.invert_yaxis()
