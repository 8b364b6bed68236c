"""The price list: what bounds on gaps between groups cost, chosen on validation, seen on test."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from fairfrontier.metrics.measure.registry import MEASURES, split_name
from fairfrontier.metrics.statistic.interval import measure_reach
from fairfrontier.models.fit.training import read_scores
from fairfrontier.models.objective import COST_MEASURE
from fairfrontier.prepare.split import Part
from fairfrontier.runtime.errors import ConfigError
from fairfrontier.study.frontier import KEYS, StudyResults, orient, summarise
from fairfrontier.study.query import choose_best, compare, state_bound

# Bounds on a gap between rates, and, of other gaps, shares of that without a bound.
PRICED = (0.1, 0.05, 0.02)
SHARES = (0.5, 0.2)
# What a suggested bound may cost on the rows of the choice: of errors in units of a target that
# share of them.
CHEAP = 0.01


def price(results: StudyResults, models: pd.DataFrame, home: Path) -> dict[str, Any]:
    """Return what bounds cost in a study, by the first gap of each attribute, ready for JSON.

    ``n_chosen`` and ``n_test`` count the rows of the choice and of test, of which a group needs
    ``minimum``, None where no gap is asked about; ``trivial`` is the accuracy of always answering
    ``commoner`` on the latter, None where it is not known. ``rows`` has for each measure first the
    best setting without a bound, then those within bounds below its gap: measure, bound, method,
    setting; ``gap`` and ``objective`` on test rows, each with ``_low`` and ``_high``; ``cost``, by
    how much the objective is worse than without a bound, with the ends of a 95% interval, paired by
    row of one split of classes, and by split of several; ``unmet``, of the first, the bounds that
    no setting is within; ``asks_groups``, whether it looks at the group of a row; ``most`` and
    ``least``, the groups of the highest and the lowest rate of decisions for ``given``; and
    ``suggested``, of the tightest bound that costs at most .01 on the rows of the choice, or 1% of
    an error in units of a target. ``models`` is from `list_models`.
    """
    study, rows = results.study, results.frontier[KEYS].drop_duplicates()
    objective, fairness = study.frontier.accuracy, study.frontier.fairness
    if not len(rows):
        unknown = dict.fromkeys(("minimum", "trivial", "commoner"))
        return {"n_chosen": 0, "n_test": 0, **unknown, "rows": []}
    fits = results.points[[*KEYS, "seed"]].drop_duplicates().merge(rows, on=KEYS)
    means, tested = (summarise(results.points, fits, part) for part in (study.select_on, "test"))
    test = tested.set_index([*KEYS, "name"])
    known = _Decisions(results, models, fits, home)
    runs = tabulate_runs(results.points, objective)
    asks = models.groupby(KEYS)["needs_groups"].first().astype(bool)
    listed = []
    for measure in list_gaps(fairness, set(means["name"])):
        free: tuple[str, str] | None = None
        best = np.nan
        bounds: list[float | None] = [None]
        own: list[tuple[dict[str, Any], bool]] = []
        while bounds:
            bound = bounds.pop(0)
            asked = {} if bound is None else {measure: state_bound(measure, bound)}
            names = [*dict.fromkeys([objective, measure])]
            try:
                compared = compare(means, study.select_on, names, asked, None)
                at = choose_best(compared, objective, asked, None)
            except ConfigError:
                # No setting is within it, or its groups are too small.
                if own:
                    own[0][0]["unmet"].append(bound)
                continue
            key = compared.table.index[at]
            score = float(compared.scores[objective][at])
            if free is None:
                free, best = key, score
                bounds = list(choose_bounds(measure, float(compared.table[measure].iloc[at])))
            both = [(*each, objective) for each in (free, key)]
            cost = -np.diff(orient(objective, test["value"].reindex(both).to_numpy()))[0]
            apart = runs.loc[[free]].to_numpy()[0] - runs.loc[[key]].to_numpy()[0]
            reach = find_reach(apart) if len(apart) > 1 else known.find_reach(free, key)
            row: dict[str, Any] = {"measure": measure, "bound": bound, "unmet": []}
            row |= {"method": key[0], "setting": key[1]}
            for name, label in ((objective, "objective"), (measure, "gap")):
                value, low, high = test.loc[(*key, name), ["value", "low", "high"]].astype(float)
                row |= {label: value, f"{label}_low": low, f"{label}_high": high}
            row |= {"cost": cost, "cost_low": cost - reach, "cost_high": cost + reach}
            row |= {"asks_groups": bool(asks.get(key, False)), "suggested": False}
            row |= known.find_ends(measure, test.loc[key, "value"])
            most = CHEAP * (abs(best) if has_units(objective) else 1.0)
            own.append((row, best - score <= most))
        if cheap := [row for row, near in own[1:] if near]:
            cheap[-1]["suggested"] = True
        listed += [row for row, _ in own]
    held, shown = (int(each["n"].max()) for each in (means, tested))
    return {
        "n_chosen": held,
        "n_test": shown,
        "minimum": study.minimum if list_gaps(fairness, {*fairness}) else None,
        "trivial": known.trivial,
        "commoner": known.commoner,
        "rows": [
            {name: None if each != each else each for name, each in row.items()} for row in listed
        ],
    }


def tabulate_runs(points: pd.DataFrame, name: str) -> pd.DataFrame:
    """Return a measure on test rows by setting, with a column for each seed."""
    measure, group = split_name(name)
    own = points[(points["part"] == "test") & (points["measure"] == measure)]
    own = own[own["group"].astype(str) == group].astype({"method": str, "setting": str})
    return own.pivot_table(index=KEYS, columns="seed", values="value", aggfunc="first")


def find_reach(apart: np.ndarray) -> float:
    """Return t·sd/√k of k splits' differences, half the length of their mean's 95% interval."""
    k = len(apart)
    return float(stdtrit(k - 1, 0.975) * apart.std(ddof=1) / np.sqrt(k))


def state_finding(study: str, prices: Mapping[str, Any], objective: str) -> str:
    """Return what the first price list says, in some ten words."""
    rows = prices.get("rows", ())
    if not rows and prices.get("minimum") is None:
        return f"{study}: its measures compare no gap between groups"
    if not rows:
        return f"{study}: no gap between groups can be estimated{state_need(prices)}"
    free = rows[0]
    attribute, shown = split_name(free["measure"])[1], partial(show_points, name=free["measure"])
    own = [row for row in rows if row["measure"] == free["measure"]]
    chosen = next((row for row in own if row["suggested"]), None)
    if free["gap"] is None:
        return f"{study}: the {attribute} gap cannot be estimated on test rows"
    if free["gap_low"] is not None and free["gap_low"] <= 0:
        return f"{study}: the {attribute} gap of {shown(free['gap'])} on test rows may be chance"
    known = chosen is not None and None not in (chosen["gap"], chosen["cost"])
    if chosen is None or not known or not chosen["gap"] < free["gap"]:
        return f"{study}: the {attribute} gap is {shown(free['gap'])} on test rows"
    gap = f"{study}: a {attribute} gap of {shown(chosen['gap']).removesuffix(' points')}"
    gap += f", not {shown(free['gap'])},"
    if chosen["cost_low"] is not None and chosen["cost_low"] <= 0 <= chosen["cost_high"]:
        return f"{gap} costs nothing measurable"
    if chosen["cost"] <= 0:
        return f"{gap} costs nothing"
    return f"{gap} costs {show_points(chosen['cost'], objective)}"


def state_gap(row: Mapping[str, Any]) -> str:
    """Return in a sentence the gap of the best model without a bound, the first of its rows."""
    measure, gap = row["measure"], row["gap"]
    if gap is None or gap != gap:
        return f"Without a limit, {measure} cannot be estimated on test rows."
    if not isinstance(row["most"], str):
        return f"Without a limit, {measure} is {show_points(gap, measure)}."
    return (
        f"Without a limit, {row['given']} is decided {show_points(gap, measure)} more often for "
        f"{split_name(measure)[1]} {row['most']} than for {row['least']}."
    )


def state_trivial(prices: Mapping[str, Any], objective: str) -> str:
    """Return in a sentence how good the commoner answer alone is, where that is known."""
    if prices["trivial"] is None:
        return ""
    alike = f"; {objective} counts classes alike" if objective == "balanced_accuracy" else ""
    share = f"{prices['trivial']:.1%} of the test rows"
    return f"Always answering {prices['commoner']} is right for {share}{alike}."


def find_scale(values: Iterable[float], name: str) -> float:
    """Return 100, for points, of a measure whose values are shares; else 1."""
    return 1.0 if has_units(name) or any(abs(value) > 1 for value in values) else 100.0


def state_need(prices: Mapping[str, Any]) -> str:
    """Return why no gap can be estimated, where that is known."""
    minimum, n_test = prices.get("minimum"), prices.get("n_test")
    return f" ({n_test:,} test rows; {minimum} a group are needed)" if minimum else ""


def show_points(value: float, name: str) -> str:
    """Return a share in points, and what is larger than 1 or in units of a target as it is."""
    return f"{value:.3g}" if has_units(name) or abs(value) > 1 else f"{100 * value:.1f} points"


def has_units(name: str) -> bool:
    """Return whether a measure, with its group or without, is in units of a target or of costs."""
    measure = split_name(name)[0]
    return measure == COST_MEASURE or MEASURES.find(measure).has_units


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
    if (
        gap <= 1
        and not has_units(measure)
        and any(word in measure for word in ("difference", "gap"))
    ):
        return [bound for bound in PRICED if bound < gap]
    return [float(f"{share * gap:.1g}") for share in SHARES if gap > 0]


class _Decisions:
    """Decisions between classes on the test rows of a study of one split, for paired intervals."""

    def __init__(
        self, results: StudyResults, models: pd.DataFrame, fits: pd.DataFrame, home: Path
    ) -> None:
        self._models, self._home = models.set_index(KEYS), home
        self._right: dict[tuple[str, str], np.ndarray] = {}
        self._part = _find_test(results, fits, home)
        self.trivial: float | None = None
        self.commoner: str | None = None
        if self._part is None:
            return
        weight = np.asarray(self._part.weight, dtype=np.float64)
        total = np.bincount(self._part.y, weight, minlength=len(self._part.classes))
        self._weight, self._gain = weight / weight.sum(), np.ones(len(weight))
        if results.study.frontier.accuracy == "balanced_accuracy":
            self._gain = weight.sum() / (len(total) * total[self._part.y])
        self.trivial = float(total.max() / total.sum())
        self.commoner = self._part.classes[int(total.argmax())]

    def find_ends(self, measure: str, values: pd.Series) -> dict[str, str | None]:
        """Return who is given what most and least often, of a gap of two classes' selection."""
        ends = dict.fromkeys(("given", "most", "least"))
        name, group = split_name(measure)
        start = f"selection_rate:{group}="
        rates = values[values.index.str.startswith(start)].dropna()
        if self._part is None or name != "selection_rate_difference" or len(rates) < 2:
            return ends
        most, least = (str(at).removeprefix(start) for at in (rates.idxmax(), rates.idxmin()))
        return {"given": self._part.classes[1], "most": most, "least": least}

    def find_reach(self, free: tuple[str, str], key: tuple[str, str]) -> float:
        """Return half the length of the 95% interval of how much worse one is; NaN if unknown."""
        if self._part is None or not {free, key} <= {*self._models.index}:
            return np.nan
        one, other = (self._judge(each, self._part) for each in (free, key))
        return measure_reach(self._gain * (one - other), self._weight)

    def _judge(self, key: tuple[str, str], part: Part) -> np.ndarray:
        """Return the probability that each decision of a setting is right."""
        if key not in self._right:
            row = self._models.loc[[key]].iloc[0]
            folder = self._home / str(row["post_processor"] or row["model"])
            number = folder.name.rpartition("-")[2]
            decision = read_scores(folder.parent / f"scores-{number}.npz")["test"].decision
            right = decision == part.y
            if len(part.classes) == 2:
                right = np.where(part.y == 1, decision, 1 - decision)
            self._right[key] = right.astype(np.float64)
        return self._right[key]


def _find_test(results: StudyResults, fits: pd.DataFrame, home: Path) -> Part | None:
    """Return the test rows of the only split; None for several, or without classes."""
    several = fits["seed"].min() < fits["seed"].max()
    if several or results.study.frontier.accuracy not in ("accuracy", "balanced_accuracy"):
        return None
    group = next(each.group for each in results.plan if "frontier" in each.blocks)
    part = group.find_split(group.members[0]).load(home).test
    return part if part is not None and len(part.classes) > 1 else None
