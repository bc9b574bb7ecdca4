"""Machines that are reached by ssh: real OpenSSH servers on ports of the loopback, each with a folder as its home."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from windrow.fleet.providers.ssh.settings import SshSettings

SSHD = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
STARTS_S = 60.0
_SERVER = """\
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host-key
AuthorizedKeysFile {keys}
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
# Sessions begin in the home of the machine.
ForceCommand cd {folder}/home && eval "$SSH_ORIGINAL_COMMAND"
"""
_CLIENT = """\
Host {name}
  HostName 127.0.0.1
  Port {port}
  User {user}
  IdentityFile {above}/key
  IdentitiesOnly yes
  UserKnownHostsFile {above}/known-hosts
  StrictHostKeyChecking yes
"""


class Machine:
    """One machine; it is up or down."""

    def __init__(self, above: Path, name: str) -> None:
        self.name = name
        self.folder = above / name
        self.home = self.folder / "home"
        self.home.mkdir(parents=True)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        make_key(self.folder / "host-key")
        (self.folder / "config").write_text(_SERVER.format(port=self.port, folder=self.folder, keys=above / "key.pub"))
        kind, key = (self.folder / "host-key.pub").read_text().split()[:2]
        with (above / "known-hosts").open("a") as known:
            known.write(f"[127.0.0.1]:{self.port} {kind} {key}\n")
        with (above / "config").open("a") as config:
            config.write(_CLIENT.format(name=name, port=self.port, user=getpass.getuser(), above=above))
        self._server: subprocess.Popen[bytes] | None = None

    def up(self) -> None:
        """Start its server, and wait until it listens."""
        assert SSHD is not None
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)
        command = [SSHD, "-D", "-e", "-f", str(self.folder / "config")]
        with (self.folder / "log").open("ab") as log:
            self._server = subprocess.Popen(command, stderr=log)
        end = time.monotonic() + STARTS_S
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return
            assert time.monotonic() < end and self._server.poll() is None, (self.folder / "log").read_text()
            time.sleep(0.02)

    def down(self) -> None:
        """Its server ends: nobody answers. Its processes go on."""
        if self._server is not None:
            self._server.terminate()
            self._server.wait()
            self._server = None


def make_key(path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)


class Machines:
    """Some machines, and how they are reached."""

    def __init__(self, above: Path, names: tuple[str, ...]) -> None:
        self.above = above
        make_key(above / "key")
        self.all = {name: Machine(above, name) for name in names}

    def settings(self, rooms: int = 2) -> SshSettings:
        """So many agents on each."""
        options = ("-F", str(self.above / "config"))
        return SshSettings(dict.fromkeys(self.all, rooms), "state/fleet", options, 60.0)


@contextmanager
def machines(above: Path, names: tuple[str, ...]) -> Iterator[Machines]:
    """Machines that are up; they go down in the end."""
    made = Machines(above, names)
    try:
        for machine in made.all.values():
            machine.up()
        yield made
    finally:
        for machine in made.all.values():
            machine.down()
