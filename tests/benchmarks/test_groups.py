from __future__ import annotations

import pytest

from benchmarks.groups import MEASURES, check_equal, compute_theirs, make_rows, run
from fairfrontier.metrics.verb import tabulate


@pytest.mark.once
def test_both_sides_are_measured_and_agree():
    (record,) = run(2000, repeat=1)
    assert record.n == 2000
    assert record.ratio > 0


def test_disagreement_is_an_error():
    prediction, part = make_rows(2000)
    groups = {name: part.group(name) for name in part.attributes}
    theirs = compute_theirs(part.y, prediction.decision.astype(int), groups)
    ours = tabulate(prediction, part, MEASURES)
    ours.loc[ours["measure"] == "fpr_ratio", "value"] += 1e-9
    with pytest.raises(AssertionError, match="fpr_ratio"):
        check_equal(ours, theirs)
