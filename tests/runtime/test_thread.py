from __future__ import annotations

import subprocess
import sys
import threading

import pytest
from threadpoolctl import threadpool_info

from fairfrontier.runtime.thread import call_limited, limited_threads, thread_environment


def counts():
    return {pool["num_threads"] for pool in threadpool_info()}


@pytest.mark.parametrize("n", [1, 2])
def test_every_pool_is_limited_and_set_back(n):
    with limited_threads(n):
        assert counts() == {n}
    before = counts()
    with limited_threads(3 - n), limited_threads(n):
        assert counts() == {n}
    assert counts() == before


def test_a_call_is_limited():
    before = counts()
    assert call_limited(1, counts) == {1}
    assert counts() == before


def test_one_block_runs_at_a_time():
    seen = []
    inside = threading.Event()

    def fit():
        inside.wait(5)
        with limited_threads(2):
            seen.append("other")

    other = threading.Thread(target=fit)
    other.start()
    with limited_threads(1):
        inside.set()
        other.join(0.2)
        seen.append("first")
        assert counts() == {1}
    other.join(5)
    assert seen == ["first", "other"]


def test_the_environment_rules_a_new_process():
    code = (
        "import numpy, threadpoolctl; "
        "print({p['num_threads'] for p in threadpoolctl.threadpool_info()})"
    )
    out = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "/usr/bin", **thread_environment(1)},
    )
    assert out.stdout.strip() == "{1}"
