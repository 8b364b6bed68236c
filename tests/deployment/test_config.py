"""The options of monitor, in words that say what is wrong."""

from __future__ import annotations

import pytest

from fairfrontier.cli.option import read_options
from fairfrontier.deployment.config import MonitorConfig
from fairfrontier.runtime.errors import ConfigError


def read(**given):
    return read_options(MonitorConfig, {"bundle": "b", "table": "new.csv.gz", **given}, "monitor")


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"limit": "accuracy"}, "'accuracy' is no further limit"),
        ({"limit": "acuracy=0.8"}, "Did you mean 'accuracy'"),
        ({"limit": "tpr_difference:sex=2"}, "no share"),
        ({"limit": "tpr_ratio:sex=0"}, "could not be passed"),
        ({"period": "../2026"}, "no name of a period"),
        ({"alpha": 0}, "--alpha"),
    ],
)
def test_what_is_wrong_is_one_sentence(given, match):
    with pytest.raises(ConfigError, match=match):
        read(**given)


def test_names_come_from_the_files():
    assert read().period_name == "new"
    assert read(bundle="/data/results/loans/choice/bundle").name == "loans"
    limits = {"tpr_min:sex=a": 0.5, "accuracy": 0.8}
    assert read(limit="tpr_min:sex=a=0.5, accuracy=.8").limit == limits
