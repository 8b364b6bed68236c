from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from fairfrontier import load
from fairfrontier.study.check import names_levels, refuse_levels
from fairfrontier.study.expand import load_study
from tests.contracts.test_datasets import require_files

ROOT = Path(__file__).resolve().parents[2]
STUDIES = sorted(path.stem for path in (ROOT / "conf" / "studies").glob("*.yaml"))


@cache
def list_levels(dataset):
    require_files(dataset)
    return load(dataset, rows=500, home=ROOT).train.attributes


@pytest.mark.parametrize("name", STUDIES)
def test_what_a_built_in_study_mentions_has_the_levels_of_its_table(name):
    study = load_study(name, home=ROOT).study
    if names_levels(study):
        refuse_levels(study, list_levels(study.dataset))
