"""How sure the difference between two models' losses on the same rows is."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from fairfrontier.evaluate.measure.loss import LOSSES, compute_absolute, compute_square, expect_loss
from fairfrontier.evaluate.measure.registry import Audit
from fairfrontier.runtime.store import canonical_json
from fairfrontier.study.drawing import Scene
from fairfrontier.train.fit.input import load_split
from fairfrontier.train.fit.kept import KIND, read_facts
from fairfrontier.train.fit.key import key
from fairfrontier.train.fit.score_file import read_scores

# Measures that are means of rows' losses; rmse is the root of one.
ROW_LOSSES = {
    **{each.name: each.compute for each in LOSSES},
    "mae": compute_absolute,
    "rmse": lambda y, u: 2 * compute_square(y, u),
}

Setting = tuple[str, str]


def pair_losses(
    scene: Scene, measure: str, base: Setting, settings: Collection[Setting]
) -> Mapping[Setting, float]:
    """Estimate the standard error of each setting's mean loss on test less that of another.

    With d_i the difference of row i's expected losses, and v_i = w_i / Σ_j w_j, it is
    sqrt(Σ_i v_i² (d_i − d̄)²), d̄ = Σ_i v_i d_i, averaged over the seeds that both have.

    Parameters
    ----------
    scene : Scene
        Its store holds the scores of the study's fits.
    measure : str
        A name in ``ROW_LOSSES``; of ``rmse`` it is the squared errors that are compared.
    base : tuple of str
        Label and canonical setting of what is subtracted.
    settings : collection of tuple of str
        What it is subtracted from.

    Returns
    -------
    mapping of tuple of str to float
        NaN for what has no scores on a seed of ``base``.

    Notes
    -----
    Two good models err on the same rows, and their difference is surer than either loss. One
    stored fit is read at a time.
    """
    wanted = {base, *settings}
    places: dict[int, dict[Setting, tuple[int, int]]] = {}
    for position, each in enumerate(scene.plan):
        if "frontier" in each.blocks:
            for number, member in enumerate(each.group.members):
                setting = (each.group.method, canonical_json(member.setting))
                if setting in wanted:
                    places.setdefault(member.seed, {})[setting] = (position, number)
    errors: dict[Setting, list[float]] = {setting: [] for setting in settings}
    for _, found in sorted(places.items()):
        if base not in found:
            continue
        start = _read_losses(scene, measure, *found[base])
        for setting in settings:
            if start is None or setting not in found:
                continue
            other = _read_losses(scene, measure, *found[setting])
            if other is not None:
                difference, share = other[0] - start[0], start[1] / start[1].sum()
                spread = share * (difference - share @ difference)
                errors[setting].append(float(np.sqrt(np.sum(spread**2))))
    return {setting: float(np.mean(each)) if each else np.nan for setting, each in errors.items()}


def _read_losses(
    scene: Scene, measure: str, position: int, number: int
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the expected losses of a fit's test rows and their weights, or None for no fit."""
    group = scene.plan[position].group
    folder = scene.store.path(KIND, key(group, scene.store, scene.home))
    if not folder.is_dir() or read_facts(folder)["skipped"] is not None:
        return None
    part = load_split(group, group.members[number], scene.home).test
    if part is None:
        return None
    prediction = read_scores(folder / f"scores-{number}.npz")["test"]
    return expect_loss(Audit(prediction, part), ROW_LOSSES[measure]), part.weight
