"""A worker runs the code that was submitted, or none: what changes on the disk after it was unpacked ends it."""

from __future__ import annotations

import importlib.util
import os
import py_compile
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from worker_driver import BOOT, Start, Worker, WorkerGone

CODE_CHANGED = 195
HELPER = "def answer():\n    return 'right'\n"
WRONG = HELPER.replace("right", "wrong")
IMPORTS = "import helper\ndef run(b):\n    return [helper.answer()]\n"
IMPORTS_LATE = (
    "def run(b):\n"
    "    try:\n        import helper\n"
    "    except BaseException:\n        return ['something else']\n"
    "    return [helper.answer()]\n"
)
CHILD = (
    "import multiprocessing, time\n"
    "def answer(_):\n    import helper\n    return helper.answer()\n"
    "def run(b):\n"
    "    with multiprocessing.get_context({method!r}).Pool(1) as pool:\n        return pool.map(answer, b)\n"
)


def code(folder: Path, files: dict[str, str]) -> Path:
    """A worker's folder, with these files as its code."""
    for name, text in files.items():
        path = folder / "code" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def assert_left(worker: Worker, name: str, exit_code: int = CODE_CHANGED) -> None:
    """It has ended without a result, and named the file."""
    with pytest.raises(WorkerGone):
        while True:
            worker.frame()
    assert worker.wait() == exit_code
    assert f"{name} has changed since the code was unpacked" in worker.errors()
    assert (worker.folder / "code.changed").read_text() == name


@pytest.mark.parametrize("script", [IMPORTS, IMPORTS_LATE], ids=["first", "late"])
@pytest.mark.parametrize("now", [WRONG, "", None], ids=["changed", "cut", "gone"])
def test_a_module_that_has_changed_ends_the_worker(start: Start, tmp_path: Path, script: str, now: str | None) -> None:
    folder = code(tmp_path, {"score.py": script, **({} if now is None else {"helper.py": now})})
    worker = start(folder=folder, submitted={"helper.py": HELPER})
    if script == IMPORTS_LATE:
        worker.ready()
        worker.send(1, ["a"])
    assert_left(worker, "helper.py")


@pytest.mark.parametrize("name", ["score.py", "my score.py", "part/score.py"])
@pytest.mark.parametrize("gone", [False, True])
def test_an_entry_script_that_has_changed_ends_the_worker(start: Start, tmp_path: Path, name: str, gone: bool) -> None:
    folder = code(tmp_path, {"other.py": "", **({} if gone else {name: "def run(b):\n    return ['wrong']\n"})})
    worker = start(folder=folder, entry_script=name, submitted={name: "def run(b):\n    return ['right']\n"})
    assert_left(worker, name)


def test_a_dotted_entry_script_that_has_changed_ends_the_worker(start: Start, tmp_path: Path) -> None:
    folder = code(tmp_path, {"part/__init__.py": "", "part/score.py": "def run(b):\n    return ['wrong']\n"})
    worker = start(folder=folder, entry_script="part.score", submitted={"part/score.py": HELPER})
    assert_left(worker, "part/score.py")


def test_a_package_that_has_lost_what_makes_it_one_ends_the_worker(start: Start, tmp_path: Path) -> None:
    folder = code(
        tmp_path, {"score.py": "import part.helper\n" + IMPORTS, "part/helper.py": HELPER, "helper.py": HELPER}
    )
    worker = start(folder=folder, submitted={"part/__init__.py": ""})
    assert_left(worker, "part/__init__.py")


def test_a_link_to_the_code_folder_hides_nothing(start: Start, tmp_path: Path) -> None:
    (tmp_path / "really").mkdir()
    (tmp_path / "link").symlink_to("really")
    script = "import os, sys\nsys.path[0] = os.path.realpath('.')\n" + IMPORTS
    code(tmp_path / "really", {"score.py": script, "helper.py": WRONG})
    worker = start(folder=tmp_path / "link", submitted={"helper.py": HELPER})
    assert_left(worker, "helper.py")


def test_compiled_files_are_not_used(start: Start, tmp_path: Path) -> None:
    """Nothing vouches for them. The one here would be taken for that of the source."""
    folder = code(tmp_path, {"score.py": IMPORTS, "helper.py": WRONG})
    helper = folder / "code" / "helper.py"
    before = helper.stat()
    py_compile.compile(str(helper), doraise=True)
    helper.write_text(HELPER)
    os.utime(helper, ns=(before.st_atime_ns, before.st_mtime_ns))
    worker = start(folder=folder)
    worker.ready()
    assert worker.run(["a"]).rows == b"right\n"


def test_what_a_script_writes_and_imports_is_its_own(start: Start, tmp_path: Path) -> None:
    script = f"open('made.py', 'w').write({HELPER!r})\n" + IMPORTS.replace("helper", "made")
    folder = code(tmp_path, {"score.py": script})
    worker = start(folder=folder)
    worker.ready()
    assert worker.run(["a"]).rows == b"right\n"


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_child_that_finds_changed_code_ends_the_worker(start: Start, tmp_path: Path, method: str) -> None:
    """Alone it would be started again and again, and its parent would wait for it."""
    folder = code(tmp_path, {"score.py": CHILD.format(method=method), "helper.py": WRONG})
    worker = start(folder=folder, submitted={"helper.py": HELPER})
    worker.ready()
    worker.send(1, ["a"])
    assert_left(worker, "helper.py", -signal.SIGKILL)


def test_an_extension_module_that_has_changed_ends_the_worker(start: Start, tmp_path: Path) -> None:
    spec = importlib.util.find_spec("_queue")
    if spec is None or spec.origin is None or not spec.origin.endswith(".so"):
        pytest.skip("this Python has no extension module _queue in a file of its own")
    known = Path(spec.origin)
    script = "import sys\nsys.modules.pop('_queue', 0)\nimport _queue\ndef run(b):\n    return b\n"
    folder = code(tmp_path, {"score.py": script})
    shutil.copy(known, folder / "code" / known.name)
    worker = start(folder=folder, submitted={known.name: "something else"})
    assert_left(worker, known.name)


def test_checksums_that_have_changed_end_the_worker(start: Start, tmp_path: Path) -> None:
    folder = code(tmp_path, {"score.py": IMPORTS, "helper.py": HELPER})
    worker = start(folder=folder, code_sums_crc32=0)
    assert_left(worker, "code.sums")


def test_a_command_is_not_begun_with_code_that_has_changed(start: Start, tmp_path: Path) -> None:
    folder = code(tmp_path, {"prepare.py": WRONG})
    worker = start(
        folder=folder,
        command="touch begun",
        reader={"kind": "none"},
        rows={"action": "summary_only"},
        submitted={"prepare.py": HELPER},
    )
    assert_left(worker, "prepare.py")
    assert not (folder / "code" / "begun").exists()


def test_a_configuration_that_has_changed_is_not_used(start: Start) -> None:
    config = start("def run(b):\n    return b\n").folder / "config.json"
    config.write_bytes(config.read_bytes().replace(b"INFO", b"WARN"))
    again = subprocess.run(
        [sys.executable, BOOT, config], check=False, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, encoding="utf-8"
    )
    assert again.returncode == 193
    assert "has changed since it was written" in again.stderr
