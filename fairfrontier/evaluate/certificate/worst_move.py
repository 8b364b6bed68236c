"""The worst moves of a certificate: who becomes whom, how near they are, and what it adds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from fairfrontier.evaluate.certificate.adversarial_gap import GapCertificate
from fairfrontier.evaluate.certificate.source_row import show_value
from fairfrontier.prepare.split import Part
from fairfrontier.runtime.errors import ConfigError
from fairfrontier.train.prediction import Prediction

AT_MOST = 10


@dataclass(frozen=True)
class Move:
    """A row, and the similar row whose treatment it gets in the worst case.

    Attributes
    ----------
    row, becomes : int
        Positions in the part.
    mass : float
        Share of all rows that make this move: of rows that hold the same, all of them.
    gain : float
        Loss of ``becomes`` under the label of ``row``, less the loss of ``row``; above 0.
    distance : float
        Their fair distance, in squared units of the metric.
    """

    row: int
    becomes: int
    mass: float
    gain: float
    distance: float

    @property
    def carries(self) -> float:
        """What the move adds to the gap: mass × gain."""
        return self.mass * self.gain


@dataclass(frozen=True)
class Change:
    """A column in which the two rows of a move differ."""

    column: str
    before: str
    after: str


@dataclass(frozen=True)
class Pair:
    """A move for reading.

    Attributes
    ----------
    move : Move
    share : float
        Of the gap that the move carries.
    label : str
        Of the row that is moved; what it becomes is judged by it.
    before, after : str
        Decisions for the row and for what it becomes.
    score_before, score_after : float
        The scores, of the label's class where there are several.
    changes : tuple of Change
        Columns that differ, in the order of the table.
    same : int
        How many columns do not.
    """

    move: Move
    share: float
    label: str
    before: str
    after: str
    score_before: float
    score_after: float
    changes: tuple[Change, ...]
    same: int


def list_worst_moves(
    certificate: GapCertificate, budget: float, n_moves: int | None = AT_MOST
) -> tuple[Move, ...]:
    """List the moves of the worst case at a budget, those that carry most of the gap first.

        Σ_moves mass × gain = Ĝ(ε),   Σ_moves mass × distance ≤ ε

    Parameters
    ----------
    certificate : GapCertificate
        From ``certify`` or ``trace_gap``.
    budget : float
        One of its budgets.
    n_moves : int, optional
        At most that many; all of them when None.

    Returns
    -------
    tuple of Move
        Rows that hold the same are one move with all their mass; of rows that coincide in the
        metric and have the same loss, one stands for all. Moves that carry the same come with the
        shortest distance first, so that ties of a 0/1 loss show the most similar rows.

    Raises
    ------
    ConfigError
        When the budget was not certified.

    Notes
    -----
    O(n log n) time. Several maps may attain the same gap, as where losses tie; this is one.
    """
    certificate.find_gap(budget)
    twin = certificate.twin
    tables = [
        pd.DataFrame(
            {
                "row": twin,
                "becomes": twin[certificate.target[number]],
                "mass": share * certificate.mass,
                "gain": certificate.gain[number],
                "distance": certificate.cost[number],
            }
        )
        for share, number in certificate.mix_maps(budget)
    ]
    moves = pd.concat(tables)
    moves = moves.loc[(moves["gain"] > 0) & (moves["mass"] > 0)]
    alike = moves.groupby(["row", "becomes"], as_index=False)
    moves = alike.agg({"mass": "sum", "gain": "first", "distance": "first"})
    # Rounded, so that what ties in all but the last digit ties.
    carried = (moves["mass"] * moves["gain"]).map(lambda each: float(f"{each:.10g}"))
    moves = moves.assign(carried=-carried, near=moves["distance"].round(10))
    moves = moves.sort_values(["carried", "near", "row", "becomes"], kind="stable")
    moves = moves.head(len(moves) if n_moves is None else n_moves)
    called = [certificate.rows[moves[name].to_numpy()].tolist() for name in ("row", "becomes")]
    numbers = [moves[name].tolist() for name in ("mass", "gain", "distance")]
    return tuple(Move(*each) for each in zip(*called, *numbers, strict=True))


def describe_moves(
    moves: Sequence[Move], part: Part, prediction: Prediction, rows: pd.DataFrame, gap: float
) -> tuple[Pair, ...]:
    """Turn moves into pairs of rows that can be read.

    Parameters
    ----------
    moves : sequence of Move
        From ``list_worst_moves``.
    part : Part
        What was certified.
    prediction : Prediction
        What the model said about it.
    rows : DataFrame
        One line for each row of the part: from ``read_source_rows`` the table's own values, from
        ``decode_rows`` what X says.
    gap : float
        Ĝ(ε), of which shares are told.

    Raises
    ------
    ConfigError
        When ``rows`` are not as many as the part's.
    """
    if len(rows) != part.n_samples:
        raise ConfigError(
            f"There are {len(rows)} rows to show, and {part.dataset}/{part.name} has "
            f"{part.n_samples}.",
            "Give the rows of this very part.",
        )
    pairs = []
    for each in moves:
        before, after = rows.iloc[each.row], rows.iloc[each.becomes]
        text = [
            Change(str(name), show_value(before[name]), show_value(after[name]))
            for name in rows.columns
        ]
        changes = tuple(change for change in text if change.before != change.after)
        label = int(part.y[each.row])
        pairs.append(
            Pair(
                move=each,
                share=each.carries / gap if gap > 0 else 0.0,
                label=part.classes[label],
                before=_name_decision(prediction.decision[each.row], part.classes),
                after=_name_decision(prediction.decision[each.becomes], part.classes),
                score_before=_score(prediction, each.row, label),
                score_after=_score(prediction, each.becomes, label),
                changes=changes,
                same=len(text) - len(changes),
            )
        )
    return tuple(pairs)


def _name_decision(decision: float, classes: Sequence[str]) -> str:
    if len(classes) > 2 or decision in (0.0, 1.0):
        return classes[int(decision)]
    return f"{classes[1]} with probability {decision:.2f}"


def _score(prediction: Prediction, row: int, label: int) -> float:
    """Return P(Y = 1), or the probability of the label's class where there are more than two."""
    score = prediction.score[row]
    return float(score[label]) if np.ndim(score) else float(score)
