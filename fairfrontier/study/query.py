"""A choice in words: what is best, subject to which bounds, and which setting that is."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import ndtr

from fairfrontier.metrics.measure.registry import MEASURES, split_name
from fairfrontier.metrics.statistic.interval import (
    Shares,
    bonferroni,
    clopper_pearson,
    invert_wilson,
    propagate_imprecision,
    widen,
)
from fairfrontier.metrics.statistic.rate import NAMES, TNR, TPR
from fairfrontier.models.thresholds.bound import NAMES as IN_WORDS
from fairfrontier.models.thresholds.bound import Bound, read_bound
from fairfrontier.runtime.errors import ConfigError, UnattainableError, nearest, refuse_unknown
from fairfrontier.study.frontier import (
    AGGREGATES,
    KEYS,
    TOLERANCE,
    find_rates,
    orient,
    pivot_measures,
)

EXAMPLE = (
    "Write it as in: max accuracy subject to selection_rate_difference:sex <= 0.05 and "
    "consistency:spouse >= 0.95."
)
# What is better where: the word of the objective, and the sign of a bound.
WORDS = {"higher": ("max", ">="), "lower": ("min", "<="), "zero": ("min", "<=")}
_SIGN = re.compile(r"\s*(<=|>=|≤|≥)\s*")
_TURN = re.compile(r"\s+(subject\s+to|and)\s+")


@dataclass(frozen=True)
class Query:
    """What is maximised, or minimised where less is better; the study's objective where None.

    ``bounds`` maps measures, as ``measure`` or ``measure:group``, to what they are to keep.
    """

    measure: str | None = None
    bounds: Mapping[str, Bound] = field(default_factory=dict)


def read_query(text: str) -> Query:
    """Read ``max MEASURE subject to MEASURE <= NUMBER and ...``.

    Either half may be left out: the objective is then the study's, or there are no bounds. Bounds
    are on any measure, or in the words of `fairfrontier.models.thresholds.bound`. Whether a bound
    is a least or a largest value follows from a measure of which more or less is better, and has to
    be said so.

    Raises
    ------
    ConfigError
        Names the word at which the text cannot be read.
    """
    clauses = _TURN.split(f" {text.strip()} ")
    head, rest = clauses[0].strip(), clauses[1:]
    if head.startswith("subject to"):
        head, rest = "", ["subject to", head.removeprefix("subject to"), *rest]
    measure = _read_objective(head, text) if head else None
    bounds: dict[str, Bound] = {}
    for position in range(0, len(rest), 2):
        turn, clause = " ".join(rest[position].split()), rest[position + 1].strip()
        if (turn == "subject to") != (position == 0):
            raise _point_at(text, turn, f"expected {'and' if position else 'subject to'!r}")
        bound = _read_bound(clause, text)
        if bound.name in bounds:
            raise _point_at(text, bound.name, "it is bounded twice")
        bounds[bound.name] = bound
    return Query(measure, bounds)


def _read_objective(clause: str, text: str) -> str:
    word, _, measure = clause.partition(" ")
    if word not in ("max", "min"):
        raise _point_at(text, word or clause, "expected max, min or subject to")
    measure = measure.strip()
    if not measure:
        raise _point_at(text, word, "expected a measure behind it")
    if sign := _SIGN.search(measure):
        raise _point_at(text, sign[1], "bounds stand behind 'subject to'")
    wanted, _ = WORDS[_find_direction(measure, text)]
    if word != wanted:
        raise _point_at(text, word, f"{measure} is better when it is {_say_better(wanted)}")
    return measure


def _read_bound(clause: str, text: str) -> Bound:
    name, *parts = _SIGN.split(clause)
    if len(parts) != 2:
        raise _point_at(text, clause or text.split()[-1], "expected MEASURE <= NUMBER, or >=")
    sign, number = parts[0].replace("≤", "<=").replace("≥", ">="), parts[1].strip()
    if in_words(name):
        try:
            return read_bound(clause)
        except ConfigError as error:
            raise ConfigError(error.fault, EXAMPLE) from None
    word, wanted = WORDS[_find_direction(name, text)]
    if sign != wanted:
        raise _point_at(
            text, parts[0], f"{name} is better when it is {_say_better(word)}: use {wanted}"
        )
    try:
        limit = float(number)
    except ValueError:
        limit = math.nan
    if not math.isfinite(limit):
        raise _point_at(text, number or clause, "expected a number")
    return state_bound(name, limit)


def in_words(name: str) -> bool:
    """Whether a bound is on what no measure is, or on one of which no value is better."""
    measure, group = split_name(name)
    known = MEASURES.all().get(measure)
    turned = known is not None and known.direction in WORDS
    return "|" in group or group.endswith("to overall") or (measure in IN_WORDS and not turned)


def state_bound(name: str, limit: float) -> Bound:
    """Return the bound on a measure, whose direction says of which sign; see `orient`."""
    orient(name, np.zeros(0))
    direction = MEASURES.find(split_name(name)[0]).direction
    form = "distance" if direction == "zero" else "value"
    return Bound(name, (), form, WORDS[direction][1], limit)


def _find_direction(name: str, text: str) -> str:
    measure, _ = split_name(name)
    known = {each.name: each.direction for each in MEASURES.all().values()}
    if measure not in known:
        raise _point_at(text, name, f"there is no such measure. {nearest(measure, known)}")
    if known[measure] not in WORDS:
        raise _point_at(text, name, "no value of this measure is better than another")
    return known[measure]


def write_bounds(bounds: Mapping[str, Bound]) -> str:
    """Write bounds as `read_query` reads them."""
    return " and ".join(map(str, bounds.values()))


def _say_better(word: str) -> str:
    return "higher" if word == "max" else "lower, or nearer to 0"


def _point_at(text: str, word: str, expected: str) -> ConfigError:
    """Return the error that points at a word of the text."""
    at = max(text.find(word), 0)
    marked = f"{text[:at]}⟦{word}⟧{text[at + len(word) :]}"
    return ConfigError(f"The choice cannot be read at {word!r}, {expected}: {marked}.", EXAMPLE)


# The settings of a frontier side by side, and bounds that hold for all of them at once.

Tables = Mapping[str, pd.DataFrame]
# From the larger and the smaller of two levels' rates to what is to be small.
Worst = Callable[[np.ndarray, np.ndarray], np.ndarray]
ENDS = ("value", "low", "high")
# Measures by how they are bounded: those whose intervals are Wilson's, and aggregates over levels.
# All others are balanced accuracy, which is made of ERRORS, and those whose own are widened.
SHARES = frozenset({*NAMES, "consistency", "auc", "f1"})
ERRORS = ("fpr", "tpr")
EXTREMES = {"max": np.fmax, "min": np.fmin}
PAIRED: dict[str, Worst] = {
    "gap": np.subtract,
    "difference": np.subtract,
    "gap_max": np.subtract,
    "ratio": lambda high, low: -low / high,
}
# The share of rows that count where a rule was fitted on them.
FITTED = 0.5


@dataclass(frozen=True, eq=False)
class Compared:
    """The settings that are compared on a part, a row for each in every table.

    ``tables`` have all measures: value, and low and high of their intervals. ``table`` has the
    values asked about, ``scores`` the same turned so that more is better. ``held`` is what bounded
    measures are taken to be, turned, and ``limits`` what that has to be at least; ``certified`` is
    ``held`` as measures, without columns where no confidence was asked for.
    """

    part: str
    n_samples: int
    tables: Mapping[str, pd.DataFrame]
    table: pd.DataFrame
    scores: Mapping[str, np.ndarray]
    held: Mapping[str, np.ndarray]
    limits: Mapping[str, float]
    certified: pd.DataFrame

    def find_excess(self) -> np.ndarray:
        """Return how far each setting exceeds the bound that it violates most; 0 within all."""
        excess = np.zeros(len(self.table))
        for name, limit in self.limits.items():
            # Means and differences of rates are rounded: .4 - .3 is more than .1.
            excess = np.maximum(excess, limit - self.held[name] - TOLERANCE)
        return excess


def compare(
    means: pd.DataFrame,
    part: str,
    names: Sequence[str],
    bounds: Mapping[str, Bound],
    confidence: float | None,
    fitted: Collection[tuple[str, str]] = (),
    tried: int = 0,
    counted: Mapping[str, Mapping[tuple[str, str], Callable[[float], float]]] | None = None,
) -> Compared:
    """Return the settings that have estimates of all measures, and intervals where needed.

    ``fitted`` are the settings whose rules were fitted on the rows of the part; see `bound_scores`.
    ``tried`` is how many these were chosen from by the same rows, where that is more. ``counted``
    has, by bound and setting, what the measure is at worst with an error; others have intervals.
    """
    known, counted = set(means["name"]), counted or {}
    refuse_unknown(names, known, "The study holds no measure", f" on its {part} rows")
    tables = {column: pivot_measures(means, KEYS, column) for column in ("value", "low", "high")}
    kept = tables["value"][[*names]].notna().all(axis=1)
    if not kept.any():
        raise ConfigError(
            f"No setting of the study has estimates of all of {', '.join(names)}.",
            "Choose by measures of larger groups, or lower minimum, the rows that a group needs.",
        )
    if confidence is not None:
        kept &= tables["high"][[name for name in bounds if name not in counted]].notna().all(axis=1)
        if not kept.any():
            raise ConfigError(
                f"No setting of the study has intervals of all of {', '.join(bounds)} on its "
                f"{part} rows, so that no bound on them is certain.",
                "Bound other measures, or select without confidence.",
            )
    tables = {column: table[kept] for column, table in tables.items()}
    table = tables["value"][[*names]]

    def turn(name: str, values: np.ndarray) -> np.ndarray:
        return np.asarray(bounds[name].orient(values) if name in bounds else orient(name, values))

    scores = {name: turn(name, table[name].to_numpy()) for name in names}
    limits = {name: float(bound.orient(bound.limit)) for name, bound in bounds.items()}
    held, certified = scores, pd.DataFrame(index=table.index)
    if confidence is not None:
        reach = bonferroni(1.0 - confidence, max(len(table), tried) * len(bounds))
        own = np.array([key in fitted for key in table.index], dtype=bool)
        worst = {
            name: bound_scores(name, tables, reach, own, bound.orient)
            if name not in counted
            else bound.orient(np.array([counted[name][key](ndtr(-reach)) for key in table.index]))
            for name, bound in bounds.items()
        }
        # What has no bound is certain to hold nothing.
        held = {name: np.where(np.isnan(each), -np.inf, each) for name, each in worst.items()}
        # A bound on the measure itself, not on the turned one.
        certified = pd.DataFrame(
            {name: held[name] * turn(name, np.ones(1)) for name in bounds}, index=table.index
        )
    n_samples = int(means["n"].max())
    return Compared(part, n_samples, tables, table, scores, held, limits, certified)


def bound_scores(
    name: str,
    tables: Tables,
    reach: float,
    fitted: np.ndarray | None = None,
    turn: Callable[[np.ndarray], np.ndarray] | None = None,
) -> np.ndarray:
    """Return what a measure is at worst, oriented so that more is better, float64, (n_settings,).

    ``tables`` are value, low and high (of 95% intervals) with a row for every setting and a column
    for every measure; ``reach`` is the z of the bounds. NaN without an interval.

    ``fitted``, bool of shape (n_settings,), says whose rules were fitted on the rows compared, and
    measured by rules of folds: theirs allow for twice the variance and for every pair of levels.
    ``turn`` orients the measure in place of its direction.
    """
    measure, group = split_name(name)
    fitted = np.zeros(len(tables["value"]), dtype=bool) if fitted is None else fitted
    aggregation, position = AGGREGATES.get(measure, ("", None))
    rates = [TNR, TPR] if position is None else [position]
    levels = [find_rates(tables[end], group)[..., rates] for end in ENDS]
    n_levels = int(np.isfinite(levels[0]).any(axis=(0, 2)).sum())
    # Which levels come to differ most is then chance, so that no pair of them is the one.
    pairs = n_levels * (n_levels - 1) * len(rates) if aggregation else 1
    signs = 2 if MEASURES.find(measure).direction == "zero" else 1
    wide = np.where(fitted, bonferroni(ndtr(-reach), max(pairs, signs)), reach)

    if n_levels and aggregation in PAIRED:
        return -_bound_pairs(_count_rows(levels, fitted), wide, PAIRED[aggregation])
    if measure == "balanced_accuracy" and {*ERRORS} <= {*tables["value"]}:
        return _bound_balanced_accuracy(tables, fitted, wide)
    interval = [tables[end][name].to_numpy() for end in ENDS]
    if n_levels and aggregation in EXTREMES:
        every = bonferroni(ndtr(-reach), n_levels)
        ends = _bound_extreme(_count_rows(levels, fitted), every, EXTREMES[aggregation])
    elif measure in SHARES:
        ends = clopper_pearson(*_count_rows(interval, fitted), wide)
    else:
        ends = _widen(interval, fitted, wide)
    low, high = (orient(name, end) if turn is None else turn(end) for end in ends)
    return np.asarray(np.minimum(low, high))


def _count_rows(interval: Sequence[np.ndarray], fitted: np.ndarray) -> Shares:
    """Return shares and the rows that their intervals tell, both (n_settings, ...)."""
    size = invert_wilson(*interval)
    # A fit on as many rows varies as its measurement does, and folds may show none of it.
    size[fitted] *= FITTED
    return interval[0], size


def _bound_pairs(levels: Shares, reach: np.ndarray, worst: Worst) -> np.ndarray:
    """Bound from above what two levels make at worst, since the worst is made by one of the pairs.

    ``levels`` have shape (n_settings, n_levels, n_rates), here and below.
    """
    value, size = levels
    larger, smaller = (value[:, :, None], size[:, :, None]), (value[:, None], size[:, None])
    pairs = propagate_imprecision(larger, smaller, reach, worst)
    # A level does not differ from itself, whatever its bounds.
    itself = np.eye(value.shape[1], dtype=bool)[:, :, None]
    pairs = np.where(itself, np.nan, pairs).reshape(len(pairs), -1)
    return np.asarray(np.fmax.reduce(pairs, axis=1))


def _bound_extreme(
    levels: Shares, reach: float, extreme: np.ufunc
) -> tuple[np.ndarray, np.ndarray]:
    """Bound the largest or the smallest level, from below and from above.

    The level of the largest bound need not be the largest: at ``reach`` all have to hold.
    """
    low, high = (extreme.reduce(end, axis=(1, 2)) for end in clopper_pearson(*levels, reach))
    return low, high


def _bound_balanced_accuracy(tables: Tables, fitted: np.ndarray, reach: np.ndarray) -> np.ndarray:
    """Bound (1 − (FPR − TPR)) / 2 from below."""
    fpr, tpr = (
        _count_rows([tables[end][rate].to_numpy() for end in ENDS], fitted) for rate in ERRORS
    )
    return np.asarray((1.0 - propagate_imprecision(fpr, tpr, reach, np.subtract)) / 2.0)


def _widen(
    interval: Sequence[np.ndarray], fitted: np.ndarray, reach: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return a 95% interval at another z; see `widen`."""
    value, *ends = interval
    low, high = (value + (end - value) / np.sqrt(np.where(fitted, FITTED, 1.0)) for end in ends)
    wide = widen(value, low, high, reach)
    return wide[:, 0], wide[:, 1]


def find_needed_rows(
    scores: Mapping[str, np.ndarray], held: Mapping[str, np.ndarray], limits: Mapping[str, float]
) -> tuple[int, float] | None:
    """Return the setting that needs fewest rows to be certified, and how many times as many.

    An interval shrinks with 1/√n, so that slack = width / √(n'/n). ``scores`` are the oriented
    estimates, ``held`` what they are at worst. None where no setting meets the limits as estimated.
    """
    factor = np.zeros(len(next(iter(scores.values()))))
    for name, limit in limits.items():
        slack = scores[name] - limit
        width = scores[name] - held[name]
        with np.errstate(divide="ignore", invalid="ignore"):
            times = np.where(slack > 0, (width / slack) ** 2, np.inf)
        factor = np.maximum(factor, np.nan_to_num(times, nan=np.inf, posinf=np.inf))
    best = int(factor.argmin())
    return (best, float(factor[best])) if np.isfinite(factor[best]) else None


def find_passed(bounds: Mapping[str, Bound], measures: pd.DataFrame) -> pd.DataFrame:
    """Return the bounds that measures do not keep, or of which nothing is known.

    The columns are name, bound, value, low and high; the last three are NaN where not known.
    """
    table = measures.set_index("name").reindex(index=[*bounds], columns=["value", "low", "high"])
    limits = {name: bound.limit for name, bound in bounds.items()}
    table.insert(0, "bound", pd.Series(limits, dtype=np.float64))
    # Not kept where it is NaN, either.
    passed = [
        not bound.exceeds(value) <= TOLERANCE
        for bound, value in zip(bounds.values(), table["value"], strict=True)
    ]
    return table[passed].rename_axis("name").reset_index()


def choose_best(
    compared: Compared, measure: str, bounds: Mapping[str, Bound], confidence: float | None
) -> int:
    """Return the position of the best setting within the bounds; UnattainableError without one."""
    excess = compared.find_excess()
    best = int(np.lexsort((-compared.scores[measure], excess))[0])
    # Neither where it is NaN.
    if not excess[best] <= 0:
        raise _explain(compared, bounds, confidence, best)
    return best


def _explain(
    compared: Compared, bounds: Mapping[str, Bound], confidence: float | None, closest: int
) -> UnattainableError:
    """Return the error where no setting is within the bounds, with the nearest one."""
    table, part = compared.table, compared.part
    needed = (
        None
        if confidence is None
        else find_needed_rows(compared.scores, compared.held, compared.limits)
    )
    if needed is None:
        return UnattainableError(
            f"No setting satisfies {write_bounds(bounds)} on the {part} rows.",
            f"Loosen the bounds: {name_setting(table.index[closest])} comes nearest, with "
            f"{_write(table.iloc[closest].to_dict())}.",
        )
    position, times = needed
    return UnattainableError(
        f"No setting is certifiable to satisfy {write_bounds(bounds)} with the "
        f"{compared.n_samples:,} {part} rows at a confidence of {confidence:g}: about "
        f"{math.ceil(compared.n_samples * times):,} would be needed.",
        f"Loosen the bounds, hold out more rows, or compare fewer settings: "
        f"{name_setting(table.index[position])} comes nearest, with an estimate of "
        f"{_write(table.iloc[position].to_dict())}, and at worst "
        f"{_write(compared.certified.iloc[position].to_dict())}.",
    )


def name_setting(key: Any) -> str:
    """Return a setting, (method, setting), as messages name it."""
    method, setting = key
    if not setting.startswith("{"):
        # Of a frontier of arrays.
        return f"{method} {setting}".strip()
    shown = {name: value for name, value in json.loads(setting).items() if name != "select_on"}
    return f"{method} {json.dumps(shown)}" if shown else str(method)


def _write(values: Mapping[Any, float]) -> str:
    return ", ".join(f"{name} = {value:.4g}" for name, value in values.items())
