from __future__ import annotations

from pathlib import Path

import pytest

from tests.project import DATASET, make_project

FRESH = "split: {kind: random, train: 0.4, calibration: 0.2, validation: 0.2, test: 0.2}"


@pytest.fixture
def home(tmp_path) -> Path:
    dataset = DATASET.replace("split: {kind: random, train: 0.6, test: 0.4}", FRESH)
    return make_project(tmp_path, dataset=dataset)
