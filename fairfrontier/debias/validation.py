"""What a rule is expected to do to rows that it was not fitted on, by cross-validation.

References
----------
T. G. Dietterich. Approximate statistical tests for comparing supervised classification learning
algorithms. Neural Computation 10, 1998 (halves, five times).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fairfrontier.evaluate.statistic.resampling import average_known
from fairfrontier.runtime.seeds import derive_generator
from fairfrontier.train.postprocess.rule import ThresholdRule
from fairfrontier.train.postprocess.sample import ScoredRows

FOLDS, REPEATS = 2, 5


def cross_validate(
    rows: ScoredRows,
    fit: Callable[[ScoredRows], ThresholdRule],
    attributes: Mapping[str, np.ndarray],
    *,
    labelled: bool,
    seed: int,
) -> dict[str, Any]:
    """Return bias and accuracy before and after, of rules that ``fit`` makes of the other folds.

    ``attributes`` has the code of every group's level. ``bias`` is a list of attribute, before and
    after, see `estimate_bias`; ``accuracy`` is there with labels. Ten fits of half of the rows.
    """
    # Sorted first, so that the order of the table changes nothing.
    order = np.lexsort([rows.weight, np.asarray(rows.y), rows.signed, rows.code])
    signed, code, weight, y = (
        np.asarray(each)[order] for each in (rows.signed, rows.code, rows.weight, rows.y)
    )
    rng = derive_generator("debias", "fold", seed)
    decided = {"before": (signed >= 0.0).astype(np.float64), "after": np.zeros(order.size)}
    squares: dict[str, dict[str, list[np.ndarray]]] = {
        attribute: {when: [] for when in decided} for attribute in attributes
    }
    right: dict[str, list[float]] = {when: [] for when in decided}
    for _ in range(REPEATS):
        fold = rng.permutation(order.size) % FOLDS
        for number in range(FOLDS):
            own, fresh = fold != number, fold == number
            rule = fit(ScoredRows(signed[own], code[own], weight[own], None, rows.n_groups))
            decided["after"][fresh] = rule.probability(signed[fresh], code[fresh])
            for attribute, levels in attributes.items():
                level, size = levels[code[fresh]], int(levels.max()) + 1
                for when, h in decided.items():
                    square = _square_differences(h[fresh], level, weight[fresh], size)
                    squares[attribute][when].append(square)
        for when, h in decided.items():
            right[when].append(float(np.average(np.where(y == 1, h, 1.0 - h), weights=weight)))
    found: dict[str, Any] = {
        "folds": FOLDS,
        "repeats": REPEATS,
        "bias": [
            {"attribute": attribute, **{when: estimate_bias(each) for when, each in own.items()}}
            for attribute, own in squares.items()
        ],
    }
    if labelled:
        found["accuracy"] = {when: float(np.mean(each)) for when, each in right.items()}
    return found


def _square_differences(
    h: np.ndarray, code: np.ndarray, weight: np.ndarray, size: int
) -> np.ndarray:
    """Return unbiased squares of the differences between E[h | level], (n_levels, n_levels).

    Chance adds the variances of both rates to a square, and they are taken off again. NaN for
    levels with fewer than two rows.
    """
    count, total = np.bincount(code, minlength=size), np.bincount(code, weight, size)
    with np.errstate(divide="ignore", invalid="ignore"):
        rate = np.bincount(code, weight * h, size) / total
        spread = np.bincount(code, (weight * (h - rate[code])) ** 2, size) / total**2
        variance = np.where(count > 1, spread * count / (count - 1.0), np.nan)
    return np.asarray((rate[:, None] - rate) ** 2 - variance[:, None] - variance)


def estimate_bias(squares: list[np.ndarray]) -> float:
    """Return the root of the largest mean square difference over the folds; 0 where none is left.

    The aggregate of all folds would not do: a rule that is too low for one half is too high for
    the other, and both errors cancel.
    """
    mean = average_known(np.stack(squares), axis=0)
    return float(np.sqrt(np.fmax.reduce(mean.ravel(), initial=0.0)))


def describe_doubt(expected: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each attribute between whose levels the rule lowers no bias."""
    return [
        f"On fresh rows the rule is not expected to lower the bias between the levels of "
        f"{bias['attribute']}: {bias['before']:.3f} without it, {bias['after']:.3f} with it "
        "(cross-validated)."
        for bias in expected.get("bias", ())
        if bias["after"] >= bias["before"]
    ]
