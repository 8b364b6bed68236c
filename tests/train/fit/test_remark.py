from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from fairfrontier.runtime.store import Store
from fairfrontier.train.fit import remark
from fairfrontier.train.fit.remark import fit_telling
from fairfrontier.train.neural.estimator import TrainingWarning


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path)


def test_training_warnings_come_back_and_others_go_their_way(store, monkeypatch):
    def fit(group, store, home, *, client=None):
        for text in ("two", "one", "two"):
            warnings.warn(text, TrainingWarning, stacklevel=1)
        warnings.warn("soon gone", FutureWarning, stacklevel=1)
        return f"{group} {client}"

    monkeypatch.setattr(remark, "fit", fit)
    with pytest.warns(FutureWarning, match="soon gone") as seen:
        found = fit_telling("group", store, Path(), client="client")
    assert found == ("group client", ("two", "one"))
    assert len(seen) == 1


def test_a_fault_goes_its_way(store, monkeypatch):
    def fit(*_):
        raise ValueError("NaN")

    monkeypatch.setattr(remark, "fit", fit)
    with pytest.raises(ValueError, match="NaN"):
        fit_telling("group", store, Path())
    # Filters are what they were: here a warning is an error.
    with pytest.raises(TrainingWarning):
        warnings.warn("late", TrainingWarning, stacklevel=1)
