"""What an agent decides about its node: deadlines, causes of death, environment, interpreter, GPUs, limits,
configuration.
"""

from __future__ import annotations

import asyncio
import csv
import json
import os
import re
import signal
import stat
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from agent_rig import eventually
from windrow.common.interpreter import NoInterpreter, find_interpreter
from windrow.rpc.v1 import agent_service_pb2 as rpc
from windrow.rpc.v1 import work_pb2 as work
from windrow_agent.config import AgentConfig, BadConfig
from windrow_agent.node.gpus import GpuIndices, find_gpus
from windrow_agent.node.oom import OomCounter, counter_paths, parse_counter
from windrow_agent.node.resources import cpu_count, cpu_quota, memory_bytes
from windrow_agent.steps.lineages import Lineage
from windrow_agent.steps.resource_monitor import ResourceMonitor
from windrow_agent.steps.step import Step, StepState
from windrow_agent.workers.deadlines import Limits, Overrun, judge
from windrow_agent.workers.death import Exit, explain
from windrow_agent.workers.page import Look, Phase
from windrow_agent.workers.variables import MARK, worker_environment

S = 10**9
LIMITS = Limits(run_s=60, load_s=600)


@pytest.mark.parametrize(
    ("phase", "in_phase_s", "since_spawn_s", "stalled_s", "word"),
    [
        (Phase.NONE, 0, 209, 0, None),
        (Phase.NONE, 0, 211, 0, "Starting"),
        (Phase.STARTING, 1, 211, 0, "Starting"),
        (Phase.INIT, 1, 211, 0, "init()"),
        (Phase.INIT, 211, 211, 5, None),
        (Phase.IDLE, 10_000, 10_000, 0, None),
        (Phase.LOADING, 599, 10_000, 0, None),
        (Phase.LOADING, 601, 10_000, 0, "--task_overhead_timeout"),
        (Phase.RUNNING, 59, 10_000, 0, None),
        (Phase.RUNNING, 61, 10_000, 0, "retry_settings.timeout"),
        (Phase.RUNNING, 61, 10_000, 2, None),
        (Phase.RETURNING, 601, 10_000, 0, "what run() returned"),
        (Phase.STOPPING, 601, 10_000, 0, "shutdown()"),
    ],
)
def test_deadlines(phase: Phase, in_phase_s: int, since_spawn_s: int, stalled_s: int, word: str | None) -> None:
    now = 10**6 * S
    start = 0 if phase is Phase.NONE else now - in_phase_s * S
    look = Look(phase, 1, 1, start, 0, 0)
    overrun = judge(look, LIMITS, now_ns=now, spawned_ns=now - since_spawn_s * S, stalled_ns=stalled_s * S)
    assert (overrun is None) == (word is None)
    if overrun is not None and word is not None:
        assert word in overrun.text()
        assert overrun.during_run == (phase is Phase.RUNNING)


OVERRUN = Overrun(Phase.RUNNING, "too long", "Hurry", during_run=True)


@pytest.mark.parametrize(
    ("exit_", "phase", "overrun", "oom", "killed_for", "cause", "word"),
    [
        (Exit(code=3), Phase.RUNNING, None, False, None, work.CAUSE_CRASH, "exit code 3 in run()"),
        (Exit(code=0), Phase.RUNNING, None, False, None, work.CAUSE_CRASH, "must return, not exit"),
        (Exit(signal=signal.SIGSEGV), Phase.RUNNING, None, False, None, work.CAUSE_CRASH, "SIGSEGV"),
        (Exit(signal=signal.SIGKILL), Phase.RUNNING, None, False, None, work.CAUSE_CRASH, "SIGKILL"),
        (Exit(signal=signal.SIGKILL), Phase.LOADING, None, True, None, work.CAUSE_OOM, "memory"),
        (Exit(signal=signal.SIGTERM), Phase.RUNNING, None, True, None, work.CAUSE_CRASH, "SIGTERM"),
        (Exit(signal=signal.SIGKILL), Phase.RUNNING, OVERRUN, False, None, work.CAUSE_TIMEOUT, "too long"),
        (Exit(signal=signal.SIGKILL), Phase.RUNNING, None, False, "because", work.CAUSE_CRASH, "because"),
        (Exit(signal=40), Phase.RUNNING, None, False, None, work.CAUSE_CRASH, "SIGRTMIN+6"),
        (Exit(code=1), Phase.NONE, None, False, None, work.CAUSE_NODE_FAULT, "interpreter"),
        (Exit(code=192), Phase.RUNNING, None, False, None, work.CAUSE_CRASH, "file descriptors"),
        (Exit(code=193), Phase.IDLE, None, False, None, work.CAUSE_NODE_FAULT, "stderr"),
    ],
)
def test_causes_of_death(
    exit_: Exit,
    phase: Phase,
    overrun: Overrun | None,
    oom: bool,
    killed_for: str | None,
    cause: work.Cause.ValueType,
    word: str,
) -> None:
    death = explain(exit_, phase, overrun=overrun, oom=oom, killed_for=killed_for)
    assert death.cause == cause
    assert word in death.message or (exit_.signal == 40 and "signal 40" in death.message)


def test_credentials_of_the_agent_do_not_reach_a_worker() -> None:
    agent = {
        "PATH": "/bin", "LC_ALL": "C", "AWS_SECRET_ACCESS_KEY": "s", "WINDROW_JOIN_TOKEN": "t", "MINE": "yes",
        "CUDA_VISIBLE_DEVICES": "0,1", "HOME": "/root",
    }  # fmt: skip
    made = worker_environment(
        agent,
        {"USER_SET": "1", "AZUREML_RUN_ID": "mine", MARK: "forged"},
        passed=["MINE"],
        job_id="job",
        node_id="n",
        node_rank=3,
        mark="abc.1",
        output_path="/out",
        work_folder="/code",
        gpu_count=2,
        gpu_device=None,
    )
    assert made == {
        "PATH": "/bin", "LC_ALL": "C", "MINE": "yes", "HOME": "/root", "USER_SET": "1", "AZUREML_RUN_ID": "mine",
        "AZUREML_CR_NODE_RANK": "3", "HostName": "n", "AZ_BATCHAI_GPU_COUNT_FOUND": "2",
        "AZUREML_BI_OUTPUT_PATH": "/out", "AZ_BATCHAI_JOB_WORK_DIR": "/code",
        "AZUREML_CR_EXECUTION_WORKING_DIR_PATH": "/code", MARK: "abc.1",
    }  # fmt: skip


def test_gpus_as_documented() -> None:
    """With two GPUs, processes 0 and 1 get indices; when process 0 ends, process 4 gets index 0
    (docs/reference/azure-ml/parallel-job.md#gpus).
    """
    gpus = GpuIndices(["GPU-a", "GPU-b"])
    assert [gpus.device(gpus.take(key) or ()) for key in (1, 2, 3)] == ["GPU-a", "GPU-b", None]
    gpus.give_back(3)
    gpus.give_back(1)
    assert gpus.take(4) == (0,)
    assert gpus.take(5) == ()


def test_a_worker_that_needs_gpus_has_them_alone_or_shares_one_with_its_like() -> None:
    gpus = GpuIndices(["a", "b", "c", "d"])
    assert gpus.take(1) == (0,)
    assert gpus.take(2, 2) == (1, 2), "those that nobody has first"
    assert gpus.device((1, 2)) == "b,c"
    assert gpus.take(3, 0.5) == (3,) and gpus.take(4, 0.4) == (3,)
    assert gpus.take(5) == (), "what others need is not given to those that say nothing"
    assert gpus.has_room(1) and not gpus.has_room(2)
    assert gpus.take(6, 1) == (0,), "a worker that has said nothing keeps no device from one that has"
    assert gpus.take(7, 1) is None and gpus.take(7, 0.2) is None
    gpus.give_back(3)
    assert gpus.take(7, 0.6) == (3,)


def test_parts_on_different_gpus_are_told_so_that_they_can_be_moved_together() -> None:
    gpus = GpuIndices(["a", "b"])
    for key in (1, 2, 3, 4):
        gpus.take(key, 0.5)
    gpus.give_back(1)
    gpus.give_back(3)
    assert gpus.free == [0.5, 0.5] and not gpus.has_room(1)
    assert gpus.sharing() == [[2], [4]]
    assert gpus.without([2]) == [1.0, 0.5]


def test_gpus_are_those_the_agent_may_use(tmp_path: Path) -> None:
    (tmp_path / "gpus" / "0000:01").mkdir(parents=True)
    (tmp_path / "gpus" / "0000:01" / "information").write_text("GPU UUID: \t GPU-a\n")

    def found(environment: dict[str, str], driver: Path = tmp_path) -> tuple[str, ...]:
        return find_gpus(environment, driver, tmp_path / "none").devices

    assert found({}) == ("GPU-a",)
    assert found({"CUDA_VISIBLE_DEVICES": "3, 5"}) == ("3", "5")
    assert found({"CUDA_VISIBLE_DEVICES": ""}) == ()
    assert found({}, tmp_path / "none") == ()


def test_interpreter_is_the_active_environments(tmp_path: Path) -> None:
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    assert find_interpreter(None, {}, own="/own") == "/own"
    assert find_interpreter(None, {"CONDA_PREFIX": str(tmp_path)}) == str(python)
    assert find_interpreter(None, {"VIRTUAL_ENV": str(tmp_path), "CONDA_PREFIX": "/no"}) == str(python)
    assert find_interpreter(str(python), {"VIRTUAL_ENV": "/no"}) == str(python)
    with pytest.raises(NoInterpreter, match=r"/no/bin/python.*VIRTUAL_ENV.*does not exist.*--python"):
        find_interpreter(None, {"VIRTUAL_ENV": "/no"})
    with pytest.raises(NoInterpreter, match="cannot be executed"):
        find_interpreter(str(tmp_path), {})
    assert Path(find_interpreter("sh", {})).name == "sh"


def test_oom_counters_of_both_versions(tmp_path: Path) -> None:
    assert parse_counter("low 0\nhigh 0\nmax 3\noom 2\noom_kill 7\noom_group_kill 0\n") == 7
    assert parse_counter("oom_kill_disable 0\nunder_oom 0\noom_kill 1\n") == 1
    assert parse_counter("oom_kill_disable 0\n") is None
    paths = counter_paths("4:memory:/docker/x\n0::/\n", tmp_path)
    assert paths[0] == tmp_path / "memory" / "docker" / "x" / "memory.oom_control"
    assert counter_paths("0::/a/b\n", tmp_path)[0] == tmp_path / "a" / "b" / "memory.events"


def test_one_oom_kill_explains_one_death(tmp_path: Path) -> None:
    events = tmp_path / "memory.events"
    events.write_text("oom_kill 4\n")
    counter = OomCounter([tmp_path / "missing", events])
    assert not counter.rose()
    events.write_text("oom_kill 5\n")
    assert counter.rose()
    assert not counter.rose()


@pytest.mark.parametrize(("looks_s", "explained"), [([], True), ([5], True), ([5, 6], True), ([5, 10], False)])
def test_an_oom_kill_explains_no_later_death(tmp_path: Path, looks_s: list[int], explained: bool) -> None:
    """Of a process that a script has started: the kernel counts it as well, and no worker dies of it."""
    events = tmp_path / "memory.events"
    events.write_text("oom_kill 4\n")
    counter = OomCounter([events])
    counter.look(10**6 * S)
    events.write_text("oom_kill 5\n")
    for after_s in looks_s:
        counter.look((10**6 + after_s) * S)
    assert counter.rose() == explained
    events.write_text("oom_kill 6\n")
    assert counter.rose()


WITHOUT_WORKERS = 3


def test_steps_are_looked_at_apart(tmp_path: Path) -> None:
    """What a process has used is told of the whole time since the same step's last look, not since another's.

    A step without workers here is not looked at.
    """
    steps = []
    for step_id in (1, 2, WITHOUT_WORKERS):
        spec = work.StepSpec(step_id=step_id, resource_monitor_interval=1)
        steps.append(Step.open(spec, tmp_path, "node-1", 1, 0, Lineage()))
        steps[-1].state = StepState.SERVING
        if step_id != WITHOUT_WORKERS:
            steps[-1].workers[1] = SimpleNamespace(pid=0, process_number=0)  # type: ignore[assignment]
    files = [step.log_file(rpc.LOG_KIND_PROCESS_RESOURCES, 0).path for step in steps]

    def told(file: Path) -> list[float]:
        if not file.exists():
            return []
        with file.open(newline="") as rows:
            found = [row["Cpu Percent"] for row in csv.DictReader(rows) if row["Pid"] == str(busy.pid)]
        return [float(percent) for percent in found if percent]

    async def look() -> None:
        looking = asyncio.create_task(ResourceMonitor(lambda: steps, tmp_path, lambda: asyncio.sleep(0)).run())
        await eventually(lambda: len(told(files[1])) >= 3)
        looking.cancel()

    # A fifth of a processor, in small pieces: in the moment between the looks of two steps it does nothing, or all.
    words = "import time\nwhile True:\n    end = time.process_time() + 0.02\n"
    words += "    while time.process_time() < end: pass\n    time.sleep(0.08)\n"
    busy = subprocess.Popen([sys.executable, "-c", words])
    try:
        asyncio.run(look())
    finally:
        busy.kill()
        busy.wait()
    for of_one, of_other in zip(told(files[0]), told(files[1]), strict=False):
        assert of_other == pytest.approx(of_one, abs=10)
    assert not files[2].exists()


def test_quotas_of_both_versions(tmp_path: Path) -> None:
    two, one, none = tmp_path / "v2", tmp_path / "v1", tmp_path / "none"
    for folder in (two, one, none):
        folder.mkdir()
    (two / "cpu.max").write_text("150000 100000\n")
    (one / "cpu.cfs_quota_us").write_text("50000\n")
    (one / "cpu.cfs_period_us").write_text("100000\n")
    (none / "cpu.max").write_text("max 100000\n")
    assert (cpu_quota([two]), cpu_quota([one]), cpu_quota([none])) == (1.5, 0.5, None)
    assert 1 <= cpu_count() <= (os.cpu_count() or 1)
    assert memory_bytes() > 1 << 20


def test_configuration_goes_round() -> None:
    config = AgentConfig.parse(
        json.dumps({"folder": "/f", "master_addresses": ["unix:/s"], "slots": 3, "labels": {"a": "b"}})
    )
    assert AgentConfig.parse(config.to_json()) == config
    assert (config.slots, config.folder, config.on_master_lost) == (3, Path("/f"), "finish")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"slot": 2}, ["slot", "Allowed"]),
        ({"slots": "2"}, ["slots", "'2'", "int"]),
        ({"slots": 0}, ["slots", "at least one"]),
        ({"folder": None}, ["lacks 'folder'"]),
        ({"master_addresses": []}, ["master_addresses"]),
        ({"on_master_lost": "panic"}, ["panic", "finish, stop"]),
        ({"node_id": "-x"}, ["-x", "letter or digit"]),
        ({"slots": True}, ["slots"]),
        ({"drain_grace_s": "5"}, ["drain_grace_s"]),
        ({"insecure": "yes"}, ["insecure", "bool"]),
        ({"master_addresses": ["127.0.0.1:1", "far.example:1"]}, ["far.example:1", "--ca-file", "--insecure"]),
    ],
)
def test_bad_configuration_says_what_and_what_is_allowed(change: dict[str, object], words: list[str]) -> None:
    document = {"folder": "/f", "master_addresses": ["127.0.0.1:1"]} | change
    with pytest.raises(BadConfig) as raised:
        AgentConfig.parse(json.dumps(document))
    for word in words:
        assert word in str(raised.value)


@pytest.mark.parametrize(
    "change",
    [
        {"master_addresses": ["localhost:1", "[::1]:1", "127.1.2.3:1", "unix:/run/master"]},
        {"master_addresses": ["far.example:1"], "insecure": True},
        {"master_addresses": ["far.example:1"], "tls_ca_file": "/ca.pem"},
    ],
)
def test_an_agent_may_send_its_token_over_tls_on_this_machine_and_where_it_is_told_to(
    change: dict[str, object],
) -> None:
    AgentConfig.parse(json.dumps({"folder": "/f", "join_token": "secret", **change}))


def test_a_folder_of_the_agents_is_private(tmp_path: Path) -> None:
    from windrow_agent.node.identity import FolderInUse, Identity

    first = Identity(tmp_path / "agent")
    assert stat.S_IMODE((tmp_path / "agent").stat().st_mode) == 0o700
    assert first.replaced_incarnation == ""
    with pytest.raises(FolderInUse, match=rf"process {os.getpid()}.*--folder"):
        Identity(tmp_path / "agent")
    first.release()
    second = Identity(tmp_path / "agent")
    assert second.replaced_incarnation == first.node_incarnation != second.node_incarnation
    second.release()


def test_the_secret_of_a_node_is_made_once_and_belongs_to_its_folder(tmp_path: Path) -> None:
    from windrow_agent.node.identity import Identity

    file = tmp_path / "one" / "secret"
    first = Identity(tmp_path / "one")
    first.release()
    assert re.fullmatch(r"[0-9a-f]{64}", first.secret) and file.read_text() == first.secret
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    again, other = Identity(tmp_path / "one"), Identity(tmp_path / "two")
    assert again.secret == first.secret != other.secret
    again.release()
    file.write_text("damaged")
    assert re.fullmatch(r"[0-9a-f]{64}", Identity(tmp_path / "one").secret)


def test_an_agent_cannot_be_dumped() -> None:
    """There are credentials in its memory. In a process of its own: the tests' own process stays as it is."""
    code = (
        "import ctypes; from windrow.common.hidden_process import hide_process; from windrow_agent.node import kernel; "
        "assert hide_process() and kernel.become_subreaper(); print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "0\n"


STARTED = """
import asyncio, subprocess, sys
from windrow_agent.environments.process import Process
from windrow_agent.node.kernel import apart
child = '''
import os
try:
    os.open("/dev/tty", os.O_RDWR)
    terminal = True
except OSError:
    terminal = False
print(os.getpgrp() == os.getpid(), terminal, os.getsid(0) == os.getpid())
'''
with open(sys.argv[1], "w") as told:
    subprocess.run([sys.executable, "-c", child], stdout=told, check=True, **apart())

async def build():
    with open(sys.argv[1], "a") as told:
        await Process([sys.executable, "-c", child], {}, output=told.fileno()).wait(lambda: True)

asyncio.run(build())
"""


@pytest.mark.parametrize("terminal", [True, False])
def test_foreign_code_has_no_terminal_and_leads_its_group(tmp_path: Path, terminal: bool) -> None:
    """It could type commands into the terminal of an agent. Sessions share the processors equally, so it gets one of
    its own only where it would have a terminal else: see `apart`.
    """
    told = tmp_path / "told"
    command = [sys.executable, "-c", STARTED, str(told)]
    if terminal:
        command = [sys.executable, "-c", "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]))", *command]
    # No terminal of whoever runs the tests.
    ended = subprocess.run(
        command, check=False, stdin=subprocess.DEVNULL, capture_output=True, start_new_session=True, text=True
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert told.read_text() == f"True False {terminal}\n" * 2
