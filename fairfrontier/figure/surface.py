"""Decision surfaces side by side: what models of two features say at every point of the plane."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fairfrontier.evaluate.certificate.last_move import LastMap, recall_last_map
from fairfrontier.figure.frontier import COLOURS, GREY, INK, encode_png, find_swept, open_figure
from fairfrontier.metric.kept import load_metric
from fairfrontier.prepare.config.dataset import DatasetConfig
from fairfrontier.prepare.config.section import REST
from fairfrontier.prepare.split import Part
from fairfrontier.runtime.errors import StoreError
from fairfrontier.study.drawing import Picture, Scene, figure
from fairfrontier.train.fit.group import FitGroup, Member
from fairfrontier.train.fit.input import load_split
from fairfrontier.train.fit.kept import KIND, read_facts
from fairfrontier.train.fit.key import key
from fairfrontier.train.individual.budro.estimator import BuDRO
from fairfrontier.train.registry import METHODS, load_model

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Points a side of the grid that the models are asked at.
GRID = 161
# The share of the data's range that is shown around it.
MARGIN = 0.04
SMALLEST_PROBABILITY = 1e-12
SYMBOLS = {"strength": "ρ", "budget": "ε", "level": "γ"}
LOW, HIGH = COLOURS[0], COLOURS[1]
MARKS = ("o", "^")
# More arrows than that cannot be told apart.
ARROWS = 30


@dataclass(frozen=True, eq=False)
class Plane:
    """A grid over two features.

    Attributes
    ----------
    x, y : float64 ndarrays of shape (GRID,)
        Ascending values of the first and of the second feature.
    """

    x: np.ndarray
    y: np.ndarray

    @classmethod
    def around(cls, rows: np.ndarray) -> Plane:
        """Return a grid over the range of some rows, with a margin."""
        low, high = rows.min(axis=0), rows.max(axis=0)
        edge = MARGIN * (high - low)
        return cls(*np.linspace(low - edge, high + edge, GRID).T)

    @property
    def points(self) -> np.ndarray:
        """All points, shape (GRID², 2), the first feature fastest."""
        return np.stack([each.ravel() for each in np.meshgrid(self.x, self.y)], axis=1)


@dataclass(frozen=True, eq=False)
class Surface:
    """One model over the plane.

    Attributes
    ----------
    title : str
        What differs from the other panels of its row.
    probability : float64 ndarray of shape (GRID, GRID)
        P(y = 1), rows by the second feature.
    tilt : float or None
        Angle of the boundary to the first axis in degrees; None without a boundary.
    moved : LastMap or None
        Where the worst case moved the training rows in the last round, of models that have one.
    """

    title: str
    probability: np.ndarray
    tilt: float | None
    moved: LastMap | None = None


def find_tilt(plane: Plane, probability: np.ndarray) -> float | None:
    """Return the angle between a decision boundary and the first axis.

    With g the gradient of the logit, averaged over the cells of the grid that the boundary
    P(y = 1) = 1/2 crosses, the boundary runs at right angles to g, and the angle is
    atan2(|g_1|, |g_2|).

    Parameters
    ----------
    plane : Plane
        The grid.
    probability : float64 array of shape (GRID, GRID)
        P(y = 1), rows by the second feature.

    Returns
    -------
    float or None
        Degrees in [0, 90], in units of the features; None where no cell is crossed.
    """
    p = np.clip(probability, SMALLEST_PROBABILITY, 1.0 - SMALLEST_PROBABILITY)
    logit = np.log(p) - np.log1p(-p)
    along_y, along_x = np.gradient(logit, plane.y, plane.x)
    positive = (logit > 0).astype(np.int64)
    corners = positive[1:, 1:] + positive[1:, :-1] + positive[:-1, 1:] + positive[:-1, :-1]
    crossed = (corners > 0) & (corners < 4)
    if not crossed.any():
        return None
    g = [np.abs(each[:-1, :-1][crossed].mean()) for each in (along_x, along_y)]
    return float(np.degrees(np.arctan2(*g)))


def count_features(described: DatasetConfig) -> str | None:
    """Say why decision surfaces cannot be drawn of a dataset; None where they can."""
    features = described.features
    if described.label.task != "binary":
        return f"its panels show two classes, and the label of {described.dataset} is no such"
    numbers = [*features.passthrough, *(features.numeric if features.numeric != REST else ())]
    others = (features.categorical, features.binned, features.binary, features.groups)
    if len(numbers) != 2 or features.numeric == REST or any(others):
        return f"its panels have two numeric features as axes, and {described.dataset} has others"
    return None


@figure(
    "surfaces",
    title="Decision surfaces",
    what="What the models of the first split say at every point of the plane, and the training "
    "rows that they saw. The line is where the decision turns; under each panel stands its angle "
    "to the horizontal. Arrows in a panel of BuDRO are the transport map of its last round: each "
    "begins at a training row and ends at the similar row whose treatment the worst case gives it. "
    f"Of all moves the {ARROWS} are drawn that add most to the loss.",
    supports=count_features,
)
def draw_surfaces(scene: Scene) -> Picture:
    """Draw a row of panels for each method that sweeps; methods of one setting come first.

    Raises
    ------
    StoreError
        When no model of the study's frontier is in the store.
    """
    shown = _list_members(scene)
    if not shown:
        raise StoreError(
            f"The store holds no model of {scene.study.study} that could be drawn.",
            "Run the study first, with a method that supports its dataset.",
        )
    first = next(iter(shown.values()))[0]
    split = load_split(first[0], first[1], scene.home)
    plane = Plane.around(split.train.X)
    rows: list[tuple[str, list[Surface]]] = []
    alone: list[Surface] = []
    for label, members in shown.items():
        surfaces = [_survey(scene, plane, each, label, members) for each in members]
        if len(members) == 1:
            alone += surfaces
        else:
            rows.append((label, surfaces))
    if alone:
        rows = [(rows[0][0], alone + rows[0][1]), *rows[1:]] if rows else [("", alone)]
    return Picture(_draw(rows, plane, split.train, split.feature_names), _describe(rows))


Found = tuple[FitGroup, Member, int]


def _list_members(scene: Scene) -> dict[str, list[Found]]:
    """Return the frontier's members of the first seed by method, each with its place."""
    seed = scene.study.seeds[0]
    shown: dict[str, list[Found]] = {}
    for each in scene.plan:
        # A model that asks for groups has no one surface.
        if "frontier" not in each.blocks or METHODS.find(each.group.estimator).predict_needs:
            continue
        folder = scene.store.path(KIND, key(each.group, scene.store, scene.home))
        if not folder.is_dir() or read_facts(folder)["skipped"] is not None:
            continue
        for number, member in enumerate(each.group.members):
            if member.seed == seed:
                name = METHODS.find(each.group.estimator).__name__
                label = name if each.group.method == each.group.estimator else each.group.method
                shown.setdefault(label, []).append((each.group, member, number))
    for members in shown.values():
        swept = find_swept(member.setting for _, member, _ in members)
        members.sort(key=lambda found: [_rank(found[1].setting.get(name)) for name in swept])
    return shown


def _rank(value: Any) -> tuple[float, str]:
    return (float(value), "") if isinstance(value, int | float) else (np.inf, str(value))


def _survey(
    scene: Scene, plane: Plane, found: Found, label: str, members: Sequence[Found]
) -> Surface:
    """Ask a stored model at every point of the plane."""
    group, member, number = found
    folder = scene.store.path(KIND, key(group, scene.store, scene.home)) / f"model-{number}"
    model = load_model(folder)
    probability = model.predict_proba(plane.points)[:, 1].reshape(GRID, GRID)
    swept = find_swept(each.setting for _, each, _ in members)
    own = {name: member.setting[name] for name in swept if name in member.setting}
    title = ", ".join(f"{SYMBOLS.get(name, name)} = {value}" for name, value in own.items())
    moved = None
    request = group.find_metric(member)
    if isinstance(model, BuDRO) and model.n_estimators > 1 and request is not None:
        train = load_split(group, member, scene.home).train
        metric = load_metric(request, scene.store, scene.home)
        moved = recall_last_map(model, train.X, train.y, metric, train.weight)
    return Surface(title or label, probability, find_tilt(plane, probability), moved)


def _describe(rows: Sequence[tuple[str, Sequence[Surface]]]) -> str:
    """Return the picture in words."""
    told = []
    for label, surfaces in rows:
        angles = [f"{each.title} {_show_tilt(each.tilt)}{_tell(each.moved)}" for each in surfaces]
        told.append(f"{label}: {', '.join(angles)}".removeprefix(": "))
    return "Decision surfaces, with the angle of each boundary to the horizontal. " + "; ".join(
        told
    )


def _tell(moved: LastMap | None) -> str:
    """Return what the arrows of a panel show, in words."""
    if moved is None:
        return ""
    return f" with {len(moved.moves[:ARROWS])} of {len(moved.moves)} moves of the last round"


def _show_tilt(tilt: float | None) -> str:
    return "no boundary" if tilt is None else f"boundary at {tilt:.1f}°"


def _draw(
    rows: Sequence[tuple[str, Sequence[Surface]]], plane: Plane, part: Part, names: Sequence[str]
) -> bytes:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LinearSegmentedColormap, Normalize
    from matplotlib.lines import Line2D

    # Pale, so that the points stay in front; white where the model is undecided.
    colours = LinearSegmentedColormap.from_list("surface", ["#6FB1DB", "#ffffff", "#F0A070"])
    columns = max(len(surfaces) for _, surfaces in rows)
    # Inches a side of a panel: larger where there are few.
    side = min(3.1, max(2.35, 12.4 / columns))
    size = side * columns + 1.2, (side + 0.4) * len(rows) + 0.9
    with open_figure(*size, w_pad=0.05, h_pad=0.07) as picture:
        panels = picture.subplots(len(rows), columns, squeeze=False, sharex=True, sharey=True)
        for line, (label, surfaces) in zip(panels, rows, strict=True):
            for axes in line[len(surfaces) :]:
                axes.set_visible(False)
            for axes, surface in zip(line, surfaces, strict=False):
                _draw_panel(axes, surface, plane, part, colours)
            line[0].set_ylabel(f"{label}\n{names[1]}" if label else names[1])
        # A label of the whole figure would lie on the legend.
        for axes in panels[-1]:
            axes.set_xlabel("\n".join(filter(None, [axes.get_xlabel(), names[0]])))
        shades = ScalarMappable(Normalize(0, 1), colours)
        bar = picture.colorbar(shades, ax=panels.ravel().tolist(), shrink=0.7, aspect=28, pad=0.015)
        bar.set_label(f"probability of {part.classes[1]}")
        bar.outline.set_visible(False)
        handles = [
            Line2D([], [], ls="none", marker=mark, color=colour, mec="white", ms=7, label=text)
            for mark, colour, text in zip(MARKS, (LOW, HIGH), part.classes, strict=True)
        ]
        handles.append(Line2D([], [], color=INK, lw=2, label="decision boundary"))
        if any(each.moved is not None for _, surfaces in rows for each in surfaces):
            told = "move of the worst case, last round"
            handles.append(Line2D([], [], color=INK, lw=0.9, marker=">", ms=4, label=told))
        picture.legend(handles=handles, loc="outside lower left", ncols=4, frameon=False)
        return encode_png(picture)


def _is_near_square(plane: Plane) -> bool:
    """Tell whether both features have about the same range, so that angles can be shown as such."""
    ratio = np.ptp(plane.x) / np.ptp(plane.y)
    return bool(0.8 < ratio < 1.25)


def _draw_panel(axes: Axes, surface: Surface, plane: Plane, part: Part, colours: Any) -> None:
    extent = (plane.x[0], plane.x[-1], plane.y[0], plane.y[-1])
    axes.imshow(
        surface.probability,
        origin="lower",
        extent=extent,
        cmap=colours,
        vmin=0,
        vmax=1,
        aspect="equal" if _is_near_square(plane) else "auto",
        interpolation="bilinear",
    )
    for code, (mark, colour) in enumerate(zip(MARKS, (LOW, HIGH), strict=True)):
        chosen = part.X[part.y == code]
        axes.scatter(
            chosen[:, 0],
            chosen[:, 1],
            marker=mark,
            s=13,
            color=colour,
            edgecolors="white",
            linewidths=0.4,
            zorder=2,
        )
    if surface.tilt is not None:
        # A pale edge keeps the line apart from the points.
        for colour, width in (("white", 3.6), (INK, 1.9)):
            axes.contour(
                plane.x,
                plane.y,
                surface.probability,
                levels=[0.5],
                colors=[colour],
                linewidths=width,
                zorder=3,
            )
    _draw_moves(axes, surface.moved, part.X)
    axes.set_title(surface.title, fontsize=10.5, fontweight="bold")
    axes.set_xlabel(_show_tilt(surface.tilt), fontsize=9.5)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=2, color=GREY, labelsize=8)


def _draw_moves(axes: Axes, moved: LastMap | None, rows: np.ndarray) -> None:
    """Draw arrows from rows to what they become, those that add most."""
    for each in moved.moves[:ARROWS] if moved is not None else ():
        axes.annotate(
            "",
            xy=tuple(rows[each.becomes]),
            xytext=tuple(rows[each.row]),
            arrowprops={
                "arrowstyle": "-|>,head_length=0.35,head_width=0.16",
                "color": INK,
                "lw": 0.7,
                "alpha": 0.75,
                "shrinkA": 2.0,
                "shrinkB": 2.0,
            },
            zorder=4,
        )
