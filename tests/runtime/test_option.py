"""What commands share of their options."""

from __future__ import annotations

import pytest

from fairfrontier.audit.config import AuditConfig
from fairfrontier.choose.config import ExplainConfig
from fairfrontier.debias.config import DebiasConfig
from fairfrontier.monitor.config import MonitorConfig
from fairfrontier.runtime.errors import ConfigError


@pytest.mark.parametrize(
    ("table", "name"),
    [("loans.2026.csv.gz", "loans.2026"), ("loans.parquet", "loans"), ("loans", "loans")],
)
def test_results_are_named_after_the_table(table, name):
    assert ExplainConfig(bundle="b", table=table).name == name
    assert MonitorConfig(bundle="b", table=table).period_name == name
    assert AuditConfig(table=table, decisions="d", groups="g").name == name
    assert DebiasConfig(table=table, scores="s", groups="g").name == name


@pytest.mark.parametrize("out", ["bundle", "bundle/model"])
def test_results_join_no_bundle(tmp_path, out):
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / "bundle.json").touch()
    explained = {"bundle": tmp_path / "bundle", "table": tmp_path / "t", "out": tmp_path / out}
    audited = {"table": tmp_path / "t", "decisions": "d", "groups": "g", "out": tmp_path / out}
    for config in ExplainConfig(**explained), AuditConfig(**audited):
        with pytest.raises(ConfigError, match=r"bundle: .*bundle\."):
            config.check_results([config.table], ["report.html"])
