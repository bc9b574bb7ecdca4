"""`windrow health` of masters and agents."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from served_tls import DEADLINE_S, SecureMaster, joining, wait_until
from windrow.common.health_file import FRESH_S, NAME, HealthFile, is_serving
from windrow.rpc.v1 import (
    agent_service_pb2,
    agent_service_pb2_grpc,
)

CALL_S = 90.0
HEALTH = [sys.executable, "-c", "from windrow.cli import main; main()", "health"]


def health_of(address: str, ca_file: Path, **variables: str) -> tuple[int, str]:
    environment = {**os.environ, "WINDROW_CA_FILE": str(ca_file), **variables}
    done = subprocess.run(
        [*HEALTH, "--master", address, "--timeout", "50"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def look(option: str, folder: Path) -> tuple[int, str]:
    """As a container engine asks, inside the container."""
    command = [*HEALTH, option, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    return done.returncode, done.stdout + done.stderr


def test_a_master_whose_disk_is_full_does_not_serve_until_there_is_room(tmp_path: Path, small_disk: Path) -> None:
    made = SecureMaster(tmp_path)
    made.state = small_disk / "state"
    with made.serving() as master, master.channel() as channel:
        ca_file = master.keys / "client" / "ca.pem"
        assert health_of(master.address, ca_file) == (0, "serving\n")
        filler = small_disk / "filler"
        with filler.open("ab", buffering=0) as file, pytest.raises(OSError, match="No space"):
            while file.write(bytes(4096)):
                pass
        request = agent_service_pb2.RegisterRequest(node_id="n" * 60, node_incarnation="1", labels={"k": "v" * 100_000})
        agents = agent_service_pb2_grpc.AgentServiceStub(channel)
        admitted = agents.Register.future(request, metadata=joining(master), timeout=240)
        stub = health_pb2_grpc.HealthStub(channel)

        def status() -> int:
            return int(stub.Check(health_pb2.HealthCheckRequest(), timeout=CALL_S).status)

        wait_until(lambda: status() == health_pb2.HealthCheckResponse.NOT_SERVING, "the master says that it is full")
        code, told = health_of(master.address, ca_file)
        assert code == 1 and "not serving: its disk is full" in told
        wait_until(lambda: look("--state", made.state)[0] == 1, "the container engine hears of it")
        assert "not serving: its disk is full" in look("--state", made.state)[1]
        filler.unlink()
        wait_until(lambda: status() == health_pb2.HealthCheckResponse.SERVING, "the master goes on")
        wait_until(lambda: look("--state", made.state) == (0, "serving\n"), "the container engine hears of that, too")
        assert admitted.result().node_credential
        logs = (master.log, (made.state / "master.log").read_text)
        wait_until(lambda: all("writing again" in log() for log in logs), "the log says so")
        for log in (read() for read in logs):
            told = [json.loads(line) for line in log.splitlines() if '"event"' in line]
            about = [(line["level"], line["event"]) for line in told if "acknowledged" in line["event"]]
            assert about == [("error", "nothing can be acknowledged at the moment")]
            (over,) = (line for line in told if line["event"] == "writing again")
            assert over["level"] == "info" and over["times"] >= 1


def test_a_master_is_not_well_for_a_client_whose_token_it_refuses(tmp_path: Path) -> None:
    with SecureMaster(tmp_path).serving() as master:
        token = tmp_path / "token"
        for text, code, words in ((master.token("client-token"), 0, "serving"), ("another", 2, "client token")):
            token.write_text(text)
            told = health_of(master.address, master.keys / "client" / "ca.pem", WINDROW_TOKEN_FILE=str(token))
            assert told[0] == code and words in told[1], told


def start_agent(master: SecureMaster, folder: Path) -> subprocess.Popen[bytes]:
    """`windrow agent`; its words are in `agent.log` beside its folder."""
    options = ["--master", f"localhost:{master.port}", "--folder", str(folder), "--slots", "1"]
    options += ["--join-token-file", str(master.keys / "agent" / "join-token")]
    options += ["--ca-file", str(master.keys / "agent" / "ca.pem")]
    with (folder.parent / "agent.log").open("wb") as log:
        return subprocess.Popen([*HEALTH[:-1], "agent", *options], stdout=log, stderr=log)


def test_an_agent_is_healthy_while_a_master_knows_it(tmp_path: Path) -> None:
    folder = tmp_path / "agent"

    def health() -> tuple[int, str]:
        return look("--folder", folder)

    assert health()[0] == 2, "there is no such folder"
    made = SecureMaster(tmp_path)
    with made.serving() as master:
        agent = start_agent(master, folder)
        try:
            wait_until(lambda: health() == (0, "serving\n"), "the agent is connected")
            assert master.token("join-token") not in Path(f"/proc/{agent.pid}/cmdline").read_text()
            master.process.terminate()
            wait_until(lambda: health()[0] == 1, "the agent has noticed")
            assert "not connected to a master" in health()[1]
        finally:
            agent.terminate()
            agent.wait(DEADLINE_S)
    code, told = health()
    assert code == 5 and "does not answer" in told
    assert made.token("join-token") not in (tmp_path / "agent.log").read_text() + (folder / "agent.log").read_text()


@pytest.mark.parametrize("option", ["--folder", "--state"])
def test_a_process_that_hangs_is_not_healthy(tmp_path: Path, option: str) -> None:
    made = HealthFile(tmp_path)
    made.tell(serving=True)
    assert look(option, tmp_path) == (0, "serving\n")
    now_s = time.time()
    for age_s in (FRESH_S + 1, -FRESH_S - 60):
        os.utime(tmp_path / NAME, (now_s - age_s, now_s - age_s))
        code, told = look(option, tmp_path)
        assert code == 5 and "no sign of life" in told
    made.tell(serving=False)
    assert look(option, tmp_path)[0] == 1
    made.tell(serving=True)
    assert look(option, tmp_path)[0] == 0
    made.remove()
    assert look(option, tmp_path)[0] == 5


def test_a_master_whose_event_loop_stands_still_tells_nothing_new(tmp_path: Path) -> None:
    made = SecureMaster(tmp_path)
    with made.serving() as master:
        told = made.state / NAME
        wait_until(told.exists, "it tells")
        before = told.stat().st_mtime_ns
        wait_until(lambda: told.stat().st_mtime_ns > before, "it tells again and again")
        master.process.send_signal(signal.SIGSTOP)
        try:
            wait_until(lambda: psutil.Process(master.process.pid).status() == psutil.STATUS_STOPPED, "it stands still")
            os.utime(told, (time.time() - FRESH_S - 1,) * 2)
            assert look("--state", made.state)[0] == 5
        finally:
            master.process.send_signal(signal.SIGCONT)
        wait_until(lambda: look("--state", made.state)[0] == 0, "it goes on")


def test_a_look_of_a_container_engine_imports_next_to_nothing(tmp_path: Path) -> None:
    HealthFile(tmp_path).tell(serving=True)
    command = [sys.executable, "-I", "-X", "importtime", *HEALTH[1:], "--folder", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)
    modules = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    ours = sorted(name for name in modules if name.startswith("windrow"))
    assert ours == [
        "windrow",
        "windrow.cli",
        "windrow.cli.cluster",
        "windrow.cli.cluster.local_health",
        "windrow.common",
        "windrow.common.health_file",
        "windrow.common.process_end",
    ]
    dear = {"typer", "click", "grpc", "ssl", "socket", "asyncio", "json", "pathlib", "typing", "re"}
    assert not modules & dear - _of_bare_interpreter()


def _of_bare_interpreter() -> set[str]:
    """Modules that the start of this interpreter imports, editable installations included."""
    command = [sys.executable, "-I", "-c", "import sys; print(*sys.modules)"]
    return set(subprocess.run(command, capture_output=True, text=True, timeout=240, check=True).stdout.split())


AGENT_WAKE_UPS_MAX, MASTER_WAKE_UPS_MAX = 6, 6
"""A second, of the thread of the event loop. They are one and three; with ticks at intervals they were 26 and 10."""


def wake_ups(pid: int) -> int:
    """How often the main thread of a process has slept and gone on."""
    status = Path(f"/proc/{pid}/task/{pid}/status").read_text()
    return int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])


def test_master_and_agent_sleep_while_there_is_nothing_to_do(tmp_path: Path) -> None:
    folder = tmp_path / "agent"
    with SecureMaster(tmp_path).serving() as master:
        agent = start_agent(master, folder)
        try:
            told = folder / NAME

            def next_heartbeat(before: int) -> int:
                wait_until(
                    lambda: is_serving(str(folder)) and told.stat().st_mtime_ns != before, "a heartbeat is answered"
                )
                return told.stat().st_mtime_ns

            wait_until(told.exists, "the agent is there")
            # The first ones are those of an agent that has just come.
            at_ns = next_heartbeat(next_heartbeat(next_heartbeat(0)))
            pids = (agent.pid, master.process.pid)
            before, began_s = [wake_ups(pid) for pid in pids], time.monotonic()
            next_heartbeat(next_heartbeat(at_ns))
            seconds = time.monotonic() - began_s
            of_agent, of_master = ((wake_ups(pid) - was) / seconds for pid, was in zip(pids, before, strict=True))
            assert of_agent < AGENT_WAKE_UPS_MAX and of_master < MASTER_WAKE_UPS_MAX, (of_agent, of_master)
        finally:
            agent.terminate()
            agent.wait(DEADLINE_S)
