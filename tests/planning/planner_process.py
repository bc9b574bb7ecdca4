"""Drives a real planner process, as the master does (docs/contracts.md, section 3)."""

from __future__ import annotations

import atexit
import functools
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

HEAD = struct.Struct("<II")
RECORD = struct.Struct("<QIQII")
EARLIER = struct.Struct("<QIQIIB")
END_S = 240.0


class MiniBatch(NamedTuple):
    """One record of a group."""

    item_first: int
    item_count: int
    recipe_offset: int
    recipe_length: int
    recipe_crc32: int
    rank: int | None = None
    before: int = -1
    """Of the earlier job, the mini-batch that it is."""


def request_line(
    step: Path,
    path: Path | bytes | str,
    kind: str = "uri_folder",
    size: int | None = None,
    checkpoint: Any = None,
    **more: Any,
) -> bytes:
    """What a planner is asked."""
    request = {
        "step_folder": str(step),
        "inputs": [{"name": "data", "type": kind, "path": os.fsdecode(path), "mode": "ro_mount"}],
        "mini_batch_size": size,
        "partition_keys": [],
        "checkpoint": checkpoint,
        "datastores": {},
        "roots": None,
        "file_format": None,
        "mini_batch_rows": None,
        "exact_row_index": False,
        "mixed_types": False,
        "rows_folder": str(step / "rows"),
        "earlier": None,
        "slow": [],
        **more,
    }
    return json.dumps(request).encode() + b"\n"


def read_message(said: IO[bytes]) -> tuple[dict[str, Any], list[MiniBatch]] | None:
    """The next message of what a planner says, with its records; None at the end."""
    head = said.read(HEAD.size)
    if len(head) < HEAD.size:
        return None
    json_length, records_length = HEAD.unpack(head)
    message = json.loads(said.read(json_length))
    records = said.read(records_length)
    count = message.get("count", 0)
    unpacked = RECORD.iter_unpack(records[: count * RECORD.size])
    rest = records[count * RECORD.size :]
    ranks: Sequence[int | None] = [None] * count
    if message.get("ranked"):
        ranks, rest = struct.unpack(f"<{count}Q", rest[: 8 * count]), rest[8 * count :]
    before = struct.unpack(f"<{count}q", rest) if rest else [-1] * count
    return message, [MiniBatch(*values, *more) for values, *more in zip(unpacked, ranks, before, strict=True)]


class _Nursery:
    """The process that forks planners for this one; started with the first, it ends with this one."""

    def __init__(self) -> None:
        self._socket, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with far:
            self._process = subprocess.Popen(
                [sys.executable, Path(__file__).with_name("planner_nursery.py"), str(far.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[far.fileno()],
            )
        atexit.register(self._end)

    def _end(self) -> None:
        self._socket.close()
        self._process.wait(END_S)

    def fork(self, stdin: int, stdout: int) -> int:
        """Make a planner with these descriptors; returns its process id."""
        request = json.dumps({"folder": os.getcwd(), "environment": dict(os.environ)}).encode()  # noqa: PTH109
        socket.send_fds(self._socket, [request], [stdin, stdout])
        return int(self._socket.recv(64))

    def wait(self, pid: int, timeout: float) -> int:
        """The exit code of a planner that ends; raises TimeoutError for one that does not."""
        self._socket.send(json.dumps({"pid": pid}).encode())
        self._socket.settimeout(timeout)
        return int(self._socket.recv(64))


@functools.cache
def _nursery() -> _Nursery:
    return _Nursery()


class _Forked:
    """A planner from the nursery, with what is used here of a Popen."""

    def __init__(self) -> None:
        stdin, into = os.pipe()
        out_of, stdout = os.pipe()
        try:
            self.pid = _nursery().fork(stdin, stdout)
        finally:
            os.close(stdin)
            os.close(stdout)
        self.stdin: IO[bytes] | None = os.fdopen(into, "wb")
        self.stdout: IO[bytes] | None = os.fdopen(out_of, "rb")

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def wait(self, timeout: float) -> int:
        return _nursery().wait(self.pid, timeout)


class Planner:
    """A planner process and its pipes. Forked from one that has its imports, unless it is given an environment."""

    def __init__(
        self,
        step: Path,
        path: Path | bytes | str,
        kind: str = "uri_folder",
        size: int | None = None,
        checkpoint: Any = None,
        environment: dict[str, str] | None = None,
        **more: Any,
    ) -> None:
        self.step = step
        step.mkdir(exist_ok=True)
        self.process: subprocess.Popen[bytes] | _Forked
        if environment is None:
            self.process = _Forked()
        else:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "windrow_master.planning"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=environment,
            )
        assert self.process.stdin is not None
        self.process.stdin.write(request_line(step, path, kind, size, checkpoint, **more))
        self.process.stdin.flush()

    def message(self) -> tuple[dict[str, Any], list[MiniBatch]] | None:
        """The next message with its records; None at the end."""
        assert self.process.stdout is not None
        return read_message(self.process.stdout)

    def close(self, *, kill: bool = False) -> int:
        """End it; by closing its stdin, or with SIGKILL."""
        assert self.process.stdin is not None and self.process.stdout is not None
        if kill:
            self.process.kill()
        self.process.stdin.close()
        code = self.process.wait(END_S)
        self.process.stdout.close()
        return code


class Plan(NamedTuple):
    """All that a planner said."""

    mini_batches: list[MiniBatch]
    recipes: list[bytes]
    reader: dict[str, Any]
    warnings: list[str]
    notes: list[str]
    checkpoints: list[dict[str, Any]]
    error: dict[str, Any] | None


def plan(
    step: Path,
    path: Path | bytes | str,
    kind: str = "uri_folder",
    size: int | None = None,
    checkpoint: Any = None,
    **more: Any,
) -> Plan:
    """Let a planner run to its end, checking what every stream of groups must keep."""
    planner = Planner(step, path, kind, size, checkpoint, **more)
    found = Plan([], [], {}, [], [], [], None)
    last, reader, error = checkpoint, None, None
    while (said := planner.message()) is not None:
        message, records = said
        if message["type"] == "error":
            error = message
            continue
        assert message["from"] == last and message["count"] == len(records) <= 5000
        assert ("reader" in message) == (last is None)
        reader = message.get("reader", reader)
        last = message["to"]
        assert (step / "recipes").stat().st_size >= last["recipes_bytes"]
        assert (step / "listing").stat().st_size >= last["listing_bytes"]
        found.mini_batches.extend(records)
        found.warnings.extend(message["warnings"])
        found.notes.extend(message.get("notes", ()))
        found.checkpoints.append(last)
        assert last["mini_batches"] == len(found.mini_batches) + (checkpoint or {"mini_batches": 0})["mini_batches"]
    assert planner.close() == 0
    assert error is not None or last["done"]
    recipes = (step / "recipes").read_bytes() if (step / "recipes").exists() else b""
    taken = [recipes[one.recipe_offset : one.recipe_offset + one.recipe_length] for one in found.mini_batches]
    assert [zlib.crc32(recipe) for recipe in taken] == [one.recipe_crc32 for one in found.mini_batches]
    return found._replace(recipes=taken, reader=reader or {}, error=error)


def earlier_of(step: Path, found: Plan, *, failed: tuple[int, ...] = (), began: float | None = None) -> dict[str, Any]:
    """What a planner is told of a step that ended: all of its mini-batches have a result but for some."""
    index = b"".join(
        EARLIER.pack(
            number, one.item_count, one.recipe_offset, one.recipe_length, one.recipe_crc32, number not in failed
        )
        for number, one in enumerate(found.mini_batches)
    )
    (step / "index").write_bytes(index)
    return {
        "job": "before",
        "index": str(step / "index"),
        "index_crc32": zlib.crc32(index),
        "recipes": str(step / "recipes"),
        "places": str(step / "places"),
        "reader": json.dumps(found.reader),
        "alike": None,
        "began": after_all_changes() if began is None else began,
        "uploads": None,
    }


def after_all_changes() -> float:
    """A moment at which what has been written so far counts as old."""
    return time.time() + 3.0


def names(found: Plan) -> list[list[bytes]]:
    """The names of a file list, by mini-batch."""
    return [recipe.split(b"\0") for recipe in found.recipes]
