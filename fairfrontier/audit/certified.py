"""Individual fairness of a bundle under the metric that it holds, on a sample of audited rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from fairfrontier.choose.bundle import Bundle
from fairfrontier.choose.judgement import list_components
from fairfrontier.evaluate.certificate.adversarial_gap import Loss, certify_gaps
from fairfrontier.evaluate.certificate.certificate import certify_part
from fairfrontier.evaluate.measure.registry import MEASURES, Measure, Need
from fairfrontier.evaluate.verb import tabulate
from fairfrontier.prepare.split import Part
from fairfrontier.train.individual.budget import measure_spread
from fairfrontier.train.postprocess.model import PostProcessed
from fairfrontier.train.prediction import Prediction

# ε as a share of the mean distance of two rows where the study names no budget; BuDRO's default.
SHARE = 0.003
LABELLED: Need = "gap"


def list_certified(*, labelled: bool) -> dict[str, Measure]:
    """Return the measures under a metric by name; without labels those that need none."""
    kept: set[Need] = {"certificate", *([LABELLED] if labelled else [])}
    return {
        each.name: each
        for each in MEASURES.all().values()
        if "binary" in each.task and each.needs & kept
    }


def certify_bundle(
    bundle: Bundle, part: Part, prediction: Prediction, budgets: Sequence[float], *, labelled: bool
) -> pd.DataFrame:
    """Return the measures of a bundle under its metric, with the columns of `evaluate`.

    As in a study, of a rule behind a model the decisions are certified. The default of no
    ``budgets`` is a share of the mean distance of two of the rows.
    """
    metric = bundle.metric
    assert metric is not None  # noqa: S101
    if not budgets:
        z = np.asarray(metric.embed(part.X))
        # Four digits are enough of what is a choice.
        budgets = [float(f"{SHARE * measure_spread(z, part.weight / part.weight.sum()):.4g}")]
    ruled = any(isinstance(each, PostProcessed) for each in list_components(bundle.model))
    outputs = replace(prediction, score=prediction.decision) if ruled else prediction
    losses: tuple[Loss, ...] = ("error",) if ruled else ("log", "error")
    gaps = certify_gaps(prediction, part, metric, budgets, rows=None, losses=losses)
    return tabulate(
        prediction,
        part,
        list(list_certified(labelled=labelled)),
        certificates=certify_part(outputs, part, metric, budgets, rows=None),
        gaps=gaps if labelled else (),
    )
