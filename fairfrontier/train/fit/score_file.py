"""Predictions on disk: those of a fitted model on every part, in one npz."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import numpy as np

from fairfrontier.train.prediction import Prediction

VARIANT, VARIANT_SCORE = "counterfactual", "counterfactual_score"


def write_scores(path: Path, parts: Mapping[str, Prediction]) -> None:
    """Write predictions as one compressed npz: part/field, part/field/set/variant."""
    arrays: dict[str, np.ndarray] = {}
    for name, part in parts.items():
        arrays[f"{name}/score"] = part.score
        arrays[f"{name}/decision"] = part.decision
        if part.components is not None and part.probability is not None:
            arrays[f"{name}/components"] = _narrow(part.components)
            arrays[f"{name}/probability"] = part.probability
        for set_name, variants in part.counterfactuals.items():
            for variant, decision in variants:
                arrays[f"{name}/{VARIANT}/{set_name}/{variant}"] = decision
        for set_name, scores in part.counterfactual_scores.items():
            names = [variant for variant, _ in part.counterfactuals[set_name]]
            for variant, score in zip(names, scores, strict=True):
                arrays[f"{name}/{VARIANT_SCORE}/{set_name}/{variant}"] = _narrow(score)
    np.savez_compressed(path, allow_pickle=False, **arrays)


def _narrow(array: np.ndarray) -> np.ndarray:
    """Return the array in 32 bits where that is exact, as for the scores of trees."""
    with np.errstate(over="ignore"):
        narrow = array.astype(np.float32)
    return narrow if np.array_equal(narrow, array) else array


def read_scores(path: Path) -> dict[str, Prediction]:
    """Return the predictions that ``write_scores`` wrote, by part."""
    fields: dict[str, dict[str, np.ndarray]] = {}
    sets: dict[tuple[str, str], dict[str, list[tuple[str, np.ndarray]]]] = {}
    with np.load(path, allow_pickle=False) as stored:
        for name in stored.files:
            part, field, *variant = name.split("/", maxsplit=3)
            array = stored[name].astype(np.float64, copy=False)
            if variant:
                variants = sets.setdefault((part, field), {}).setdefault(variant[0], [])
                variants.append((variant[1], array))
            else:
                fields.setdefault(part, {})[field] = array
    return {
        part: Prediction(
            counterfactuals=MappingProxyType(
                {key: tuple(pairs) for key, pairs in sets.get((part, VARIANT), {}).items()}
            ),
            counterfactual_scores=MappingProxyType(
                {
                    key: tuple(score for _, score in pairs)
                    for key, pairs in sets.get((part, VARIANT_SCORE), {}).items()
                }
            ),
            **arrays,
        )
        for part, arrays in fields.items()
    }
