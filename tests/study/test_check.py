from __future__ import annotations

from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest
from pydantic import ValidationError

from fairfrontier import load
from fairfrontier.prepare.config.section import SplitRule
from fairfrontier.runtime.errors import ConfigError
from fairfrontier.study.check import _refuse_splits, load_study, names_levels, refuse_levels
from tests.contracts.test_datasets import require_files

ROOT = Path(__file__).resolve().parents[2]
STUDIES = sorted(path.stem for path in (ROOT / "conf" / "studies").glob("*.yaml"))


def test_two_seeds_of_one_split_are_refused():
    rule = SplitRule(kind="random", train=0.5, test=0.5, seeds=[1, 2, 3])
    dataset = SimpleNamespace(dataset="loans", split=rule)
    _refuse_splits((0, 1, 2, 4), dataset, "Study loans")
    with pytest.raises(ConfigError, match="seeds: 2 and 3 draw the same split of loans"):
        _refuse_splits((0, 1, 2, 3), dataset, "Study loans")
    with pytest.raises(ValidationError, match="seeds holds 3 twice"):
        SplitRule(kind="random", train=0.5, test=0.5, seeds=[3, 1, 3])


@cache
def list_levels(dataset):
    require_files(dataset)
    return load(dataset, rows=500, home=ROOT).train.attributes


@pytest.mark.parametrize("name", STUDIES)
def test_what_a_built_in_study_mentions_has_the_levels_of_its_table(name):
    study = load_study(name, home=ROOT).study
    if names_levels(study):
        refuse_levels(study, list_levels(study.dataset))
