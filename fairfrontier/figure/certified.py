"""The certificates of the models that a study's frontier chooses, of its first split on test."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from fairfrontier.evaluate.certificate.adversarial_gap import Gap, GapCertificate
from fairfrontier.evaluate.certificate.source_row import decode_rows, read_source_rows
from fairfrontier.evaluate.certificate.worst_move import Pair, describe_moves, list_worst_moves
from fairfrontier.figure.stored_model import list_stored
from fairfrontier.prepare.split import Part
from fairfrontier.runtime.errors import FairfrontierError
from fairfrontier.runtime.store import canonical_json
from fairfrontier.study.drawing import Scene
from fairfrontier.study.points import certify_losses, load_certified
from fairfrontier.train.fit.group import FitGroup, Member
from fairfrontier.train.prediction import Prediction


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
