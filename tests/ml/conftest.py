"""Fixtures of the tests of the Python API."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from windrow.ml.v1.core import Workspace

SCORE = """\
import argparse, os

parser = argparse.ArgumentParser()
parser.add_argument("--model")
parser.add_argument("--factor", type=int)
args, _ = parser.parse_known_args()


def run(mini_batch):
    with open(args.model) as file:
        model = file.read().strip()
    return [f"{os.path.basename(name)} {model} {args.factor}" for name in mini_batch]
"""

UPPER = """\
def run(mini_batch):
    rows = []
    for name in mini_batch:
        with open(name) as file:
            rows.append(file.read().upper().strip())
    return rows
"""


@pytest.fixture
def notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder of a notebook: files/, table/, src/ with scripts, model.txt."""
    for name, text in {
        "files/a.txt": "a",
        "files/b.txt": "b",
        "files/c.txt": "c",
        "model.txt": "m1",
        "src/score.py": SCORE,
        "src/upper.py": UPPER,
        "src/conda.yml": "dependencies: [pip]\n",
        "table/MLTable": "paths: [{file: ./data.csv}]\ntransformations: [read_delimited]\n",
        "table/data.csv": "x,y\n1,2\n3,4\n",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WINDROW_MASTER", raising=False)
    return tmp_path


@pytest.fixture
def workspace(notebook: Path) -> Iterator[Workspace]:
    """That of a v1 notebook."""
    space = Workspace.from_config(slots=1)
    yield space
    space.close()
