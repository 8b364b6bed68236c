"""The worst moves of a certificate: who becomes whom, how similar they are, and what it adds."""

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

N_MOVES = 10


@dataclass(frozen=True)
class Move:
    """A row, and the similar row whose treatment it gets in the worst case: positions in the part.

    ``mass`` is the share of all rows that make this move, ``gain`` the loss of ``becomes`` under
    the label of ``row`` less the loss of ``row``, above 0, and ``distance`` their fair distance, in
    squared units of the metric.
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
    """A move for reading: labels, decisions and scores of both rows, and the columns that differ.

    ``share`` is that of the gap which the move carries. The scores are those of the first row's
    label where there are several classes. ``same`` counts the columns that do not differ.
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
    certificate: GapCertificate, budget: float, n_moves: int | None = N_MOVES
) -> tuple[Move, ...]:
    """List the moves of the worst case at a certified budget, those that carry most first.

        Σ_moves mass × gain = Ĝ(ε),   Σ_moves mass × distance ≤ ε

    All of them where ``n_moves`` is None. Rows with the same values are one move with all their
    mass; of rows that coincide in the metric and have the same loss, one represents all. Moves that
    carry the same come with the shortest distance first, so that ties of a 0/1 loss show the most
    similar rows. Where losses tie, several maps may attain the gap; this is one of them.
    ConfigError when the budget was not certified. O(n log n) time.
    """
    certificate.find_gap(budget)
    twin = certificate.twin
    tables = [
        pd.DataFrame(
            {
                "row": twin,
                "becomes": twin[certificate.target[i]],
                "mass": share * certificate.mass,
                "gain": certificate.gain[i],
                "distance": certificate.cost[i],
            }
        )
        for share, i in certificate.mix_maps(budget)
    ]
    moves = pd.concat(tables)
    moves = moves.loc[(moves["gain"] > 0) & (moves["mass"] > 0)]
    alike = moves.groupby(["row", "becomes"], as_index=False)
    moves = alike.agg({"mass": "sum", "gain": "first", "distance": "first"})
    # Rounded, so that what ties in all but the last digit ties.
    carried = (moves["mass"] * moves["gain"]).map(lambda number: float(f"{number:.10g}"))
    moves = moves.assign(carried=-carried, near=moves["distance"].round(10))
    moves = moves.sort_values(["carried", "near", "row", "becomes"], kind="stable")
    moves = moves.head(len(moves) if n_moves is None else n_moves)
    positions = [certificate.rows[moves[name].to_numpy()].tolist() for name in ("row", "becomes")]
    numbers = [moves[name].tolist() for name in ("mass", "gain", "distance")]
    return tuple(Move(*values) for values in zip(*positions, *numbers, strict=True))


def describe_moves(
    moves: Sequence[Move], part: Part, prediction: Prediction, rows: pd.DataFrame, gap: float
) -> tuple[Pair, ...]:
    """Turn moves into pairs of rows for reading; ``gap`` is Ĝ(ε), of which they carry shares.

    ``rows`` has one line for each row of the part: from `read_source_rows` or `decode_rows`.
    """
    if len(rows) != part.n_samples:
        raise ConfigError(
            f"There are {len(rows)} rows to show, and {part.dataset}/{part.name} has "
            f"{part.n_samples}.",
            "Give the rows of this part.",
        )
    pairs = []
    for move in moves:
        before, after = (
            [show_value(value) for value in rows.iloc[i]] for i in (move.row, move.becomes)
        )
        columns = zip(map(str, rows.columns), before, after, strict=True)
        changes = tuple(Change(*texts) for texts in columns if texts[1] != texts[2])
        label = int(part.y[move.row])
        pairs.append(
            Pair(
                move=move,
                share=move.carries / gap if gap > 0 else 0.0,
                label=part.classes[label],
                before=_name_decision(prediction.decision[move.row], part.classes),
                after=_name_decision(prediction.decision[move.becomes], part.classes),
                score_before=_score(prediction, move.row, label),
                score_after=_score(prediction, move.becomes, label),
                changes=changes,
                same=len(before) - len(changes),
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
