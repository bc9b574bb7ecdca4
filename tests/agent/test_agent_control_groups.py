"""Control groups of workers: real ones, where this machine lets an agent make some."""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from agent_rig import ECHO, AgentProcess, Rig, eventually, scenario
from package_index import package_index
from scripted_master import STEP
from windrow.rpc.v1 import work_pb2 as work
from windrow_agent.config import AgentConfig, BadConfig
from windrow_agent.environments.process import Process
from windrow_agent.node.control_groups import (
    NOTE,
    ControlGroups,
    Tree,
    WorkerGroup,
    find_trees,
    processes_default,
    remove_leftovers,
)
from windrow_agent.node.strays import start_time

WINDROW = str(Path(sys.executable).with_name("windrow"))


def config_of(folder: Path, **fields: object) -> AgentConfig:
    """An agent's configuration, with these settings."""
    return AgentConfig(folder, ("unix:/nowhere/m",), control_groups="required", **fields)  # type: ignore[arg-type]


def why_not() -> str:
    """Why no groups can be made on this machine; "" if they can. Tried in another process, which may be moved."""
    code = (
        "import sys, tempfile; from pathlib import Path\n"
        "from windrow_agent.config import AgentConfig\n"
        "from windrow_agent.node.control_groups import ControlGroups, NoControlGroups\n"
        "with tempfile.TemporaryDirectory() as folder:\n"
        "    config = AgentConfig(Path(folder), ('unix:/m',), control_groups='required')\n"
        "    try: ControlGroups(config, 2, 2, 1 << 33).close()\n"
        "    except NoControlGroups as error: print(error)\n"
    )
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


WHY_NOT = why_not()
NEEDS_GROUPS = pytest.mark.skipif(bool(WHY_NOT), reason=f"no control groups can be made here: {WHY_NOT}")


def groups_of(pid: int) -> list[str]:
    """The groups of Windrow's that a process is in."""
    lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    return [line for line in lines if "/windrow-" in line and not line.endswith("/windrow-agent")]


def alive(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    return start_time(pid) is not None


def folders_of(agent: Path) -> list[Path]:
    """The folders of an agent's groups."""
    return [Path(line) for line in (agent / NOTE).read_text().splitlines()]


# What is found and read.

MOUNTS = """\
24 1 0:22 / /sys rw - sysfs sysfs rw
30 24 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
31 30 0:27 {root} /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids
32 30 0:28 {root} /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
33 30 0:29 {root} /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
34 30 0:30 {root} /elsewhere/blkio rw - cgroup cgroup rw,blkio
"""


@pytest.mark.parametrize(("root", "below"), [("/", "/docker/ab"), ("/docker/ab", "")])
def test_trees_of_version_1_are_found_by_where_they_are_mounted(root: str, below: str) -> None:
    """In a container, the group's path is the host's, and its folder is the mount itself."""
    own = "4:memory:/docker/ab\n3:cpu,cpuacct:/docker/ab\n2:pids:/docker/ab\n1:blkio:/docker/ab\n"
    base = "/sys/fs/cgroup"
    assert find_trees(own, MOUNTS.format(root=root)) == [
        Tree(1, Path(f"{base}/pids{below}"), ("pids",)),
        Tree(1, Path(f"{base}/cpu,cpuacct{below}"), ("cpu",)),
        Tree(1, Path(f"{base}/memory{below}"), ("memory",)),
    ]


def test_a_group_outside_of_what_is_mounted_is_not_found() -> None:
    """Nothing may be made in another one in its place."""
    assert find_trees("2:pids:/docker/cd\n", MOUNTS.format(root="/docker/ab")) == []
    own, mounts = "0::/../other\n", "31 30 0:27 /me /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
    assert find_trees(own, mounts) == []


def test_the_default_number_of_processes_leaves_some_to_the_agent() -> None:
    """Many on a large machine; where the machine has no bound that matters, as many as published scripts need."""
    bound = int(Path("/proc/sys/kernel/pid_max").read_text())
    assert processes_default([], 100_000, 8) == 64
    assert processes_default([], 2, 8) == min(4096, (bound - 512) // 2)
    assert processes_default([], 1, 256) == min(64 * 256, bound - 512)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('"control_groups": "maybe"', "allowed: off, auto, required"),
        ('"worker_processes_max": 3', "at least 16"),
        ('"worker_memory_bytes_max": 1000', "at least 33,554,432"),
        ('"worker_processes_max": 100, "control_groups": "off"', "needs control groups"),
    ],
)
def test_bad_settings_are_refused(text: str, words: str) -> None:
    with pytest.raises(BadConfig, match=words):
        AgentConfig.parse(f'{{"folder": "/a", "master_addresses": ["unix:/m"], {text}}}')


# A group by itself, with real processes.


@pytest.fixture
def groups(tmp_path: Path) -> Iterator[ControlGroups]:
    """Groups of an agent for workers of 20 processes and 64 MB."""
    config = config_of(tmp_path, worker_processes_max=20, worker_memory_bytes_max=64 << 20)
    made = ControlGroups(config, 2, 2, 8 << 30)
    yield made
    made.close()
    assert not (tmp_path / NOTE).exists()


IN_GROUP = "import os, sys\nfor e in sys.argv[1].split(':'): open(e, 'w').write('0')\n"


def run_in(groups: ControlGroups, key: int, code: str) -> tuple[subprocess.Popen[str], WorkerGroup, str]:
    """Starts Python in a new group; returns also its first line."""
    group = groups.open(key)
    words = [sys.executable, "-c", IN_GROUP + code, ":".join(group.entrances)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout:
        said = process.stdout.readline()
    return process, group, said


@NEEDS_GROUPS
def test_processes_beyond_the_number_are_refused_and_all_are_ended(groups: ControlGroups) -> None:
    """Also those in a session of their own, without a mark, that no parent knows."""
    code = (
        "import time\nmade = 0\ntry:\n"
        "    while True:\n"
        "        if os.fork() == 0:\n            os.setsid(); os.closerange(0, 9); time.sleep(3600)\n"
        "        made += 1\n"
        "except OSError as error:\n    print(made, error.errno, flush=True)\n"
        "time.sleep(3600)\n"
    )
    process, group, said = run_in(groups, 1, code)
    assert said.split() == ["19", "11"]
    assert group.was_full()
    assert not group.lacked_memory()
    group.kill()
    assert process.wait() == -signal.SIGKILL
    groups.leave(group)


@NEEDS_GROUPS
@pytest.mark.parametrize(
    ("slots", "weight", "shares"), [(1.0, 100, 1024), (0.01, 1, 10), (0.001, 1, 2), (4, 400, 4096)]
)
def test_processors_are_shared_by_what_workers_take(
    groups: ControlGroups, tmp_path: Path, slots: float, weight: int, shares: int
) -> None:
    """A step that says that its workers need next to nothing has many, which get next to nothing together."""
    group = groups.open(1, slots)
    files = [folder / "1" / name for folder in folders_of(tmp_path) for name in ("cpu.weight", "cpu.shares")]
    found = {file.name: int(file.read_text()) for file in files if file.exists()}
    if not found:
        pytest.skip("the controller cpu is not here")
    assert found.items() <= {"cpu.weight": weight, "cpu.shares": shares}.items()
    groups.leave(group)


@NEEDS_GROUPS
def test_a_group_that_uses_all_its_memory_is_told_from_one_that_is_killed(groups: ControlGroups) -> None:
    process, group, _ = run_in(groups, 1, "kept = bytearray(200 << 20)\n")
    assert process.wait() == -signal.SIGKILL
    assert (group.lacked_memory(), group.reached_own_memory_limit(), group.was_full()) == (True, True, False)
    groups.leave(group)
    process, group, _ = run_in(groups, 2, "os.kill(os.getpid(), 9)\n")
    assert process.wait() == -signal.SIGKILL
    assert (group.lacked_memory(), group.reached_own_memory_limit()) == (False, False)
    groups.leave(group)


@NEEDS_GROUPS
def test_the_groups_of_a_killed_agent_are_ended_and_removed(tmp_path: Path) -> None:
    """With all processes in them. A note that names other folders has no effect on those."""
    groups = ControlGroups(config_of(tmp_path), 2, 2, 8 << 30)
    process, group, _ = run_in(groups, 7, "print('in', flush=True); import time; time.sleep(3600)\n")
    left = folders_of(tmp_path)
    assert all((folder / "7").is_dir() for folder in left)
    (tmp_path / "windrow-1-1").mkdir()
    with (tmp_path / NOTE).open("a") as note:
        note.write(f"{tmp_path / 'windrow-1-1'}\n/sys/fs/cgroup/pids/../../../..{tmp_path}/windrow-1-1\n")
    remove_leftovers(tmp_path)
    assert process.wait() == -signal.SIGKILL
    assert not any(folder.exists() for folder in left)
    assert (tmp_path / "windrow-1-1").is_dir()
    assert not (tmp_path / NOTE).exists()
    group.remove()


@NEEDS_GROUPS
def test_empty_groups_of_agents_that_are_gone_are_removed(groups: ControlGroups, tmp_path: Path) -> None:
    """By any agent in the same place. Those of living processes stay."""
    base = folders_of(tmp_path)[0].parent
    with subprocess.Popen(["sleep", "0"]) as gone:
        abandoned = base / f"windrow-{gone.pid}-{start_time(os.getpid())}"
    (abandoned / "3").mkdir(parents=True)
    code = (
        "import sys; from pathlib import Path\n"
        "from windrow_agent.config import AgentConfig\n"
        "from windrow_agent.node.control_groups import ControlGroups\n"
        f"ControlGroups(AgentConfig(Path({str(tmp_path)!r}, 'b'), ('unix:/m',)), 2, 2, 1 << 33).close()\n"
    )
    (tmp_path / "b").mkdir()
    subprocess.run([sys.executable, "-c", code], check=True)
    assert not abandoned.exists()
    assert all(folder.exists() for folder in folders_of(tmp_path))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become a user without rights")
def test_a_user_without_rights_gets_none_and_the_reason(tmp_path: Path) -> None:
    code = (
        "import os; from pathlib import Path\n"
        "from windrow_agent.config import AgentConfig\n"
        "from windrow_agent.node.control_groups import ControlGroups\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        f"ControlGroups(AgentConfig(Path({str(tmp_path)!r}), ('unix:/m',)), 2, 2, 1 << 33)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "NoControlGroups" in done.stderr
    assert "/sys/fs/cgroup" in done.stderr


# An agent, with real workers.


@NEEDS_GROUPS
@scenario
async def test_a_fork_bomb_costs_its_mini_batch_and_nothing_else(rig: Rig) -> None:
    """Each of its processes forks on and on. The others of the step run, in the same agent, and nothing stays."""
    agent = await rig.serve(
        "import os, sys\n"
        "def run(mini_batch):\n"
        "    while mini_batch[0] == 'bad':\n"
        "        try:\n"
        "            if os.fork() == 0:\n                os.setsid()\n"
        "        except OSError:\n            pass\n"
        "    return mini_batch\n",
        worker_processes_max=200,
        control_groups="required",
    )
    await rig.master.until(lambda: rig.master.capacities.get(STEP))
    before = rig.master.assign(3)
    (bad,) = rig.master.assign(1, recipe=b"bad")
    after = rig.master.assign(20)
    await rig.master.until(lambda: rig.master.done([*before, bad, *after]))
    for i in [*before, *after]:
        assert [c.cause for c in rig.master.completions[i]] == [work.CAUSE_UNSPECIFIED]
    (completion,) = rig.master.completions[bad]
    assert completion.cause == work.CAUSE_CRASH
    assert "more processes and threads than a worker may have on this node, 200" in completion.message
    assert "--worker-processes" in completion.message
    assert agent.process is not None
    assert agent.process.returncode is None
    assert not rig.master.failures

    def holds_live_workers_alone() -> bool:
        tasks = [task for folder in folders_of(agent.folder) for task in folder.glob("*/cgroup.procs")]
        return all(len(task.read_text().split()) <= 1 for task in tasks)

    await eventually(holds_live_workers_alone, "the end of the bomb")


@NEEDS_GROUPS
@scenario
async def test_a_fork_bomb_that_the_script_survives_costs_no_other_mini_batch(rig: Rig) -> None:
    """run() returns, and leaves so many processes that the worker could run nothing more."""
    await rig.serve(
        "import os, subprocess, time\n"
        "def run(mini_batch):\n"
        "    time.sleep(0.03)\n"
        "    if mini_batch[0] == 'bad':\n"
        "        try:\n            while True:\n                subprocess.Popen(['sleep', '3600'])\n"
        "        except OSError:\n            return mini_batch\n"
        "    subprocess.run(['true'], check=True)\n"
        "    return mini_batch\n",
        slots=1,
        worker_processes_max=50,
        control_groups="required",
    )
    await rig.master.until(lambda: rig.master.capacities.get(STEP))
    before = rig.master.assign(20)
    await rig.master.until(lambda: rig.master.done(before))
    (bad,) = rig.master.assign(1, recipe=b"bad")
    after = rig.master.assign(20)
    await rig.master.until(lambda: rig.master.done([bad, *after]))
    assert rig.master.completions[bad][0].cause in (work.CAUSE_UNSPECIFIED, work.CAUSE_CRASH)
    for i in after:
        assert [c.cause for c in rig.master.completions[i]] == [work.CAUSE_UNSPECIFIED], rig.master.completions[i]


TAKES_ALL = {
    "itself": "        kept = bytearray(1 << 30)\n",
    "in a child": "        subprocess.run([sys.executable, '-c', 'kept = bytearray(1 << 30)'])\n"
    "        time.sleep(3600)\n",
    "in a child that it looks at": "        subprocess.run([sys.executable, '-c', 'kept = bytearray(1 << 30)'], "
    "check=True)\n",
}


@NEEDS_GROUPS
@pytest.mark.parametrize("who", TAKES_ALL)
def test_a_worker_that_uses_all_its_memory_is_oom_with_the_limit(who: str) -> None:
    @scenario
    async def run(rig: Rig) -> None:
        await rig.serve(
            "import subprocess, sys, time\n"
            f"def run(mini_batch):\n    if mini_batch[0] == 'bad':\n{TAKES_ALL[who]}    return mini_batch\n",
            worker_memory_bytes_max=200 << 20,
            control_groups="required",
        )
        await rig.master.until(lambda: rig.master.capacities.get(STEP))
        (bad,) = rig.master.assign(1, recipe=b"bad")
        others = rig.master.assign(10)
        await rig.master.until(lambda: rig.master.done([bad, *others]))
        (completion,) = rig.master.completions[bad]
        assert completion.cause == work.CAUSE_OOM
        assert "all memory that a worker may use on this node, 209.7 MB" in completion.message
        assert "--worker-memory" in completion.message
        for i in others:
            assert [c.cause for c in rig.master.completions[i]] == [work.CAUSE_UNSPECIFIED]

    run()


@NEEDS_GROUPS
@scenario
async def test_what_a_killed_agent_leaves_is_ended_by_the_next_one(rig: Rig) -> None:
    """Also a process without the mark of its worker, in a session of its own; the groups go."""
    pid_file = rig.root / "pid"
    agent = await rig.serve(
        "import os, subprocess\n"
        "def run(mini_batch):\n"
        "    child = subprocess.Popen(['sleep', '3600'], env={}, start_new_session=True)\n"
        f"    open({str(pid_file)!r}, 'w').write(str(child.pid))\n"
        "    return mini_batch\n",
        slots=1,
        control_groups="required",
    )
    await rig.master.until(lambda: rig.master.capacities.get(STEP))
    ids = rig.master.assign(1)
    await rig.master.until(lambda: rig.master.done(ids))
    pid = int(pid_file.read_text())
    assert groups_of(pid)
    left = folders_of(agent.folder)
    agent.signal(signal.SIGKILL)
    await agent.wait()
    assert all(folder.exists() for folder in left)
    again = await rig.agent(slots=1)
    await eventually(lambda: not any(folder.exists() for folder in left), "the end of the groups")
    await eventually(lambda: not alive(pid), "the end of the child")
    await eventually((again.folder / NOTE).exists, "the groups of the next agent")
    new = folders_of(again.folder)
    await rig.master.until(lambda: len(rig.master.hellos) == 2, "the next agent")
    again.signal(signal.SIGTERM)
    assert await again.wait() == 0
    assert not any(folder.exists() for folder in new)


@NEEDS_GROUPS
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a group to another user")
@pytest.mark.parametrize("how", ["by the command", "by what it does"])
def test_an_agent_that_root_starts_for_another_user_has_groups(how: str) -> None:
    """Of its workers, with their limits. The next one removes what was given to this one."""
    if how == "by the command" and not all(map(_is_for_all, (Path(sys.executable).resolve(), Path(WINDROW)))):
        pytest.skip("another user cannot run the Python of these tests")
    uid = pwd.getpwnam("nobody").pw_uid
    given: list[Path] = []

    @scenario
    async def run(rig: Rig) -> None:
        script = (
            "import os\n"
            "def run(mini_batch):\n"
            "    groups = open('/proc/self/cgroup').read().split()\n"
            "    group = [line for line in groups if ':pids:' in line or '0::' in line]\n"
            "    made = 0\n"
            "    try:\n        while made < 1000:\n"
            "            if os.fork() == 0:\n                import time; time.sleep(3600)\n"
            "            made += 1\n"
            "    except OSError:\n        pass\n"
            "    return [f'{os.getuid()} {made < 60}', *group]\n"
        )
        rig.root.chmod(0o777)
        rig.master.step(rig.script(script))
        await rig.master.start()
        os.chmod(rig.master.address.removeprefix("unix:"), 0o777)  # noqa: PTH101  # at once
        command = [WINDROW, "agent", "--master", rig.master.address, "--folder", str(rig.root / "agent")]
        command += ["--user", "nobody", "--node-id", "node-1", "--slots", "1", "--worker-processes", "60"]
        command += ["--control-groups", "required"]
        if how != "by the command":
            config = {"folder": str(rig.root / "agent"), "master_addresses": [rig.master.address], "slots": 1}
            config |= {"node_id": "node-1", "worker_processes_max": 60, "control_groups": "required"}
            (rig.root / "config.json").write_text(json.dumps(config))
            command = [sys.executable, "-c", BECOMES_USER, str(uid), *AS_READER, sys.executable, "-m", "windrow_agent"]
            command += ["--config", str(rig.root / "config.json")]
        with (rig.root / "stderr").open("wb") as stderr:
            agent = await asyncio.create_subprocess_exec(*command, stderr=stderr)
        try:
            await rig.master.until(lambda: rig.master.capacities.get(STEP))
            ids = rig.master.assign(1)
            await rig.master.until(lambda: rig.master.done(ids))
            who, *groups = rig.master.completions[ids[0]][0].rows.decode().split("\n")[:-1]
            assert who == f"{uid} True", "it may not have as many processes as it wants"
            name = f"/windrow-{agent.pid}-{start_time(agent.pid)}"
            assert all(f"{name}{name}/" in group for group in groups), groups
            given.extend(folder.parent for folder in folders_of(rig.root / "agent"))
            assert all(folder.stat().st_uid == uid and folder.parent.stat().st_uid == 0 for folder in given)
            assert not [file for folder in given for file in folder.glob("*.max") if file.stat().st_uid == uid]
        finally:
            agent.terminate()
            assert await agent.wait() == 0
        await eventually(lambda: not any(list(folder.glob("windrow-[0-9]*")) for folder in given), "the end of groups")

    run()
    assert all(folder.exists() for folder in given), "the user may not remove what it was given"
    child = subprocess.Popen([sys.executable, "-c", DELEGATES, str(uid)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with child:
        assert child.stdout is not None
        assert child.stdin is not None
        assert child.stdout.readline() == b"given\n"
        assert not any(folder.exists() for folder in given)
        left = [folder.parent / f"windrow-{child.pid}-{start_time(child.pid)}" for folder in given]
        assert all(folder.exists() for folder in left)
        child.stdin.close()
    for folder in left:
        folder.rmdir()


def _is_for_all(path: Path) -> bool:
    return all(folder.stat().st_mode & 0o5 == 0o5 for folder in (path, *path.parents))


AS_READER = [
    *("setpriv", "--reuid", "nobody", "--regid", "nogroup", "--clear-groups"),
    *("--inh-caps", "+dac_read_search", "--ambient-caps", "+dac_read_search"),
]
"""The words before a command that another user runs, who may read what only root can: the Python of these tests."""
BECOMES_USER = """
import os, subprocess, sys
subprocess.run([sys.executable, "-m", "windrow_agent.node.delegation", sys.argv[1], sys.argv[1]], check=True)
os.execvp(sys.argv[2], sys.argv[2:])
"""
DELEGATES = """
import subprocess, sys
subprocess.run([sys.executable, "-m", "windrow_agent.node.delegation", sys.argv[1], sys.argv[1]], check=True)
print("given", flush=True)
sys.stdin.read()
"""


@NEEDS_GROUPS
@scenario
async def test_node_and_log_say_what_the_groups_do(rig: Rig) -> None:
    agent = await rig.serve(ECHO, slots=1, worker_processes_max=300, worker_memory_bytes_max=1 << 30)
    await rig.master.until(lambda: rig.master.capacities.get(STEP))
    ids = rig.master.assign(1)
    await rig.master.until(lambda: rig.master.done(ids))
    await rig.master.until(lambda: rig.master.heartbeats)
    told = rig.master.heartbeats[-1].protection
    assert "each worker to 300 processes and threads, each worker to 1.1 GB of memory" in told
    (log,) = (agent.folder / "steps").glob("*/logs/**/process000.txt")
    await eventually(lambda: "300 processes and threads" in log.read_text(), "the log")


@NEEDS_GROUPS
@scenario
async def test_a_fork_bomb_in_a_package_costs_its_environment_and_nothing_else(rig: Rig) -> None:
    """While it is built. Other steps run meanwhile, in the same agent, and nothing of the build stays."""
    code = "import os\nwhile True:\n    try:\n        if os.fork() == 0: os.setsid()\n    except OSError: pass\n"
    words = "more processes and threads than the build of an environment may have on this node, 512"
    with package_index() as index:
        index.add_source("bomb", code)
        script = rig.script(ECHO)
        rig.master.step(script)
        rig.master.step(script, step_id=8, environment=work.Environment(requirements=["bomb"]))
        await rig.master.start()
        agent = AgentProcess(
            rig.master,
            rig.root / "agent",
            python=None,
            environments_folder=str(rig.root / "environments"),
            control_groups="required",
            worker_processes_max=200,
        )
        rig.agents.append(agent)
        await agent.start(UV_DEFAULT_INDEX=index.url, UV_CACHE_DIR=str(rig.root / "uv"), UV_PYTHON_DOWNLOADS="never")

        await rig.master.until(lambda: rig.master.capacities.get(STEP))
        before = rig.master.assign(20)
        await rig.master.until(lambda: rig.master.done(before))
        await rig.master.until(lambda: rig.master.failures)
        after = rig.master.assign(20)
        await rig.master.until(lambda: rig.master.done(after))
        for i in [*before, *after]:
            assert [c.cause for c in rig.master.completions[i]] == [work.CAUSE_UNSPECIFIED]
        (failure,) = [one for one in rig.master.failures if one.step_id == 8][:1]
        assert words in failure.message, failure
        assert agent.process is not None
        assert agent.process.returncode is None
        left = folders_of(agent.folder)
        await eventually(
            lambda: not [one for folder in left for one in folder.glob("build-*")], "the end of the build's group"
        )


@NEEDS_GROUPS
def test_a_build_without_memory_ends_with_all_that_it_has_started(tmp_path: Path) -> None:
    """It has half of the memory of all workers, and says so."""
    groups = ControlGroups(config_of(tmp_path), 2, 2, 1 << 30)
    child = tmp_path / "child"
    code = (
        "import os, subprocess, sys\n"
        "child = subprocess.Popen(['sleep', '3600'], start_new_session=True)\n"
        f"open({str(child)!r}, 'w').write(str(child.pid))\n"
        "kept = []\nwhile True: kept.append(bytearray(b'x' * (16 << 20)))\n"
    )

    async def run() -> tuple[int, str]:
        with (tmp_path / "said").open("wb") as said:
            process = Process([sys.executable, "-c", code], os.environ, output=said.fileno(), groups=groups)
            return await process.wait(lambda: True), process.limit

    code_of_end, limit = asyncio.run(run())
    assert code_of_end == -signal.SIGKILL
    assert limit == "all memory that the build of an environment may use on this node, 536.9 MB"
    left = folders_of(tmp_path)
    groups.close()
    assert not any(folder.exists() for folder in left)
    assert not alive(int(child.read_text()))


WITHOUT = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /sys/fs/cgroup && exec "$@"', "sh"]
"""The words before a command that sees no control groups."""


def can_be_without() -> bool:
    """Whether this user may start one."""
    try:
        return subprocess.run([*WITHOUT, "true"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


@pytest.mark.skipif(not can_be_without(), reason="this user cannot hide control groups from a process")
@pytest.mark.parametrize("mode", ["auto", "required"])
def test_an_agent_without_control_groups_says_so(mode: str) -> None:
    """Where they are required, it does not start; else it works, and its node says what is missing."""

    @scenario
    async def run(rig: Rig) -> None:
        rig.master.step(rig.script(ECHO))
        await rig.master.start()
        agent = await rig.agent(before=WITHOUT, control_groups=mode)
        if mode == "required":
            assert await agent.wait() == 2
            said = agent.errors_path.read_text()
            assert "control_groups is required, and there can be none here: no control groups are mounted" in said
            return
        await rig.master.until(lambda: rig.master.heartbeats)
        assert "no control groups, since no control groups are mounted" in rig.master.heartbeats[-1].protection
        await rig.master.until(lambda: rig.master.capacities.get(STEP))
        ids = rig.master.assign(1)
        await rig.master.until(lambda: rig.master.done(ids))

    run()
