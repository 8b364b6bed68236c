"""The price list: what bounds on gaps between groups cost, chosen on validation, seen on test."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from fairfrontier.choose.query import choose_best, compare, state_bound
from fairfrontier.choose.select import Study
from fairfrontier.metrics.measure.registry import MEASURES, split_name
from fairfrontier.metrics.statistic.interval import measure_reach
from fairfrontier.models.fit.training import read_scores
from fairfrontier.prepare.loader import SplitRequest
from fairfrontier.prepare.split import Part
from fairfrontier.runtime.errors import ConfigError, FairfrontierError
from fairfrontier.study.frontier import KEYS, orient, summarise

# Bounds on a gap between rates, and, of other gaps, shares of that without a bound.
PRICED = (0.1, 0.05, 0.02)
SHARES = (0.5, 0.2)
# What a suggested bound may cost on the rows of the choice.
CHEAP = 0.01


@dataclass(frozen=True)
class Prices:
    """What bounds cost.

    Attributes
    ----------
    table : DataFrame
        For each measure first the best setting without a bound, ``bound`` NaN, then those within
        bounds below its gap: measure, bound, method, setting; ``gap`` and ``objective`` on test
        rows, each with ``_low`` and ``_high``; ``cost``, by how much the objective is worse than
        without a bound, with the ends of a paired 95% interval, NaN where it is not of one split of
        two classes; ``asks_groups``, whether it looks at the group of a row; and ``suggested``, of
        the tightest bound that costs at most .01 on the rows of the choice.
    n_validation, n_test : int
        Rows of the parts.
    trivial : float
        The accuracy of the commoner label on test rows; NaN where the objective is another one.
    """

    table: pd.DataFrame
    n_validation: int
    n_test: int
    trivial: float


def price(study: Study) -> Prices:
    """Return what bounds cost in a finished study, by the first gap of each attribute."""
    rows = study.frontier[KEYS].drop_duplicates()
    fits = study.points[[*KEYS, "seed"]].drop_duplicates().merge(rows, on=KEYS)
    part = str(json.loads(rows["setting"].iloc[0])["select_on"])
    means, tested = (summarise(study.points, fits, each) for each in (part, "test"))
    test = tested.set_index([*KEYS, "name"])
    known = _Decisions(study, fits)
    asks = study.models.groupby(KEYS)["needs_groups"].first().astype(bool)
    listed = []
    for measure in list_gaps(study.fairness, set(means["name"])):
        free: tuple[str, str] | None = None
        best = np.nan
        bounds: list[float | None] = [None]
        own = []
        while bounds:
            bound = bounds.pop(0)
            asked = {} if bound is None else {measure: state_bound(measure, bound)}
            names = [*dict.fromkeys([study.objective, measure])]
            try:
                compared = compare(means, part, names, asked, None)
                at = choose_best(compared, study.objective, asked, None)
            except ConfigError:
                continue  # No setting is within it, or its groups are too small.
            key = compared.table.index[at]
            score = float(compared.scores[study.objective][at])
            if free is None:
                free, best = key, score
                bounds = list(choose_bounds(measure, float(compared.table[measure].iloc[at])))
            columns = ["value", "low", "high"]
            both = [(*each, study.objective) for each in (free, key)]
            cost = -np.diff(orient(study.objective, test["value"].reindex(both).to_numpy()))[0]
            row = {"measure": measure, "bound": np.nan if bound is None else bound}
            row |= {"method": key[0], "setting": key[1], "asks_groups": bool(asks[key])}
            for name, label in ((study.objective, "objective"), (measure, "gap")):
                ends = test.loc[(*key, name), columns].astype(float)
                row |= {label: ends.iloc[0], f"{label}_low": ends.iloc[1]}
                row |= {f"{label}_high": ends.iloc[2]}
            reach = known.find_reach(free, key)
            row |= {"cost": cost, "cost_low": cost - reach, "cost_high": cost + reach}
            own.append(row | {"suggested": False, "near": best - score <= CHEAP})
        cheap = [row for row in own[1:] if row["near"]]
        if cheap:
            cheap[-1]["suggested"] = True
        listed += own
    held, shown = (int(each["n"].max()) for each in (means, tested))
    table = pd.DataFrame(listed).drop(columns="near", errors="ignore")
    return Prices(table, held, shown, known.trivial)


def list_gaps(fairness: Sequence[str], known: set[str]) -> list[str]:
    """Return the first measure of each attribute that is better lower, in the study's order."""
    first: dict[str, str] = {}
    for name in fairness:
        measure, group = split_name(name)
        if group and name in known and MEASURES.find(measure).direction == "lower":
            first.setdefault(group, name)
    return [*first.values()]


def choose_bounds(measure: str, gap: float) -> list[float]:
    """Return the bounds below a gap that are priced, largest first."""
    if np.isnan(gap):
        return []
    if gap <= 1 and any(word in measure for word in ("difference", "gap")):
        return [bound for bound in PRICED if bound < gap]
    return [float(f"{share * gap:.1g}") for share in SHARES if gap > 0]


class _Decisions:
    """Decisions on the test rows of a study of one split of two classes, for paired intervals."""

    def __init__(self, study: Study, fits: pd.DataFrame) -> None:
        self._study, self._right = study, dict[tuple[str, str], np.ndarray]()
        self._part, self.trivial = _find_test(study, fits), np.nan
        if self._part is None:
            return
        weight = np.asarray(self._part.weight, dtype=np.float64)
        total = np.bincount(self._part.y, weight, minlength=2)
        self._weight, self._gain = weight / weight.sum(), np.ones(len(weight))
        if study.objective == "balanced_accuracy":
            self._gain = weight.sum() / (2 * total[self._part.y])
        else:
            self.trivial = float(total.max() / total.sum())

    def find_reach(self, free: tuple[str, str], key: tuple[str, str]) -> float:
        """Return half the length of the 95% interval of how much worse one is; NaN if unknown."""
        if self._part is None:
            return np.nan
        try:
            one, other = (self._judge(each, self._part.y) for each in (free, key))
        except (FairfrontierError, OSError, KeyError, ValueError):
            return np.nan
        return measure_reach(self._gain * (one - other), self._weight)

    def _judge(self, key: tuple[str, str], y: np.ndarray) -> np.ndarray:
        """Return the probability that each decision of a setting is right."""
        if key not in self._right:
            row = self._study.models.set_index(KEYS).loc[[key]].iloc[0]
            folder = self._study.home / str(row["post_processor"] or row["model"])
            number = folder.name.rpartition("-")[2]
            decision = read_scores(folder.parent / f"scores-{number}.npz")["test"].decision
            self._right[key] = np.where(y == 1, decision, 1 - decision)
        return self._right[key]


def _find_test(study: Study, fits: pd.DataFrame) -> Part | None:
    """Return the test rows of the only split; None for several, or more than two classes."""
    several = fits["seed"].min() < fits["seed"].max()
    if several or study.objective not in ("accuracy", "balanced_accuracy"):
        return None
    setting = json.loads(fits["setting"].iloc[0])
    rows, noise = setting.get("rows"), setting.get("noise")
    seed = int(fits["seed"].iloc[0])
    try:
        request = SplitRequest(study.dataset, seed, rows, setting["select_on"], noise)
        part = request.load(study.home).test
    except FairfrontierError:
        return None
    return part if part is not None and len(part.classes) == 2 else None
