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


def test_there_are_notebooks():
    assert "01-first-frontier.ipynb" in {path.name for path in NOTEBOOKS}


# pyzmq and traitlets warn of loops and sockets that are not ours.
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_runs(path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.delenv("MPLBACKEND")  # the kernel shows figures in the notebook
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    committed = [_kinds(cell) for cell in cells]
    place = {"metadata": {"path": str(path.parent)}}
    client = NotebookClient(notebook, timeout=120, kernel_name="python3", resources=place)
    # What a loaded machine sends in two pieces is one output all the same.
    client.coalesce_streams = True
    client.execute()
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
