"""What commands share of their options."""

from __future__ import annotations

import pytest

from fairfrontier.audit.config import AuditConfig
from fairfrontier.audit.verb import FILES as AUDIT
from fairfrontier.choose.choosing import FILES as CHOICE
from fairfrontier.choose.config import ExplainConfig
from fairfrontier.choose.explanation import FILES as EXPLANATION
from fairfrontier.debias.config import DebiasConfig
from fairfrontier.debias.files import FILES as DEBIASING
from fairfrontier.monitor.config import MonitorConfig
from fairfrontier.monitor.files import FILES as MONITOR
from fairfrontier.report.files import FILES as STUDY
from fairfrontier.runtime.errors import ConfigError
from fairfrontier.runtime.option import MARKS, check_apart


@pytest.mark.parametrize(
    ("table", "name"),
    [("loans.2026.csv.gz", "loans.2026"), ("loans.parquet", "loans"), ("loans", "loans")],
)
def test_results_are_named_after_the_table(table, name):
    assert ExplainConfig(bundle="b", table=table).name == name
    assert MonitorConfig(bundle="b", table=table).period_name == name
    assert AuditConfig(table=table, decisions="d", groups="g").name == name
    assert DebiasConfig(table=table, scores="s", groups="g").name == name


FILES = {
    "run": STUDY,
    "select": CHOICE,
    "explain": EXPLANATION,
    "debias": DEBIASING,
    "audit": AUDIT,
    "monitor": MONITOR,
}


@pytest.mark.parametrize("other", FILES)
def test_results_join_none_of_another_command(tmp_path, other):
    assert MARKS[other] in FILES[other]
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / MARKS[other]).touch()
    (tmp_path / "out" / "report.html").touch()
    asked = {"table": tmp_path / "t", "out": tmp_path / "out"}
    bundle = {"bundle": tmp_path / "b"}
    configs = [
        AuditConfig(decisions="d", groups="g", **asked),
        DebiasConfig(scores="s", groups="g", **asked),
        ExplainConfig(**bundle, **asked),
        MonitorConfig(**bundle, **asked),
    ]
    for config in configs:
        if config.command == other:
            config.check_results([config.table], ["report.html"])
        else:
            with pytest.raises(ConfigError, match=r"another command's.*: .*out/report\.html\."):
                config.check_results([config.table], ["report.html"])
        # What others have not written stands beside it.
        config.check_results([config.table], ["own.csv"])


@pytest.mark.parametrize("linked", [False, True])
def test_results_join_no_cache(tmp_path, linked):
    for name in ("conf", "data", "disk"):
        (tmp_path / name).mkdir()
    cache = tmp_path / "data" / "cache"
    if linked:
        cache.symlink_to(tmp_path / "disk")
    config = ExplainConfig(bundle="b", table="t", out=cache / "store" / "fit")
    with pytest.raises(ConfigError, match="the cache or a bundle: "):
        config.check_results([], ["explain.csv"])
    (tmp_path / "conf").rmdir()
    config.check_results([], ["explain.csv"])


@pytest.mark.parametrize("out", [".removed", ".unfinished@x", ".complete@/x", ".replaced@1"])
def test_results_have_no_name_of_unfinished_work(tmp_path, out):
    config = ExplainConfig(bundle="b", table="t", out=tmp_path / out)
    with pytest.raises(ConfigError, match="has a name of unfinished work"):
        config.check_results([], ["explain.csv"])
    with pytest.raises(ConfigError, match="has a name of unfinished work"):
        check_apart([tmp_path / out], [])


@pytest.mark.parametrize("out", ["bundle", "bundle/model"])
def test_results_join_no_bundle(tmp_path, out):
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / "bundle.json").touch()
    explained = {"bundle": tmp_path / "bundle", "table": tmp_path / "t", "out": tmp_path / out}
    audited = {"table": tmp_path / "t", "decisions": "d", "groups": "g", "out": tmp_path / out}
    for config in ExplainConfig(**explained), AuditConfig(**audited):
        with pytest.raises(ConfigError, match=r"bundle: .*bundle\."):
            config.check_results([config.table], ["report.html"])
