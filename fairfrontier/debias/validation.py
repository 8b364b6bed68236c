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

from fairfrontier.debias.config import DebiasConfig
from fairfrontier.debias.tally import GIVEN, measure_objective
from fairfrontier.evaluate.statistic.resampling import average_known
from fairfrontier.runtime.seeds import derive_generator
from fairfrontier.train.objective import Objective
from fairfrontier.train.postprocess.roc.curve import BOUNDED
from fairfrontier.train.postprocess.rule import DecisionRule
from fairfrontier.train.postprocess.sample import ScoredRows

FOLDS, REPEATS = 2, 5
# Decimals with which a bias is shown.
DIGITS = 3


def cross_validate(
    rows: ScoredRows,
    fit: Callable[[ScoredRows], DecisionRule],
    columns: Mapping[str, np.ndarray],
    config: DebiasConfig,
) -> dict[str, Any]:
    """Return bias and objective before and after, of rules that ``fit`` makes of the other folds.

    ``columns`` has the code of every group's level, by column of groups. ``bias`` is a list of
    attribute, before and after, see `estimate_bias`; of two rates it is the larger, or their mean
    for ``average_odds``. With labels the objective stands under its name. Ten fits of half of the
    rows.
    """
    crossed = {"×".join(columns): np.arange(rows.n_groups)}
    attributes = {**columns, **crossed} if len(columns) > 1 else dict(columns)
    # Sorted first, so that the order of the table changes nothing.
    order = np.lexsort([rows.weight, np.asarray(rows.y), rows.signed, rows.code])
    signed, code, weight, y = (
        np.asarray(each)[order] for each in (rows.signed, rows.code, rows.weight, rows.y)
    )
    given = [GIVEN[column] for column in BOUNDED[config.criterion]]
    rng = derive_generator("debias", "fold", config.seed)
    decided = {"before": (signed >= 0.0).astype(np.float64), "after": np.zeros(order.size)}
    squares: dict[str, dict[str, list[np.ndarray]]] = {
        attribute: {when: [] for when in decided} for attribute in attributes
    }
    reached: dict[str, list[float]] = {when: [] for when in decided}
    for _ in range(REPEATS):
        fold = rng.permutation(order.size) % FOLDS
        for number in range(FOLDS):
            own, fresh = fold != number, fold == number
            judged = [fresh if label is None else fresh & (y == label) for label in given]
            rule = fit(ScoredRows(signed[own], code[own], weight[own], y[own], rows.n_groups))
            decided["after"][fresh] = rule.probability(signed[fresh], code[fresh])
            for attribute, levels in attributes.items():
                size = int(levels.max()) + 1
                for when, h in decided.items():
                    found = [
                        _square_differences(h[some], levels[code[some]], weight[some], size)
                        for some in judged
                    ]
                    squares[attribute][when].append(np.stack(found))
        for when, h in decided.items():
            reached[when].append(_find_objective(h, y, weight, config.served))
    join = np.mean if config.criterion == "average_odds" else np.max
    expected: dict[str, Any] = {
        "folds": FOLDS,
        "repeats": REPEATS,
        "bias": [
            {
                "attribute": attribute,
                **{when: float(join(estimate_bias(each))) for when, each in own.items()},
            }
            for attribute, own in squares.items()
        ],
    }
    if config.labels:
        expected[config.measure] = {when: float(np.mean(each)) for when, each in reached.items()}
    return expected


def _find_objective(
    h: np.ndarray, y: np.ndarray, weight: np.ndarray, objective: Objective
) -> float:
    """Return the expected objective of decisions."""
    positive, negative = weight * y, weight * (1.0 - y)
    sums = ((positive * h).sum(), (negative * h).sum(), positive.sum(), negative.sum())
    return float(measure_objective(objective, *sums))


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


def estimate_bias(squares: list[np.ndarray]) -> np.ndarray:
    """Return for each rate the root of the largest mean square difference over the folds, or 0.

    The aggregate of all folds would not do: a rule that is too low for one half is too high for
    the other, and both errors cancel.
    """
    mean = average_known(np.stack(squares), axis=0)
    return np.asarray(np.sqrt(np.fmax.reduce(mean.reshape(len(mean), -1), axis=1, initial=0.0)))


def describe_doubt(expected: Mapping[str, Any]) -> str:
    """Return a sentence on the attributes between whose levels the rule adds bias, or nothing.

    Less than rounding of what is shown does not count.
    """
    worse = [
        f"{bias['attribute']} from {bias['before']:.{DIGITS}f} to {bias['after']:.{DIGITS}f}"
        for bias in expected.get("bias", ())
        if bias["after"] - bias["before"] > 10.0**-DIGITS
    ]
    if not worse:
        return ""
    return (
        "On fresh rows (cross-validated) the rule is expected to raise the bias between the levels "
        f"of {', '.join(worse)}."
    )
