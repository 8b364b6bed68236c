"""Predictions on disk: what a fitted model says about every part, in one npz."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import numpy as np

from fairfrontier.train.prediction import Prediction

VARIANT, VARIANT_SCORE = "counterfactual", "counterfactual_score"


def write_scores(path: Path, parts: Mapping[str, Prediction]) -> None:
    """Write predictions as one compressed npz: part/field, part/field/set/variant.

    Notes
    -----
    Numbers that 32 bits hold, as the scores of variants, take 4 bytes before compression.
    """
    arrays: dict[str, np.ndarray] = {}
    for name, each in parts.items():
        arrays[f"{name}/score"] = each.score
        arrays[f"{name}/decision"] = each.decision
        if each.components is not None and each.probability is not None:
            arrays[f"{name}/components"] = _narrow(each.components)
            arrays[f"{name}/probability"] = each.probability
        for set_name, variants in each.counterfactuals.items():
            for variant, decision in variants:
                arrays[f"{name}/{VARIANT}/{set_name}/{variant}"] = decision
        for set_name, scores in each.counterfactual_scores.items():
            names = [variant for variant, _ in each.counterfactuals[set_name]]
            for variant, score in zip(names, scores, strict=True):
                arrays[f"{name}/{VARIANT_SCORE}/{set_name}/{variant}"] = _narrow(score)
    np.savez_compressed(path, allow_pickle=False, **arrays)


def _narrow(array: np.ndarray) -> np.ndarray:
    """Return the array in 32 bits where that loses nothing: what trees say has no more."""
    with np.errstate(over="ignore"):
        narrow = array.astype(np.float32)
    return narrow if np.array_equal(narrow, array) else array


def read_scores(path: Path) -> dict[str, Prediction]:
    """Read what ``write_scores`` wrote: part -> Prediction."""
    fields: dict[str, dict[str, np.ndarray]] = {}
    sets: dict[tuple[str, str], dict[str, list[tuple[str, np.ndarray]]]] = {}
    with np.load(path, allow_pickle=False) as stored:
        for name in stored.files:
            part, field, *rest = name.split("/", maxsplit=3)
            array = stored[name].astype(np.float64, copy=False)
            if rest:
                variants = sets.setdefault((part, field), {}).setdefault(rest[0], [])
                variants.append((rest[1], array))
            else:
                fields.setdefault(part, {})[field] = array
    return {
        part: Prediction(
            counterfactuals=MappingProxyType(
                {key: tuple(each) for key, each in sets.get((part, VARIANT), {}).items()}
            ),
            counterfactual_scores=MappingProxyType(
                {
                    key: tuple(score for _, score in each)
                    for key, each in sets.get((part, VARIANT_SCORE), {}).items()
                }
            ),
            **found,
        )
        for part, found in fields.items()
    }
