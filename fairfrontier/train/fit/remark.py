"""Fits with what they warn of, so that a run can say once what a hundred of its fits say."""

from __future__ import annotations

import threading
import warnings
from pathlib import Path
from typing import Any

from fairfrontier.runtime.store import Store
from fairfrontier.train.fit.fitting import fit
from fairfrontier.train.fit.group import FitGroup
from fairfrontier.train.neural.estimator import TrainingWarning

# Where warnings go belongs to the process, not to a thread.
_HOLDER = threading.RLock()


def fit_telling(
    group: FitGroup, store: Store, home: Path, **options: Any
) -> tuple[str, tuple[str, ...]]:
    """Fit as `fit` does, and return its key and its training warnings, each once, in their order.

    Notes
    -----
    Other warnings go where they would have gone. A fit that the store holds tells nothing. One
    fit runs at a time in a process, as its threads ask for anyway.
    """
    with _HOLDER:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", TrainingWarning)
            found = fit(group, store, home, **options)
        told: dict[str, None] = {}
        for each in caught:
            if issubclass(each.category, TrainingWarning):
                told[str(each.message)] = None
            else:
                warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
    return found, tuple(told)
