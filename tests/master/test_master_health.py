"""`windrow health` of masters and agents."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from served_tls import DEADLINE_S, SecureMaster, joining, wait_until
from windrow.rpc.v1 import (
    agent_service_pb2,
    agent_service_pb2_grpc,
)

CALL_S = 20.0
HEALTH = [sys.executable, "-c", "from windrow.cli import main; main()", "health"]


def health_of(address: str, ca_file: Path, **variables: str) -> tuple[int, str]:
    environment = {**os.environ, "WINDROW_CA_FILE": str(ca_file), **variables}
    done = subprocess.run(
        [*HEALTH, "--master", address], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
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
        admitted = agents.Register.future(request, metadata=joining(master), timeout=60)
        stub = health_pb2_grpc.HealthStub(channel)

        def status() -> int:
            return int(stub.Check(health_pb2.HealthCheckRequest(), timeout=CALL_S).status)

        wait_until(lambda: status() == health_pb2.HealthCheckResponse.NOT_SERVING, "the master says that it is full")
        code, told = health_of(master.address, ca_file)
        assert code == 1 and "not serving: its storage is full" in told
        filler.unlink()
        wait_until(lambda: status() == health_pb2.HealthCheckResponse.SERVING, "the master goes on")
        assert admitted.result().node_credential


def test_a_master_is_not_well_for_a_client_whose_token_it_refuses(tmp_path: Path) -> None:
    with SecureMaster(tmp_path).serving() as master:
        token = tmp_path / "token"
        for text, code, words in ((master.token("client-token"), 0, "serving"), ("another", 2, "client token")):
            token.write_text(text)
            told = health_of(master.address, master.keys / "client" / "ca.pem", WINDROW_TOKEN_FILE=str(token))
            assert told[0] == code and words in told[1], told


def test_an_agent_is_healthy_while_a_master_knows_it(tmp_path: Path) -> None:
    folder = tmp_path / "agent"

    def health() -> tuple[int, str]:
        command = [*HEALTH, "--folder", str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        return done.returncode, done.stdout + done.stderr

    assert health()[0] == 2, "there is no such folder"
    made = SecureMaster(tmp_path)
    agent = None
    try:
        with made.serving() as master:
            options = ["--master", f"localhost:{master.port}", "--folder", str(folder), "--slots", "1"]
            options += ["--join-token-file", str(master.keys / "agent" / "join-token")]
            options += ["--ca-file", str(master.keys / "agent" / "ca.pem")]
            with (tmp_path / "agent.log").open("wb") as log:
                agent = subprocess.Popen([*HEALTH[:-1], "agent", *options], stdout=log, stderr=log)
            wait_until(lambda: health() == (0, "serving\n"), "the agent is connected")
            assert master.token("join-token") not in Path(f"/proc/{agent.pid}/cmdline").read_text()
        wait_until(lambda: health()[0] == 1, "the agent has noticed")
        assert "not connected to a master" in health()[1]
    finally:
        if agent is not None:
            agent.terminate()
            agent.wait(DEADLINE_S)
    code, told = health()
    assert code == 5 and "health.sock" in told
    assert made.token("join-token") not in (tmp_path / "agent.log").read_text() + (folder / "agent.log").read_text()
