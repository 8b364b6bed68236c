"""The worst moves of a certificate: who becomes whom, how similar they are, and what it adds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from fairfrontier.metrics.certificate.certificate import GapCertificate
from fairfrontier.models.prediction import Prediction
from fairfrontier.prepare.config.dataset import check_columns, expand_rest, read_dataset
from fairfrontier.prepare.source.fetch import find_source
from fairfrontier.prepare.split import Part
from fairfrontier.prepare.table.rows import type_rows, used_columns
from fairfrontier.prepare.text.corpus import read_corpus
from fairfrontier.runtime.errors import DataError
from fairfrontier.runtime.finder import find_yaml
from fairfrontier.runtime.home import find_home

# Rows for reading: a table's own values where it is available, else what X says of them.


def read_source_rows(
    dataset: str | Path, ids: np.ndarray, home: Path | None = None
) -> pd.DataFrame:
    """Read rows of a dataset's table again, by row numbers of the table (``Part.ids``).

    The columns are those of which features, groups and protected attributes are made, numbers as
    float64 and levels as text; ``ids`` is the index. Noise that ``perturb:`` adds to groups is not
    shown. DataError when the table is no longer on this disk.
    """
    root = home or find_home()
    file = find_yaml("dataset", dataset, root)
    config = read_dataset(file, root)
    source = find_source(config.source, file, root)
    if source is None:
        raise DataError(
            f"The table of {config.dataset} is not on this disk.", "Load the dataset first."
        )
    table = read_corpus(config.model_copy(update={"source": source}), root, file)
    check_columns(config, table.frame.columns, file)
    config = expand_rest(config, table.frame.columns)
    frame = type_rows(table.frame, config, file)
    numbers, levels = used_columns(config)
    aside = {config.label.column, config.weight, config.split.column}
    shown = {*numbers, *levels} - aside
    return frame.loc[ids, [name for name in table.frame.columns if name in shown]]


def decode_rows(X: np.ndarray, names: Sequence[str]) -> pd.DataFrame:
    """Return rows of X with one-hot columns folded back into columns of levels.

    Neighbouring columns of zeros and ones whose names share a prefix up to an underscore, and of
    which no row of X has two, become one column; "other" is none of them. Other columns are
    unchanged: standardised numbers are in standard deviations from the mean.
    """
    binary = np.all((X == 0) | (X == 1), axis=0)
    columns: dict[str, np.ndarray] = {}
    start = 0
    while start < len(names):
        prefix, stop = _find_run(X, names, binary, start)
        if stop - start < 2:
            columns[names[start]] = X[:, start]
            start += 1
            continue
        levels = np.array([*(name[len(prefix) :] for name in names[start:stop]), "other"])
        block = X[:, start:stop]
        codes = np.where(block.any(axis=1), block.argmax(axis=1), stop - start)
        columns[prefix[:-1]] = levels[codes]
        start = stop
    return pd.DataFrame(columns)


def _find_run(
    X: np.ndarray, names: Sequence[str], binary: np.ndarray, start: int
) -> tuple[str, int]:
    """Return the prefix of the one-hot columns that begin at ``start``, and where they end."""
    name = names[start]
    for cut in [i + 1 for i, letter in enumerate(name) if letter == "_" and i]:
        stop, taken = start, np.zeros(len(X))
        while stop < len(names) and names[stop].startswith(name[:cut]) and binary[stop]:
            taken = taken + X[:, stop]
            if taken.max(initial=0.0) > 1:
                break
            stop += 1
        if stop - start > 1:
            return name[:cut], stop
    return "", start


def show_value(value: object) -> str:
    """Return a cell for reading: whole and large numbers without a point, others to four digits."""
    if not isinstance(value, float | np.floating):
        return str(value)
    number = float(value)
    if np.isnan(number):
        return "missing"
    return f"{number:.0f}" if number % 1 == 0 or abs(number) >= 1000 else f"{number:.4g}"


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
