"""The workers' log files under a job's `logs/` folder, brought by agents in increments.

    logs/<step>/user/stdout/<node>/processNNN.stdout.txt      and likewise stderr
    logs/<step>/user/error/<node>/processNNN.txt              tracebacks of init and run
    logs/<step>/user/entry_script_log/<node>/processNNN.log.txt

Process numbers begin anew with each incarnation of an agent, so a later incarnation of a node gets a folder of its own
(`<node>.2`, `<node>.3`, ...); `logs/<step>/nodes.json` remembers which.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

from windrow.rpc.v1 import agent_service_pb2 as pb

from windrow_master.reports.node_folders import REGISTER, folder_name, read_register, write_register

PLACES = {
    pb.LOG_KIND_STDOUT: ("user/stdout", ".stdout.txt"),
    pb.LOG_KIND_STDERR: ("user/stderr", ".stderr.txt"),
    pb.LOG_KIND_ERROR: ("user/error", ".txt"),
    pb.LOG_KIND_ENTRY_SCRIPT: ("user/entry_script_log", ".log.txt"),
}


class WorkerLogs:
    """Writes pushed log chunks where they belong. Methods block on the disk; any thread may call them."""

    def __init__(self, folder_of: Callable[[int], Path | None]) -> None:
        """`folder_of(step_id)`: `logs/<step>` of a step that is known, else None."""
        self._folder_of = folder_of
        self._node_folders: dict[tuple[Path, str, str], str] = {}
        self._lock = threading.Lock()

    def append(self, node_id: str, node_incarnation: str, chunks: Iterable[pb.LogChunk]) -> None:
        """Write chunks at their offsets: a repeated chunk changes nothing, one beyond the end leaves a gap of zeros.

        Raises OSError.
        """
        for chunk in chunks:
            root = self._folder_of(chunk.step_id)
            place = PLACES.get(chunk.kind)
            if root is None or place is None:
                continue
            folder = root / place[0] / self._node_folder(root, node_id, node_incarnation)
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / f"process{chunk.process_number:03d}{place[1]}"
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                rest, offset = memoryview(chunk.content), chunk.offset
                while rest:
                    written = os.pwrite(descriptor, rest, offset)
                    rest, offset = rest[written:], offset + written
            finally:
                os.close(descriptor)

    def _node_folder(self, root: Path, node_id: str, node_incarnation: str) -> str:
        key = (root, node_id, node_incarnation)
        with self._lock:
            known = self._node_folders.get(key)
            if known is not None:
                return known
            root.mkdir(parents=True, exist_ok=True)
            register = root / REGISTER
            incarnations = read_register(register)
            mine = incarnations.setdefault(node_id, [])
            if node_incarnation not in mine:
                mine.append(node_incarnation)
                write_register(register, incarnations)
            name = folder_name(node_id, mine.index(node_incarnation) + 1)
            self._node_folders[key] = name
            return name
