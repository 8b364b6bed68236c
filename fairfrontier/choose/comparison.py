"""The settings of a frontier side by side, with what each is known to attain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from fairfrontier.choose.assurance import bound_scores, find_reach
from fairfrontier.choose.mixture import TOLERANCE, find_mixture, list_margins
from fairfrontier.runtime.errors import ConfigError, nearest
from fairfrontier.study.frontier import orient
from fairfrontier.study.mixture import KEYS, pivot_measures


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

    def row(self, position: int) -> tuple[pd.Series, pd.Series]:
        """Return the values of one setting, and what is certified of it."""
        return self.table.iloc[position], self.certified.iloc[position]

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
    bounds: Mapping[str, float],
    confidence: float | None,
) -> Compared:
    """Return the settings that have estimates of all measures, and intervals where needed."""
    known = set(means["name"])
    for name in names:
        if name not in known:
            raise ConfigError(
                f"The study holds no measure {name!r} on its {part} rows.", nearest(name, known)
            )
    tables = {column: pivot_measures(means, KEYS, column) for column in ("value", "low", "high")}
    kept = tables["value"][[*names]].notna().all(axis=1)
    if not kept.any():
        raise ConfigError(
            f"No setting of the study has estimates of all of {', '.join(names)}.",
            "Choose by measures of larger groups.",
        )
    if confidence is not None:
        kept &= tables["high"][[*bounds]].notna().all(axis=1)
        if not kept.any():
            raise ConfigError(
                f"No setting of the study has intervals of all of {', '.join(bounds)} on its "
                f"{part} rows, so that no bound on them is certain.",
                "Bound other measures, or select without confidence.",
            )
    tables = {column: table[kept] for column, table in tables.items()}
    table = tables["value"][[*names]]
    scores = {name: orient(name, table[name].to_numpy()) for name in names}
    limits = {name: float(orient(name, np.array([bound]))[0]) for name, bound in bounds.items()}
    held, certified = scores, pd.DataFrame(index=table.index)
    if confidence is not None:
        reach = find_reach(confidence, len(table) * len(bounds))
        held = {name: bound_scores(name, tables, reach) for name in bounds}
        # A bound on the measure itself, not on the turned one.
        certified = pd.DataFrame(
            {name: held[name] * orient(name, np.ones(1)) for name in bounds}, index=table.index
        )
    n_samples = int(means["n"].max())
    return Compared(part, n_samples, tables, table, scores, held, limits, certified)


def mix_compared(
    compared: Compared, measure: str, bounds: Mapping[str, float], confidence: float | None
) -> tuple[int, int, float] | None:
    """Return two settings and the share of the second; None where one setting alone is best."""
    margins = [np.zeros((len(compared.table), 0))]
    for name, bound in bounds.items():
        # What is convex in the decision rule is at most the mean of two bounds.
        margins.append(
            list_margins(name, bound, compared.tables["value"])
            if confidence is None
            else compared.held[name][:, None] - compared.limits[name]
        )
    found = find_mixture(compared.scores[measure], np.hstack(margins))
    return found if found is not None and 0 < found[2] < 1 else None
