"""Decision rules over the scores that they decide on: Hardt et al. beside a ramp."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fairfrontier.figure.frontier import COLOURS, encode_png, open_figure
from fairfrontier.models.thresholds.model import require_calibration
from fairfrontier.models.thresholds.ramp import solve_exact
from fairfrontier.study.drawing import Picture, Scene, figure
from papers.figure.classifier import (
    Classifier,
    Scored,
    list_classifiers,
    refuse_dataset,
    require_row,
    score_part,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "rules"
HARDT = "hardt"
# γ of the paper's figure 4; its ρ is E[y].
WIDTH = 0.1
# Bins centred on −1, −.95, …, 1: the scores of 10 neighbours are centres.
BINS = np.linspace(-1.025, 1.025, 42)
GRID = np.linspace(-1.0, 1.0, 2001)
BARS, HARDT_COLOUR, RAMP_COLOUR = "#d0d7de", COLOURS[1], COLOURS[2]


@dataclass(frozen=True, eq=False)
class Rules:
    """Both rules of one classifier, for the ``levels`` that have calibration rows.

    ``share``, shape (n_groups, 41), are the shares of each group's test rows by score in ``BINS``;
    ``hardt`` and ``ramp``, shape (n_groups, 2001), the probability of the decision 1 at the scores
    ``GRID``; ``rate`` and ``drawn``, shape (2, n_groups), E[h] of the test rows under either rule
    and the share with h inside (0, 1).
    """

    label: str
    levels: tuple[str, ...]
    share: np.ndarray
    hardt: np.ndarray
    ramp: np.ndarray
    rate: np.ndarray
    drawn: np.ndarray


@figure(
    NAME,
    title="Rules of decision",
    what="The scores of each classifier on the test rows of each group, and over them the "
    "probability of the decision 1 under two rules fitted for parity on the calibration rows: that "
    f"of Hardt et al., and a ramp of width γ = {WIDTH:g} with ρ = E[y]. Percentages are the shares "
    "decided 1 under them. First split.",
    supports=refuse_dataset,
)
def draw_rules(scene: Scene) -> Picture:
    """Draw a column for each classifier and a row for each group."""
    classifiers = list_classifiers(scene, NAME)
    rules = tuple(compare_rules(scene, classifier) for classifier in classifiers)
    positive = classifiers[0].positive(scene.home)
    return Picture(_draw(rules, positive), _describe(rules, positive))


def compare_rules(scene: Scene, classifier: Classifier) -> Rules:
    """Evaluate the stored rule of Hardt et al., and a ramp fitted on the same rows, at all scores.

    A ConfigError names the row of Hardt et al. that is missing.
    """
    attributes = classifier.thresholds.attributes
    seed, stored = next(iter(require_row(classifier, NAME, HARDT, attributes).fits.items()))
    base = classifier.base.fits[seed]
    rows = score_part(base, "calibration", attributes, scene.home)
    test = score_part(base, "test", attributes, scene.home)
    ramp = solve_exact(rows.problem(), WIDTH, rows.base_rate()).rule
    groups = require_calibration(stored.split(scene.home)).groups
    processor = stored.model()
    present = [k for k in range(len(rows.levels)) if (rows.code == k).any()]
    decisions = (stored.test_scores().decision, ramp.probability(test.score, test.code))
    by_group = [[h[test.code == k] for k in present] for h in decisions]
    return Rules(
        label=classifier.label,
        levels=tuple(rows.levels[k] for k in present),
        share=np.array([_count_scores(test, k) for k in present]),
        hardt=np.array([_evaluate(processor, groups[rows.code == k][0]) for k in present]),
        ramp=np.array([ramp.probability(GRID, np.full(GRID.size, k)) for k in present]),
        rate=np.array([[np.mean(h) for h in rule] for rule in by_group]),
        drawn=np.array([[np.mean((h > 0.0) & (h < 1.0)) for h in rule] for rule in by_group]),
    )


def _count_scores(rows: Scored, group: int) -> np.ndarray:
    score = rows.score[rows.code == group]
    return np.asarray(np.histogram(score, BINS)[0] / max(1, score.size))


def _evaluate(processor: Any, groups: np.ndarray) -> np.ndarray:
    """Return the probability of the decision 1 at the scores ``GRID``, given one row's groups."""
    probability: np.ndarray = processor.predict_proba(
        (1.0 + GRID) / 2.0, sensitive_features=np.tile(groups, (GRID.size, 1))
    )
    return probability[:, 1]


def _describe(rules: Sequence[Rules], positive: str) -> str:
    """Return the picture in words."""
    parts = []
    for pair in rules:
        shares = [
            f"{level} {hardt:.0%} and {ramp:.0%}"
            for level, hardt, ramp in zip(pair.levels, *pair.drawn, strict=True)
        ]
        parts.append(f"{pair.label}: {', '.join(shares)}")
    return (
        f"Scores by group, and the probability of deciding {positive} by the rule of Hardt et al. "
        "and by a ramp. Shares of test rows whose decision is drawn, under either rule: "
        + "; ".join(parts)
        + "."
    )


def _draw(rules: Sequence[Rules], positive: str) -> bytes:
    levels = rules[0].levels
    size = max(8.4, 2.6 * len(rules) + 0.8), 2.05 * len(levels) + 1.2
    with open_figure(*size, w_pad=0.06, h_pad=0.06) as picture:
        panels = picture.subplots(len(levels), len(rules), squeeze=False, sharex=True, sharey=True)
        for column, pair in zip(panels.T, rules, strict=True):
            column[0].set_title(pair.label, fontsize=10.5, fontweight="bold", loc="left", pad=19)
            for group, axes in enumerate(column):
                _draw_panel(axes, pair, group)
        for axes, level in zip(panels[:, 0], levels, strict=True):
            axes.set_ylabel(level, fontweight="bold")
        picture.supxlabel(f"score f = 2 P({positive}) − 1", fontsize=9.5)
        picture.suptitle(
            "Bars: share of the group's rows.\n"
            f"Lines: probability of deciding {positive} by Hardt et al. and by a ramp of width "
            f"{WIDTH:g}, with the share so decided.",
            fontsize=9.5, x=0.012, ha="left",
        )  # fmt: skip
        return encode_png(picture)


def _draw_panel(axes: Axes, rules: Rules, group: int) -> None:
    axes.stairs(rules.share[group], BINS, fill=True, color=BARS)
    axes.plot(GRID, rules.hardt[group], color=HARDT_COLOUR, lw=1.8)
    axes.plot(GRID, rules.ramp[group], color=RAMP_COLOUR, lw=1.8)
    axes.set_xlim(-1.03, 1.03)
    axes.set_ylim(0, 1.03)
    axes.set_xticks([-1, -0.5, 0, 0.5, 1], ["−1", "−.5", "0", ".5", "1"])
    text: dict[str, Any] = {"fontsize": 8.5, "transform": axes.transAxes}
    hardt, ramp = rules.rate[:, group]
    axes.text(0, 1.03, f"Hardt et al. {hardt:.1%}", color=HARDT_COLOUR, **text)
    axes.text(1, 1.03, f"ramp {ramp:.1%}", color=RAMP_COLOUR, ha="right", **text)
