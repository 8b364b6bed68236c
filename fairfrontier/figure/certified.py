"""The certificates of the models that a study's frontier chooses, of its first split on test."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from fairfrontier.evaluate.certificate.adversarial_gap import Gap, GapCertificate
from fairfrontier.evaluate.certificate.source_row import decode_rows, read_source_rows
from fairfrontier.evaluate.certificate.worst_move import Pair, describe_moves, list_worst_moves
from fairfrontier.prepare.split import Part
from fairfrontier.runtime.errors import FairfrontierError
from fairfrontier.runtime.store import canonical_json
from fairfrontier.study.drawing import Scene
from fairfrontier.study.frontier import build_frontier, list_fits
from fairfrontier.study.points import certify_losses, load_certified
from fairfrontier.train.fit.group import FitGroup
from fairfrontier.train.fit.input import load_split
from fairfrontier.train.fit.kept import KIND, read_facts
from fairfrontier.train.fit.key import key
from fairfrontier.train.fit.score_file import read_scores
from fairfrontier.train.prediction import Prediction


@dataclass(frozen=True, eq=False)
class Certified:
    """A chosen model with its certificates.

    Attributes
    ----------
    method, setting : str
        As in points.parquet.
    group : FitGroup
        Where it was trained.
    part : Part
        The test part of the first split.
    feature_names : tuple of str
        Of the split.
    prediction : Prediction
        What the model said there.
    certificates : tuple of GapCertificate
        One per loss: log loss and errors, or errors alone where decisions were post-processed.
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
    """The worst moves of a model at one budget, for a report.

    Attributes
    ----------
    loss : {"log", "error"}
    gap : Gap
    pairs : tuple of Pair
        At most ten.
    """

    loss: str
    gap: Gap
    pairs: tuple[Pair, ...]


def certify_chosen(
    scene: Scene, budgets: Sequence[float] | None = None, **effort: Any
) -> Iterator[Certified]:
    """Certify the models on some frontier of a study again, from their stored scores.

    Parameters
    ----------
    scene : Scene
        Of a study with ``certificate:``; models that the store does not hold are left out.
    budgets : sequence of float, optional
        The study's by default.
    **effort
        Of ``certify_gaps``: replicates and tolerance.

    Yields
    ------
    Certified
        In the order of methods and settings.
    """
    frontier = build_frontier(
        scene.points,
        list_fits(scene.plan, "frontier"),
        scene.study.frontier.accuracy,
        scene.study.frontier.fairness,
        scene.study.select_on,
    )
    chosen = frontier.loc[frontier["on_frontier"], ["method", "setting"]]
    wanted = set(chosen.itertuples(index=False, name=None))
    found = []
    for each in scene.plan if wanted else ():
        if "frontier" not in each.blocks or each.group.certificate is None:
            continue
        for number, member in enumerate(each.group.members):
            setting = canonical_json(member.setting)
            if member.seed == scene.study.seeds[0] and (each.group.method, setting) in wanted:
                found.append((each.group.method, setting, each.group, number))
    for method, setting, group, number in sorted(found, key=lambda each: each[:2]):
        folder = scene.store.path(KIND, key(group, scene.store, scene.home))
        if not folder.is_dir() or read_facts(folder)["skipped"] is not None:
            continue
        split = load_split(group, group.members[number], scene.home)
        if split.test is None:
            continue
        metric = load_certified(group, group.members[number], split, scene.store, scene.home)
        scores = read_scores(folder / f"scores-{number}.npz")["test"]
        certificates = certify_losses(group, metric, scores, split.test, budgets, **effort)
        if certificates:
            yield Certified(
                method, setting, group, split.test, split.feature_names, scores, certificates
            )


def expose_chosen(scene: Scene) -> dict[tuple[str, str], Exposure]:
    """Return the worst moves of every chosen model, by method and setting.

    They are those at the smallest budget above 0, which pairs the rows that are most similar.
    """
    asked = scene.study.certificate
    if asked is None:
        return {}
    budget = min([each for each in asked.budgets if each > 0] or asked.budgets)
    rows: dict[str, pd.DataFrame] = {}
    exposed = {}
    for each in certify_chosen(scene, [budget], replicates=0):
        found = each.certificates[0]
        if each.group.dataset not in rows:
            rows[each.group.dataset] = _show_rows(each, scene)
        gap = found.find_gap(budget)
        pairs = describe_moves(
            list_worst_moves(found, budget),
            each.part,
            each.prediction,
            rows[each.group.dataset],
            gap.value,
        )
        exposed[each.method, each.setting] = Exposure(found.loss, gap, pairs)
    return exposed


def _show_rows(certified: Certified, scene: Scene) -> pd.DataFrame:
    """Return the table's own values, or what X says where the table is not to be had."""
    try:
        return read_source_rows(certified.group.dataset, certified.part.ids, scene.home)
    except FairfrontierError:
        return decode_rows(certified.part.X, certified.feature_names)
