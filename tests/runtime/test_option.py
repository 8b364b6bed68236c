"""What commands share of their options."""

from __future__ import annotations

import os

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fairfrontier.auditing.option import AuditConfig, DebiasConfig
from fairfrontier.deployment.config import ExplainConfig, MonitorConfig
from fairfrontier.runtime.errors import ConfigError
from fairfrontier.runtime.option import RESULTS, SCORED, SIGNS, check_apart


@pytest.mark.parametrize(
    ("table", "name"),
    [("loans.2026.csv.gz", "loans.2026"), ("loans.parquet", "loans"), ("loans", "loans")],
)
def test_results_are_named_after_the_table(table, name):
    assert ExplainConfig(bundle="b", table=table).name == name
    assert MonitorConfig(bundle="b", table=table).period_name == name
    assert AuditConfig(table=table, decisions="d", groups="g").name == name
    assert DebiasConfig(table=table, scores="s", groups="g").name == name


def write_result(folder, name, command):
    """Write a file as a command would, as far as it is known by its content."""
    first, signs = RESULTS[command][0], SIGNS[command]
    if name == first and name.endswith(".parquet"):
        pd.DataFrame({column: [0] for column in signs}).to_parquet(folder / name)
    elif name == first:
        (folder / name).write_text("\n".join(signs))
    else:
        (folder / name).touch()


@pytest.mark.parametrize("other", RESULTS)
# The folder of a choice is replaced as a whole, where it holds nothing else.
@pytest.mark.parametrize("own", sorted({*RESULTS} - {"select"}))
def test_results_replace_none_of_another_command(tmp_path, own, other):
    for name in RESULTS[other]:
        write_result(tmp_path, name, other)
    # A command may write files beside those of another one, and then again.
    beside = [name for name in RESULTS[own] if name not in RESULTS[other]]
    for name in beside:
        check_apart([tmp_path / name], [], own)
        write_result(tmp_path, name, own)
        check_apart([tmp_path / name], [], own)
    for name in {*RESULTS[own]}.intersection(RESULTS[other]):
        if own == other:
            check_apart([tmp_path / name], [], own)
        else:
            with pytest.raises(ConfigError, match=rf"another command's.*: .*{name}\."):
                check_apart([tmp_path / name], [], own)
            assert (tmp_path / name).exists()


def test_every_command_asks_whose_the_files_are(tmp_path):
    (tmp_path / "points.parquet").touch()
    (tmp_path / "report.html").touch()
    (tmp_path / "choice").mkdir()
    (tmp_path / "choice" / "choice.json").touch()
    (tmp_path / "choice" / "explain.csv").touch()
    asked = {"table": tmp_path / "t", "out": tmp_path}
    bundle = {"bundle": tmp_path / "b"}
    configs = [
        AuditConfig(decisions="d", groups="g", **asked),
        DebiasConfig(scores="s", groups="g", **asked),
        MonitorConfig(**bundle, **asked),
        ExplainConfig(**bundle, **{**asked, "out": tmp_path / "choice"}),
    ]
    for config in configs:
        with pytest.raises(ConfigError, match="another command's"):
            config.check_results([], RESULTS[config.command])


def test_decisions_of_score_are_its_own_whatever_their_name(tmp_path):
    for name in ("decisions.parquet", "points.parquet"):
        decided = pa.table({"id": [1], "decision": [0], "refused": [""]})
        pq.write_table(decided, tmp_path / name)
        with pytest.raises(ConfigError):
            check_apart([tmp_path / name], [], "score")
        pq.write_table(decided.replace_schema_metadata(SCORED), tmp_path / name)
        check_apart([tmp_path / name], [], "score")
        for command in RESULTS:
            with pytest.raises(ConfigError, match="another command's"):
                check_apart([tmp_path / name], [], command)


@pytest.mark.parametrize("command", [*RESULTS, "score"])
@pytest.mark.parametrize("named", [False, True])
def test_results_replace_no_file_that_no_command_wrote(tmp_path, command, named):
    names = RESULTS.get(command, ("report.html", "decisions.parquet"))
    # A file of the user's may be called as the one by which a command knows its results.
    (tmp_path / names[0 if named else -1]).write_text("mine")
    with pytest.raises(ConfigError, match=f"would replace what {command} has not written: "):
        check_apart([tmp_path / name for name in names], [], command)
    check_apart([tmp_path / "other" / name for name in names], [], command)


def test_a_pipe_is_no_result(tmp_path):
    os.mkfifo(tmp_path / "audit.json")
    with pytest.raises(ConfigError):
        check_apart([tmp_path / "audit.json"], [], "audit")


def test_score_replaces_nothing_beside_results(tmp_path):
    (tmp_path / "monitor.json").touch()
    # The history has a column of refused rows, too.
    history = pd.DataFrame({"entry": [0], "period": ["a"], "refused": [0]})
    for name in ("history.parquet", "rows@a.parquet"):
        history.to_parquet(tmp_path / name)
        with pytest.raises(ConfigError, match="another command's"):
            check_apart([tmp_path / name], [], "score")


@pytest.mark.parametrize("linked", [False, True])
def test_results_join_no_cache(tmp_path, linked):
    for name in ("conf", "data", "disk"):
        (tmp_path / name).mkdir()
    cache = tmp_path / "data" / "cache"
    if linked:
        cache.symlink_to(tmp_path / "disk")
    config = ExplainConfig(bundle="b", table="t", out=cache / "store" / "fit")
    with pytest.raises(ConfigError):
        config.check_results([], ["explain.csv"])
    (tmp_path / "conf").rmdir()
    config.check_results([], ["explain.csv"])


@pytest.mark.parametrize("link", ["data", "data/results", "data/results/audit/t"])
@pytest.mark.parametrize("mark", ["conf", "data/results", "data/cache"])
@pytest.mark.parametrize("to_root", [False, True])
def test_results_get_into_no_other_project_by_a_link(tmp_path, monkeypatch, link, mark, to_root):
    for name in (f"mine/{mark}", "disk", "unpacked"):
        (tmp_path / name).mkdir(parents=True, exist_ok=True)
    mine = tmp_path / "mine" if to_root else tmp_path / "mine" / link
    mine.mkdir(parents=True, exist_ok=True)
    monkeypatch.chdir(tmp_path / "unpacked")
    config = AuditConfig(table="t", decisions="d", groups="g")
    place = tmp_path / "unpacked" / link
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(mine)
    with pytest.raises(ConfigError):
        config.check_results([], ["audit.json"])
    # Who names the place may mean it.
    config.model_copy(update={"out": mine / "results"}).check_results([], ["audit.json"])
    place.unlink()
    # Another disk is no project, nor is a link inside of one.
    place.symlink_to(tmp_path / "disk")
    config.check_results([], ["audit.json"])
    place.unlink()
    (tmp_path / "unpacked" / "elsewhere").mkdir()
    place.symlink_to(tmp_path / "unpacked" / "elsewhere")
    config.check_results([], ["audit.json"])


@pytest.mark.parametrize("out", [".removed", ".unfinished@x", ".complete@/x", ".replaced@1"])
def test_results_have_no_name_of_unfinished_work(tmp_path, out):
    config = ExplainConfig(bundle="b", table="t", out=tmp_path / out)
    with pytest.raises(ConfigError):
        config.check_results([], ["explain.csv"])
    with pytest.raises(ConfigError):
        check_apart([tmp_path / out], [], "explain")


@pytest.mark.parametrize("out", ["bundle", "bundle/model"])
def test_results_join_no_bundle(tmp_path, out):
    (tmp_path / "bundle" / "model").mkdir(parents=True)
    (tmp_path / "bundle" / "encoder.json").touch()
    (tmp_path / "bundle" / "bundle.json").touch()
    explained = {"bundle": tmp_path / "bundle", "table": tmp_path / "t", "out": tmp_path / out}
    audited = {"table": tmp_path / "t", "decisions": "d", "groups": "g", "out": tmp_path / out}
    for config in ExplainConfig(**explained), AuditConfig(**audited):
        with pytest.raises(ConfigError, match=r"would join a bundle: .*bundle\."):
            config.check_results([config.table], ["report.html"])


@pytest.mark.parametrize("missing", ["bundle.json", "encoder.json", "model"])
def test_results_lie_below_a_file_of_another_program_that_is_called_as_a_bundles(tmp_path, missing):
    (tmp_path / "model").mkdir()
    (tmp_path / "encoder.json").touch()
    (tmp_path / "bundle.json").write_text('{"name": "my web app"}')
    gone = tmp_path / missing
    gone.rename(tmp_path / "other")
    config = ExplainConfig(bundle="b", table="t", out=tmp_path / "data" / "results")
    config.check_results([], ["explain.csv"])
    (tmp_path / "other").rename(gone)
    with pytest.raises(ConfigError):
        config.check_results([], ["explain.csv"])
