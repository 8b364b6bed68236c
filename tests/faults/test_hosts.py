from __future__ import annotations

import pytest

from tests.faults.hosts import separate_hosts
from tests.faults.job import make_template


@pytest.mark.slow
def test_a_study_ends_the_same_on_hosts_of_which_one_is_lost(tmp_path):
    tried, outcome = separate_hosts(
        "a worker's host lost", tmp_path, make_template(tmp_path / "template")
    )
    if not tried:
        pytest.skip(outcome)
    assert outcome.startswith("exit code 0")
    assert outcome.endswith(" 0 files differ")
