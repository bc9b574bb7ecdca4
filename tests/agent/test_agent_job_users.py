"""Users of jobs: real agents as root, whose workers become others."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from agent_rig import AgentProcess, Rig, eventually, scenario
from as_job_users import NEEDS_USERS, opened
from fetched_python import CHANGES_ITS_PYTHON, MINOR, downloads
from package_index import package_index
from scripted_master import STEP
from windrow.common.notes import read_note, write_note
from windrow.rpc.v1 import agent_service_pb2 as rpc
from windrow.rpc.v1 import work_pb2 as work
from windrow_agent.config import AUTO_JOB_USERS, JOB_USERS_BLOCK, AgentConfig, BadConfig, users_of
from windrow_agent.node.strays import start_time
from windrow_agent.sandbox import job_users
from windrow_agent.sandbox.access_lists import NotGiven, give_access, real_place, take_back
from windrow_agent.sandbox.confinement import kernel_abi
from windrow_agent.sandbox.job_users import NOTE
from windrow_agent.sandbox.policy import STRICT_ABI
from windrow_agent.workers.script_socket import comes_from

OTHER = STEP + 1

WHO = """
import json, os
def run(mini_batch):
    told = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\\t" in line)
    kept = {name: told[name].split() for name in ("Uid", "Gid", "Groups", "NoNewPrivs")}
    kept |= {name: int(told[name], 16) for name in told if name.startswith("Cap")}
    kept |= {"pid": os.getpid(), "environment": dict(os.environ), "cwd": os.getcwd(), "umask": os.umask(0o022)}
    for folder in (os.environ["HOME"], os.environ["TMPDIR"], "."):
        open(os.path.join(folder, "mine"), "w").close()
    print("said")
    with open("/proc/self/fd/1", "rb") as file:
        kept["stdout"] = file.read().decode()
    return [json.dumps(kept)]
"""


async def serving(
    rig: Rig, text: str, *, job_users: str = "auto", spec: dict[str, Any] | None = None, **config: Any
) -> AgentProcess:
    """An agent whose jobs have users, with one step over this script."""
    rig.root.chmod(0o755)
    rig.master.step(rig.script(text), **(spec or {}))
    await rig.master.start()
    agent = await rig.agent(before=opened(rig.root / "mounts"), job_users=job_users, **config)
    await rig.master.until(lambda: rig.master.hellos, "a hello")
    return agent


async def row(rig: Rig, step_id: int = STEP, recipe: bytes = b"item") -> Any:
    """The row of a mini-batch, as JSON."""
    await rig.master.until(lambda: rig.master.capacities.get(step_id), f"step {step_id} is served")
    ids = rig.master.assign(1, step_id=step_id, recipe=recipe)
    await rig.master.until(lambda: rig.master.done(ids))
    (completion,) = rig.master.completions[ids[0]]
    assert completion.cause == work.CAUSE_UNSPECIFIED, completion
    return json.loads(completion.rows)


def owner_of(path: str) -> int:
    """The user whose it is."""
    return Path(path).lstat().st_uid


def others_may_write(path: Path) -> bool:
    """Whether others than its owner may write there."""
    return not path.is_symlink() and bool(path.stat().st_mode & 0o022)


def all_below(folder: Path) -> list[Path]:
    """It, and all that is below it."""
    return [folder, *folder.rglob("*")]


def existing(*paths: str) -> list[str]:
    """Those that are there."""
    return [path for path in paths if os.path.lexists(path)]


def noted(agent: AgentProcess) -> dict[str, int]:
    """The users by job, as the agent has written them down."""
    found = read_note(agent.folder / NOTE) or {}
    return {one["job"]: one["user"] for one in found.get("jobs", ())}


def end_step(rig: Rig, step_id: int = STEP) -> None:
    """As a master does when a step is over."""
    rig.master.specs.pop(step_id)
    rig.master.send(rpc.WorkResponse(ended_step_ids=[step_id], ended_step_generations=[1]))


@NEEDS_USERS
@pytest.mark.parametrize("sandbox", ["off", "auto", "strict"])
def test_each_job_runs_as_a_user_of_its_own_without_rights(sandbox: str) -> None:
    """Without groups and capabilities; with a HOME, a TMPDIR, code and logs that are its own."""

    @scenario
    async def run(rig: Rig) -> None:
        agent = await serving(rig, WHO, sandbox=sandbox)
        rig.master.step(rig.script(WHO, "code-2"), OTHER, job_id="job-2")
        first, second = await row(rig), await row(rig, OTHER)
        users = [int(found["Uid"][0]) for found in (first, second)]
        assert noted(agent) == {"job-1": users[0], "job-2": users[1]}
        assert len(set(users)) == 2
        for user, found in zip(users, (first, second), strict=True):
            assert user in AUTO_JOB_USERS
            assert found["Uid"] == found["Gid"] == [str(user)] * 4
            assert found["Groups"] == []
            assert found["NoNewPrivs"] == ["1"]
            assert {name: held for name, held in found.items() if name.startswith("Cap") and held} == {}
            assert found["environment"]["USER"] == f"windrow-{user}"
            assert found["stdout"] == "said\n"
            assert owner_of(found["cwd"]) == user
        await rig.master.until(lambda: rig.master.heartbeats)
        told = rig.master.heartbeats[-1].protection
        assert told.startswith(f"{sandbox} ")
        assert "+ job users" in told.partition(":")[0]
        assert "each job has a user of its own" in told

    run()


REACH = """
import ctypes, errno, json, os, signal, socket
libc = ctypes.CDLL(None, use_errno=True)


def call(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), "")


def connect(path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as end:
        end.connect(path)


def attempts(there):
    pid, cwd, home = there["pid"], there["cwd"], there["environment"]["HOME"]
    step = os.path.dirname(cwd)
    yield "list the agent's folder", lambda: os.listdir(os.path.dirname(os.path.dirname(step)))
    yield "list the steps", lambda: os.listdir(os.path.dirname(step))
    yield "read the agent's log", lambda: open(os.path.join(step, "..", "..", "agent.log"))
    yield "list the rows that wait", lambda: os.listdir(os.path.join(step, "..", "..", "staged"))
    yield "list the code archives", lambda: os.listdir(os.path.join(step, "..", "..", "code"))
    yield "list its step", lambda: os.listdir(step)
    yield "read its code", lambda: open(os.path.join(cwd, "script.py"))
    yield "read its scratch", lambda: os.listdir(os.path.dirname(home))
    yield "read its logs", lambda: os.listdir(os.path.join(step, "logs"))
    yield "read its temporary files", lambda: os.listdir(there["environment"]["TMPDIR"])
    yield "read its variables", lambda: open(f"/proc/{pid}/environ", "rb").read()
    yield "open its memory", lambda: open(f"/proc/{pid}/mem", "rb")
    yield "trace it", lambda: call(libc.ptrace(16, pid, 0, 0))
    yield "signal it", lambda: os.kill(pid, signal.SIGKILL)
    yield "signal its group", lambda: os.killpg(pid, signal.SIGKILL)
    yield "list its descriptors", lambda: os.listdir(f"/proc/{pid}/fd")
    yield "signal the agent", lambda: os.kill(os.getppid(), signal.SIGKILL)
    yield "read the agent's variables", lambda: open(f"/proc/{os.getppid()}/environ", "rb").read()
    yield "speak for it", lambda: connect(json.loads(there["environment"]["WINDROW_RUN"])["requests_path"])
    yield "become root again", lambda: os.setresuid(0, 0, 0)
    yield "take its user", lambda: os.setresuid(*map(int, there["Uid"][:3]))
    yield "change its priority", lambda: os.setpriority(os.PRIO_PROCESS, pid, 5)


def run(mini_batch):
    found = {}
    for name, attempt in attempts(json.loads(mini_batch[0])):
        try:
            attempt()
        except OSError as error:
            found[name] = "denied" if error.errno in (errno.EACCES, errno.EPERM) else str(error)
        else:
            found[name] = "done"
    return [json.dumps(found)]
"""


@NEEDS_USERS
@pytest.mark.parametrize("sandbox", ["off", "auto", "strict"])
def test_a_job_reaches_nothing_of_another_one(sandbox: str) -> None:
    """Whatever the sandbox: its code, scratch, logs, variables, memory, processes; nor the agent's."""

    @scenario
    async def run(rig: Rig) -> None:
        await serving(rig, WHO, sandbox=sandbox, slots=2)
        rig.master.step(rig.script(REACH, "code-2"), OTHER, job_id="job-2")
        there = await row(rig)
        found = await row(rig, OTHER, json.dumps(there).encode())
        assert len(found) == 22
        assert {name: how for name, how in found.items() if how != "denied"} == {}
        assert start_time(there["pid"]) is not None

    run()


WRITES = """
import json, os, tempfile
def run(mini_batch):
    out = mini_batch[0]
    os.makedirs(out + "/a/b", exist_ok=True)
    for name in ("top", "a/deep", "a/b/deeper"):
        open(os.path.join(out, name), "a").write("row\\n")
    open(out + "/old", "a").write("more\\n")
    os.symlink("/etc/shadow", out + "/link") if not os.path.islink(out + "/link") else None
    descriptor, made = tempfile.mkstemp(dir=out)
    os.chmod(made, 0o4755)
    os.replace(made, out + "/program")
    return [json.dumps(os.getuid())]
"""


@NEEDS_USERS
@scenario
async def test_outputs_become_their_owners_when_the_step_ends(rig: Rig) -> None:
    """As if their owner had made them; a later step of another job can change them, as it could without users."""
    out = rig.root / "out"
    out.mkdir()
    (out / "old").write_text("old\n")
    for path in (out, out / "old"):
        os.chown(path, 1234, 1235)
    before = {path: path.stat() for path in (out, out / "old")}
    spec = {"write_paths": [str(out)], "output_path": str(out), "output_folders": [str(out)]}
    agent = await serving(rig, WRITES, spec=spec)
    user = await row(rig, recipe=str(out).encode())
    assert (out / "top").stat().st_uid == user
    end_step(rig)
    await rig.master.until(lambda: rig.master.ended, "the end of the step")

    def check(rows: int) -> None:
        found = all_below(out)
        assert len(found) == 9
        assert {(path.lstat().st_uid, path.lstat().st_gid) for path in found if not path.is_symlink()} == {(1234, 1235)}
        assert {name for path in found if not path.is_symlink() for name in os.listxattr(path)} == set()
        assert {path: path.stat().st_mode for path in before} == {path: kept.st_mode for path, kept in before.items()}
        made = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (out / "top", out / "a", out / "program")}
        assert made == {"top": 0o644, "a": 0o755, "program": 0o755}
        assert (out / "a" / "b" / "deeper").read_text() == "row\n" * rows
        assert Path("/etc/shadow").stat().st_uid == 0

    check(1)
    await eventually(lambda: not noted(agent), "the user is free")
    rig.master.step(rig.script(WRITES, "code-2"), OTHER, job_id="job-2", **spec)
    assert await row(rig, OTHER, recipe=str(out).encode()) != user
    agent.signal(signal.SIGTERM)
    assert await agent.wait() == 0
    check(2)
    assert not noted(agent)


@NEEDS_USERS
@scenario
async def test_a_killed_agent_takes_its_workers_along_and_the_next_one_knows_the_users(rig: Rig) -> None:
    """A job that comes again has its user, to which what it has written belongs; its processes are gone."""
    out, pids = rig.root / "out", rig.root / "pids"
    for folder in (out, pids):
        folder.mkdir()
    pids.chmod(0o777)
    text = (
        "import json, os, subprocess, time\n"
        "def run(mini_batch):\n"
        f"    open({str(out)!r} + '/part', 'a').write('row')\n"
        "    if mini_batch[0] == 'wait':\n"
        "        child = subprocess.Popen(['sleep', '3600'], env={}, start_new_session=True)\n"
        f"        open({str(pids)!r} + '/now', 'w').write(f'{{os.getpid()}} {{child.pid}}')\n"
        f"        os.rename({str(pids)!r} + '/now', {str(pids)!r} + '/pids')\n"
        "        time.sleep(3600)\n"
        "    return [json.dumps(os.getuid())]\n"
    )
    agent = await serving(rig, text, spec={"write_paths": [str(out)]})
    rig.master.step(rig.script(WHO, "code-2"), OTHER, job_id="job-2")
    first, second = await row(rig), int((await row(rig, OTHER))["Uid"][0])
    rig.master.assign(1, recipe=b"wait")
    await eventually((pids / "pids").exists, "the script waits")
    worker, child = map(int, (pids / "pids").read_text().split())
    agent.signal(signal.SIGKILL)
    await agent.wait()
    await eventually(lambda: start_time(worker) is None, "the end of the worker")
    assert noted(agent) == {"job-1": first, "job-2": second}
    rig.master.specs.pop(STEP)
    again = await rig.agent(before=opened(rig.root / "mounts"), job_users="auto")
    await rig.master.until(lambda: len(rig.master.hellos) == 2, "the next agent")
    await eventually(lambda: start_time(child) is None, "the end of the child")
    rig.master.step(rig.script(WHO, "code-3"), STEP + 2, job_id="job-3")
    assert int((await row(rig, STEP + 2))["Uid"][0]) not in (first, second)
    assert int((await row(rig, OTHER))["Uid"][0]) == second
    assert (out / "part").stat().st_uid == first
    again.signal(signal.SIGTERM)
    assert await again.wait() == 0
    assert (out / "part").stat().st_uid == 0
    assert not noted(again)


@NEEDS_USERS
@scenario
async def test_a_job_for_which_no_user_is_left_is_told(rig: Rig) -> None:
    """It runs as nobody else. Another job gets the user when nothing of the first one is here any more."""
    first = AUTO_JOB_USERS.stop + 10 * (os.getpid() % 1000)
    agent = await serving(rig, WHO, job_users=f"{first}-{first + 1}")
    assert (await row(rig))["Uid"][0] == str(first + 1)
    rig.master.step(rig.script(WHO, "code-2"), OTHER, job_id="job-2")
    await rig.master.until(lambda: rig.master.failures, "a failure")
    assert rig.master.failures[0].step_id == OTHER
    assert "No user is left for this job on this node: 1 jobs" in rig.master.failures[0].message
    end_step(rig)
    await eventually(lambda: not noted(agent), "the user is free")
    rig.master.step(rig.script(WHO, "code-3"), STEP + 2, job_id="job-3")
    assert (await row(rig, STEP + 2))["Uid"][0] == str(first + 1)


@NEEDS_USERS
@scenario
async def test_nothing_is_left_of_a_user_that_becomes_free(rig: Rig) -> None:
    """Neither processes that hide from the agent, nor files where all users make some."""
    mine = f"windrow-test-{os.getpid()}"
    text = (
        "import json, os, subprocess\n"
        "def run(mini_batch):\n"
        "    child = subprocess.Popen(['setsid', '-f', 'sleep', '3600'], env={'PATH': os.environ['PATH']})\n"
        f"    os.makedirs('/tmp/{mine}/below')\n    open('/dev/shm/{mine}', 'w').close()\n"
        "    return [json.dumps(os.getuid())]\n"
    )
    agent = await serving(rig, text, sandbox="off", control_groups="off")
    user = await row(rig)
    assert owner_of(f"/tmp/{mine}") == user
    end_step(rig)
    await eventually(lambda: not noted(agent), "the user is free")
    assert existing(f"/tmp/{mine}", f"/dev/shm/{mine}") == []
    assert not list(job_users._processes_of({user}))


LEAVES = """\
import ctypes, json, os, struct
libc = ctypes.CDLL(None, use_errno=True)
def given_away(number):
    # The owner may name another one. The kernel goes on knowing who has made it.
    status = ctypes.create_string_buffer(256)
    assert libc.shmctl(number, 2, status) == 0
    struct.pack_into("II", status, 4, 12345, 12345)
    assert libc.shmctl(number, 1, status) == 0
    return number
def run(mini_batch):
    made = [libc.shmget(0, 4096, 0o1600), given_away(libc.shmget(0, 4096, 0o1600)), libc.semget(0, 1, 0o1600)]
    made.append(libc.msgget(0, 0o1600))
    return [json.dumps([os.getuid(), min(made)])]
"""


@NEEDS_USERS
@pytest.mark.skipif(not Path("/proc/sysvipc/shm").exists(), reason="this kernel has no System V IPC")
@scenario
async def test_what_the_kernel_keeps_for_a_user_goes_when_the_user_becomes_free(rig: Rig) -> None:
    agent = await serving(rig, LEAVES)
    user, least = await row(rig)
    assert least >= 0
    assert sorted(kind for kind, _ in job_users._kept_of(user)) == ["msg", "sem", "shm", "shm"]
    end_step(rig)
    await eventually(lambda: not noted(agent), "the user is free")
    assert not list(job_users._kept_of(user))


@NEEDS_USERS
@pytest.mark.parametrize("what", ["folder", "file"])
def test_an_input_that_the_user_cannot_read_is_told_before_any_worker_starts(what: str) -> None:
    @scenario
    async def run(rig: Rig) -> None:
        data = rig.root / "data"
        data.mkdir(mode=0o700 if what == "folder" else 0o755)
        (data / "one").write_text("1")
        (data / "one").chmod(0o644 if what == "folder" else 0o600)
        agent = await serving(rig, WHO, spec={"read_paths": [str(data)]})
        await rig.master.until(lambda: rig.master.failures, "a failure")
        (failure,) = rig.master.failures
        assert failure.cause == work.CAUSE_NODE_FAULT
        closed = data if what == "folder" else data / "one"
        assert (
            f"cannot read {data}: the {what} {closed} has mode 0{'7' if what == 'folder' else '6'}00" in failure.message
        )
        assert "chmod o+r" in failure.message
        assert not list((agent.folder / "steps").glob("*/logs/user/stderr"))

    run()


@NEEDS_USERS
@scenario
async def test_a_python_that_the_user_cannot_run_is_told(rig: Rig) -> None:
    closed = rig.root / "closed"
    closed.mkdir(mode=0o700)
    python = closed / "python"
    python.symlink_to(sys.executable)
    await serving(rig, WHO, python=str(python))
    await rig.master.until(lambda: rig.master.failures, "a failure")
    assert f"cannot run the Python {python}: the folder {closed} has mode 0700" in rig.master.failures[0].message


@NEEDS_USERS
@scenario
async def test_two_agents_of_a_machine_never_have_the_same_users(rig: Rig) -> None:
    """`auto` takes others; a range that is taken is refused, also after its agent's death, while files are there."""
    agent = await serving(rig, WHO)
    user = int((await row(rig))["Uid"][0])
    second = await rig.agent("agent-2", before=opened(rig.root / "mounts-2"), job_users="auto", node_id="node-2")
    await rig.master.until(lambda: len(rig.master.hellos) == 2)
    claims = {path.read_text(): users_of(path.name) for path in job_users.CLAIMS.glob("*-*")}
    mine = [claims[str(one.folder)] for one in (agent, second)]
    assert user in mine[0]
    assert not set(mine[0]) & set(mine[1])
    assert len(mine[0]) == JOB_USERS_BLOCK
    agent.signal(signal.SIGKILL)
    await agent.wait()
    third = await rig.agent("agent-3", before=opened(rig.root / "mounts-3"), job_users=f"{user}-{user + 1}")
    assert await third.wait() == 2
    said = third.errors_path.read_text()
    assert f"--job-users {user}-{user + 1} is not possible here: the agent in {agent.folder} has users of" in said


@NEEDS_USERS
@scenario
async def test_an_agent_in_a_closed_place_says_so(rig: Rig) -> None:
    """A range is refused; `auto` goes on without, and its node tells."""
    rig.master.step(rig.script(WHO))
    await rig.master.start()
    first = AUTO_JOB_USERS.stop
    refused = await rig.agent("refused", job_users=f"{first}-{first + 9}")
    assert await refused.wait() == 2
    assert f"the folder {rig.root} has mode 0700" in refused.errors_path.read_text()
    await rig.agent(job_users="auto", sandbox="off")
    await rig.master.until(lambda: rig.master.heartbeats)
    told = rig.master.heartbeats[-1].protection
    assert "job users" not in told.partition(":")[0]
    assert "jobs have no users of their own, since users of jobs cannot reach" in told


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become a user without rights")
def test_an_agent_that_is_not_root_is_refused(tmp_path: Path) -> None:
    code = (
        "import os; from pathlib import Path\n"
        "from windrow_agent.config import AgentConfig\n"
        "from windrow_agent.sandbox.job_users import JobUsers\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        f"JobUsers(AgentConfig(Path({str(tmp_path)!r}), ('unix:/m',), job_users='200000-200009'))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "NoJobUsers: the agent runs as user 65534, and only root starts processes of other users" in done.stderr


@pytest.mark.parametrize(
    ("users", "words"),
    [
        (range(61184, 61190), "systemd uses it"),
        (range(200_000, 200_010), "for containers of alice"),
        (range(3000, 3010), "3005 is bob"),
    ],
)
def test_numbers_that_are_somebody_s_are_refused(
    users: range, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"/etc/passwd": "bob:x:3005:3005::/:/bin/sh\n", "/etc/subuid": "alice:199000:2000\n"}
    monkeypatch.setattr(
        job_users, "_fields", lambda file: [line.split(":") for line in files.get(file, "").splitlines()]
    )
    assert words in job_users._why_taken(users)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("yes", "allowed: off, auto, or a range"),
        ("0-10", "from 1000"),
        ("5000-5000", "at least two numbers"),
        ("2147483000-2147483648", "to 2147483647"),
    ],
)
def test_bad_ranges_are_refused(text: str, words: str) -> None:
    with pytest.raises(BadConfig, match=words):
        AgentConfig.parse(json.dumps({"folder": "/a", "master_addresses": ["unix:/m"], "job_users": text}))


@NEEDS_USERS
@pytest.mark.parametrize("mode", ["auto", "strict"] if kernel_abi() >= STRICT_ABI else ["auto"])
def test_environments_are_built_by_a_user_of_builders_and_changed_by_nobody(mode: str) -> None:
    """Not by root, since packages run code. What is complete belongs to the agent, and jobs can read it."""

    @scenario
    async def run(rig: Rig) -> None:
        text = (
            "import json, os, sys\n"
            "import pebble\n"
            "def run(mini_batch):\n"
            "    writable = [path for path, _, _ in os.walk(sys.prefix) if os.access(path, os.W_OK)]\n"
            "    return [json.dumps([sys.prefix, os.getuid(), pebble.colour, writable])]\n"
        )
        rig.root.chmod(0o755)
        who = rig.root / "who"
        who.touch()
        who.chmod(0o666)
        with package_index() as index:
            index.add_to_start("grains", f"open({str(who)!r}, 'a').write(f'{{os.getuid()}} ')")
            rig.master.step(rig.script(text), environment=work.Environment(requirements=["pebble", "grains"]))
            await rig.master.start()
            agent = AgentProcess(
                rig.master,
                rig.root / "agent",
                before=opened(rig.root / "mounts"),
                job_users="auto",
                python=None,
                sandbox=mode,
                allowed_paths=[f"{who}:rw"],
            )
            rig.agents.append(agent)
            await agent.start(UV_DEFAULT_INDEX=index.url, UV_PYTHON_DOWNLOADS="never", VIRTUAL_ENV="")
            prefix, user, colour, writable = await row(rig)
        assert (colour, writable) == ("white", [])
        place = Path(prefix)
        assert place.is_relative_to(agent.folder / "environments")
        found = all_below(place)
        assert {owner_of(str(path)) for path in found} == {0}
        assert not [path for path in found if others_may_write(path)]
        (builder,) = {owner_of(str(path)) for path in all_below(agent.folder / "uv-cache")} - {0}
        assert builder in AUTO_JOB_USERS
        assert builder != user
        assert set(map(int, who.read_text().split())) == {user, builder}, "code of a package never runs as root"

    run()


@NEEDS_USERS
@scenario
async def test_no_package_changes_a_fetched_python_whatever_the_sandbox(rig: Rig) -> None:
    """It belongs to the agent, who has fetched it; its HOME is not that of builders, which could say where from."""
    rig.root.chmod(0o755)
    with package_index() as index:
        index.add_source("vandal", CHANGES_ITS_PYTHON)
        rig.master.step(rig.script(WHO), environment=work.Environment(requirements=["vandal"], python=MINOR))
        await rig.master.start()
        agent = AgentProcess(
            rig.master,
            rig.root / "agent",
            before=opened(rig.root / "mounts"),
            job_users="auto",
            python=None,
            sandbox="off",
        )
        rig.agents.append(agent)
        await agent.start(UV_DEFAULT_INDEX=index.url, UV_HTTP_RETRIES="0", VIRTUAL_ENV="", **downloads())
        await rig.master.until(lambda: rig.master.failures)
        await rig.master.until(lambda: b"TOLD " in rig.master.logs[rpc.LOG_KIND_ENVIRONMENT, 0])
    words = rig.master.logs[rpc.LOG_KIND_ENVIRONMENT, 0].decode()
    user, above, told = json.loads(words.partition("TOLD ")[2].splitlines()[0])
    assert user in AUTO_JOB_USERS
    assert above == str(agent.folder / "environments" / "pythons")
    assert told == ["PermissionError"] * 5


@NEEDS_USERS
def test_an_agent_without_users_hands_over_what_one_with_users_has_left(tmp_path: Path) -> None:
    """Whoever leaves the option out gets the outputs, and a folder that is closed again."""
    agent, out = tmp_path / "agent", tmp_path / "out"
    for folder in (agent, out):
        folder.mkdir()
    agent.chmod(0o711)
    give_access(str(out), USER)
    (out / "row").write_text("1")
    os.chown(out / "row", USER, USER)
    write_note(agent / NOTE, {"next": USER, "jobs": [{"job": "j", "user": USER, "outputs": [str(out)]}]})
    child = subprocess.Popen(["setpriv", f"--reuid={USER}", "sleep", "3600"])
    job_users.put_away(AgentConfig(agent, ("unix:/m",)))
    assert child.wait(10) == -signal.SIGKILL
    assert owner_of(str(out / "row")) == 0
    assert [os.listxattr(path) for path in (out, out / "row")] == [[], []]
    assert stat.S_IMODE(agent.stat().st_mode) == 0o700
    assert not (agent / NOTE).exists()


def test_a_request_of_another_user_is_nobody_s() -> None:
    """Even of a process that descends from the worker."""
    connection, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with connection, other:
        assert comes_from(connection, os.getpid(), os.geteuid())
        assert comes_from(connection, os.getpid())
        assert not comes_from(connection, os.getpid(), os.geteuid() + 1)


# Access lists by themselves.

USER = AUTO_JOB_USERS[-1]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A folder with files of several kinds."""
    top = tmp_path / "top"
    (top / "below").mkdir(parents=True)
    (top / "state").mkdir()
    (top / "file").write_text("1")
    (top / "below" / "private").write_text("2")
    (top / "below" / "private").chmod(0o600)
    (tmp_path / "outside").write_text("3")
    (top / "link").symlink_to(tmp_path / "outside")
    os.link(tmp_path / "outside", top / "second-name")
    return top


def lists(top: Path) -> dict[str, list[str]]:
    return {str(path.relative_to(top)): os.listxattr(path, follow_symlinks=False) for path in [top, *top.rglob("*")]}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives access to files of others")
def test_access_is_given_below_a_folder_and_taken_back_without_a_trace(tree: Path) -> None:
    """Not by links, to files with a second name, and to what is Windrow's."""
    before = {path: path.lstat()[:6] for path in [tree, *tree.rglob("*")]}
    assert give_access(str(tree), USER, [str(tree / "state")])
    both = ["system.posix_acl_access", "system.posix_acl_default"]
    assert lists(tree) == {
        ".": both,
        "below": both,
        "file": both[:1],
        "below/private": both[:1],
        "state": [],
        "link": [],
        "second-name": [],
    }
    assert os.listxattr(tree.parent / "outside") == []
    os.chown(tree / "below" / "private", USER, USER)
    take_back(str(tree), USER, [str(tree / "state")])
    assert {path: path.lstat()[:6] for path in [tree, *tree.rglob("*")]} == before
    assert set(map(tuple, lists(tree).values())) == {()}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives access to files of others")
def test_access_lists_of_others_stay(tree: Path) -> None:
    """Of a second user, also after the first one's access has ended."""
    give_access(str(tree), USER - 1)
    kept = os.getxattr(tree / "file", "system.posix_acl_access")
    give_access(str(tree), USER)
    take_back(str(tree), USER)
    assert os.getxattr(tree / "file", "system.posix_acl_access") == kept


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes links of others")
def test_only_links_of_root_lead_to_a_folder(tmp_path: Path) -> None:
    """Whoever else has laid one might be given what it leads to. What is missing is made."""
    (tmp_path / "data").mkdir()
    (tmp_path / "roots").symlink_to("data/../data")
    assert real_place(f"{tmp_path}/roots/./new/folder") == f"{tmp_path}/data/new/folder"
    assert (tmp_path / "data" / "new" / "folder").is_dir()
    (tmp_path / "data" / "laid").symlink_to("/etc")
    os.chown(tmp_path / "data" / "laid", USER, USER, follow_symlinks=False)
    with pytest.raises(NotGiven, match=f"laid is a link of user {USER}"):
        real_place(f"{tmp_path}/roots/laid")
    take_back(str(tmp_path / "data"), USER)
    assert owner_of(str(tmp_path / "data" / "laid")) == USER


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a file system")
def test_a_file_system_without_access_lists_is_told(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from windrow_agent.sandbox.access_lists import NotGiven, give_access\n"
        f"try: give_access(sys.argv[1], {USER})\n"
        "except NotGiven as error: print(error)\n"
    )
    mount = 'mount -t ramfs none "$2" && exec "$1" -c "$0" "$2"'
    words = ["unshare", "--mount", "sh", "-c", mount, code, sys.executable, str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if "unshare" in done.stderr or "mount:" in done.stderr:
        pytest.skip("no mounts can be made here")
    assert done.stdout == f"the file system of {tmp_path} keeps no access lists (POSIX ACLs)\n", done.stderr


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(NotGiven, match="No such file"):
        give_access(str(tmp_path / "nothing"), USER)
