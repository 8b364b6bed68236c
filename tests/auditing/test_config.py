"""Options of an audit: names in texts, and of results."""

from __future__ import annotations

import pytest

from fairfrontier.auditing.option import AuditConfig
from fairfrontier.runtime.config import parse
from fairfrontier.runtime.errors import ConfigError

BASE = {"table": "t.csv", "decisions": "d", "groups": "g"}


def parse_limit(text):
    return parse(AuditConfig, {**BASE, "limit": text}, "audit").limit


def test_levels_with_commas_and_equals_signs_can_have_limits():
    assert parse_limit("rate:Smith, J=0.5,accuracy = .8") == {"rate:Smith, J": 0.5, "accuracy": 0.8}
    assert parse_limit("rate:1,000 = b=0.5") == {"rate:1,000 = b": 0.5}
    assert parse_limit("10,000 to 20,000=0.3,b=0.7") == {"10,000 to 20,000": 0.3, "b": 0.7}
    for text, told in {
        "a=x,b": "'a=x,b' is no limit",
        "a=1,a=2": "'a=2' is no limit",
        "a=1,": "'' is no limit",
        "=1": "'=1' is no limit",
        "1,000=": "'1,000=' is no limit",
    }.items():
        with pytest.raises(ConfigError, match=told):
            parse_limit(text)


def test_audits_of_models_of_a_store_have_results_of_their_own(tmp_path):
    keys = ("a" * 64, "b" * 64)
    configs = [AuditConfig(model=tmp_path / key / "model-0", dataset="german") for key in keys]
    assert [config.name for config in configs] == [f"{key[:12]}-model-0" for key in keys]
    assert AuditConfig(model=tmp_path / "mine", dataset="german").name == "mine"
