"""Decision surfaces side by side: models of two features over the plane."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fairfrontier.figure.certificate import StoredModel, list_stored
from fairfrontier.figure.frontier import (
    COLOURS,
    GREY,
    INK,
    add_legend,
    encode_png,
    find_swept,
    make_key,
    open_figure,
)
from fairfrontier.metrics.certificate.worst_move import Move
from fairfrontier.models.individual.budro.estimator import BuDRO
from fairfrontier.models.prediction import check_features
from fairfrontier.models.registry import METHODS
from fairfrontier.prepare.config.dataset import DatasetConfig
from fairfrontier.prepare.config.section import REST
from fairfrontier.prepare.split import Part
from fairfrontier.runtime.errors import StoreError
from fairfrontier.similarity.kept import load_metric
from fairfrontier.study.drawing import Picture, Scene, figure
from papers.figure.last_move import list_last_moves

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Grid points along each side, at which the models are evaluated.
GRID = 161
# Shown around the data, as a share of their range.
MARGIN = 0.04
SMALLEST_PROBABILITY = 1e-12
SYMBOLS = {"strength": "ρ", "budget": "ε", "level": "γ"}
LOW, HIGH = COLOURS[0], COLOURS[1]
MARKS = ("o", "^")
# More arrows than this are indistinguishable.
ARROWS = 30


@dataclass(frozen=True, eq=False)
class Plane:
    """A grid over two features: GRID ascending values of each, float64."""

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
        """All points, shape (GRID², 2), the first feature varying fastest."""
        return np.stack([axis.ravel() for axis in np.meshgrid(self.x, self.y)], axis=1)


@dataclass(frozen=True, eq=False)
class Surface:
    """One model over the plane, titled by how it differs from the other panels of its row.

    ``probability`` is P(y = 1), shape (GRID, GRID), rows by the second feature; ``tilt`` the angle
    of the boundary to the first axis in degrees, None without a boundary; ``moves`` those of
    the training rows in the last round's worst case, of models that have one.
    """

    title: str
    probability: np.ndarray
    tilt: float | None
    moves: tuple[Move, ...] | None = None


def find_tilt(plane: Plane, probability: np.ndarray) -> float | None:
    """Return the angle between a decision boundary and the first axis.

    With g the gradient of the logit, averaged over the cells of the grid that the boundary
    P(y = 1) = 1/2 crosses, the boundary is at right angles to g, and the angle is
    atan2(|g_1|, |g_2|), in degrees in [0, 90]; None where no cell is crossed. ``probability`` has
    the shape (GRID, GRID), rows by the second feature.
    """
    p = np.clip(probability, SMALLEST_PROBABILITY, 1.0 - SMALLEST_PROBABILITY)
    logit = np.log(p) - np.log1p(-p)
    along_y, along_x = np.gradient(logit, plane.y, plane.x)
    positive = (logit > 0).astype(np.int64)
    corners = positive[1:, 1:] + positive[1:, :-1] + positive[:-1, 1:] + positive[:-1, :-1]
    crossed = (corners > 0) & (corners < 4)
    if not crossed.any():
        return None
    g = [np.abs(slope[:-1, :-1][crossed].mean()) for slope in (along_x, along_y)]
    return float(np.degrees(np.arctan2(*g)))


def refuse_features(described: DatasetConfig) -> str | None:
    """Return why decision surfaces cannot be drawn of a dataset; None where they can."""
    features = described.features
    if described.label.task != "binary":
        return f"its panels show two classes, and the label of {described.dataset} has another kind"
    numbers = [*features.passthrough, *(features.numeric if features.numeric != REST else ())]
    others = (features.categorical, features.binned, features.binary, features.groups)
    if len(numbers) != 2 or features.numeric == REST or any(others):
        return f"its panels have two numeric features as axes, and {described.dataset} has others"
    return None


@figure(
    "surfaces",
    title="Decision surfaces",
    what="The predictions of the first split's models at every point of the plane, and their "
    "training rows. The line is the decision boundary; its angle to the horizontal is given under "
    "each panel. Arrows in a panel of BuDRO are the transport map of its last round: each begins "
    "at a training row and ends at the similar row whose treatment the worst case gives it. "
    f"The {ARROWS} moves that add most to the loss are drawn.",
    supports=refuse_features,
)
def draw_surfaces(scene: Scene) -> Picture:
    """Draw a row of panels for each method that sweeps; methods of one setting come first.

    Raises
    ------
    StoreError
        When no model of the study's frontier is in the store.
    """
    shown = _list_models(scene)
    if not shown:
        raise StoreError(
            f"The store holds no model of {scene.study.study} that could be drawn.",
            "Run the study first, with a method that supports its dataset.",
        )
    split = next(iter(shown.values()))[0].split(scene.home)
    plane = Plane.around(split.train.X)
    rows: list[tuple[str, list[Surface]]] = []
    single: list[Surface] = []
    for label, models in shown.items():
        swept = find_swept(model.member.setting for model in models)
        surfaces = [_evaluate(scene, plane, model, label, swept) for model in models]
        if len(models) == 1:
            single += surfaces
        else:
            rows.append((label, surfaces))
    if single:
        rows = [(rows[0][0], single + rows[0][1]), *rows[1:]] if rows else [("", single)]
    return Picture(_draw(rows, plane, split.train, split.feature_names), _describe(rows))


def _list_models(scene: Scene) -> dict[str, list[StoredModel]]:
    """Return the frontier's models of the first seed by label, sorted by what they sweep."""
    shown: dict[str, list[StoredModel]] = {}
    # A model that needs groups to predict has more than one surface.
    for model in list_stored(
        scene,
        lambda group, member: (
            member.seed == scene.study.seeds[0] and not METHODS.find(group.estimator).predict_needs
        ),
    ):
        method, estimator = model.group.method, model.group.estimator
        label = METHODS.find(estimator).__name__ if method == estimator else method
        shown.setdefault(label, []).append(model)
    for models in shown.values():
        swept = find_swept(model.member.setting for model in models)
        models.sort(key=lambda model: [_rank(model.member.setting.get(key)) for key in swept])
    return shown


def _rank(value: Any) -> tuple[float, str]:
    return (float(value), "") if isinstance(value, int | float) else (np.inf, str(value))


def _evaluate(
    scene: Scene, plane: Plane, stored: StoredModel, label: str, swept: Sequence[str]
) -> Surface:
    """Evaluate a stored model at every point of the plane."""
    model, split = stored.model(), stored.split(scene.home)
    check_features(model, split.train)
    probability = model.predict_proba(plane.points)[:, 1].reshape(GRID, GRID)
    setting: Mapping[str, Any] = stored.member.setting
    title = ", ".join(
        f"{SYMBOLS.get(name, name)} = {setting[name]}" for name in swept if name in setting
    )
    moves = None
    request = stored.group.find_metric(stored.member)
    if isinstance(model, BuDRO) and model.n_estimators > 1 and request is not None:
        train = split.train
        metric = load_metric(request, scene.store, scene.home)
        moves = list_last_moves(model, train.X, train.y, metric, train.weight)
    return Surface(title or label, probability, find_tilt(plane, probability), moves)


def _describe(rows: Sequence[tuple[str, Sequence[Surface]]]) -> str:
    """Return the picture in words."""
    parts = []
    for label, surfaces in rows:
        angles = []
        for surface in surfaces:
            angles.append(f"{surface.title} {_name_tilt(surface.tilt)}")
            if surface.moves is not None:
                moves = surface.moves
                angles[-1] += f" with {len(moves[:ARROWS])} of {len(moves)} moves of the last round"
        parts.append(f"{label}: {', '.join(angles)}".removeprefix(": "))
    listed = "; ".join(parts)
    return f"Decision surfaces, with the angle of each boundary to the horizontal. {listed}"


def _name_tilt(tilt: float | None) -> str:
    return "no boundary" if tilt is None else f"boundary at {tilt:.1f}°"


def _draw(
    rows: Sequence[tuple[str, Sequence[Surface]]], plane: Plane, part: Part, names: Sequence[str]
) -> bytes:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LinearSegmentedColormap, Normalize

    # Pale, so that the points stand out; white where the model is undecided.
    colours = LinearSegmentedColormap.from_list("surface", ["#6FB1DB", "#ffffff", "#F0A070"])
    columns = max(len(surfaces) for _, surfaces in rows)
    # Inches per side of a panel: larger where there are few.
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
        # A label of the whole figure would overlap the legend.
        for axes in panels[-1]:
            axes.set_xlabel("\n".join(filter(None, [axes.get_xlabel(), names[0]])))
        shades = ScalarMappable(Normalize(0, 1), colours)
        bar = picture.colorbar(shades, ax=panels.ravel().tolist(), shrink=0.7, aspect=28, pad=0.015)
        bar.set_label(f"probability of {part.classes[1]}")
        bar.outline.set_visible(False)
        keys = [
            make_key(text, ls="none", marker=mark, color=colour, mec="white", ms=7)
            for mark, colour, text in zip(MARKS, (LOW, HIGH), part.classes, strict=True)
        ]
        keys.append(make_key("decision boundary", color=INK, lw=2))
        if any(surface.moves is not None for _, surfaces in rows for surface in surfaces):
            arrow: Any = {"color": INK, "lw": 0.9, "marker": ">", "ms": 4}
            keys.append(make_key("move of the worst case, last round", **arrow))
        add_legend(picture, keys, 4)
        return encode_png(picture)


def _draw_panel(axes: Axes, surface: Surface, plane: Plane, part: Part, colours: Any) -> None:
    # Where both features have about the same range, angles are drawn true.
    near_square = 0.8 < np.ptp(plane.x) / np.ptp(plane.y) < 1.25
    axes.imshow(
        surface.probability,
        origin="lower",
        extent=(plane.x[0], plane.x[-1], plane.y[0], plane.y[-1]),
        cmap=colours,
        vmin=0,
        vmax=1,
        aspect="equal" if near_square else "auto",
        interpolation="bilinear",
    )
    for code, (mark, colour) in enumerate(zip(MARKS, (LOW, HIGH), strict=True)):
        look: Any = {"s": 13, "edgecolors": "white", "linewidths": 0.4, "zorder": 2}
        axes.scatter(*part.X[part.y == code].T, marker=mark, color=colour, **look)
    # A pale edge separates the line from the points.
    for colour, width in (("white", 3.6), (INK, 1.9)) if surface.tilt is not None else ():
        line: Any = {"levels": [0.5], "colors": [colour], "linewidths": width, "zorder": 3}
        axes.contour(plane.x, plane.y, surface.probability, **line)
    arrow: Any = {"arrowstyle": "-|>,head_length=0.35,head_width=0.16", "color": INK}
    arrow |= {"lw": 0.7, "alpha": 0.75, "shrinkA": 2.0, "shrinkB": 2.0}
    # From rows to what they become, those moves first that add most to the loss.
    for move in surface.moves[:ARROWS] if surface.moves is not None else ():
        start, end = tuple(part.X[move.row]), tuple(part.X[move.becomes])
        axes.annotate("", xy=end, xytext=start, arrowprops=arrow, zorder=4)
    axes.set_title(surface.title, fontsize=10.5, fontweight="bold")
    axes.set_xlabel(_name_tilt(surface.tilt), fontsize=9.5)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=2, color=GREY, labelsize=8)
