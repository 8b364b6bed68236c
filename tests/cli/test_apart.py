"""A bundle that nobody signed is used in a process whose end is one sentence."""

from __future__ import annotations

import json
import shutil
import subprocess
import time

import numpy as np
import pandas as pd
import pytest
import xgboost

import fairfrontier as ff
from fairfrontier.deployment.bundle import load_bundle
from fairfrontier.runtime.secret import VARIABLE
from fairfrontier.runtime.store import hash_file
from tests.choose.saved import save_bundles, seal
from tests.cli.process import children, gone, wait_for
from tests.project import call, call_here, command, environment


@pytest.fixture
def bundle(tmp_path):
    return save_bundles(tmp_path, ["trees"])["trees"]


def crash(folder):
    """Let the children of the first tree's root be far outside of it."""
    path = folder / "model" / "trees.ubj"
    booster = json.loads(xgboost.Booster(model_file=str(path)).save_raw("json"))
    tree = booster["learner"]["gradient_booster"]["model"]["trees"][0]
    tree["left_children"][0] = tree["right_children"][0] = 10**9
    altered = xgboost.Booster(model_file=bytearray(json.dumps(booster).encode()))
    path.write_bytes(altered.save_raw("ubj"))
    manifest = json.loads((folder / "model" / "manifest.json").read_text())
    manifest["files"][path.name] = hash_file(path)
    (folder / "model" / "manifest.json").write_text(json.dumps(manifest))
    seal(folder)


def hang(folder):
    """Let the model be a forest whose first tree leads in a circle."""
    X = np.random.default_rng(0).normal(size=(50, load_bundle(folder).model.n_features_in_))
    model = ff.create("random_forest", n_estimators=2).fit(X, (X[:, 0] > 0).astype(int))
    tree = model.forest_.estimators_[0].tree_
    tree.children_left[0] = tree.children_right[0] = 0
    shutil.rmtree(folder / "model")
    model.save(folder / "model")
    seal(folder)


def test_a_model_that_ends_the_process_is_one_sentence(bundle, tmp_path):
    crash(bundle)
    result = call(tmp_path, "score", "trees", "rows.csv")
    assert result.returncode == 2
    assert f"used the bundle {bundle} did not finish: it ended with -" in result.stderr
    assert not (tmp_path / "decisions.parquet").exists()


def test_a_model_without_end_is_ended(bundle, tmp_path, monkeypatch):
    hang(bundle)
    monkeypatch.setattr("fairfrontier.cli.apart.PATIENCE", 8.0)
    started = time.monotonic()
    result = call_here(tmp_path, "score", "trees", "rows.csv")
    assert result.returncode == 2
    assert "a batch of rows took more than" in result.stderr
    assert time.monotonic() - started < 60


def test_what_the_process_says_and_its_exit_code_are_the_commands(bundle, tmp_path, monkeypatch):
    result = call_here(tmp_path, "score", "trees", "rows.csv")
    assert result.returncode == 0, result.stderr
    assert "rows decided" in result.stdout
    assert len(pd.read_parquet(tmp_path / "decisions.parquet")) == 60
    result = call_here(tmp_path, "monitor", "trees", "rows.csv", "--limit", "accuracy=1")
    assert result.returncode == 4, result.stderr
    result = call_here(tmp_path, "score", "trees", "nothing.csv")
    assert result.returncode == 2
    assert len(result.stderr.splitlines()) == 2
    monkeypatch.setattr("fairfrontier.cli.apart.CODE", "raise SystemExit(7)")
    assert call_here(tmp_path, "score", "trees", "rows.csv").returncode == 2


def test_a_signed_bundle_needs_no_other_process(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(tmp_path / "secret"))
    folder = save_bundles(tmp_path, ["trees"])["trees"]
    monkeypatch.setattr("fairfrontier.cli.apart.CODE", "raise SystemExit(7)")
    result = call_here(tmp_path, "score", "trees", "rows.csv")
    assert result.returncode == 0, result.stderr
    # Another one's signature is none.
    manifest = json.loads((folder / "bundle.json").read_text())
    manifest["signature"] = "0" * 64
    (folder / "bundle.json").write_text(json.dumps(manifest))
    assert call_here(tmp_path, "score", "trees", "rows.csv").returncode == 2


def test_it_ends_with_the_command_that_is_killed(bundle, tmp_path):
    hang(bundle)
    process = subprocess.Popen(
        command("score", "trees", "rows.csv"), cwd=tmp_path, env=environment(tmp_path)
    )

    wait_for(lambda: children(process.pid))
    (child,) = children(process.pid)
    time.sleep(1.0)
    process.kill()
    process.wait()
    wait_for(lambda: gone(child), 20)
