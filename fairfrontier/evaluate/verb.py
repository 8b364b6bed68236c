"""The verb ``evaluate``: a fitted model and a part in, a tidy table of measures out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from fairfrontier.evaluate.certificate.adversarial_gap import GapCertificate
from fairfrontier.evaluate.certificate.box import BoxBound
from fairfrontier.evaluate.certificate.certificate import Certificate
from fairfrontier.evaluate.measure.registry import MEASURES, Audit, Measure
from fairfrontier.evaluate.statistic.cell import find_memberships
from fairfrontier.prepare.split import Part
from fairfrontier.runtime.errors import ConfigError, DataError
from fairfrontier.train.prediction import Prediction, predict_part, task_of

COLUMNS = ("measure", "group", "value", "n", "low", "high")


def evaluate(model: Any, part: Part, measures: Sequence[str] | None = None) -> pd.DataFrame:
    """Measure a fitted model on a part.

    Parameters
    ----------
    model : estimator
        Anything scikit-learn shaped; see ``predict_part``.
    part : Part
        Rows with labels, groups, weights and counterfactual sets.
    measures : sequence of str or None
        Names, as ``fairfrontier list measures`` shows them; all that fit the part when None.

    Returns
    -------
    DataFrame
        As ``tabulate`` gives it.

    Raises
    ------
    ConfigError
        For a measure that is unknown, or that the part's task or fields do not allow.
    DataError
        When the model's answers cannot be used.

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
    replicates: int = 1000,
    certificates: Sequence[Certificate] = (),
    boxes: Sequence[BoxBound] = (),
    gaps: Sequence[GapCertificate] = (),
) -> pd.DataFrame:
    """Measure predictions on a part.

    Parameters
    ----------
    prediction : Prediction
        What ``predict_part`` returned, or arrays that were stored.
    part : Part
        The rows that were predicted.
    measures : sequence of str or None
        Names; all that fit the part when None.
    minimum : int
        Rows that the denominator of a level needs; with fewer the value is NaN and n stays.
    replicates : int
        Bootstrap draws for intervals of aggregates; 0 leaves those intervals NaN.
    certificates : sequence of Certificate
        What ``certify_part`` returned for this part.
    boxes : sequence of BoxBound
        What ``bound_part`` returned for it, for nets.
    gaps : sequence of GapCertificate
        What ``certify_gaps`` returned for it.

    Returns
    -------
    DataFrame
        Columns measure, group (str), value (float64), n (int64), low, high (float64, 95%
        intervals). ``group`` is ``""`` for the whole part, ``sex=Female`` for a level,
        ``sex×race=Female×White`` for a level of a cross product, ``sex`` or ``sex×race`` for an
        aggregate over levels, and the name of the counterfactual set for consistency. NaN with n
        means: not estimable.

    Raises
    ------
    ConfigError
        For a measure that is unknown, or that the part's task or fields do not allow.
    DataError
        When the prediction is of other rows, or groups or labels are out of range.

    Notes
    -----
    O(n log n) for the AUC and O(n) for the rest, whatever the number of groups and measures.
    Randomised decisions enter as their expectations.
    """
    if prediction.decision.shape != (part.n_samples,):
        raise DataError(
            f"The prediction has {prediction.decision.shape[0]} rows, and "
            f"{part.dataset}/{part.name} has {part.n_samples}.",
            "Predict this very part.",
        )
    audit = Audit(
        prediction, part, minimum, replicates, tuple(certificates), tuple(boxes), tuple(gaps)
    )
    rows = [(each.name, *row) for each in _choose(audit, measures) for row in each.compute(audit)]
    types = {"measure": "str", "group": "str", "n": "int64"}
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype(
        {name: types.get(name, "float64") for name in COLUMNS}
    )


def _choose(audit: Audit, names: Sequence[str] | None) -> list[Measure]:
    """Return the measures asked for, or all that the part and the certificates allow."""
    part = audit.part
    task = task_of(part)
    if names is None:
        return [
            each
            for each in MEASURES.all().values()
            if task in each.task and _missing(each, audit) is None
        ]
    chosen = [MEASURES.find(name) for name in names]
    for each in chosen:
        if task not in each.task:
            known = sorted(name for name, other in MEASURES.all().items() if task in other.task)
            raise ConfigError(
                f"The measure {each.name!r} is for {' or '.join(sorted(each.task))} labels, and "
                f"{part.dataset} poses a {task} task.",
                f"Choose among: {', '.join(known)}.",
            )
        missing = _missing(each, audit)
        if missing is not None:
            raise ConfigError(
                f"The measure {each.name!r} needs {missing}, and {part.dataset} has none.",
                f"Declare it in the YAML of the dataset or study, or leave out {each.name!r}.",
            )
    return chosen


def _missing(each: Measure, audit: Audit) -> str | None:
    if "counterfactuals" in each.needs and not audit.part.counterfactuals:
        return "counterfactuals"
    if "counterfactual_score" in each.needs and not audit.prediction.counterfactual_scores:
        return "scores of counterfactual versions, which sets of texts keep"
    if "membership" in each.needs and len(find_memberships(audit.part.attributes)) < 2:
        return "two groups or more with the levels yes and no"
    if "certificate" in each.needs and not audit.certificates:
        return "a certificate"
    if "gap" in each.needs and not audit.gaps:
        return "a certificate"
    if "true_group" in each.needs and audit.part.true_groups is None:
        return "true groups beside noisy ones"
    if "box" in each.needs and not audit.boxes:
        return "a bound over the box, which is for nets"
    return "groups" if "group" in each.needs and not audit.part.attributes else None
