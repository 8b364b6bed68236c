"""Altered models are refused in a sentence or answer; the process never ends."""

import os

import pytest

from tests.fuzz.model import run

EXAMPLES = int(os.environ.get("FUZZ", "500")) // 5
SEED = int(os.environ.get("FUZZ_SEED", "0"))


@pytest.mark.filterwarnings("ignore")
def test_no_altered_model_raises_anything_but_a_sentence(tmp_path):
    outcomes = run(tmp_path, EXAMPLES, seed=SEED)
    assert set(outcomes) <= {"answered", "refused", "refused when asked"}, outcomes
    assert min(outcomes["answered"], outcomes["refused"]) > EXAMPLES / 10
