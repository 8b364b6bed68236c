"""What a search finds against settings written out by hand, on Adult.

Run ``python -m benchmarks.search``: the studies ``adult-search`` and ``adult``, whose
fits are kept in the store, with the same measures, rows and splits. For every fairness measure the
table has the area that the frontier dominates, up to a constant classifier's balanced accuracy and
plain boosting's fairness in ``adult``. The settings were chosen on validation rows; areas are of
their means over the splits on test rows.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
import pandas as pd

import fairfrontier as ff
from benchmarks.scoreboard import sum_volume
from fairfrontier.runtime.home import find_home
from fairfrontier.runtime.writer import filling
from fairfrontier.study.frontier import orient

OBJECTIVE, CONSTANT = "balanced_accuracy", 0.5
SEARCHED, WRITTEN = "adult-search", "adult"


@dataclass(frozen=True)
class Compared:
    """The areas that two frontiers dominate for one fairness measure, and their ratio."""

    fairness: str
    searched: float
    written: float
    ratio: float


def measure_area(frontier: pd.DataFrame, fairness: str, reference: float) -> float:
    """Return the area that a frontier dominates for one fairness measure."""
    rows = frontier[(frontier["fairness"] == fairness) & frontier["on_frontier"]]
    # More is better in an oriented measure; less in a gap.
    gap = -orient(fairness, rows["fairness_value"].to_numpy(dtype=np.float64))
    worst = -float(orient(fairness, np.array([reference]))[0])
    return sum_volume(rows[OBJECTIVE].to_numpy(dtype=np.float64), gap, (CONSTANT, worst))


def compare(searched: pd.DataFrame, written: pd.DataFrame) -> list[Compared]:
    """Compare two frontiers by every fairness measure of the second."""
    plain = written[written["method"] == "gbdt"].set_index("fairness")["fairness_value"]
    compared = []
    for fairness in dict.fromkeys(written["fairness"]):
        ours, theirs = (
            measure_area(table, fairness, float(plain[fairness])) for table in (searched, written)
        )
        compared.append(Compared(fairness, ours, theirs, ours / theirs if theirs else np.inf))
    return compared


def main() -> None:
    """Run both studies and compare them."""
    compared = compare(ff.run_study(SEARCHED).frontier, ff.run_study(WRITTEN).frontier)
    folder = find_home() / "data" / "results" / "benchmarks"
    mend = "Choose another one, or mend its permissions."
    with filling(folder, what="measurements", mend=mend) as work:
        lines = [asdict(each) for each in compared]
        (work / "search.json").write_text(json.dumps(lines, indent=1) + "\n")
    for each in compared:
        print(f"{each.fairness:26} {each.searched:.5f} {each.written:.5f} {each.ratio:6.2f}×")


if __name__ == "__main__":
    main()
