"""A served master and its agents, each a process of its own, with links between them that can be cut."""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, TracebackType

import psutil

from benchmarks.programs import ROOT

WINDROW = str(Path(sys.executable).parent / "windrow")


class Link:
    """A relay on loopback between an agent and the master. Once cut, it accepts bytes and passes none on, like a dead
    network: nobody gets an error.

    Not the agent's `Link`, which is its channel to the master.
    """

    def __init__(self, host: str, port: int) -> None:
        self._to = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._cut = threading.Event()
        self._sockets: list[socket.socket] = [self._listener]
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Let nothing more arrive, in either direction."""
        self._cut.set()

    def close(self) -> None:
        """End all connections."""
        for one in self._sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                self._sockets.append(near)
                if self._cut.is_set():
                    continue
                far = socket.create_connection(self._to)
                self._sockets.append(far)
                for source, target in ((near, far), (far, near)):
                    threading.Thread(target=self._pass_on, args=(source, target), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if not self._cut.is_set():
                    target.sendall(data)
            if not self._cut.is_set():
                target.shutdown(socket.SHUT_WR)


class Served:
    """A master for the data in `data`, with agents in `folder`. Its context leaves no process behind."""

    def __init__(
        self,
        folder: Path,
        data: Path,
        client_token: str = "",
        datastores: Mapping[str, str] = MappingProxyType({}),
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """`client_token`: what clients have to bring; "" for nothing. `datastores`: further ones. `environment`: more
        variables of master and agents.
        """
        # Its state and its token: a datastore holds neither, and `folder` may be in one.
        self._private = tempfile.TemporaryDirectory(prefix="windrow-master-")
        self._client_token = client_token
        self._folder = folder
        self._data = data
        self._datastores = datastores
        self._environment = environment
        self._processes: list[psutil.Popen] = []
        self._links: list[Link] = []

    def __enter__(self) -> Served:
        private = Path(self._private.name)
        command = ["master", "--state", str(private / "state"), "--listen", "127.0.0.1:0"]
        command += ["--datastore", f"data={self._data}"]
        for name, place in self._datastores.items():
            command += ["--datastore", f"{name}={place}"]
        if self._client_token:
            token = private / "client-token"
            token.touch(0o600)
            token.write_text(self._client_token)
            command += ["--client-token-file", str(token)]
        self.master = master = self.start("master", command, stdout=subprocess.PIPE)
        readable, _, _ = select.select([master.stdout], [], [], 60)
        if not readable:
            raise RuntimeError("the master did not say within 60 s that it is ready")
        self.address: str = json.loads(master.stdout.readline())["address"]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for link in self._links:
            link.close()
        family = [child for process in self._processes for child in (process, *process.children(recursive=True))]
        for process in family:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(family)
        for process in self._processes:
            if process.stdout is not None:
                process.stdout.close()
        self._private.cleanup()

    def add_agent(
        self, name: str, slots: int, *, through: Link | None = None, options: Sequence[str] = ()
    ) -> psutil.Popen:
        """Start an agent with so many workers. `through`: a link of its own. `options`: more of its command."""
        address = through.address if through is not None else self.address
        folder = self._folder / name
        command = ["agent", "--master", address, "--folder", str(folder), "--node-id", name, "--slots", str(slots)]
        return self.start(name, [*command, *options])

    def link(self) -> Link:
        """A new link to the master."""
        host, _, port = self.address.rpartition(":")
        self._links.append(Link(host, int(port)))
        return self._links[-1]

    def start(self, name: str, command: Sequence[str], stdout: int = subprocess.DEVNULL) -> psutil.Popen:
        """Start another command of Windrow; `name`: of the file for its errors."""
        with (self._folder / f"{name}.stderr").open("wb") as errors:
            process = psutil.Popen(
                [WINDROW, *command], cwd=self._folder, env=os.environ | {"PYTHONPATH": str(ROOT), **self._environment},
                stdin=subprocess.DEVNULL, stdout=stdout, stderr=errors,
            )  # fmt: skip
        self._processes.append(process)
        return process
