"""Two jobs on one node at the same time: what the script of one can do to the other, which waits in `run()`.

What the first one checks at its end: nothing of its own has changed. What `auto` does not keep apart is tested, too,
since docs/how-to/confine-scripts.md names it.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from as_job_users import NEEDS_USERS, open_folder, opened
from embedded_run import DEADLINE_S, EmbeddedRun, wait_until
from served import Served
from windrow import JobState
from windrow_agent.sandbox.confinement import kernel_abi
from windrow_agent.sandbox.policy import STRICT_ABI

pytestmark = pytest.mark.skipif(kernel_abi() < STRICT_ABI, reason=f"this kernel has Landlock {kernel_abi()}")

VICTIM = r"""
import contextlib, json, os, pathlib, tempfile, time
from multiprocessing import shared_memory

SECRET = "of the first job"


def init():
    global places, block, kept
    kept = {name: tempfile.mkstemp()[1] for name in ("temporary",)}
    kept["code"] = os.path.abspath("secret.txt")
    kept["output"] = os.path.join(os.environ["AZUREML_BI_OUTPUT_PATH"], "secret.txt")
    for path in kept.values():
        # A second worker may begin when the other job has ended.
        if not (os.path.exists(path) and os.path.getsize(path)):
            pathlib.Path(path).write_text(SECRET)
    block = shared_memory.SharedMemory(create=True, size=32)
    block.buf[:len(SECRET)] = SECRET.encode()


def run(mini_batch):
    words = open("/proc/self/cmdline").read().split("\0")
    (config,) = [word for word in words if word.endswith(".json") and "scratch" in word]
    here = {"config": config, "pid": os.getpid(), "agent": os.getppid(), "cwd": os.getcwd(), "input": mini_batch[0],
            "shared": block.name, "address": id(SECRET), "fd": os.open(kept["code"], os.O_RDONLY), **kept}
    told = pathlib.Path(os.environ["AZUREML_BI_OUTPUT_PATH"])
    (told / "here.tmp").write_text(json.dumps(here))
    os.rename(told / "here.tmp", told / "here")
    end = time.monotonic() + 170
    while not os.path.exists(os.path.join(os.path.dirname(mini_batch[0]), "done")) and time.monotonic() < end:
        time.sleep(0.01)
    whole = [name for name, path in kept.items() if os.path.exists(path) and open(path).read() == SECRET]
    whole += ["shared"] * (bytes(block.buf[:len(SECRET)]) == SECRET.encode())
    block.close()
    with contextlib.suppress(FileNotFoundError):  # the other job's resource tracker removes what that job attached to
        block.unlink()
    return [" ".join(sorted(whole))]
"""

HOSTILE = r"""
import ctypes, errno, json, os, resource, signal
from multiprocessing import shared_memory

DENIED = (errno.EACCES, errno.EPERM, errno.EXDEV)
libc = ctypes.CDLL(None, use_errno=True)


def call(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def read(path):
    with open(path, "rb") as file:
        return file.read()


def write(path):
    with open(path, "r+b") as file:
        file.write(b"harm")


def memory(pid, address, function):
    class Part(ctypes.Structure):
        _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]
    mine = ctypes.create_string_buffer(8)
    call(function(pid, ctypes.byref(Part(ctypes.addressof(mine), 8)), 1, ctypes.byref(Part(address, 8)), 1, 0))


def descriptor(pid, fd):
    call(libc.syscall(438, os.pidfd_open(pid), fd, 0))


def attach(name):
    block = shared_memory.SharedMemory(name)
    block.buf[:4] = b"harm"
    block.close()


def attempts(there):
    pid, agent, cwd = there["pid"], there["agent"], there["cwd"]
    step = os.path.dirname(cwd)
    yield "read its code", lambda: read(there["code"])
    yield "change its code", lambda: write(there["code"])
    yield "put a module beside its code", lambda: open(os.path.join(cwd, "json.py"), "w")
    yield "remove its code", lambda: os.unlink(there["code"])
    yield "move its code", lambda: os.rename(there["code"], "mine")
    yield "make a second name of its code", lambda: os.link(there["code"], "mine")
    yield "read its configuration", lambda: read(there["config"])
    yield "write into its scratch", lambda: open(there["config"].replace(".json", "/rows-1"), "w")
    yield "write into its logs", lambda: open(os.path.join(step, "logs", "harm"), "w")
    yield "read the rows that wait for the master", lambda: open(os.path.join(step, "..", "..", "staged", "x"), "w")
    yield "read its temporary file", lambda: read(there["temporary"])
    yield "change its temporary file", lambda: write(there["temporary"])
    yield "read its input", lambda: read(there["input"])
    yield "change its input", lambda: write(there["input"])
    yield "read its output", lambda: read(there["output"])
    yield "change its output", lambda: write(there["output"])
    yield "change its shared memory", lambda: attach(there["shared"])
    yield "see that it is there", lambda: os.kill(pid, 0)
    yield "stop it", lambda: os.kill(pid, signal.SIGSTOP)
    yield "kill its group", lambda: os.killpg(pid, signal.SIGKILL)
    yield "kill it by a descriptor", lambda: signal.pidfd_send_signal(os.pidfd_open(pid), signal.SIGKILL)
    yield "kill the agent", lambda: os.kill(agent, signal.SIGKILL)
    yield "limit it", lambda: resource.prlimit(pid, resource.RLIMIT_CPU, (0, 0))
    yield "limit the agent", lambda: resource.prlimit(agent, resource.RLIMIT_NOFILE, (0, 0))
    yield "trace it", lambda: call(libc.ptrace(16, pid, 0, 0))
    yield "read its memory", lambda: memory(pid, there["address"], libc.process_vm_readv)
    yield "write its memory", lambda: memory(pid, there["address"], libc.process_vm_writev)
    yield "open its memory", lambda: read(f"/proc/{pid}/mem")
    yield "take its descriptor", lambda: descriptor(pid, there["fd"])
    yield "list its descriptors", lambda: os.listdir(f"/proc/{pid}/fd")
    yield "open its descriptor", lambda: read(f"/proc/{pid}/fd/{there['fd']}")
    yield "read its variables", lambda: read(f"/proc/{pid}/environ")
    yield "go by its working folder", lambda: os.listdir(f"/proc/{pid}/cwd/")
    yield "go by its root", lambda: os.listdir(f"/proc/{pid}/root/")
    yield "take its control group", lambda: open(there["group"] + "/cgroup.procs", "w")


def run(mini_batch):
    there = json.loads(read(mini_batch[0]))
    found = {}
    for name, attempt in attempts(there):
        if ONLY and name not in ONLY:
            continue
        try:
            attempt()
        except OSError as error:
            found[name] = "denied" if error.errno in DENIED else str(error)
        else:
            found[name] = "done"
    return [json.dumps(found)]
"""

OPEN_UNDER_AUTO = {
    "read its input",
    "change its input",
    "read its output",
    "change its output",
    "read its temporary file",
    "change its temporary file",
}
"""Files outside Windrow's folders."""
HARMLESS = ("read its code", "read its configuration", "read its output", "see that it is there", "read its variables")
OPEN_ALWAYS = {"change its shared memory", "list its descriptors"}
"""Shared memory has no owner but the user, and descriptors are numbers: what they lead to cannot be opened."""


@pytest.fixture
def unwritten() -> Iterator[Path]:
    """A folder beside which scripts make nothing."""
    if not os.access("/run", os.W_OK):
        pytest.skip("only root can make a folder that lies in none of this user's")
    folder = Path(tempfile.mkdtemp(prefix="windrow-test-", dir="/run"))
    yield folder
    shutil.rmtree(folder)


def job_in(folder: Path, script: str) -> EmbeddedRun:
    """A job whose rows go to a folder of their own."""
    made = EmbeddedRun(folder, script, 1)
    job = folder / "job.yml"
    job.write_text(job.read_text().replace("./out.txt", "./out/rows.txt"))
    return made


def attempted(
    folder: Path, agent: Path, mode: str, only: tuple[str, ...] = (), **settings: str
) -> tuple[dict[str, str], str]:
    """Run both jobs; return what became of each attempt, and what the first job found whole at its end. `settings`: of
    the agent, in a place where all users reach its Python if it has users of jobs.
    """
    hostile = f"{HOSTILE}\nONLY = {only!r}\n"
    first, second = job_in(folder / "first", VICTIM), job_in(folder / "second", hostile)
    group = "/sys/fs/cgroup/" + ("" if Path("/sys/fs/cgroup/cgroup.procs").exists() else "pids")
    served = Served(folder)
    try:
        served.start_master()
        served.before = opened(folder / "mounts") if "job_users" in settings else []
        served.start_agent("n1", folder=str(agent), sandbox=mode, **settings)
        with served.client() as client:
            victim = client.submit(first.folder / "job.yml").job_id
            here = first.folder / "out" / "here"
            wait_until(here.exists, "the first job runs")
            (second.folder / "data" / "f00000").write_text(json.dumps(json.loads(here.read_text()) | {"group": group}))
            attacker = client.submit(second.folder / "job.yml").job_id
            assert client.wait(attacker, timeout_s=DEADLINE_S).state is JobState.COMPLETED
            (first.folder / "data" / "done").touch()
            assert client.wait(victim, timeout_s=DEADLINE_S).state is JobState.COMPLETED
            assert served.agents["n1"].poll() is None
    finally:
        served.close()
    found = json.loads((second.folder / "out" / "rows.txt").read_text())
    return found, (first.folder / "out" / "rows.txt").read_text()


def test_a_strict_sandbox_keeps_jobs_apart(tmp_path: Path) -> None:
    """All that one has, but its shared memory."""
    found, whole = attempted(tmp_path, tmp_path / "agent", "strict")
    assert len(found) == 35
    assert {name for name, how in found.items() if how == "done"} == OPEN_ALWAYS
    assert set(found.values()) == {"denied", "done"}, found
    assert whole.split() == ["code", "output", "temporary"]


def test_the_default_sandbox_keeps_scripts_out_of_the_agent_and_other_workers(tmp_path: Path, unwritten: Path) -> None:
    """Not out of what lies outside the agent's folder."""
    found, whole = attempted(tmp_path, unwritten, "auto")
    assert {name for name, how in found.items() if how == "done"} == OPEN_ALWAYS | OPEN_UNDER_AUTO
    assert set(found.values()) == {"denied", "done"}, found
    assert whole.split() == ["code"]


@NEEDS_USERS
@pytest.mark.parametrize("mode", ["off", "auto"])
def test_users_of_jobs_keep_jobs_apart_without_a_strict_sandbox(mode: str) -> None:
    """Inputs and outputs can be read, since all users may read these. Shared memory is a user's own, too."""
    with open_folder() as folder:
        found, whole = attempted(folder, folder / "agent", mode, job_users="auto")
        assert {name for name, how in found.items() if how == "done"} == {"read its input", "read its output"}
        assert set(found.values()) == {"denied", "done"}, found
        assert whole.split() == ["code", "output", "shared", "temporary"]
        left = [path for path in (folder / "first").rglob("*") if path.lstat().st_uid != os.geteuid()]
        assert left == [], "outputs have become their owner's"


def test_without_a_sandbox_it_can_be_done(tmp_path: Path) -> None:
    """So the tests above try what is possible. What would end the first job or the agent is left out."""
    found, _ = attempted(tmp_path, tmp_path / "agent", "off", only=HARMLESS)
    assert found == dict.fromkeys(HARMLESS, "done")
