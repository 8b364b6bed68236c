"""The verb ``evaluate``: a fitted model and a part in, a tidy table of measures out."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from fairfrontier.metrics.certificate.certificate import BoxBound, Certificate, GapCertificate
from fairfrontier.metrics.measure.registry import MEASURES, Audit, Measure
from fairfrontier.metrics.statistic.rate import find_memberships
from fairfrontier.models.prediction import Prediction, predict_part, task_of
from fairfrontier.prepare.split import Part, Task, cross
from fairfrontier.runtime.errors import ConfigError

COLUMNS = ("measure", "group", "value", "n", "low", "high", "left_out")


def evaluate(model: Any, part: Part, measures: Sequence[str] | None = None) -> pd.DataFrame:
    """Measure a fitted model on a part.

    Parameters
    ----------
    model : estimator
        Anything scikit-learn shaped; see `predict_part`.
    part : Part
        Rows with labels, groups, weights and counterfactual sets.
    measures : sequence of str or None
        Names, as ``fairfrontier list measures`` shows them; all that fit the part when None.

    Returns
    -------
    DataFrame
        Columns measure, group (str), value (float64), n (int64), low, high (float64, 95%
        intervals), left_out (int64: levels of too few rows, which an aggregate is not of).
        ``group`` is ``""`` for the whole part, ``sex=Female`` for a level,
        ``sex×race=Female×White`` for a level of a cross product, ``sex`` or ``sex×race`` for an
        aggregate over levels, and the name of the counterfactual set for consistency. NaN with n
        means: not estimable.

    Raises
    ------
    ConfigError
        For a measure that is unknown, or that the part's task or fields do not allow.
    DataError
        When the model's predictions cannot be used.

    Notes
    -----
    O(n log n) for the AUC and O(n) for all else, whatever the number of groups and measures.
    Randomised decisions enter as their expectations.

    Examples
    --------
    >>> rows = evaluate(model, split.test)  # doctest: +SKIP
    >>> rows[rows.measure == "gap_rms"]  # doctest: +SKIP
    """
    return tabulate(predict_part(model, part), part, measures)


def tabulate(
    prediction: Prediction,
    part: Part,
    measures: Sequence[str] | None = None,
    *,
    minimum: int = 10,
    certificates: Sequence[Certificate] = (),
    boxes: Sequence[BoxBound] = (),
    gaps: Sequence[GapCertificate] = (),
    costs: tuple[float, float] | None = None,
) -> pd.DataFrame:
    """Measure predictions on a part, as `evaluate` does; see `Audit` for the parameters."""
    audit = Audit(prediction, part, minimum, tuple(certificates), tuple(boxes), tuple(gaps), costs)
    rows = [
        (measure.name, *row)
        for measure in _choose(audit, measures)
        for row in measure.compute(audit)
    ]
    types = {"measure": "str", "group": "str", "n": "int64", "left_out": "int64"}
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype(
        {name: types.get(name, "float64") for name in COLUMNS}
    )


def leave_out_small(table: pd.DataFrame, part: Part, minimum: int) -> pd.DataFrame:
    """Return what `tabulate` measured on a part but levels, and pairs of them, of few rows or none.

    Their values are not estimable, but their names, and counts such as that of positive rows, would
    tell of persons.
    """
    columns = {name: (part.group(name), tuple(levels)) for name, levels in part.attributes.items()}
    groups = table["group"]
    # Names of attributes have no "="; gaps inside a level are named "old inside origin=island".
    attributes = groups.str.partition("=")[0]
    few = np.zeros(len(table), dtype=bool)
    for attribute in attributes.unique():
        whole = attribute if attribute in columns else attribute.rpartition(" inside ")[2]
        names = [whole] if whole in columns else whole.split("×")
        if {*names} <= {*columns}:
            codes, cells = cross([columns[name] for name in names])
            # Levels without a row are no cells, and left out like those of few.
            known = np.flatnonzero(np.bincount(codes) >= minimum)
            large = {attribute, *(f"{attribute}={'×'.join(cells[cell])}" for cell in known)}
            few |= (attributes == attribute) & ~groups.isin(large)
    return table[~few]


def _choose(audit: Audit, names: Sequence[str] | None) -> list[Measure]:
    """Return the named measures, or all that the part and the certificates allow."""
    task, dataset = task_of(audit.part), audit.part.dataset
    possible = [measure for measure in MEASURES.all().values() if task in measure.task]
    if names is None:
        return [measure for measure in possible if find_lack(measure, audit) is None]
    chosen = [MEASURES.find(name) for name in names]
    for measure in chosen:
        if task not in measure.task:
            known = ", ".join(sorted(other.name for other in possible))
            raise ConfigError(
                f"The measure {measure.name!r} is for {' or '.join(sorted(measure.task))} labels, "
                f"and {dataset} poses a {task} task.",
                f"Choose among: {known}.",
            )
        lack = find_lack(measure, audit)
        if lack is not None:
            raise ConfigError(
                f"The measure {measure.name!r} needs {lack}, and {dataset} has none.",
                f"Declare it in the YAML of the dataset or study, or leave out {measure.name!r}.",
            )
    return chosen


def find_lack(measure: Measure, audit: Audit) -> str | None:
    """Return what a measure needs and the audit has not, or None."""
    part = audit.part
    available = {
        "counterfactuals": (part.counterfactuals, "counterfactuals"),
        "counterfactual_score": (
            audit.prediction.counterfactual_scores,
            "scores of counterfactual versions",
        ),
        "membership": (
            len(find_memberships(part.attributes)) > 1,
            "two groups or more with the levels yes and no",
        ),
        "certificate": (audit.certificates, "a certificate"),
        "gap": (audit.gaps, "a certificate"),
        "true_group": (part.true_groups is not None, "true groups beside noisy ones"),
        "box": (audit.boxes, "a bound over the box, which is for nets"),
        "group": (part.attributes, "groups"),
        "costs": (audit.costs, "an objective of costs"),
    }
    lacks = (
        lack for need, (found, lack) in available.items() if need in measure.needs and not found
    )
    return next(lacks, None)


# Which groups a measure has values of: all rows, attributes, their levels, pairs of them.

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
