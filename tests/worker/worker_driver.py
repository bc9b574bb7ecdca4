"""The agent's side of a worker, in small: starts the real boot.py and talks to it over real sockets."""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

BOOT = Path(__file__).parents[2] / "worker" / "windrow_worker" / "boot.py"

PACKET = struct.Struct("<BBHIQQQI")
FRAME = struct.Struct("<IIBBHQIIIIqQQQQ")
LENGTHS = struct.Struct("<QI")
PAGE = struct.Struct("<QBxxxIQQQQ")
READY, INIT_FAILED, DONE, FAILED, STOPPED = 1, 2, 3, 4, 5
PHASES = {0: "none", 1: "starting", 2: "init", 3: "idle", 4: "loading", 5: "running", 6: "returning", 7: "stopping"}

OWN_GROUP: dict[str, Any] = {"process_group": 0} if sys.version_info >= (3, 11) else {"preexec_fn": os.setpgrp}
"""A process group for the worker. This file runs in the Pythons that scripts have, from 3.8 on."""

Start: TypeAlias = "Callable[..., Worker]"
"""The fixture `start`. A text: Python 3.8 has no `Callable[...]`."""

DEADLINE_S = 180.0
"""For conditions that must come true; nothing waits that long where all is well."""


@dataclass
class Frame:
    """A decoded frame; `rows` are read from their file where they are in one, and checked against their crc32."""

    type: int
    lease_id: int
    item_count: int
    result_count: int
    row_count: int
    start_unix_us: int
    elapsed_us: int
    run_us: int
    cpu_us: int
    peak_rss_kib: int
    header: bytes
    side: dict[str, Any]
    rows: bytes
    rows_path: str | None

    @property
    def cause(self) -> str:
        return str(self.side.get("cause", ""))

    @property
    def message(self) -> str:
        return str(self.side.get("message", ""))


@dataclass
class Look:
    """One reading of the page."""

    version: int
    phase: str
    items: int
    lease_id: int
    phase_start_ns: int
    completed: int
    mini_batch_index: int


class WorkerGone(AssertionError):
    """The result channel ended where a frame was expected."""


class Worker:
    """A started worker. Use as a context manager; nothing outlives it."""

    def __init__(
        self,
        folder: Path,
        script: str | None = None,
        *,
        entry_script: str = "score.py",
        arguments: tuple[str, ...] = (),
        reader: dict[str, Any] | None = None,
        rows: dict[str, Any] | None = None,
        inline_rows_bytes_max: int = 262144,
        python: str = sys.executable,
        environment: dict[str, str] | None = None,
        scratch: Path | None = None,
        non_blocking: bool = True,
        submitted: dict[str, str] | None = None,
        **overrides: Any,
    ) -> None:
        """`script`: text of the entry script; None: it is in `folder/code` already. `submitted`: what files of
        the code were that are something else now, or are not there."""
        self.folder = folder
        self.code = folder / "code"
        self.code.mkdir(exist_ok=True)
        if script is not None:
            (self.code / entry_script).write_text(script, encoding="utf-8")
        self.scratch = scratch or folder / "scratch"
        self.scratch.mkdir(exist_ok=True)
        self.logs = folder / "logs"
        self.stdout = folder / "stdout.txt"
        self.stderr = folder / "stderr.txt"
        page_path = folder / "page"
        page_path.write_bytes(bytes(4096))
        with page_path.open("r+b") as file:
            self._page = mmap.mmap(file.fileno(), 4096)
        self.work, far_work = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.results, far_results = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._rest = b""
        configuration = {
            "work_fd": far_work.fileno(),
            "result_fd": far_results.fileno(),
            "page_path": str(page_path),
            "code_folder": str(self.code),
            "code_sums": str(folder / "code.sums"),
            "code_sums_crc32": self._note_sums(submitted or {}),
            "entry_script": entry_script,
            "arguments": list(arguments),
            "logging_level": "INFO",
            "job_id": "job-1",
            "step_name": "score",
            "node_id": "node-a",
            "node_rank": 3,
            "process_name": "process007",
            "process_number": 7,
            "log_folder": str(self.logs),
            "output_path": str(folder / "output"),
            "scratch_folder": str(self.scratch),
            "inline_rows_bytes_max": inline_rows_bytes_max,
            "reader": reader or {"kind": "files", "root": "/data"},
            "rows": {"action": "append_row", "dataframe_to_csv": {}, "dataframe_header": False, **(rows or {})},
            **overrides,
        }
        path = folder / "config.json"
        content = json.dumps(configuration).encode()
        path.write_bytes(b"%08x\n%b" % (zlib.crc32(content), content))
        with self.stdout.open("wb") as out, self.stderr.open("wb") as err:
            self.process = subprocess.Popen(
                [python, str(BOOT), str(path)],
                cwd=self.code,
                env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8", **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                pass_fds=(far_work.fileno(), far_results.fileno()),
                **OWN_GROUP,
            )
        # As the agent does: it keeps the worker's end of the work channel, to take back what has not been read.
        self.far_work = far_work
        self.far_work.setblocking(not non_blocking)
        far_results.close()

    def _note_sums(self, submitted: dict[str, str]) -> int:
        """Writes the file of checksums; returns its own."""
        sums = {str(path.relative_to(self.code)): zlib.crc32(path.read_bytes()) for path in self.code.rglob("*.py")}
        sums.update((name, zlib.crc32(text.encode())) for name, text in submitted.items())
        content = json.dumps(sums).encode()
        (self.folder / "code.sums").write_bytes(content)
        return zlib.crc32(content)

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for end in (self.work, self.far_work, self.results):
            end.close()
        self._page.close()

    def send(
        self,
        lease_id: int,
        names: list[str] | bytes = (),  # type: ignore[assignment]
        *,
        index: int = 0,
        first: int = 0,
        attempt: int = 1,
    ) -> None:
        """Sends a mini-batch of files, or a recipe."""
        recipe = names if isinstance(names, bytes) else "\0".join(names).encode()
        count = recipe.count(b"\0") + 1 if recipe else 0
        self.work.send(PACKET.pack(1, 0, 0, attempt, lease_id, index, first, count) + recipe)

    def send_in_file(self, lease_id: int, recipe: bytes, written: bytes | None = None) -> Path:
        """Sends a mini-batch whose recipe is in a file. `written`: what is in the file, if it is something else."""
        path = self.scratch / f"recipe-{lease_id}"
        path.write_bytes(recipe if written is None else written)
        checksum = zlib.crc32(recipe).to_bytes(4, "little")
        self.work.send(PACKET.pack(1, 1, 0, 1, lease_id, 0, 0, 0) + checksum + os.fsencode(path))
        return path

    def shut_down(self) -> None:
        self.work.send(PACKET.pack(2, 0, 0, 0, 0, 0, 0, 0))

    def frame(self) -> Frame:
        """The next frame. Raises WorkerGone with what the worker has said on stderr."""
        head = self._take(FRAME.size + LENGTHS.size)
        (magic, header_length, kind, flags, zero, lease, items, results, rows, crc, start, elapsed, run, cpu, rss) = (
            FRAME.unpack_from(head)
        )
        rows_length, side_length = LENGTHS.unpack_from(head, FRAME.size)
        assert magic == 0x57524F57
        assert zero == 0
        header = self._take(header_length)
        side = self._take(side_length)
        path = None
        if flags & 1:
            name = b""
            while not name.endswith(b"\0"):
                name += self._take(1)
            path = os.fsdecode(name[:-1])
            content = Path(path).read_bytes()
        else:
            content = self._take(rows_length)
        assert len(content) == rows_length
        assert zlib.crc32(content) == crc
        return Frame(
            kind, lease, items, results, rows, start, elapsed, run, cpu, rss,
            header, json.loads(side) if side else {}, content, path,
        )  # fmt: skip

    def ready(self) -> Frame:
        frame = self.frame()
        assert frame.type == READY, frame
        return frame

    def done(self) -> Frame:
        frame = self.frame()
        assert frame.type == DONE, frame
        return frame

    def failed(self) -> Frame:
        frame = self.frame()
        assert frame.type == FAILED, frame
        return frame

    def run(self, names: list[str], lease_id: int = 1) -> Frame:
        """One mini-batch, and what came of it."""
        self.send(lease_id, names)
        return self.done()

    def _take(self, size: int) -> bytes:
        deadline = time.monotonic() + DEADLINE_S
        pieces = [self._rest]
        have = len(self._rest)
        while have < size:
            readable, _, _ = select.select([self.results], [], [], max(0.0, deadline - time.monotonic()))
            if not readable:
                raise AssertionError(f"no frame within {DEADLINE_S} s; stderr: {self.errors()}")
            data = self.results.recv(1 << 20)
            if not data:
                raise WorkerGone(f"the result channel has ended; stderr: {self.errors()}")
            pieces.append(data)
            have += len(data)
        everything = b"".join(pieces)
        self._rest = everything[size:]
        return everything[:size]

    def look(self) -> Look:
        version, phase, items, lease, start, completed, index = PAGE.unpack_from(self._page, 0)
        return Look(version, PHASES[phase], items, lease, start, completed, index)

    def wait_for_phase(self, phase: str) -> Look:
        """Waits until the page shows a phase."""
        return wait_until(lambda: look if (look := self.look()).phase == phase and look.version % 2 == 0 else None)

    def wait(self) -> int:
        """The exit code."""
        return self.process.wait(DEADLINE_S)

    def errors(self) -> str:
        return self.stderr.read_text(errors="replace")[-3000:]

    def output(self) -> str:
        return self.stdout.read_text(encoding="utf-8", errors="surrogateescape")


def wait_until(condition: Any) -> Any:
    """Waits until `condition()` is true, and returns it."""
    deadline = time.monotonic() + DEADLINE_S
    gate = select.poll()
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        gate.poll(2)
    raise AssertionError("the condition did not come true")
