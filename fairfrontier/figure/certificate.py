"""The certificate as a picture: the adversarial gap against the budget, a line for each model."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy.optimize import isotonic_regression

from fairfrontier.figure.frontier import (
    COLOURS,
    GREY,
    HEADING,
    add_grid,
    encode_png,
    list_swept,
    open_figure,
)
from fairfrontier.metrics.certificate.certificate import Gap, GapCertificate
from fairfrontier.metrics.certificate.worst_move import (
    Pair,
    decode_rows,
    describe_moves,
    list_worst_moves,
    read_source_rows,
)
from fairfrontier.models.fit.group import KIND, FitGroup, Member, load_split, read_facts
from fairfrontier.models.fit.key import key
from fairfrontier.models.fit.training import read_scores
from fairfrontier.models.prediction import Prediction
from fairfrontier.models.registry import load_model
from fairfrontier.prepare.config.dataset import DatasetConfig
from fairfrontier.prepare.split import Part, Split
from fairfrontier.runtime.errors import ConfigError, FairfrontierError, StoreError
from fairfrontier.runtime.store import canonical_json
from fairfrontier.study.config import StudyConfig
from fairfrontier.study.drawing import Picture, Scene, figure
from fairfrontier.study.frontier import list_fits
from fairfrontier.study.points import certify_losses, load_certified

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Budgets along the axis, in addition to the study's own.
N_BUDGETS = 12
# Enough for the eye: bootstrap replicates, and distance from the optimum as a share of the gap.
REPLICATES, TOLERANCE = 200, 1e-3
DASHES = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (5, 2, 1, 2)))
TITLES = {"log": "Log loss above the mean, nats", "error": "Share of errors above the mean"}
# Inches: the width of a panel without labels and of a letter of a label, and the height of a line.
PANEL, LETTER, LINE = 4.4, 0.075, 0.17


@dataclass(frozen=True, eq=False)
class Line:
    """A model's gap Ĝ(ε) under one loss at ascending budgets, with 95% bootstrap intervals."""

    label: str
    method: str
    loss: str
    budget: np.ndarray
    value: np.ndarray
    low: np.ndarray
    high: np.ndarray


def refuse_regressions(described: DatasetConfig) -> str | None:
    """Return why a figure of decisions cannot be drawn of a dataset; None where it can."""
    if described.label.task == "regression":
        return f"it shows decisions, and the label of {described.dataset} has no classes"
    return None


def find_budgets(study: StudyConfig) -> tuple[float, ...]:
    """Return the budgets of a study's certificates; ConfigError where it certifies nothing."""
    if study.certificate is None:
        raise ConfigError(
            f"The study {study.study} asks for the figure 'certificate' but certifies nothing.",
            "Add certificate: {budgets: [0.01, 0.1]}, for example.",
        )
    return study.certificate.budgets


@figure(
    "certificate",
    title="What similar rows add to the loss",
    what="The restricted adversarial gap of the chosen models against the budget, on the test rows "
    "of the first split: how much the mean loss grows when every row may be treated as similar "
    "rows are. Lower is fairer. Bands are 95% bootstrap intervals; ticks at the bottom are the "
    "study's own budgets.",
    supports=refuse_regressions,
    needs=find_budgets,
)
def draw_certificate(scene: Scene) -> Picture:
    """Draw a panel for each loss."""
    lines = trace_lines(scene)
    return Picture(_draw(lines, sorted(find_budgets(scene.study))), _describe(lines))


def trace_lines(scene: Scene) -> tuple[Line, ...]:
    """Return the gaps of the chosen models over the range of the study's budgets.

    Raises
    ------
    ConfigError
        When the study requests no certificate.
    StoreError
        When no model of its frontier is in the store.
    """
    requested = find_budgets(scene.study)
    top = max(requested) or 1.0
    # The gap rises steeply at first, like a root.
    budgets = sorted({*requested, *(top * np.linspace(0, 1, N_BUDGETS) ** 2).tolist()})
    swept = list_swept(list_fits(scene.plan, "frontier"))
    lines = []
    for model in certify_chosen(scene, budgets, replicates=REPLICATES, tolerance=TOLERANCE):
        setting = json.loads(model.setting)
        values = [_name_value(key, setting) for key in swept[model.method]]
        for certificate in model.certificates:
            numbers = [(gap.budget, gap.value, gap.low, gap.high) for gap in certificate.gaps]
            label = " ".join([model.method, *values])
            lines.append(Line(label, model.method, certificate.loss, *np.array(numbers).T))
    if not lines:
        raise StoreError(
            f"The store holds no certified model of {scene.study.study}.",
            "Run the study first, with methods that support its dataset.",
        )
    return tuple(lines)


def _name_value(key: str, setting: Mapping[str, Any]) -> str:
    value = setting.get(key)
    shown = value if isinstance(value, str) else json.dumps(value)
    return f"{key.replace('_', ' ').replace('.', ' ')} {shown}"


def spread_labels(height: np.ndarray, gap: float) -> np.ndarray:
    """Return positions of labels on an axis of length 1, as near to their heights as possible.

        min_p Σ_i (p_i − height_i)²   s.t.  p_(i+1) − p_(i) ≥ gap in the order of the heights,
                                            0 ≤ p ≤ 1

    Where there is not enough room, the last labels go above 1. Shape (n_labels,), float64.
    """
    order = np.argsort(height, kind="stable")
    steps = gap * np.arange(len(height))
    position = np.empty(len(height))
    # Clipping an isotonic fit solves the problem with common bounds.
    free = isotonic_regression(height[order] - steps).x
    position[order] = np.clip(free, 0.0, max(0.0, 1.0 - steps[-1])) + steps
    return position


def _describe(lines: Sequence[Line]) -> str:
    """Return the picture in words."""
    loss = lines[0].loss
    gaps = "; ".join(
        f"{line.label} {line.value[-1]:.3f} ({line.low[-1]:.3f} to {line.high[-1]:.3f})"
        for line in lines
        if line.loss == loss
    )
    end = f"at ε = {lines[0].budget[-1]:g}"
    return f"Adversarial gap against the budget. {TITLES[loss]}, {end}: {gaps}."


def _choose_looks(lines: Sequence[Line]) -> dict[str, dict[str, Any]]:
    """Return the look of every label: a colour for each method, dashes for its settings."""
    looks: dict[str, dict[str, Any]] = {}
    for i, method in enumerate(dict.fromkeys(line.method for line in lines)):
        labels = dict.fromkeys(line.label for line in lines if line.method == method)
        for number, label in enumerate(labels):
            # When the colours are used up, methods begin with other dashes.
            dash = DASHES[(number + i // len(COLOURS)) % len(DASHES)]
            looks[label] = {"color": COLOURS[i % len(COLOURS)], "ls": dash}
    return looks


def _draw(lines: Sequence[Line], requested: Sequence[float]) -> bytes:
    losses = [loss for loss in TITLES if any(line.loss == loss for line in lines)]
    looks = _choose_looks(lines)
    width = PANEL + LETTER * max(len(line.label) for line in lines)
    height = max(3.9, 1.1 + LINE * len(looks))
    with open_figure(width * len(losses), height, w_pad=0.12, h_pad=0.08) as picture:
        panels = picture.subplots(1, len(losses), squeeze=False)[0]
        for axes, loss in zip(panels, losses, strict=True):
            shown = [line for line in lines if line.loss == loss]
            _draw_panel(axes, shown, looks, requested)
            _name_lines(axes, shown, looks, height - 1.1)
            axes.set_title(TITLES[loss], **HEADING)
        return encode_png(picture)


def _name_lines(
    axes: Axes, lines: Sequence[Line], looks: Mapping[str, dict[str, Any]], height: float
) -> None:
    """Write every line's name at its end, joined to it where it had to be moved."""
    ends = np.array([line.value[-1] / axes.get_ylim()[1] for line in lines])
    beside: Any = {"transform": axes.transAxes}
    for line, end, y in zip(lines, ends, spread_labels(ends, LINE / height), strict=True):
        look = looks[line.label]
        axes.plot([1.0, 1.035, 1.06], [end, y, y], lw=1.2, clip_on=False, **look, **beside)
        axes.text(1.07, y, line.label, color=look["color"], fontsize=8.5, va="center", **beside)


def _draw_panel(
    axes: Axes,
    lines: Sequence[Line],
    looks: Mapping[str, dict[str, Any]],
    requested: Sequence[float],
) -> None:
    for line in lines:
        look = looks[line.label]
        axes.fill_between(line.budget, line.low, line.high, color=look["color"], alpha=0.13, lw=0)
        axes.plot(line.budget, line.value, lw=1.6, **look)
    axes.set_xlim(0, lines[0].budget[-1])
    axes.set_ylim(0, 1.04 * max(float(line.high.max()) for line in lines) or 1.0)
    bottom = axes.get_xaxis_transform()
    ticks = np.zeros(len(requested))
    axes.plot(requested, ticks, "|", color=GREY, ms=9, transform=bottom, clip_on=False)
    axes.set_xlabel("budget ε: mean fair distance of a move")
    add_grid(axes)


@dataclass(frozen=True, eq=False)
class Certified:
    """A chosen model with its predictions for the test part of the first split, and certificates.

    There is a certificate for the log loss and one for errors; for errors alone where decisions
    were post-processed.
    """

    method: str
    setting: str
    group: FitGroup
    part: Part
    feature_names: tuple[str, ...]
    prediction: Prediction
    certificates: tuple[GapCertificate, ...]


@dataclass(frozen=True, eq=False)
class Exposure:
    """The worst moves of a model at one budget: at most ten pairs."""

    loss: str
    gap: Gap
    pairs: tuple[Pair, ...]


def certify_chosen(
    scene: Scene, budgets: Sequence[float] | None = None, **effort: Any
) -> Iterator[Certified]:
    """Certify the models on some frontier of a study again, from their stored predictions.

    Models are ordered by method and setting. The budgets are the study's by default; ``effort``
    holds replicates and tolerance of `certify_gaps`.
    """
    chosen = scene.frontier.loc[scene.frontier["on_frontier"], ["method", "setting"]]
    rows = set(chosen.itertuples(index=False, name=None))

    def is_wanted(group: FitGroup, member: Member) -> bool:
        row = (group.method, canonical_json(member.setting))
        return member.seed == scene.study.seeds[0] and group.certificate is not None and row in rows

    for model in sorted(list_stored(scene, is_wanted), key=lambda model: model.row):
        group, split = model.group, model.split(scene.home)
        if split.test is None:
            continue
        metric = load_certified(group, model.member, split, scene.store, scene.home)
        scores = model.test_scores()
        certificates = certify_losses(group, metric, scores, split.test, budgets, **effort)
        if certificates:
            yield Certified(
                *model.row, group, split.test, split.feature_names, scores, certificates
            )


def expose_chosen(scene: Scene) -> dict[tuple[str, str], Exposure]:
    """Return the worst moves of every chosen model, by method and setting, if they are to be shown.

    The budget is the smallest one above 0, which pairs the most similar rows.
    """
    config = scene.study.certificate
    if config is None or config.worst_moves == "hide":
        return {}
    budget = min([value for value in config.budgets if value > 0] or config.budgets)
    tables: dict[str, pd.DataFrame] = {}
    exposed = {}
    for model in certify_chosen(scene, [budget], replicates=0):
        certificate, dataset = model.certificates[0], model.group.dataset
        if dataset not in tables:
            tables[dataset] = _read_rows(model, scene)
        gap = certificate.find_gap(budget)
        moves = list_worst_moves(certificate, budget)
        pairs = describe_moves(moves, model.part, model.prediction, tables[dataset], gap.value)
        exposed[model.method, model.setting] = Exposure(certificate.loss, gap, pairs)
    return exposed


def _read_rows(certified: Certified, scene: Scene) -> pd.DataFrame:
    """Return the table's own values, or decoded features where the table is unavailable."""
    try:
        return read_source_rows(certified.group.dataset, certified.part.ids, scene.home)
    except FairfrontierError:
        return decode_rows(certified.part.X, certified.feature_names)


@dataclass(frozen=True, eq=False)
class StoredModel:
    """A stored model: the ``number``-th of its fit group, whose files are in ``folder``."""

    group: FitGroup
    number: int
    folder: Path

    @property
    def member(self) -> Member:
        """Its seed, parameters and setting."""
        return self.group.members[self.number]

    @property
    def row(self) -> tuple[str, str]:
        """Method and setting as in points.parquet."""
        return self.group.method, canonical_json(self.member.setting)

    def split(self, home: Path) -> Split:
        """Return the split that it was trained on."""
        return load_split(self.group, self.member, home)

    def predictions(self) -> Mapping[str, Prediction]:
        """Return its scores and decisions by part."""
        return read_scores(self.folder / f"scores-{self.number}.npz")

    def test_scores(self) -> Prediction:
        """Return its predictions for the test part."""
        return self.predictions()["test"]

    def model(self) -> Any:
        """Return the fitted model, or the post-processor where the row has one."""
        return load_model(self.folder / f"model-{self.number}")


def list_stored(scene: Scene, wanted: Callable[[FitGroup, Member], bool]) -> Iterator[StoredModel]:
    """Yield the wanted models of the frontier's block that are stored, in the plan's order."""
    for planned in scene.plan:
        group = planned.group
        numbers = [i for i, member in enumerate(group.members) if wanted(group, member)]
        if not numbers or "frontier" not in planned.blocks:
            continue
        folder = scene.store.path(KIND, key(group, scene.store, scene.home))
        if folder.is_dir() and read_facts(folder)["skipped"] is None:
            yield from (StoredModel(group, number, folder) for number in numbers)
