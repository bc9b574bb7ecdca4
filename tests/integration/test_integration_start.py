"""What `windrow run` loads before the first `run()`, and what commands that ask over an idle state folder load: modules
and opened files, by process.

Nobody notices an import too many, and everybody waits for it in each run. `first_run.json` and `questions.json` hold
what each process may load. To change them: read what the failure says; import lazily what the first mini-batch, or the
answer, does not need; and what they do need, enter by

    WINDROW_ENTER_START=1 python -m pytest tests/integration/test_integration_start.py
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import pytest
from embedded_run import WINDROW, EmbeddedRun, wait_until

FIRST_RUN = Path(__file__).with_name("first_run.json")
QUESTIONS = Path(__file__).with_name("questions.json")
ROOT = Path(__file__).resolve().parents[2]
INSTALLATION = {"sitecustomize", "_distutils_hack"}
"""What Python loads where it finds it: not ours to choose."""
QUIET_LOOKS = 100 if not os.environ.get("WINDROW_ENTER_START") else 1500
"""So many looks in a row must find nothing new. What is entered has waited longer: on a busy machine there is time for
what comes by the clock."""
SPARE = 1.1
"""Versions of Python and of the libraries differ in how many files they open."""
ROLES = {
    "windrow_master.planning": "planner",
    "windrow_master": "master",
    "windrow_agent": "agent",
    "run": "command",
    "job": "command",
    "node": "command",
}
RECORDER = """\
import os, sys

def start():
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    descriptor = os.open(f"{os.environ['RECORDS']}/{os.getpid()}", flags)
    write, encode = os.write, os.fsencode
    write(descriptor, b"start " + b" ".join(map(encode, sys.orig_argv)).replace(b"\\n", b" ") + b"\\n")

    def note(event, arguments):
        if event in ("import", "open") and isinstance(arguments[0], (str, bytes)):
            write(descriptor, event.encode() + b" " + encode(arguments[0]).replace(b"\\n", b" ") + b"\\n")

    sys.addaudithook(note)

start()
"""
ASKING = ("job list", "job show last", "node list")
SCRIPT = """\
import os, sys, time

def init():
    # Until the other processes have loaded whatever their start makes them load: it does not matter who is faster.
    while not os.path.exists(os.environ["GO"]):
        time.sleep(0.01)

def run(mini_batch):
    with open(os.environ["WORKER"], "a") as file:
        file.write("\\n".join(sorted(sys.modules)) + "\\n")
    return mini_batch
"""


class Start(NamedTuple):
    """Of each process, before the first `run()` or in all: the modules that it loaded, and how many files it opened."""

    modules: dict[str, set[str]]
    files: dict[str, int]


def ours(module: str) -> bool:
    return module.split(".")[0].startswith("windrow")


def shown(modules: set[str]) -> list[str]:
    """Our modules, and others by their package; Python's own differ by version and are counted as files."""
    return sorted(
        {
            module if ours(module) else module.split(".")[0]
            for module in modules
            if module.split(".")[0] not in sys.stdlib_module_names | INSTALLATION
        }
    )


def read(records: Path) -> list[list[str]]:
    """The lines of each process: first how it was started, then what it loaded, without what tells of the machine."""
    texts = [path.read_text(errors="surrogateescape") for path in records.iterdir()]
    return [[line for line in text.splitlines() if " /proc/" not in line and " /sys/" not in line] for text in texts]


def record(folder: Path) -> Start:
    """Run a job of two mini-batches on one worker, and read what was noted."""
    records, environment = recorded(folder)
    go, worker = folder / "go", folder / "worker"
    run = EmbeddedRun(folder / "job", SCRIPT, 2, settings=f"environment_variables: {{GO: {go}, WORKER: {worker}}}")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        process = run.start("--slots", "1")
    try:
        wait_until(lambda: run.pids("worker") or process.poll() is not None, "a worker, which waits")
        counts: list[int] = []

        def quiet() -> bool:
            counts.append(sum(len(set(lines)) for lines in read(records)))
            return len(counts) > QUIET_LOOKS and counts[-QUIET_LOOKS] == counts[-1]

        wait_until(quiet, "a while in which nothing new is loaded or opened")
        noted = read(records)
        go.touch()
        code, text = run.finish()
        assert code == 0, text
    finally:
        go.touch()
        if process.poll() is None:
            process.kill()
            process.communicate()
    start = by_role(noted)
    start.modules["worker"] = set(worker.read_text().splitlines())
    return start


def recorded(folder: Path) -> tuple[Path, dict[str, str]]:
    """A folder for records, and the environment of processes that leave theirs there."""
    records, hooks = folder / "records", folder / "hooks"
    records.mkdir(parents=True)
    hooks.mkdir()
    (hooks / "sitecustomize.py").write_text(RECORDER)
    environment = os.environ | {"PYTHONPATH": str(hooks), "RECORDS": str(records)}
    environment.pop("PYTHONSTARTUP", None)
    return records, environment


def by_role(noted: list[list[str]]) -> Start:
    """What was noted, by the role of the process."""
    modules: dict[str, set[str]] = defaultdict(set)
    files: dict[str, int] = defaultdict(int)
    for lines in noted:
        role = next((role for word, role in ROLES.items() if f" {word} " in f"{lines[0]} "), None)
        if role is None:
            continue
        for line in dict.fromkeys(lines[1:]):
            event, _, what = line.partition(" ")
            if event == "import":
                modules[role].add(what)
            elif event == "open":
                files[role] += 1
    return Start(dict(modules), dict(files))


def check(start: Start, allowed_file: Path) -> None:
    """Compare with what may be loaded, or enter it."""
    found = {
        role: {"files": start.files.get(role), "modules": shown(modules)}
        for role, modules in sorted(start.modules.items())
    }
    if os.environ.get("WINDROW_ENTER_START"):
        allowed_file.write_text(json.dumps(found, indent=1) + "\n")
    allowed = json.loads(allowed_file.read_text())
    more = {role: sorted(set(found[role]["modules"]) - set(allowed[role]["modules"])) for role in found}
    assert not any(more.values()), f"loaded, and not in {allowed_file.name} (how: {__file__}): {more}"
    opened = {role: count for role, count in start.files.items() if count > allowed[role]["files"] * SPARE}
    assert not opened, f"files opened, more than {SPARE} times those of {allowed_file.name}: {opened}"


def test_no_more_is_loaded_before_the_first_run_than_may_be(tmp_path: Path) -> None:
    start = record(tmp_path / "start")
    assert set(start.modules) == {"command", "master", "agent", "planner", "worker"}
    check(start, FIRST_RUN)


def test_questions_about_an_idle_state_folder_load_no_more_than_may_be(tmp_path: Path) -> None:
    """Above all no core: a private master answers from the store while all jobs have ended."""
    run = EmbeddedRun(tmp_path / "job", "def run(mini_batch):\n    return mini_batch\n", 1)
    code, text = run.run("--slots", "1")
    assert code == 0, text
    modules: dict[str, set[str]] = defaultdict(set)
    files: dict[str, int] = defaultdict(int)
    for number, line in enumerate(ASKING):
        records, environment = recorded(tmp_path / str(number))
        done = subprocess.run(
            [WINDROW, *line.split()], cwd=run.folder, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        start = by_role(read(records))
        assert set(start.modules) == {"command", "master"}, "the command starts its master, and that no other process"
        for role, names in start.modules.items():
            modules[role] |= names
            files[role] = max(files[role], start.files[role])
    check(Start(modules, files), QUESTIONS)
    needless = {"windrow_master.core.core", "windrow_master.core.state", "windrow_master.shell.engine"}
    assert not needless & modules["master"]


def test_make_setup_leaves_bytecode_of_all_modules(tmp_path: Path) -> None:
    """Also where Python writes none: each start would compile hundreds of modules."""
    packages = ("client", "master", "agent", "worker")
    for package in packages:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / ".venv").symlink_to(ROOT / ".venv")
    shutil.copy2(ROOT / "pyproject.toml", tmp_path)
    done = subprocess.run(
        # Whatever the times of the files say: these are not to be installed in the place of the real ones.
        ["make", "-f", ROOT / "Makefile", "-o", ".venv/.ready", "setup"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    sources = [path for package in packages for path in (tmp_path / package).rglob("*.py")]
    tag = sys.implementation.cache_tag
    missing = [path for path in sources if not (path.parent / "__pycache__" / f"{path.stem}.{tag}.pyc").is_file()]
    assert len(sources) > 400 and not missing
