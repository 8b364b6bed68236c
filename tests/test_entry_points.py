"""A package of somebody else's adds a method, a measure and a figure, and a study uses them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).resolve().parents[1]
FILES = {
    "package/pyproject.toml": """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "elsewhere"
version = "0.1"

[project.entry-points."fairfrontier.methods"]
majority = "elsewhere.majority"

[project.entry-points."fairfrontier.measures"]
decided = "elsewhere.decided"

[project.entry-points."fairfrontier.figures"]
dots = "elsewhere.dots:draw"

[project.entry-points."fairfrontier.projects"]
elsewhere = "elsewhere"
""",
    "package/elsewhere/__init__.py": "",
    "package/elsewhere/majority.py": '''
"""Every row gets the shares of the training rows."""

import numpy as np

from fairfrontier.models.base import Classifier, unit_weight
from fairfrontier.models.persistence import State
from fairfrontier.models.registry import method


@method("majority")
class Majority(Classifier):
    def __init__(self, *, prior=0.0):
        self.prior = prior

    def fit(self, X, y, *, sample_weight=None):
        X, codes = self.validate_training(X, y)
        counts = np.bincount(codes, unit_weight(sample_weight, len(codes))) + self.prior
        self.share_ = counts / counts.sum()
        return self

    def predict_proba(self, X):
        return np.tile(self.share_, (len(self.validate_rows(X)), 1))

    def get_state(self):
        return State(arrays={"share": self.share_})

    def set_state(self, state):
        self.share_ = state.arrays["share"]
''',
    "package/elsewhere/decided.py": '''
"""How many rows are decided at all."""

from fairfrontier.metrics.measure.registry import MeasureRow, measure


@measure("decided", what="How many rows are decided.")
def count_decided(audit):
    """Count the rows."""
    n = audit.part.n_samples
    yield MeasureRow("", float(n), n, float(n), float(n))
''',
    "package/elsewhere/dots.py": '''
"""A picture of nothing much."""

import io

from matplotlib.figure import Figure

from fairfrontier.study.drawing import Picture, figure


@figure("dots", title="Dots", what="As many dots as methods.")
def draw(scene):
    drawn = Figure(figsize=(2, 1))
    count = scene.points.method.nunique()
    drawn.subplots().plot(range(count), range(count), "o")
    file = io.BytesIO()
    drawn.savefig(file, format="png", metadata={"Software": None})
    return Picture(file.getvalue(), f"{count} dots")
''',
    "package/elsewhere/conf/methods/majority.yaml": """
method: majority
grids: {prior: {prior: [0.0, 1.0]}}
""",
    "study.yaml": """
dataset: german
methods: {majority: {grid: prior}, linear: {}}
frontier: {accuracy: accuracy, fairness: ["selection_rate_difference:age"]}
figures: [dots]
seeds: 1
""",
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the package into a folder of its own, beside a study that names what it adds."""
    folder = tmp_path_factory.mktemp("project")
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--no-index", "--target", "site", "./package"], cwd=folder, check=True)
    return folder


def call(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([str(folder / "site"), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": paths, "FAIRFRONTIER_HOME": str(folder)}
    return subprocess.run(
        [sys.executable, "-m", "fairfrontier", *command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.once
def test_a_study_uses_what_another_package_adds(project):
    done = call(project, "run", "study.yaml", "--cluster", "inline")
    assert done.returncode == 0, done.stdout + done.stderr
    folder = project / "data" / "results" / "study"
    points = pd.read_parquet(folder / "points.parquet")
    assert set(points.method) == {"majority", "linear"}
    own = points[(points.measure == "decided") & (points.part == "test")]
    assert len(own) == 3
    assert (own.value == 200).all()
    assert (folder / "dots.png").read_bytes().startswith(b"\x89PNG")
    assert "2 dots" in (folder / "report.html").read_text()
    listed = call(project, "list", "methods", "--json")
    assert '"majority"' in listed.stdout


@pytest.mark.once
def test_a_package_that_cannot_be_imported_is_named(project, tmp_path):
    shutil.copytree(project / "site", tmp_path / "site")
    (tmp_path / "site" / "elsewhere" / "dots.py").write_text("import nowhere\n")
    done = call(tmp_path, "list", "figures")
    assert done.returncode == 2
    assert "The figure 'dots' of the package elsewhere cannot be imported" in done.stderr
