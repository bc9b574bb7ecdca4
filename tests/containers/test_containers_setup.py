"""`setup` run again: certificates that run out, data folders of others."""

from __future__ import annotations

import hashlib
import os
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from container_access import (
    CALL_S,
    in_setup,
    log_of,
    token_of,
)
from container_cluster import Cluster, Work, restarts, wait_until
from windrow import Client
from windrow.errors import MasterUntrusted

pytestmark = pytest.mark.timeout(300, func_only=True)


def serial_of(cluster: Cluster) -> str:
    """Digest of the certificate that the master shows now."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    with socket.create_connection(("127.0.0.1", cluster.port), CALL_S) as raw, context.wrap_socket(raw) as secure:
        return hashlib.sha256(secure.getpeercert(binary_form=True) or b"").hexdigest()


GATED = """\
import os, time
def run(mini_batch):
    name = os.path.basename(mini_batch[0])
    while int(name) >= 1000 and not os.path.exists("/data/renewed.gate"):
        time.sleep(0.01)
    return [name + " " + str(len(open(mini_batch[0]).read()))]
"""

EXPIRED = """\
from pathlib import Path
from windrow_master.setup.authority import Authority
from windrow_master.setup.owned_files import Owner, write_secret
folder = Path("/windrow")
authority = Authority((folder / "authority" / "authority.pem").read_bytes())
expired = authority.issue(["master", "localhost", "127.0.0.1", "::1"], -1 / 48)
write_secret(folder / "authority" / "tls.pem", expired, None)
write_secret(folder / "master" / "tls.pem", expired, Owner({uid}, {uid}))
"""


def test_a_certificate_runs_out_and_is_renewed_in_the_middle_of_a_job(cluster: Cluster) -> None:
    gate = cluster.data / "renewed.gate"
    work = Work(cluster, "renewed", script=GATED).submit().wait_done(0.1)
    # Before the certificate is replaced: where nobody has asked for it yet, that runs `setup`, which would renew it.
    access = cluster.access
    first, before = serial_of(cluster), restarts(cluster.master)
    in_setup(cluster, EXPIRED.format(uid=cluster.user))
    wait_until(lambda: serial_of(cluster) != first, "the master shows the new certificate", 10)
    with pytest.raises(MasterUntrusted, match="has expired"), Client(access=access, patience_s=CALL_S) as client:
        client.master()
    told = cluster.compose("run", "--rm", "-T", "setup").stdout
    assert "Made a certificate of 397 days" in told and "valid until" in told
    renewed = serial_of(cluster)
    with Client(access=access, patience_s=CALL_S) as client:
        assert not client.get(work.job_id).state.ended, "it waits in the middle"
    gate.touch()
    job = work.check()
    gate.unlink()
    assert not job.steps[0].failed_attempts, "no connection was closed for it"
    assert restarts(cluster.master) == before
    assert "the TLS file was renewed" in log_of(cluster.master)
    again = cluster.compose("run", "--rm", "-T", "setup").stdout
    assert "All files exist" in again
    assert serial_of(cluster) == renewed
    assert cluster.access.token == token_of(cluster, "client-token"), "tokens stay as they are"


@pytest.fixture
def installation(images: None, tmp_path: Path) -> Iterator[Cluster]:
    """A project of its own, of which only `setup` runs."""
    if os.geteuid() != 0:
        pytest.skip("needs root to give folders to others")
    tmp_path.chmod(0o755)
    made = Cluster(tmp_path / "setup", f"windrow-setup-{os.getpid()}")
    try:
        yield made
    finally:
        made.down(volumes=True)


def test_data_folders_of_several_owners(installation: Cluster) -> None:
    def set_up(owner: int, mode: int) -> tuple[int, str]:
        os.chown(installation.data, owner, owner)
        installation.data.chmod(mode)
        done = installation.compose("run", "--rm", "-T", "setup", check=False)
        return done.returncode, done.stdout + done.stderr

    (installation.data / "input").write_text("somebody's")
    for mode in (0o755, 0o700):
        code, told = set_up(4321, mode)
        assert code == 1
        assert "belongs to user 4321, and user 1000" in told and "WINDROW_UID=4321" in told
        assert [path.name for path in installation.data.iterdir()] == ["input"]
    code, told = set_up(1000, 0o700)
    assert code == 0, told
    assert [path.name for path in installation.data.iterdir()] == ["input"], "its owner makes what it needs"
    code, told = set_up(0, 0o755)
    assert code == 0, told
    assert {path.name: path.stat().st_uid for path in installation.data.iterdir()} == (
        {"input": 0, "outputs": 1000, "uploads": 1000}
    )
