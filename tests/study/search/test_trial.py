from __future__ import annotations

from concurrent.futures import CancelledError, Future

import numpy as np
import pandas as pd
import pytest
from distributed.comm import CommClosedError

from fairfrontier.runtime.errors import ClusterError, DataError, StoreError
from fairfrontier.study.search import LONGEST, InterruptedRun, collect_trial


def make_future(outcome):
    future = Future()
    if isinstance(outcome, BaseException):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)
    return future


TABLE = make_future(pd.DataFrame({"value": [1.0]}))
FIT = make_future("key")


def test_the_points_of_all_fits_are_one_table():
    assert collect_trial([FIT], [TABLE, TABLE])["value"].tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (np.linalg.LinAlgError("Singular matrix"), "The fit raised LinAlgError: Singular matrix."),
        (ValueError("first.\nsecond"), "The fit raised ValueError: first."),
        (ValueError("\x1b[31mred"), "The fit raised ValueError: \\x1b[31mred."),
        (ValueError("no " * 200), f"The fit raised ValueError: {('no ' * 200)[:LONGEST]}…."),
        (MemoryError(), "The fit raised MemoryError."),
        (DataError("No rows.", "Give some."), "No rows."),
        (ModuleNotFoundError("No xgboost", name="xgboost"), "xgboost is not installed, and this"),
        (ModuleNotFoundError("No m", name="m"), "The fit raised ModuleNotFoundError: No m."),
    ],
    ids=lambda value: type(value).__name__,
)
def test_whatever_a_fit_raises_is_one_sentence(error, reason):
    # A measure that waits for a fit raises what its runner says of that.
    waiting = make_future(RuntimeError("the fit is not finished"))
    assert collect_trial([FIT, make_future(error)], [waiting]).startswith(reason)


@pytest.mark.parametrize(
    "error",
    [
        *(StoreError("Full.", "Make room."), ClusterError("Lost.", "Run it again.")),
        *(OSError("no space left"), CancelledError(), InterruptedRun("stopped")),
        *(CommClosedError("gone"), KeyboardInterrupt(), SystemExit(1)),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_would_end_every_trial_is_raised(error):
    with pytest.raises(type(error)):
        collect_trial([make_future(error)], [TABLE])


def test_of_a_measure_only_errors_of_users_are_failures():
    failed = make_future(DataError("No rows.", "Give some."))
    assert collect_trial([FIT], [TABLE, failed]) == "No rows."
    for error in (StoreError("Full.", "Make room."), ValueError("a fault of ours")):
        with pytest.raises(type(error)):
            collect_trial([FIT], [make_future(error)])
