"""A served master that does not see its client's files, the client's machine, and the network between them."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import threading
from pathlib import Path

from embedded_run import DEADLINE_S
from served import Served
from windrow.sdk.job import JobState
from windrow_command import windrow

JOB = """\
type: pipeline
experiment_name: uploads
inputs:
  data: {{type: {kind}, path: {path}}}
  side: {{type: uri_file, path: ./side.txt}}
jobs:
  score:
    type: parallel
    mini_batch_size: "{size}"
    input_data: ${{{{inputs.data}}}}
    inputs: {{data: "${{{{parent.inputs.data}}}}", side: "${{{{parent.inputs.side}}}}"}}
    outputs: {{result: {{type: uri_file}}}}
    task:
      type: run_function
      code: ./code
      entry_script: entry.py
      program_arguments: --side ${{{{inputs.side}}}}
      append_row_to: ${{{{outputs.result}}}}
"""
SCRIPT = """\
import os, sys

side = open(sys.argv[sys.argv.index("--side") + 1]).read()

def run(mini_batch):
    if hasattr(mini_batch, "columns"):
        return mini_batch.assign(side=side)
    return [os.path.basename(path) + " " + open(path).read()[:50] + side for path in mini_batch]
"""
FILES = {"b/deep.txt": b"deep", "a.txt": b"first", "c.txt": b"last", "naïve.txt": b"not ascii", ".hidden": b"kept"}
ROWS = b"".join(b"%d,%d.5,word%d\n" % (n, n, n) for n in range(3000))
TABLES = {"one.csv": b"n,x,w\n" + ROWS, "two.csv": b"n,x,w\n" + ROWS[:5000].rpartition(b"\n")[0] + b"\n"}
MLTABLE = b"paths: [{pattern: ./parts/*.csv}]\ntransformations: [{read_delimited: {delimiter: ','}}]\n"


def fill(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


class Laptop:
    """A folder with a job, that no master sees."""

    def __init__(self, folder: Path, files: dict[str, bytes], kind: str = "uri_folder", path: str = "./data") -> None:
        self.folder = folder
        self.job = folder / "job.yml"
        fill(folder / "data", files)
        fill(folder, {"side.txt": b"!", "code/entry.py": SCRIPT.encode()})
        self.job.write_text(JOB.format(kind=kind, path=path, size=20_000 if kind == "mltable" else 2))

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, **environment}
        return windrow(*arguments, cwd=self.folder, environment=environment, timeout=DEADLINE_S)

    def embedded_output(self) -> bytes:
        """What the job makes on one machine."""
        done = self.run("run", "job.yml")
        assert done.returncode == 0, done.stdout + done.stderr
        (rows,) = (self.folder / ".windrow" / "outputs").rglob("parallel_run_step.txt")
        return rows.read_bytes()


class Relay:
    """A way to the master that ends after so many bytes, and when taken again, after so many more: broken, or
    (`silent`) without anybody hearing of it."""

    def __init__(self, address: str, after: list[int], *, silent: bool = False) -> None:
        host, _, port = address.rpartition(":")
        self._to = (host, int(port))
        self._after = iter(after)
        self._left = next(self._after)
        self._counting = threading.Lock()
        self._silent = silent
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets = [self._listener]
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.breaks = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        for one in self._sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(self._to)
                self._sockets += [near, far]
                threading.Thread(target=self._pass_on, args=(near, far), daemon=True).start()
                threading.Thread(target=self._pass_on, args=(far, near, False), daemon=True).start()

    def _breaks(self, count: int) -> bool:
        """Whether the way ends at these bytes. Counted over all connections: a client that looks for a master of
        another test, which had this port before, must not take the place of the upload."""
        with self._counting:
            self._left -= count
            if self._left >= 0:
                return False
            self._left = next(self._after, 1 << 60)
            self.breaks += 1
            return True

    def _pass_on(self, source: socket.socket, target: socket.socket, counts: bool = True) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if counts and self._breaks(len(data)):
                    if self._silent:
                        return
                    break
                target.sendall(data)
            for one in (source, target):
                one.shutdown(socket.SHUT_RDWR)


def uploads_of(served: Served) -> list[str]:
    """Names in the uploads folder."""
    assert served.datastore is not None
    folder = served.datastore / "uploads"
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def finished(served: Served, job_id: str) -> bytes:
    """The output of a job that ends well."""
    with served.client() as client:
        job = client.wait(job_id, timeout_s=DEADLINE_S)
        assert job.state is JobState.COMPLETED, job.message
        (file,) = client.download(job_id, served.folder / f"fetched-{job_id}")
        return file.read_bytes()
