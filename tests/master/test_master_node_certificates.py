"""Certificates that expire soon are told where nodes are listed, and nothing is said of others."""

from __future__ import annotations

import datetime
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from self_signed import authority_until
from served_tls import DEADLINE_S, SecureMaster, wait_until

WINDROW = [sys.executable, "-c", "from windrow.cli import main; main()"]


@pytest.mark.parametrize(("master_days", "ca_days"), [(90, None), (20, None), (90, 3), (20, -1)])
def test_a_list_of_nodes_tells_certificates_that_expire_soon(
    tmp_path: Path, master_days: int, ca_days: int | None
) -> None:
    ca_file = tmp_path / "ca.pem"
    with SecureMaster(tmp_path, master_days).serving() as master:
        extra = b""
        if ca_days is not None:
            soon = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=ca_days, hours=1)
            extra = authority_until(soon)
        ca_file.write_bytes(master.ca.encode() + extra)
        address = f"localhost:{master.port}"
        joining = ("--ca-file", str(ca_file), "--join-token-file", str(master.keys / "agent" / "join-token"))
        folder = ("--folder", str(tmp_path / "agent"), "--node-id", "one", "--slots", "1")
        with (tmp_path / "agent.stderr").open("wb") as stderr:
            agent = subprocess.Popen([*WINDROW, "agent", "--master", address, *joining, *folder], stderr=stderr)
        try:
            listed = _listed_with_an_end(master, address)
            done = _node_list(master, address)
        finally:
            agent.terminate()
            agent.wait(DEADLINE_S)
    in_days = {
        name: (datetime.datetime.fromisoformat(listed[name]) - datetime.datetime.now(datetime.UTC)).days
        for name in ("master_certificate_good_until", "ca_good_until")
    }
    assert in_days["master_certificate_good_until"] in (master_days - 1, master_days)
    assert in_days["ca_good_until"] > 3000 if ca_days is None else in_days["ca_good_until"] == ca_days
    notes = done.stderr
    assert ("the certificate of the master expires on " in notes) == (master_days < 30), notes
    assert ("the authority by which one knows the master expire" in notes) == (ca_days is not None), notes
    assert ("windrow setup" in notes) == bool(notes), notes
    if ca_days == -1:
        assert "the master expired on " in notes
    assert "expire" not in done.stdout


def _node_list(master: SecureMaster, address: str, *options: str) -> subprocess.CompletedProcess[str]:
    files = {"WINDROW_CA_FILE": "client/ca.pem", "WINDROW_TOKEN_FILE": "client/client-token"}
    environment = {name: str(master.keys / path) for name, path in files.items()}
    return subprocess.run(
        [*WINDROW, "node", "list", "--master", address, *options],
        env={**environment, "PATH": "/usr/bin:/bin", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=True,
    )


def _listed_with_an_end(master: SecureMaster, address: str) -> dict[str, Any]:
    """The node, once its first heartbeats have told all."""
    nodes: list[dict[str, Any]] = []

    def are_told() -> bool:
        nodes[:] = json.loads(_node_list(master, address, "--format", "json").stdout)
        return bool(nodes) and nodes[0]["ca_good_until"] and nodes[0]["master_certificate_good_until"]

    wait_until(are_told, "the node tells when its certificates expire")
    return nodes[0]
