"""The notebooks run from top to bottom, and are committed as they ran."""

from __future__ import annotations

import os
import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
# What takes seconds, and how little of it shows that the cells still run.
SMALLER = {
    "01-first-frontier": ('"n_estimators": 100', '"n_estimators": 10'),
    "02-what-is-similar": ("iterations=4000", "iterations=400"),
    "03-fix-a-trained-model": ("rows=8000", "rows=3000"),
    "05-from-a-table-to-a-decision": ('"trials: 16"', '"trials: 6"'),
    "06-your-own-models": ("trials=12", "trials=6"),
}
# pyzmq and traitlets warn of loops and sockets that are not ours.
pytestmark = pytest.mark.filterwarnings("ignore")


def test_there_are_notebooks():
    assert "01-first-frontier.ipynb" in {path.name for path in NOTEBOOKS}


@pytest.fixture(scope="module")
def client():
    """Return a client of one kernel for all notebooks: each would import for seconds."""
    client = NotebookClient(
        nbformat.v4.new_notebook(),
        timeout=120,
        kernel_name="python3",
        resources={"metadata": {"path": str(ROOT / "notebooks")}},
    )
    # What a loaded machine sends in two pieces is one output all the same.
    client.coalesce_streams = True
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
        patch.delenv("MPLBACKEND")  # the kernel shows figures in the notebook
        with client.setup_kernel():
            yield client


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
@pytest.mark.once
def test_runs(client, path, whole):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    committed = [_kinds(cell) for cell in cells]
    if not whole and path.stem in SMALLER:
        old, new = SMALLER[path.stem]
        assert sum(cell.source.count(old) for cell in cells) == 1
        for cell in cells:
            cell.source = cell.source.replace(old, new)
    # Nothing has a name that an earlier notebook gave it.
    notebook.cells.insert(0, nbformat.v4.new_code_cell("%reset -f"))
    client.nb = notebook
    client.execute(cleanup_kc=False)
    assert [_kinds(cell) for cell in cells] == committed
    assert "image/png" in {kind for kinds in committed for kind in kinds}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_is_committed_as_it_ran(path):
    cells = [c for c in nbformat.read(path, as_version=4).cells if c.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell.outputs]
    # Warnings would stand on stderr.
    assert not [each for each in outputs if each.get("name") == "stderr"]
    assert path.stat().st_size < 150_000
    # Nor do outputs name folders of the machine that made them.
    texts = [each.get("text", "") + each.get("data", {}).get("text/plain", "") for each in outputs]
    assert not [text for text in texts if re.search(r"/(home|root|tmp|Users|work)/", text)]


def _kinds(cell: nbformat.NotebookNode) -> list[str]:
    """Return what a cell put out: streams by name, errors, kinds of data."""
    kinds = []
    for output in cell.outputs:
        kinds += sorted(output.get("data", {})) or [output.get("name", output.output_type)]
    return kinds
