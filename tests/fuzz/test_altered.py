"""Altered bundles and models are refused in a sentence or answer; the process never ends."""

import os

import pytest

from tests.fuzz import bundle, model

SEED = int(os.environ.get("FUZZ_SEED", "0"))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("kind", "examples"), [(model, "500"), (bundle, "60")])
def test_nothing_altered_raises_anything_but_a_sentence(tmp_path, kind, examples):
    count = int(os.environ.get("FUZZ", examples)) // 5
    outcomes = kind.run(tmp_path, count, seed=SEED)
    assert set(outcomes) <= {"answered", "refused", "refused when asked"}, outcomes
    assert min(outcomes["answered"], outcomes["refused"]) > count / 10
