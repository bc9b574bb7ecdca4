"""Environments on a node: built once, whole or not at all, while their step has no work, with the reason where not."""

from __future__ import annotations

import json
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from agent_rig import ECHO, AgentProcess, Rig, eventually, scenario
from fetched_python import CHANGES_ITS_PYTHON, MINOR, downloads, packed
from package_index import PackageIndex, package_index
from scripted_master import STEP
from windrow.common.journal import REPEATED_TIMES
from windrow.rpc.v1 import agent_service_pb2 as rpc
from windrow.rpc.v1 import node_pb2
from windrow.rpc.v1 import work_pb2 as work
from windrow_agent.environments.cache import Cache
from windrow_agent.sandbox.confinement import kernel_abi
from windrow_agent.sandbox.policy import AUTO_ABI, STRICT_ABI

PEBBLE = """
import os, sys
import pebble

def run(mini_batch):
    return [" ".join([pebble.colour, sys.prefix, os.environ["VIRTUAL_ENV"], os.environ["PATH"].split(":")[0],
                      str([name for name in os.environ if name.startswith(("UV_", "PIP_"))])])]
"""

BUILD_LOG = "user/environment/node-1/process000.build.txt"


def settings(rig: Rig, **more: Any) -> dict[str, Any]:
    return {"python": None, "environments_folder": str(rig.root / "environments"), **more}


def wanted(*requirements: str, **more: Any) -> work.Environment:
    return work.Environment(requirements=requirements, **more)


async def start(rig: Rig, index: PackageIndex, name: str = "agent", **more: Any) -> AgentProcess:
    """An agent that knows the index, with caches of its own."""
    agent = AgentProcess(rig.master, rig.root / name, **settings(rig, **more))
    rig.agents.append(agent)
    await agent.start(
        UV_DEFAULT_INDEX=index.url,
        UV_CACHE_DIR=str(rig.root / "uv"),
        UV_HTTP_RETRIES="0",
        UV_PYTHON_DOWNLOADS="never",
        VIRTUAL_ENV="",
        PYTHONPATH="/nowhere",
        AWS_SECRET_ACCESS_KEY="secret",
    )
    return agent


def whole(rig: Rig) -> list[Path]:
    return [note.with_suffix("") for note in (rig.root / "environments").glob("*.json")]


def row_of(rig: Rig, lease_id: int) -> str:
    return rig.master.completions[lease_id][0].rows.decode().strip()


def log_of(rig: Rig) -> str:
    return rig.master.logs[rpc.LOG_KIND_ENVIRONMENT, 0].decode()


def lines_about(rig: Rig, words: str) -> list[dict[str, Any]]:
    """What the agent's log says of something."""
    lines = [json.loads(line) for line in (rig.root / "agent" / "agent.log").read_text().splitlines()]
    return [line for line in lines if words in line["event"]]


def builds(rig: Rig, step_id: int = STEP) -> bool:
    return any(
        worker.phase == node_pb2.WORKER_PHASE_BUILDING and worker.step_id == step_id
        for heartbeat in rig.master.heartbeats[-1:]
        for worker in heartbeat.workers
    )


async def until_served(rig: Rig) -> None:
    """A node takes mini-batches of the step."""
    await rig.master.until(lambda: STEP in rig.master.capacities and rig.master.capacities[STEP].leases_max)


async def python_taken_away(rig: Rig, index: PackageIndex) -> Path:
    """Where the interpreter of a built environment was, the agent of which is gone."""
    rig.master.step(rig.script(PEBBLE), environment=wanted("pebble"))
    await rig.master.start()
    agent = await start(rig, index)
    await until_served(rig)
    await agent.kill()
    rig.master.capacities.clear()
    (folder,) = whole(rig)
    python = folder / "bin" / "python"
    python.unlink()
    return python


@scenario
async def test_scripts_run_in_what_was_built(rig: Rig) -> None:
    with package_index() as index:
        rig.master.step(rig.script(PEBBLE), environment=wanted("pebble==1.0"))
        await rig.master.start()
        await start(rig, index)
        await until_served(rig)
        (lease,) = rig.master.assign()
        await rig.master.until(lambda: rig.master.done([lease]))
        (folder,) = whole(rig)
        assert row_of(rig, lease) == f"grey {folder} {folder} {folder}/bin []"
        await rig.master.until(lambda: "pebble==1.0" in log_of(rig))


@scenario
async def test_the_same_list_is_built_once_for_all_steps_and_agents(rig: Rig) -> None:
    with package_index() as index:
        code = rig.script(PEBBLE)
        rig.master.step(code, environment=wanted("pebble"))
        rig.master.step(code, step_id=8, environment=wanted("pebble"))
        await rig.master.start()
        await start(rig, index)
        await rig.master.until(lambda: {STEP, 8} <= rig.master.capacities.keys())
        leases = [*rig.master.assign(), *rig.master.assign(step_id=8)]
        await rig.master.until(lambda: rig.master.done(leases))
        assert index.asked.count("/simple/pebble/") == 1
        asked = len(index.asked)
        await start(rig, index, "another", node_id="node-2")
        await rig.master.until(lambda: len(rig.master.hellos) == 2)
        (lease,) = rig.master.assign()
        await rig.master.until(lambda: rig.master.done([lease]))
        assert len(index.asked) == asked
        assert len({row_of(rig, lease).split()[1] for lease in [*leases, lease]}) == 1
        assert row_of(rig, lease).startswith("white ")


@scenario
async def test_a_node_that_builds_says_so_and_wants_no_work_meanwhile(rig: Rig) -> None:
    with package_index() as index:
        index.gate.clear()
        rig.master.step(rig.script(PEBBLE), environment=wanted("pebble"))
        await rig.master.start()
        await start(rig, index)
        await rig.master.until(lambda: builds(rig), "a heartbeat that tells of the build")
        assert rig.master.capacities[STEP].leases_max == 0
        assert not rig.master.capacities[STEP].given_up
        index.gate.set()
        await rig.master.until(lambda: rig.master.capacities[STEP].leases_max)
        await rig.master.until(lambda: not builds(rig))


@scenario
async def test_a_step_that_ends_ends_its_build(rig: Rig) -> None:
    with package_index() as index:
        index.gate.clear()
        rig.master.step(rig.script(PEBBLE), environment=wanted("pebble"))
        await rig.master.start()
        await start(rig, index)
        await eventually(lambda: index.asked)
        rig.master.specs.clear()
        rig.master.send(rpc.WorkResponse(ended_step_ids=[STEP]))
        await rig.master.until(lambda: rig.master.ended)
        await eventually(lambda: not list((rig.root / "environments").glob("*/bin")), "nothing is left of it")
        assert whole(rig) == []


@scenario
async def test_a_step_that_waits_for_another_one_s_build_says_so(rig: Rig) -> None:
    """It has one built itself where the other one ends before."""
    with package_index() as index:
        index.gate.clear()
        code = rig.script(PEBBLE)
        steps = {STEP, 8}
        for step_id in steps:
            rig.master.step(code, step_id=step_id, environment=wanted("pebble"))
        await rig.master.start()
        await start(rig, index)
        await rig.master.until(lambda: all(builds(rig, step_id) for step_id in steps), "both are told of")
        logs = {step_id: rig.root / "agent" / "steps" / f"{step_id}-1" / "logs" / BUILD_LOG for step_id in steps}
        (waits,) = (step_id for step_id, log in logs.items() if "waiting" in log.read_text())
        (first,) = steps - {waits}
        del rig.master.specs[first]
        rig.master.send(rpc.WorkResponse(ended_step_ids=[first]))
        await eventually(lambda: logs[waits].read_text().count("\n") > 1, "uv's words about its own build")
        index.gate.set()
        await rig.master.until(lambda: waits in rig.master.capacities and rig.master.capacities[waits].leases_max)
        assert "the environment is complete" in logs[waits].read_text()


@scenario
async def test_a_killed_build_is_no_environment_and_begun_anew(rig: Rig) -> None:
    with package_index() as index:
        index.gate.clear()
        rig.master.step(rig.script(PEBBLE), environment=wanted("pebble"))
        await rig.master.start()
        agent = await start(rig, index)
        await eventually(lambda: index.asked)
        await agent.kill()
        (place,) = (path.parent for path in (rig.root / "environments").glob("*/bin"))
        assert whole(rig) == []
        # uv outlives its agent, and may still write: the next waits for it, whatever it leaves.
        (place / "left-over").touch()
        index.gate.set()
        await start(rig, index)
        await until_served(rig)
        (lease,) = rig.master.assign()
        await rig.master.until(lambda: rig.master.done([lease]))
        assert row_of(rig, lease).startswith("white ")
        assert not (place / "left-over").exists()


@scenario
async def test_an_agent_that_leaves_ends_its_build(rig: Rig) -> None:
    with package_index() as index:
        index.gate.clear()
        rig.master.step(rig.script(PEBBLE), environment=wanted("pebble"))
        await rig.master.start()
        agent = await start(rig, index)
        await eventually(lambda: index.asked)
        agent.signal(signal.SIGTERM)
        assert await agent.wait() == 0
        await eventually(lambda: not uv_processes(rig), "uv is ended")


def uv_processes(rig: Rig) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode(errors="replace")
        except OSError:
            continue
        if str(rig.root) in words and "/uv\0" in words:
            found.append(words)
    return found


@scenario
async def test_a_version_that_is_not_there_is_the_list_s_fault(rig: Rig) -> None:
    with package_index() as index:
        rig.master.step(rig.script(ECHO), environment=wanted("pebble==3"))
        await rig.master.start()
        await start(rig, index)
        await rig.master.until(lambda: rig.master.failures and rig.master.capacities[STEP].given_up)
        (failure,) = rig.master.failures
        assert failure.cause == work.CAUSE_INIT_FAILED
        for words in ("The environment of step 'score' could not be built", "pebble==3", "--python PATH", "conda_file"):
            assert words in failure.message
        assert whole(rig) == []
        errors = rig.master.logs[rpc.LOG_KIND_ERROR, 0]
        await rig.master.until(lambda: b"pebble==3" in errors)


@scenario
async def test_an_index_that_does_not_answer_is_the_node_s_fault_and_tried_again(rig: Rig) -> None:
    with package_index() as index:
        index.status = 503
        rig.master.step(rig.script(PEBBLE), environment=wanted("pebble"))
        await rig.master.start()
        await start(rig, index)
        await eventually(lambda: index.asked)
        await rig.master.until(lambda: "try 2 of 2" in log_of(rig))
        index.status = 200
        await until_served(rig)
        assert not rig.master.failures


@scenario
async def test_an_index_that_never_answers_fails_the_step_on_this_node(rig: Rig) -> None:
    with package_index() as index:
        index.status = 503
        rig.master.step(rig.script(PEBBLE), environment=wanted("pebble"))
        await rig.master.start()
        await start(rig, index)
        await rig.master.until(lambda: rig.master.failures and rig.master.capacities[STEP].given_up)
        (failure,) = rig.master.failures
        assert failure.cause == work.CAUSE_NODE_FAULT
        assert "network" in failure.message


@scenario
async def test_a_node_that_can_make_none_says_so_once_and_when_it_can_again(rig: Rig) -> None:
    with package_index() as index:
        index.status = 503
        code = rig.script(PEBBLE)
        for number in range(3):
            rig.master.step(code, STEP + number, environment=wanted("pebble", f"other-{number}"))
        await rig.master.start()
        await start(rig, index)
        await rig.master.until(lambda: len(rig.master.failures) == 3)
        (said,) = lines_about(rig, "environments")
        assert said["level"] == "error" and "cannot build environments" in said["event"]
        assert "UV_DEFAULT_INDEX" in said["why"], "what to do"
        index.status = 200
        rig.master.step(code, STEP + 3, environment=wanted("pebble"))
        await rig.master.until(lambda: STEP + 3 in rig.master.capacities and rig.master.capacities[STEP + 3].leases_max)
        _, over = lines_about(rig, "environments")
        assert over["level"] == "info" and over["times"] == 3


@scenario
async def test_lists_that_cannot_be_had_are_said_a_few_times_a_minute(rig: Rig) -> None:
    with package_index() as index:
        code = rig.script(PEBBLE)
        for number in range(REPEATED_TIMES + 2):
            rig.master.step(code, STEP + number, environment=wanted("pebble==99"))
        await rig.master.start()
        await start(rig, index)
        await rig.master.until(lambda: len(rig.master.failures) == REPEATED_TIMES + 2)
        said = lines_about(rig, "could not be built")
        assert len(said) == REPEATED_TIMES and {line["level"] for line in said} == {"error"}


@scenario
async def test_a_python_that_is_nowhere_is_told(rig: Rig) -> None:
    with package_index() as index:
        rig.master.step(rig.script(ECHO), environment=wanted("pebble", python="3.99"))
        await rig.master.start()
        await start(rig, index)
        await rig.master.until(lambda: rig.master.failures)
        assert "Install that Python on this node" in rig.master.failures[0].message


@scenario
async def test_a_python_with_another_last_number_serves_and_is_told_once(rig: Rig) -> None:
    minor = f"{sys.version_info.major}.{sys.version_info.minor}"
    with package_index() as index:
        rig.master.step(rig.script(ECHO), environment=wanted("pebble", python=f"{minor}.999"))
        await rig.master.start()
        await start(rig, index)
        await until_served(rig)
        leases = rig.master.assign(2)
        await rig.master.until(lambda: rig.master.done(leases))
        (folder,) = whole(rig)
        assert (folder / "lib" / f"python{minor}").is_dir()
        said = f"asks for Python {minor}.999, which is not on this node"
        await rig.master.until(lambda: said in log_of(rig) and f"Another Python {minor} that is here" in log_of(rig))
        assert len(lines_about(rig, said)) == 1


@scenario
async def test_a_table_without_pandas_there_is_told_before_a_worker_starts(rig: Rig) -> None:
    with package_index() as index:
        reader = b'{"kind": "table", "format": "parquet"}'
        rig.master.step(rig.script(ECHO), environment=wanted("pebble"), reader=reader)
        await rig.master.start()
        await start(rig, index)
        await rig.master.until(lambda: rig.master.failures)
        assert "has no pandas and pyarrow" in rig.master.failures[0].message


@scenario
async def test_an_agent_with_a_python_of_its_own_builds_nothing(rig: Rig) -> None:
    with package_index() as index:
        rig.master.step(rig.script(ECHO), environment=wanted("pebble"))
        await rig.master.start()
        for number, more in enumerate(({"python": sys.executable}, {"environments": "own"})):
            agent = await start(rig, index, f"agent-{number}", **more)
            await until_served(rig)
            (lease,) = rig.master.assign()
            await rig.master.until(lambda lease=lease: rig.master.done([lease]))
            await rig.master.until(lambda: "no environment is built" in log_of(rig))
            await agent.kill()
            rig.master.capacities.clear()
        assert index.asked == []


@scenario
async def test_an_environment_whose_python_is_gone_is_built_anew(rig: Rig) -> None:
    with package_index() as index:
        python = await python_taken_away(rig, index)
        python.symlink_to("/nonexistent/python")
        await start(rig, index)
        await until_served(rig)
        (lease,) = rig.master.assign()
        await rig.master.until(lambda: rig.master.done([lease]))
        assert row_of(rig, lease).startswith("white ")


@scenario
async def test_what_packages_do_when_python_starts_sees_no_credential(rig: Rig) -> None:
    with package_index() as index:
        seen = rig.root / "seen"
        index.add_to_start("curious", f"print(*os.environ, file=open({str(seen)!r}, 'a'))")
        rig.master.step(rig.script(ECHO), environment=wanted("curious"))
        await rig.master.start()
        await start(rig, index)
        await until_served(rig)
        assert "VIRTUAL_ENV" in seen.read_text()
        assert "AWS_SECRET_ACCESS_KEY" not in seen.read_text()


@scenario
async def test_a_package_with_which_no_python_starts_is_the_list_s_fault(rig: Rig) -> None:
    """It is built once, not again and again."""
    with package_index() as index:
        index.add_to_start("stubborn", "print('no', flush=True); os._exit(3)")
        rig.master.step(rig.script(ECHO), environment=wanted("stubborn"))
        await rig.master.start()
        await start(rig, index)
        await rig.master.until(lambda: rig.master.failures and rig.master.capacities[STEP].given_up)
        (failure,) = rig.master.failures
        assert failure.cause == work.CAUSE_INIT_FAILED
        assert "does not run: it ended with exit code 3: no. " in failure.message
        assert whole(rig) == []


@scenario
async def test_an_environment_whose_python_cannot_be_asked_is_kept(rig: Rig) -> None:
    """A node without memory, say, in which the kernel kills it."""
    with package_index() as index:
        python = await python_taken_away(rig, index)
        python.write_text("#!/bin/sh\nkill -KILL $$\n")
        python.chmod(0o755)
        await start(rig, index)
        await rig.master.until(lambda: rig.master.failures and rig.master.capacities[STEP].given_up)
        assert rig.master.failures[0].cause == work.CAUSE_NODE_FAULT
        assert "could not be run: it was killed by SIGKILL" in rig.master.failures[0].message
        assert whole(rig) == [python.parent.parent]


BUILDS_WITH_EYES = """\
import json, os, pathlib, subprocess, sys, sysconfig, tempfile
def tried(what, *given):
    try:
        return str(what(*given)) and "done"
    except OSError as error:
        return type(error).__name__
def made(folder):
    path = os.path.join(folder, "made")
    open(path, "w").close()
    os.unlink(path)
told = {
    "secret": tried(lambda: open(SECRET).read()),
    "beside": tried(made, os.path.dirname(SECRET)),
    "home": tried(made, os.path.expanduser("~")),
    "temporary": tried(made, tempfile.gettempdir()),
    "/tmp": tried(made, "/tmp"),
    "python": tried(subprocess.check_call, [sys.executable, "-c", "import json"]),
}
with tempfile.TemporaryDirectory() as folder:
    print("TOLD " + json.dumps(told), file=sys.stderr)
sys.exit(1)
"""


@pytest.mark.skipif(kernel_abi() < STRICT_ABI, reason="this kernel cannot confine as strict demands")
@pytest.mark.parametrize("mode", ["strict", "auto"])
def test_a_builder_reads_and_writes_what_building_needs(mode: str) -> None:
    """Under strict, code of packages reads nothing else of the machine; under auto, what the agent's user may."""

    @scenario
    async def run(rig: Rig) -> None:
        secret = rig.root / "elsewhere" / "secret"
        secret.parent.mkdir()
        secret.write_text("the secret")
        with package_index() as index:
            index.add_source("eyes", f"SECRET = {str(secret)!r}\n{BUILDS_WITH_EYES}")
            rig.master.step(rig.script(PEBBLE), environment=wanted("pebble", "eyes"))
            await rig.master.start()
            agent = await start(rig, index, sandbox=mode)
            await rig.master.until(lambda: rig.master.failures)
            await rig.master.until(lambda: "TOLD " in log_of(rig))
        told = json.loads(log_of(rig).partition("TOLD ")[2].splitlines()[0])
        denied = "done" if mode == "auto" else "PermissionError"
        assert (told["secret"], told["beside"], told["/tmp"]) == (denied,) * 3
        assert (told["home"], told["temporary"], told["python"]) == ("done",) * 3
        assert not list(agent.folder.glob("build-*"))

    run()


@pytest.mark.skipif(kernel_abi() < STRICT_ABI, reason="this kernel cannot confine as strict demands")
@scenario
async def test_a_strict_sandbox_builds_packages_and_the_script_uses_them(rig: Rig) -> None:
    with package_index() as index:
        rig.master.step(rig.script(PEBBLE), environment=wanted("pebble"))
        await rig.master.start()
        await start(rig, index, sandbox="strict")
        await rig.master.until(lambda: rig.master.capacities.get(STEP) and rig.master.capacities[STEP].leases_max)
        (lease,) = rig.master.assign(1)
        await rig.master.until(lambda: rig.master.done([lease]))
        assert row_of(rig, lease).startswith("white ")


PLANTS_A_NOTE = """\
import json, os, time
# Where uv installs, as its command line says.
words = open(f"/proc/{os.getppid()}/cmdline").read().split("\\0")
place = os.path.dirname(os.path.dirname(words[words.index("--python") + 1]))
told = []
for note in (place + "/windrow.json", place + ".json"):
    try:
        with open(note, "w") as file:
            json.dump({"interpreter": "/etc/python"}, file)
        told.append("done")
    except OSError as error:
        told.append(type(error).__name__)
with open(place + "/told", "w") as file:
    json.dump(told, file)
while not os.path.exists(place + "/go on"):
    time.sleep(0.01)
raise SystemExit(1)
"""


@pytest.mark.skipif(kernel_abi() < STRICT_ABI, reason="this kernel cannot confine as strict demands")
@scenario
async def test_a_package_cannot_say_that_its_environment_is_complete(rig: Rig) -> None:
    """Its agent dies before the build has ended, so only the note says what is there."""
    environments = rig.root / "environments"
    with package_index() as index:
        index.add_source("forger", PLANTS_A_NOTE)
        rig.master.step(rig.script(ECHO), environment=wanted("forger"))
        await rig.master.start()
        agent = await start(rig, index, sandbox="strict")
        await eventually(lambda: list(environments.glob("*/told")), "the package has its turn")
        await agent.kill()
    (place,) = (path.parent for path in environments.glob("*/told"))
    await eventually(lambda: (place / "told").read_text().endswith("]"))
    assert json.loads((place / "told").read_text()) == ["done", "PermissionError"]
    (place / "go on").touch()
    cache = Cache(environments)
    assert not cache.is_whole(place.name)
    assert cache.read_places(place.name) == [place]
    await eventually(lambda: cache.prune() == [place.name], "what is left of it goes")


def python_changed(rig: Rig) -> tuple[int, str, list[str]]:
    """The user that a package ran as, where its Python was, and what came of its attempts to change it."""
    user, above, told = json.loads(log_of(rig).partition("TOLD ")[2].splitlines()[0])
    return user, above, told


async def changes_python(rig: Rig, index: PackageIndex, **more: Any) -> tuple[int, str, list[str]]:
    """A node fetches a Python for a list, a package of which tries to change it; then another list has it."""
    index.add_source("vandal", CHANGES_ITS_PYTHON)
    rig.master.step(rig.script(ECHO), environment=wanted("vandal", python=MINOR))
    await rig.master.start()
    agent = AgentProcess(rig.master, rig.root / "agent", **{"python": None, **more})
    rig.agents.append(agent)
    await agent.start(UV_DEFAULT_INDEX=index.url, UV_HTTP_RETRIES="0", VIRTUAL_ENV="", **downloads())
    await rig.master.until(lambda: rig.master.failures)
    await rig.master.until(lambda: "TOLD " in log_of(rig))
    tried = python_changed(rig)
    assert log_of(rig).count("uv fetches it") == 1
    code = rig.script("import sys\ndef run(mini_batch):\n    return [sys.base_prefix]\n", "code-2")
    rig.master.step(code, 8, environment=wanted("pebble", python=MINOR))
    await rig.master.until(lambda: rig.master.capacities.get(8) and rig.master.capacities[8].leases_max)
    (lease,) = rig.master.assign(step_id=8)
    await rig.master.until(lambda: rig.master.done([lease]))
    assert Path(row_of(rig, lease)).parent == Path(tried[1])
    return tried


@pytest.mark.skipif(kernel_abi() < STRICT_ABI, reason="this kernel cannot confine as strict demands")
@scenario
async def test_no_package_changes_a_python_that_uv_has_fetched(rig: Rig) -> None:
    """Environments of other lists run with the same one."""
    with package_index() as index:
        folder = str(rig.root / "environments")
        _, above, told = await changes_python(
            rig, index, sandbox="strict", environments_folder=folder, allowed_paths=[str(packed())]
        )
    assert above == f"{folder}/pythons"
    assert told == ["PermissionError"] * 5


@pytest.mark.skipif(kernel_abi() < AUTO_ABI, reason="this kernel confines nothing under auto")
@scenario
async def test_no_package_changes_a_fetched_python_in_a_folder_that_auto_closes(rig: Rig) -> None:
    with package_index() as index, closed_folder() as folder:
        _, above, told = await changes_python(rig, index, sandbox="auto", environments_folder=str(folder))
    assert above == f"{folder}/pythons"
    assert told == ["PermissionError"] * 5


@contextmanager
def closed_folder() -> Iterator[Path]:
    """A folder above which no script makes a file, so that `auto` can close it."""
    above = Path("/var/lib/windrow")
    try:
        above.mkdir(exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix="test-", dir=above))
    except PermissionError:
        pytest.skip("only root makes folders in /var/lib")
    try:
        yield folder
    finally:
        shutil.rmtree(folder)
        with suppress(OSError):
            above.rmdir()


@scenario
async def test_a_python_that_may_not_be_fetched_is_not(rig: Rig) -> None:
    with package_index() as index:
        rig.master.step(rig.script(ECHO), environment=wanted("pebble", python=MINOR))
        await rig.master.start()
        agent = AgentProcess(rig.master, rig.root / "agent", **settings(rig))
        rig.agents.append(agent)
        variables = {**downloads(), "UV_PYTHON_DOWNLOADS": "manual"}
        await agent.start(
            UV_DEFAULT_INDEX=index.url, UV_PYTHON_INSTALL_DIR=str(rig.root / "pythons"), VIRTUAL_ENV="", **variables
        )
        await rig.master.until(lambda: rig.master.failures)
        assert "Install that Python on this node" in rig.master.failures[0].message
        assert not list((rig.root / "pythons").glob("cpython-*"))


LEAD_ELSEWHERE = """
import os, sys
python = os.path.join(sys.prefix, "bin", "python")
real = os.path.realpath(python)
try:
    with open(there, "x") as file:
        file.write("#!/bin/sh\\nexec " + real + ' "$@"\\n')
    os.chmod(there, 0o755)
    os.unlink(python)
    os.symlink(there, python)
except OSError as error:
    print("TOLD", error, file=sys.stderr)
"""

LOOK_BESIDE = """
def run(mini_batch):
    try:
        return [open(SECRET).read()]
    except OSError as error:
        return [type(error).__name__]
"""


@pytest.mark.skipif(kernel_abi() < STRICT_ABI, reason="this kernel cannot confine as strict demands")
@scenario
async def test_a_package_that_leads_its_python_elsewhere_opens_nothing(rig: Rig) -> None:
    """What lies beside an interpreter may be read by whoever runs it. Code of a package does not say where that is."""
    secret = rig.root / "beside" / "secret"
    secret.parent.mkdir()
    secret.write_text("the secret")
    with package_index() as index:
        # Builders may write into the caches of downloads, and those are where all jobs of the node have theirs.
        elsewhere = rig.root / "beside" / "uv" / "python"
        lead = f"import sys; exec({LEAD_ELSEWHERE!r}, {{'there': {str(elsewhere)!r}}})"
        index.add_to_start("ivy", lead)
        rig.master.step(rig.script(f"SECRET = {str(secret)!r}{LOOK_BESIDE}"), environment=wanted("pebble", "ivy"))
        await rig.master.start()
        agent = AgentProcess(rig.master, rig.root / "agent", **settings(rig, sandbox="strict"))
        rig.agents.append(agent)
        await agent.start(
            UV_DEFAULT_INDEX=index.url,
            UV_CACHE_DIR=str(elsewhere.parent),
            UV_PYTHON_DOWNLOADS="never",
            VIRTUAL_ENV="",
        )
        await rig.master.until(
            lambda: rig.master.failures or (rig.master.capacities.get(STEP) and rig.master.capacities[STEP].leases_max)
        )
        if rig.master.failures:
            assert "does not run" in rig.master.failures[0].message
        else:
            (lease,) = rig.master.assign(1)
            await rig.master.until(lambda: rig.master.done([lease]))
            assert row_of(rig, lease) == "PermissionError"
        assert elsewhere.exists(), "the package has had its turn"
