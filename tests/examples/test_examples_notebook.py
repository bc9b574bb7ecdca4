"""The notebook of the examples prints what it shows."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[2] / "examples" / "notebook" / "map.ipynb"
DEADLINE_S = 180


def test_the_notebook_shows_what_it_computes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    shutil.copy(NOTEBOOK, tmp_path)
    notebook = nbformat.read(tmp_path / NOTEBOOK.name, as_version=4)
    before = [cell.outputs for cell in notebook.cells if cell.cell_type == "code"]
    assert all(before), "it is committed with its outputs"
    place = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=DEADLINE_S, resources=place).execute()
    after = [cell.outputs for cell in notebook.cells if cell.cell_type == "code"]
    assert [_shown(outputs) for outputs in after] == [_shown(outputs) for outputs in before]


def _shown(outputs: list[dict[str, object]]) -> list[object]:
    """What a cell shows as text: how pandas draws a table as HTML changes with its version."""
    found: list[object] = []
    for output in outputs:
        data = output.get("data")
        found.append(data["text/plain"] if isinstance(data, dict) else output["text"])
    return found
