"""A fleet of a master with TLS and tokens."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from served_tls import SecureMaster, wait_until, windrow_of, write_job
from windrow import Client
from windrow.fleet.providers.process import Processes, Settings
from windrow.rpc.contexts import Access
from windrow_command import WINDROW

FILE = """\
name: site
groups:
  local:
    {{provider: process, slots: 1, max: 1, exit_idle: 3s, process: {{folder: {folder}/processes}},
     agent: {{join_token_file: {join}, {ca} folder: {folder}}}}}
"""


@pytest.fixture
def master(tmp_path: Path) -> Iterator[SecureMaster]:
    with SecureMaster(tmp_path).serving() as serving:
        yield serving


def write(master: SecureMaster, folder: Path, *, ca: bool) -> Path:
    """The fleet's file; returns it."""
    given = f"ca_file: {master.keys}/client/ca.pem," if ca else ""
    file = folder / "fleet.yml"
    file.write_text(FILE.format(folder=folder, join=master.keys / "authority" / "join-token", ca=given))
    return file


@contextlib.contextmanager
def running(master: SecureMaster, file: Path, token: str) -> Iterator[subprocess.Popen[bytes]]:
    """The program of the fleet; what it says is in `log` beside the file."""
    token_file = file.with_name("token")
    token_file.write_text(token)
    token_file.chmod(0o600)
    access = {
        "WINDROW_MASTER": master.address.replace("127.0.0.1", "localhost"),
        "WINDROW_CA_FILE": str(master.keys / "client" / "ca.pem"),
        "WINDROW_TOKEN_FILE": str(token_file),
    }
    with file.with_name("log").open("wb") as log:
        command = [WINDROW, "fleet", "run", str(file)]
        program = subprocess.Popen(command, env={**os.environ, **access}, stdout=log, stderr=log)
    try:
        yield program
    finally:
        program.terminate()
        program.wait(120)


def test_agents_join_over_tls_with_a_join_token_and_the_role_decides_who_runs_a_fleet(
    master: SecureMaster, tmp_path: Path
) -> None:
    file = write(master, tmp_path, ca=True)
    made = windrow_of(*(master, "token", "create", "fleet", "--role", "operate"), token=master.token("client-token"))
    assert made.returncode == 0, made.stderr
    viewer = windrow_of(master, "token", "create", "eyes", "--role", "view", token=master.token("client-token"))
    with running(master, file, viewer.stdout.strip()) as program:
        assert program.wait(120) == 2
        assert "operate" in (tmp_path / "log").read_text()
    job = write_job(tmp_path / "job")
    provider = Processes(Settings(tmp_path / "processes"), "")
    with Client(access=Access(master.address, master.ca, master.token("client-token"))) as client:
        try:
            with running(master, file, made.stdout.strip()):
                submitted = client.submit(str(job))
                assert client.wait(submitted.job_id).state == "completed"
                listed = windrow_of(master, "fleet", "pause", "site", token=made.stdout.strip())
                assert listed.returncode == 0, listed.stderr
                assert client.fleets.get("site").paused_by == "fleet"
                wait_until(lambda: all(one.state.has_ended for one in provider.allocations()), "the agents have left")
        finally:
            for one in provider.allocations():
                provider.cancel(one, only_queued=False)
            wait_until(lambda: all(one.state.has_ended for one in provider.allocations()), "they have ended")


def test_a_file_without_certificates_for_agents_is_refused_where_the_master_has_tls(
    master: SecureMaster, tmp_path: Path
) -> None:
    with running(master, write(master, tmp_path, ca=False), master.token("client-token")) as program:
        assert program.wait(120) == 2
    assert "Write agent: {ca_file: /path/to/ca.pem}" in (tmp_path / "log").read_text()
