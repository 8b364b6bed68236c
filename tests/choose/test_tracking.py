"""A study among the runs of MLflow: in a local store, once, without pickle and without secrets."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

import fairfrontier as ff
from fairfrontier.choose.choosing import choose, write_choice
from fairfrontier.choose.config import LogConfig, SelectConfig
from fairfrontier.choose.tracking import SOURCE, STUDY, log_study
from fairfrontier.cli.command import app
from fairfrontier.cli.terminal import run_app
from fairfrontier.runtime import writer
from fairfrontier.runtime.errors import ConfigError, StoreError

# MLflow warns of its own code, and leaves files open.
pytestmark = pytest.mark.filterwarnings("ignore")
DIFFERENCE = "selection_rate_difference:origin"


@pytest.fixture(scope="module")
def mlflow():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
        yield pytest.importorskip("mlflow", reason="the extra mlflow is not installed")


@pytest.fixture
def home(loans, tmp_path, monkeypatch):
    """Return a copy of the project: others leave choices in the first."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    shutil.copytree(loans.home, tmp_path / "home")
    shutil.rmtree(tmp_path / "home/data/results/loans/choice", ignore_errors=True)
    return tmp_path / "home"


@pytest.fixture
def config(home, tmp_path) -> LogConfig:
    return LogConfig(study="loans", conf=home, to=f"file://{tmp_path}/runs")


def read_runs(mlflow, config: LogConfig):
    """Return the run of a study, those nested in it, and the client."""
    client = mlflow.MlflowClient(config.to)
    experiment = client.get_experiment_by_name(config.experiment or "loans")
    runs = client.search_runs([experiment.experiment_id])
    nested = [run for run in runs if "mlflow.parentRunId" in run.data.tags]
    (parent,) = (run for run in runs if run not in nested)
    assert {run.data.tags["mlflow.parentRunId"] for run in nested} == {parent.info.run_id}
    return parent, nested, client


def select(home: Path, query: str = "") -> None:
    options = SelectConfig(study="loans", query=query, conf=home)
    write_choice(choose(options), options)


def test_every_setting_is_a_run_with_its_measures(mlflow, config, loans):
    logged = log_study(config)
    assert (logged.new, logged.model, logged.settings) == (True, None, 3)
    parent, nested, client = read_runs(mlflow, config)
    assert parent.info.run_id == logged.run
    assert {run.info.status for run in (parent, *nested)} == {"FINISHED"}
    by_method = {run.data.tags["method"]: run for run in nested}
    assert set(by_method) == {"gbdt", "linear", "drawn"}
    assert by_method["drawn"].data.tags["needs_groups"] == "True"
    assert by_method["gbdt"].data.tags["needs_groups"] == "False"
    assert by_method["gbdt"].data.params["n_estimators"] == "10"
    points = loans.points
    for method, run in by_method.items():
        of_method = points[points["method"] == method]
        for part in ("validation", "test"):
            own = of_method[(of_method["part"] == part) & (of_method["measure"] == "accuracy")]
            value = own.loc[own["group"] == "", "value"].mean()
            assert run.data.metrics[f"{part}/accuracy"] == pytest.approx(value, abs=1e-12)
        assert f"test/{DIFFERENCE}" in run.data.metrics
        assert not any("north" in name for name in run.data.metrics)
    files = {file.path for file in client.list_artifacts(logged.run)}
    assert {"report.html", "frontier.png", "frontier.csv", "points.parquet"} <= files


def test_the_bundle_is_a_pyfunc_without_pickle(mlflow, config, home, raw):
    select(home)
    logged = log_study(config)
    assert logged.new_model
    mlflow.set_tracking_uri(config.to)
    try:
        model = mlflow.pyfunc.load_model(logged.model)
        folder = Path(mlflow.artifacts.download_artifacts(logged.model))
    finally:
        mlflow.set_tracking_uri(None)
    bundle = ff.load_bundle(home / "data/results/loans/choice/bundle")
    pd.testing.assert_frame_equal(model.predict(raw), bundle.decide(raw))
    inputs, outputs = model.metadata.signature.inputs, model.metadata.signature.outputs
    assert set(inputs.input_names()) >= {*bundle.encoder.features}
    assert outputs.input_names() == list(bundle.decide(raw))
    with pytest.raises(mlflow.MlflowException, match="income"):
        model.predict(raw.drop(columns="income"))
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert not [path for path in files if path.suffix in (".pkl", ".pickle", ".joblib")]
    assert str(home) not in (folder / "MLmodel").read_text()
    _, _, client = read_runs(mlflow, config)
    papers = {file.path for file in client.list_artifacts(logged.run, "choice")}
    assert {"choice/card.md", "choice/card.html", "choice/explain.png"} <= papers
    # Ids of rows stay here.
    assert "choice/decisions.parquet" not in papers


def test_a_study_is_logged_once_and_a_new_choice_is_added(mlflow, config, home):
    first = log_study(config)
    again = log_study(config)
    assert again == replace(first, new=False)
    select(home, f"subject to {DIFFERENCE} <= 0.15")
    chosen = log_study(config)
    assert (chosen.run, chosen.new, chosen.new_model) == (first.run, False, True)
    assert log_study(config) == replace(chosen, new_model=False)
    select(home)
    assert log_study(config).model != chosen.model
    _, nested, _ = read_runs(mlflow, config)
    assert len(nested) == 3
    log_study(LogConfig(**{**config.model_dump(), "experiment": "other"}))
    assert len(read_runs(mlflow, config)[1]) == 3


def test_what_was_cut_off_is_logged_anew(mlflow, config, monkeypatch):
    client = type(mlflow.MlflowClient(config.to))
    log_artifact = client.log_artifact

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(client, "log_artifact", stop)
    with pytest.raises(KeyboardInterrupt):
        log_study(config)
    monkeypatch.setattr(client, "log_artifact", log_artifact)
    assert log_study(config).new
    parent, nested, _ = read_runs(mlflow, config)
    assert parent.info.status == "FINISHED"
    assert len(nested) == 3


def test_a_log_that_runs_is_left_alone(mlflow, config, home, monkeypatch):
    first = log_study(config)
    client = mlflow.MlflowClient(config.to)
    experiment = client.get_experiment_by_name("loans").experiment_id
    tags = {STUDY: client.get_run(first.run).data.tags[STUDY], SOURCE: "elsewhere"}
    running = client.create_run(experiment, tags=tags).info.run_id
    abandoned = client.create_run(experiment, start_time=1, tags=tags).info.run_id
    assert not log_study(config).new
    stages = [client.get_run(each).info.lifecycle_stage for each in (running, abandoned)]
    assert stages == ["active", "deleted"]
    # One of the same folder is waited for, here with little patience.
    monkeypatch.setattr(writer, "PATIENCE", 0)
    with (
        writer.locking(home / "data/results/loans"),
        pytest.raises(StoreError, match="is still used by"),
    ):
        log_study(config)


def test_a_model_whose_log_was_killed_goes_with_its_copy(
    mlflow, config, home, tmp_path, monkeypatch
):
    select(home)
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(mlflow.MlflowClient, "log_model_artifacts", stop)
        # A killed process removes nothing.
        patch.setattr(writer.shutil, "rmtree", lambda *_, **__: None)
        with pytest.raises(KeyboardInterrupt):
            log_study(config)
    (draft,) = (tmp_path / "tmp").glob(".unfinished@*")
    (copy,) = draft.iterdir()
    assert copy.stat().st_mode & 0o077 == 0
    assert log_study(config).new_model
    assert not [*(tmp_path / "tmp").glob(".unfinished@*")]
    client = mlflow.MlflowClient(config.to)
    experiment = client.get_experiment_by_name("loans").experiment_id
    (model,) = client.search_logged_models([experiment])
    assert model.status == "READY"


def test_no_secret_is_told_where_nobody_answers(mlflow, config):
    away = LogConfig(**{**config.model_dump(), "to": "http://someone:hush@127.0.0.1:9"})
    with pytest.raises(StoreError, match=r"MLflow says: .*failed") as caught:
        log_study(away)
    assert "hush" not in str(caught.value)
    with pytest.raises(StoreError, match="MLflow says: "):
        log_study(LogConfig(**{**config.model_dump(), "to": "gopher://somewhere"}))


def test_the_command_says_where_it_is(mlflow, config, monkeypatch, capsys):
    words = ["fairfrontier", "log", "loans", "--conf", str(config.home), "--to", config.to]
    monkeypatch.setattr("sys.argv", words)
    for begins in ("Logged: run ", "Logged before: run "):
        with pytest.raises(SystemExit) as ended:
            run_app(app)
        assert not ended.value.code
        said = capsys.readouterr().out
        assert said.startswith(begins)
        assert f"Its files: {config.to}" in said


def test_a_study_that_was_not_run_is_not_logged(config, tmp_path):
    with pytest.raises(ConfigError, match="has no results in"):
        log_study(LogConfig(**{**config.model_dump(), "out": tmp_path / "nothing"}))


def test_without_the_extra_it_is_named(config, monkeypatch, capsys):
    monkeypatch.setitem(__import__("sys").modules, "mlflow", None)
    monkeypatch.setattr("sys.argv", ["fairfrontier", "log", "loans", "--conf", str(config.home)])
    with pytest.raises(SystemExit) as ended:
        run_app(app)
    assert ended.value.code == 2
    assert "pip install 'fairfrontier[mlflow]'" in capsys.readouterr().err


@pytest.mark.slow
def test_a_database_of_ones_own_will_do(mlflow, config, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    into = LogConfig(**{**config.model_dump(), "to": f"sqlite:///{tmp_path}/runs.db"})
    assert log_study(into).new
    assert not log_study(into).new
    assert len(read_runs(mlflow, into)[1]) == 3


def test_a_database_that_was_cut_off_is_one_sentence(mlflow, config, monkeypatch):
    from sqlalchemy.exc import OperationalError

    def refuse(*_: object) -> None:
        raise OperationalError("CREATE TABLE experiments", None, Exception("table is there"))

    monkeypatch.setattr(mlflow.MlflowClient, "get_experiment_by_name", refuse)
    with pytest.raises(
        StoreError, match=r"its database: table is there\. If .*left mlflow\.db unf"
    ):
        log_study(config)
