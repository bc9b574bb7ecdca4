"""The audit log: one JSON line for each change that a client or a joining node has made.

Lines are appended, never changed, and synced to the disk at most `SYNCS_MAX` times a second: a loss of power may take
those of the last fraction of a second. A full file is renamed, and the oldest are deleted. Refused calls are not in it:
they change nothing, and nobody may fill it by them (they are counted in the master's own log).
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections import deque
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from windrow.common.durable import sync_folder
from windrow.common.journal import Condition

from windrow_master.threads import in_thread

FILE_BYTES_MAX = 16 << 20
FILES_KEPT = 10
"""Earlier files beside the one in use."""
SYNCS_MAX = 5
LINES_WAITING_MAX = 100_000
"""While the disk takes nothing, the oldest lines beyond these are lost, and counted."""


class AuditLog:
    """Appends to one file, for one event loop."""

    def __init__(self, file: Path, *, bytes_max: int = FILE_BYTES_MAX, kept: int = FILES_KEPT) -> None:
        self._file = file
        self._bytes_max = bytes_max
        self._kept = kept
        self._waiting: deque[bytes] = deque()
        self._lost = 0
        self._writing: asyncio.Task[None] | None = None
        self._unwritable = Condition(
            logging.ERROR, "the audit log cannot be written; its lines wait", "the audit log is written again"
        )

    def note(self, **fields: object) -> None:
        """Add a line. It is on the disk a moment later."""
        line = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), **fields}
        self._waiting.append(json.dumps(line, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n")
        if len(self._waiting) > LINES_WAITING_MAX:
            self._waiting.popleft()
            self._lost += 1
        if self._writing is None:
            self._writing = asyncio.get_running_loop().create_task(self._write())

    async def close(self) -> None:
        """Write what waits, if the disk takes it."""
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.gather(self._writing, return_exceptions=True)
            self._writing = None
        await self._write_waiting()

    async def _write(self) -> None:
        while self._waiting:
            await self._write_waiting()
            await asyncio.sleep(1 / SYNCS_MAX)
        self._writing = None

    async def _write_waiting(self) -> None:
        if not self._waiting:
            return
        lines, lost = list(self._waiting), self._lost
        self._waiting.clear()
        self._lost = 0
        try:
            await in_thread(self._append, b"".join(lines), lost)
        except OSError as error:
            self._unwritable.goes_on(file=str(self._file), reason=error.strerror)
            room = max(0, LINES_WAITING_MAX - len(self._waiting))
            self._waiting.extendleft(reversed(lines[len(lines) - min(room, len(lines)) :]))
            self._lost += lost + max(0, len(lines) - room)
        else:
            self._unwritable.is_over(file=str(self._file), lines_lost=lost)

    def _append(self, content: bytes, lost: int) -> None:
        """Append whole lines, and sync them. Raises OSError; then nothing of them is there."""
        descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            length = os.fstat(descriptor).st_size
            if length and os.pread(descriptor, 1, length - 1) != b"\n":
                # The last line broke off with its master.
                content = b"\n" + content
            if lost:
                content += json.dumps({"lines_lost": lost}).encode() + b"\n"
            try:
                view = memoryview(content)
                while view:
                    view = view[os.write(descriptor, view) :]
                os.fsync(descriptor)
            except OSError:
                os.ftruncate(descriptor, length)
                raise
            length += len(content)
        finally:
            os.close(descriptor)
        if length >= self._bytes_max:
            self._rotate()

    def _rotate(self) -> None:
        """Begin a new file. `audit.jsonl.1` is the newest of the earlier ones."""
        for number in range(self._kept, 0, -1):
            before = self._file if number == 1 else self._numbered(number - 1)
            if before.exists():
                before.replace(self._numbered(number))
        sync_folder(self._file.parent)

    def _numbered(self, number: int) -> Path:
        return self._file.with_name(f"{self._file.name}.{number}")


def what_of(request: Any, response: Any) -> Mapping[str, object]:
    """What a call was about: names of a job, node, asset or token, never a secret."""
    found: dict[str, object] = {}
    for message in (request, response):
        for holder in (message, *(getattr(message, part, None) for part in ("job", "asset", "token", "deletion"))):
            for name in NAMES:
                value = getattr(holder, name, None)
                if isinstance(value, (str, bool, int)) and value and name not in found:
                    found[name] = value if isinstance(value, bool | int) else value[:NAME_CHARS_MAX]
    if getattr(request, "bounds", None):
        found["bounds"] = {one.group[:NAME_CHARS_MAX]: str(one) for one in request.bounds[:QUEUES_MAX]}
    if hasattr(request, "paused") and request.HasField("paused"):
        found["paused"] = request.paused
    if queues := getattr(request, "queues", None):
        found["queues"] = {name[:NAME_CHARS_MAX]: str(queues[name]) for name in sorted(queues)[:QUEUES_MAX]}
        found["revision"] = getattr(response, "revision", 0)
    return found


NAMES = (
    "job_id",
    "node_id",
    "name",
    "version",
    "digest",
    "role",
    "project",
    "cordoned",
    "force",
    "generation",
    "priority",
    "weight",
    "only",
    "overcommit",
)
NAME_CHARS_MAX = 128
QUEUES_MAX = 100
"""Of one change of queues, or of groups of a fleet; the rest is not written."""
