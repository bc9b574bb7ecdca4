"""The worker runs in the user's interpreter: Python 3.8 and newer, with the standard library alone."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path

import pytest
from known_pythons import minors
from worker_driver import BOOT, STOPPED, Start

SOURCES = sorted(BOOT.parent.rglob("*.py"))
INTERPRETERS = minors()


@pytest.mark.parametrize("path", SOURCES, ids=[str(path.relative_to(BOOT.parent)) for path in SOURCES])
def test_every_file_is_python_3_8(path: Path) -> None:
    tree = ast.parse(path.read_text(), feature_version=(3, 8))
    imported = [alias.name for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names]
    assert "annotations" in imported


@pytest.mark.parametrize("python", INTERPRETERS.values(), ids=INTERPRETERS.keys())
def test_serves_in_any_interpreter(start: Start, python: str) -> None:
    worker = start(
        "import multiprocessing\n"
        "from azureml_user.parallel_run import EntryScript\n"
        "def init():\n    EntryScript().logger.info('é')\n"
        "def upper(text):\n    return text.upper()\n"
        "def run(b, context):\n"
        "    if b[0].endswith('bad'):\n        raise ValueError('no')\n"
        "    if b[0].endswith('none'):\n        return None\n"
        "    with multiprocessing.get_context('spawn').Pool(1) as pool:\n"
        "        return pool.map(upper, b) + [context.minibatch_index]\n"
        "def shutdown():\n    print('bye')\n",
        python=python,
        environment={"PYTHONWARNINGS": "error"},
        inline_rows_bytes_max=15,
    )
    worker.ready()
    worker.send(1, ["a", "caf\u00e9"], index=4)
    frame = worker.frame()
    assert frame.rows.decode() == "/DATA/A\n/DATA/CAF\u00c9\n4\n", frame.side
    assert frame.rows_path is not None
    worker.send(2, ["bad"])
    assert worker.failed().message == "run() raised ValueError: no (score.py, line 9)"
    worker.send(3, ["none"])
    assert worker.failed().cause == "bad_return"
    worker.shut_down()
    assert worker.frame().type == STOPPED
    assert worker.wait() == 0
    assert worker.output() == "bye\n"
    assert worker.errors() == ""


@pytest.mark.parametrize("python", INTERPRETERS.values(), ids=INTERPRETERS.keys())
def test_an_open_pool_of_threads_ends_with_its_process(start: Start, python: str) -> None:
    worker = start(
        "from concurrent.futures import ThreadPoolExecutor\n"
        "pool = ThreadPoolExecutor(1)\n"
        "def run(b):\n    return list(pool.map(str.upper, b))\n",
        python=python,
    )
    worker.ready()
    worker.send(1, ["a"])
    assert worker.done().rows == b"/DATA/A\n"
    worker.shut_down()
    assert worker.frame().type == STOPPED
    assert worker.wait() == 0
    assert worker.errors() == ""


HEAVY = {"asyncio", "subprocess", "typing", "inspect", "multiprocessing", "socket", "concurrent.futures", "ctypes"}
OTHERS = {"pandas", "numpy", "pyarrow", "windrow", "google", "grpc"}


def test_loads_nothing_heavy_and_nothing_of_others_at_start(start: Start) -> None:
    # Not in our own environment: what is installed there may load modules at every start.
    worker = start(
        "import json, sys\nLOADED = sorted(sys.modules)\ndef run(b):\n    return [json.dumps(LOADED)]\n",
        python=INTERPRETERS.get("3.12", sys.executable),
    )
    worker.ready()
    loaded = set(json.loads(worker.run(["a"]).rows))
    assert loaded & (HEAVY | OTHERS) == set()
    assert not {name for name in loaded if name.startswith("windrow_worker.tables")}


def test_starts_without_site_and_in_safe_path_mode(start: Start) -> None:
    worker = start("def run(b):\n    return b\n", environment={"PYTHONSAFEPATH": "1", "PYTHONNOUSERSITE": "1"})
    worker.ready()
    assert worker.run(["a"]).rows == b"/data/a\n"
