"""Group measures of 1,000,000 rows against fairlearn's MetricFrame.

Run ``python -m benchmarks.groups [--rows N] [--repeat K] [--peer-repeat K]``; the first K is the
calls of ours that are timed, the second those of fairlearn, and the best counts. Both sides get the
same arrays in the same process and compute selection rate, TPR, TNR and FPR for sex (2 levels),
race (5 levels) and their cross product: by level, and over the levels the difference, the ratio,
the largest and the smallest. All of fairlearn's values must equal ours to 1e-12; for that, levels
need no minimum of rows here.

Timed for ours: the whole of ``tabulate``, from prediction and part to the finished table, with
intervals, signed gaps, GapMax and GapRMS, which MetricFrame has not (it is timed without its
bootstrap, which repeats everything for each replicate). Timed for fairlearn: three MetricFrames and
their by_group, difference, ratio, group_max and group_min, from integer codes, which spare it
strings. Making the arrays is timed for neither. Nothing here runs in more than one thread.

Ours counts every row once, over the joint index of both attributes, the label and the decision.
fairlearn 0.15 calls each function anew on the rows of each group; some seven eighths of its time
go into ``np.stack`` over the single values of a column (``_annotated_metric_function.py``), so
that against a MetricFrame without this the ratio would be about an eighth.
"""

from __future__ import annotations

import argparse
from functools import partial

import fairlearn
import numpy as np
import pandas as pd
from fairlearn.metrics import (
    MetricFrame,
    false_positive_rate,
    selection_rate,
    true_negative_rate,
    true_positive_rate,
)

from benchmarks.record import Record, compare, measure_call, show_records, write_records
from fairfrontier.metrics.verb import tabulate
from fairfrontier.models.prediction import Prediction
from fairfrontier.prepare.split import Part

RATES = {
    "selection_rate": selection_rate,
    "tpr": true_positive_rate,
    "tnr": true_negative_rate,
    "fpr": false_positive_rate,
}
AGGREGATIONS = {
    "difference": "difference",
    "ratio": "ratio",
    "max": "group_max",
    "min": "group_min",
}
MEASURES = [
    *RATES,
    *(f"{rate}_{each}" for rate in RATES for each in ("gap", *AGGREGATIONS)),
    "gap_max",
    "gap_rms",
]
ATTRIBUTES = {"sex": ("Female", "Male"), "race": ("A", "B", "C", "D", "E")}


def make_rows(rows: int, seed: int = 0) -> tuple[Prediction, Part]:
    """Make a part with groups of unequal size and decisions that lean on them."""
    rng = np.random.default_rng(seed)
    groups = np.column_stack(
        [rng.choice(2, rows, p=[0.33, 0.67]), rng.choice(5, rows, p=[0.6, 0.2, 0.1, 0.06, 0.04])]
    ).astype(np.int64)
    y = (rng.random(rows) < 0.2 + 0.1 * groups[:, 0]).astype(np.int64)
    score = rng.beta(2 + 2 * y, 3 + 0.2 * groups[:, 1])
    part = Part(
        dataset="made",
        name="test",
        ids=np.arange(rows),
        X=np.zeros((rows, 0)),
        y=y,
        groups=groups,
        protected=groups.astype(np.float64),
        weight=np.ones(rows),
        attributes=ATTRIBUTES,
        classes=("no", "yes"),
    )
    return Prediction(score, (score >= 0.5).astype(np.float64)), part


def compute_theirs(
    y: np.ndarray, decision: np.ndarray, groups: dict[str, np.ndarray]
) -> dict[tuple[str, str], float]:
    """Return fairlearn's values by (measure, group)."""
    values = {}
    for names in (["sex"], ["race"], ["sex", "race"]):
        frame = MetricFrame(
            metrics=RATES,
            y_true=y,
            y_pred=decision,
            sensitive_features={name: groups[name] for name in names},
        )
        attribute = "×".join(names)
        for key, row in frame.by_group.iterrows():
            codes = key if isinstance(key, tuple) else (key,)
            level = "×".join(
                ATTRIBUTES[name][int(code)] for name, code in zip(names, codes, strict=True)
            )
            values.update({(rate, f"{attribute}={level}"): row[rate] for rate in RATES})
        values.update({(rate, ""): frame.overall[rate] for rate in RATES})
        for each, method in AGGREGATIONS.items():
            found = getattr(frame, method)()
            values.update({(f"{rate}_{each}", attribute): found[rate] for rate in RATES})
    return values


def check_equal(ours: pd.DataFrame, theirs: dict[tuple[str, str], float]) -> None:
    """Raise when a value of fairlearn's is missing from ours or differs by more than 1e-12."""
    values = ours.set_index(["measure", "group"])["value"]
    for key, value in theirs.items():
        if not abs(values[key] - value) <= 1e-12:
            raise AssertionError(f"{key}: ours {values[key]!r}, fairlearn's {value!r}")


def run(rows: int, repeat: int = 5, peer_repeat: int = 1) -> list[Record]:
    """Measure both sides and check that they agree; fairlearn takes half a minute a call."""
    prediction, part = make_rows(rows)
    decision = prediction.decision.astype(np.int64)
    groups = {name: np.ascontiguousarray(part.group(name)) for name in ATTRIBUTES}
    theirs = measure_call(partial(compute_theirs, part.y, decision, groups), peer_repeat)
    ours = measure_call(partial(tabulate, prediction, part, MEASURES, minimum=1), repeat)
    check_equal(ours.result, theirs.result)
    peer = f"fairlearn {fairlearn.__version__} MetricFrame"
    return [compare("group table with intervals", rows, ours, peer, theirs)]


def main() -> None:
    """Read the command line, run, print and write data/results/benchmarks/groups.json."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument(
        "--repeat", type=int, default=5, help="timed calls of ours; the best counts"
    )
    parser.add_argument("--peer-repeat", type=int, default=1, help="timed calls of fairlearn's")
    choice = parser.parse_args()
    records = run(choice.rows, choice.repeat, choice.peer_repeat)
    show_records("Group measures", records)
    print(write_records("groups", records))


if __name__ == "__main__":
    main()
