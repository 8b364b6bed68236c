"""Which groups a measure has values of: all rows, attributes, their levels, pairs of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np

from fairfrontier.evaluate.measure.registry import Audit, Measure
from fairfrontier.prepare.split import Part, Task
from fairfrontier.train.prediction import Prediction

# Stand for the names of levels; the second one occurs in no name.
LEVEL, OTHER = "LEVEL", "\0"
CLASSES: dict[Task, tuple[str, ...]] = {
    "binary": ("0", "1"),
    "multiclass": ("0", "1", "2"),
    "regression": (),
}


def list_groups(measure: Measure, task: Task, attributes: Sequence[str]) -> list[str]:
    """Return the names of the groups, such as ``sex``, ``sex=LEVEL`` or ``sex×race``.

    They are those of the values that the measure yields on a made-up part: one row of every label
    and combination of two levels for each attribute. Not for measures of counterfactual sets,
    certificates or memberships, whose groups the dataset or study names.
    """
    classes = CLASSES[task]
    rows = np.array(list(product(range(len(classes) or 2), *(range(2) for _ in attributes))))
    y, groups, n_samples = rows[:, 0], rows[:, 1:], len(rows)
    part = Part(
        dataset="made-up",
        name="test",
        ids=np.arange(n_samples),
        X=np.zeros((n_samples, 1)),
        y=y if classes else y.astype(np.float64),
        groups=groups,
        protected=groups.astype(np.float64),
        weight=np.ones(n_samples),
        attributes=dict.fromkeys(attributes, (LEVEL, OTHER)),
        classes=classes,
        true_groups=groups,
    )
    score = np.full((n_samples, 3), 1 / 3) if task == "multiclass" else np.full(n_samples, 0.5)
    prediction = Prediction(score, y.astype(np.float64))
    audit = Audit(prediction, part, minimum=1, costs=(1.0, 1.0))
    return [row.group for row in measure.compute(audit) if OTHER not in row.group]
