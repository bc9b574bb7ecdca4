"""The authority is replaced while an agent works: it goes on, over connections by the old authority and the new one."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import windrow
from phased_job import ITEMS, PhasedJob, agent_of
from served_tls import SecureMaster, wait_until
from windrow_master.setup.__main__ import STAGES, set_up


class Way:
    """A way to a master, which can be cut: then both sides connect anew."""

    def __init__(self, port: str) -> None:
        self._port = int(port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"localhost:{self._listener.getsockname()[1]}"
        self._sockets: list[socket.socket] = []
        self._cut: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self.taken = 0
        """How often it was taken."""
        self._threads[0].start()

    def cut(self) -> None:
        """Break all connections."""
        sockets, self._sockets = self._sockets, []
        self._cut += sockets
        for one in sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Let nobody through any more."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        self.cut()
        for thread in self._threads[1:]:
            thread.join()
        for one in (self._listener, *self._cut):
            one.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._port))
                self._sockets += [near, far]
                self.taken += 1
                for source, target in ((near, far), (far, near)):
                    self._threads.append(threading.Thread(target=self._pass_on, args=(source, target)))
                    self._threads[-1].start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(data)
        for one in (source, target):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def way_to(master: SecureMaster) -> Iterator[Way]:
    with contextlib.closing(Way(master.port)) as way:
        yield way


def test_an_agent_works_on_while_the_authority_is_replaced(tmp_path: Path) -> None:
    with (
        # A master that listens for other machines does not tell agents its address, so they keep to the way.
        SecureMaster(tmp_path).serving("0.0.0.0:0") as master,
        way_to(master) as way,
        agent_of(master, tmp_path / "agent", way.address) as agent,
    ):
        job = PhasedJob(master)
        with windrow.Client(access=master.access) as client:
            job.submit(client)
            job.begin(0)
            job.wait_for(0, client)
        for phase, stage in enumerate(STAGES, 1):
            set_up(master.keys, [], 90, None, new_authority=stage)
            before = way.taken
            way.cut()
            wait_until(lambda taken=before: way.taken > taken, f"the agent connects anew after {stage}")  # type: ignore[misc]
            job.begin(phase)
            # A client that knows what is handed out now.
            with windrow.Client(access=master.access) as client:
                if phase < len(STAGES):
                    job.wait_for(phase, client)
                else:
                    assert client.wait(job.job_id).state == "completed"
        assert agent.poll() is None and master.process.poll() is None
        assert job.rows() == list(range(ITEMS))
        assert Counter(int(attempt[1]) for attempt in job.attempts()) == {1: ITEMS, 2: 1}, "no lease was lost"
    assert "node lost" not in master.log()
