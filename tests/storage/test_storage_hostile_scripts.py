"""Scripts that are after the credentials of storage: they look into every process as it begins, and leave modules where
it may find them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from storage_job import WITH_OUT, StorageJob

POLLER = """\
import os, pathlib, re, sys, time

folder = pathlib.Path(sys.argv[1])
secrets = [bytes(reversed(b"1000-ees-yam-tpircs-on-taht-t3rc3s")), bytes(reversed(b"1000STSETWORDNIWAIKA"))]
kept, found = {}, set()


def look(name, where, content):
    found.update(f"{where} {name}" for secret in secrets if secret in content)


def open_all(pid):
    # What is opened early can be read late.
    opened = {}
    for name in ("cmdline", "environ", "maps", "mem"):
        try:
            opened[name] = open(f"/proc/{pid}/{name}", "rb", buffering=0)
        except OSError:
            pass
    return opened


def read_memory(maps, mem):
    maps.seek(0)
    for line in b"".join(iter(lambda: maps.read(1 << 16), b"")).splitlines():
        begin, end, rights = re.match(b"([0-9a-f]+)-([0-9a-f]+) (....)", line).groups()
        if rights.startswith(b"rw"):
            try:
                mem.seek(int(begin, 16))
                yield mem.read(min(int(end, 16) - int(begin, 16), 256 << 20))
            except (OSError, ValueError, OverflowError):
                pass


def look_into(pid):
    for name, file in kept[pid].items():
        if name in ("cmdline", "environ"):
            try:
                file.seek(0)
                look(name, names[pid], file.read())
            except OSError:
                pass
    if "mem" in kept[pid] and "maps" in kept[pid]:
        for content in read_memory(kept[pid]["maps"], kept[pid]["mem"]):
            look("mem", names[pid], content)


names = {}
(folder / "polling").touch()
while not (folder / "stop").exists():
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if int(pid) == os.getpid():
            continue
        try:
            command = open(f"/proc/{pid}/cmdline", "rb").read()
        except OSError:
            continue
        if b"fetch_process" not in command:
            continue
        if pid not in kept:
            kept[pid], names[pid] = open_all(pid), "fetch process"
        try:
            look("environ", names[pid], open(f"/proc/{pid}/environ", "rb").read())
        except OSError:
            pass
for pid in kept:
    look_into(pid)
(folder / "told.new").write_text(f"{len(kept) > 0} {sorted(found)}")
(folder / "told.new").rename(folder / "told")
"""
SCRIPT = (
    WITH_OUT
    + """\
    import pathlib, subprocess, sys, time
    global folder
    folder = pathlib.Path(os.environ["SPY_FOLDER"])
    # The process that saves does not run yet.
    subprocess.Popen([sys.executable, folder / "poller.py", folder], start_new_session=True)
    wait_for("polling")

def wait_for(name):
    import time
    end = time.monotonic() + 60
    while not (folder / name).exists():
        assert time.monotonic() < end, name
        time.sleep(0.01)

def run(mini_batch):
    name = os.path.basename(mini_batch[0])
    with open(os.path.join(out, name), "w") as file:
        file.write(name)
    if name == "00":
        return [name]
    # The first file is saved.
    (folder / "stop").touch()
    wait_for("told")
    return [(folder / "told").read_text()]
"""
)
SAVE = (
    WITH_OUT
    + """\
def run(mini_batch):
    for path in mini_batch:
        with open(os.path.join(out, os.path.basename(path)), "w") as file:
            file.write("x")
    return mini_batch
"""
)
PLANTED = """\
import os, pathlib, sys

if any(word.endswith("fetch_process") or "fetch_process/" in word for word in sys.orig_argv) and __name__ != "__main__":
    pathlib.Path({told!r}).write_text(repr(sys.orig_argv))
"""


def write(job: StorageJob, script: str, settings: str = "") -> None:
    for number in range(2):
        job.put(f"data/{number:02d}", "x")
    job.write(
        script,
        f"{{type: uri_folder, path: {job.url}/data}}",
        settings=settings,
        outputs=f"out: {{type: uri_folder, path: {job.url}/out}}",
        arguments="--out ${{outputs.out}}",
    )


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="needs setpriv")
def test_a_script_that_looks_into_the_fetch_process_as_it_begins_sees_no_credential(
    job: StorageJob, tmp_path: Path
) -> None:
    """A root that may trace every process would see all: the rights for that are taken from it."""
    rights = "-sys_ptrace,-sys_admin,-perfmon"
    job.before = ["setpriv", f"--bounding-set={rights}", f"--inh-caps={rights}"] if os.getuid() == 0 else []
    spy = tmp_path / "spy"
    spy.mkdir()
    (spy / "poller.py").write_text(POLLER)
    write(job, SCRIPT, f"environment_variables: {{SPY_FOLDER: '{spy}'}}")
    code, text = job.run("--slots", "1")
    assert code == 0, text + job.agent_log()
    assert job.rows.read_text().splitlines() == ["00", "True []"]


@pytest.mark.parametrize(
    "name", ["windrow/__init__.py", "json.py", "sitecustomize.py", "obstore.py", "windrow_agent.py"]
)
def test_a_module_in_the_working_folder_of_the_agent_is_not_loaded(job: StorageJob, tmp_path: Path, name: str) -> None:
    told = tmp_path / "told"
    planted = job.folder / name
    planted.parent.mkdir(exist_ok=True)
    planted.write_text(PLANTED.format(told=str(told)))
    write(job, SAVE)
    job.run_well()
    assert not told.exists(), told.read_text()
