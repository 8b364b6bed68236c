from __future__ import annotations

import subprocess
import sys
from typing import get_args

import pytest

from fairfrontier.metrics.measure.registry import MEASURES, Need, measure
from fairfrontier.runtime.errors import ConfigError


def test_every_measure_says_what_it_is():
    known = MEASURES.all()
    assert list(known) == sorted(known)
    assert {"accuracy", "auc", "consistency", "gap_rms", "rmse", "tpr_ratio"} <= set(known)
    for name, each in known.items():
        assert each.name == name
        assert each.what
        assert "\n" not in each.what
        assert each.direction in ("higher", "lower", "zero", "none")
        assert each.needs <= set(get_args(Need))
        assert each.task
        assert each.task <= {"binary", "multiclass", "regression"}


def test_directions():
    expected = {
        "balanced_accuracy": "higher",
        "log_loss": "lower",
        "gap_max": "lower",
        "selection_rate": "none",
        "selection_rate_ratio": "higher",
        "fpr_max": "lower",
        "tpr_gap": "zero",
        "selection_rate_max": "none",
    }
    assert {name: MEASURES.find(name).direction for name in expected} == expected


def test_unknown_measure_offers_the_nearest():
    with pytest.raises(ConfigError, match=r"no measure 'gap_rsm'\. Did you mean 'gap_rms'"):
        MEASURES.find("gap_rsm")


def test_a_name_is_given_once(monkeypatch):
    monkeypatch.setattr(MEASURES, "_entries", dict(MEASURES.all()))
    monkeypatch.setattr(MEASURES, "_origins", dict(MEASURES._origins))
    once = lambda _: []  # noqa: E731
    measure("fresh", what="one")(once)
    measure("fresh", what="one")(once)
    with pytest.raises(ValueError, match="'fresh' names two measures"):
        measure("fresh", what="another")(MEASURES.find)


@pytest.mark.once
def test_listing_imports_no_figures_and_no_flows():
    code = (
        "import sys; from fairfrontier.metrics.measure.registry import MEASURES;"
        "assert MEASURES.all();"
        "sys.exit(' '.join({'matplotlib', 'prefect', 'dask'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr == "\n"
