"""The log files of nodes and workers under a job's `logs/` folder, sent by agents in increments.

    logs/<step>/user/stdout/<node>/processNNN.stdout.txt      and likewise stderr
    logs/<step>/user/error/<node>/processNNN.txt              tracebacks of init and run
    logs/<step>/user/entry_script_log/<node>/processNNN.log.txt
    logs/<step>/user/metrics/<node>/processNNN.csv            what the script logged by Run.log
    logs/<step>/user/environment/<node>/process000.build.txt  building the step's environment
    logs/<step>/sys/node/<node>/processNNN.txt                what the worker did; processNNN.profile
    logs/<step>/sys/error/<node>/processNNN.txt               its failed attempts, as JSON
    logs/<step>/sys/perf/<node>/…                             resources of the node

Process numbers start again with each incarnation of an agent, so a later incarnation of a node gets its own folder
(`<node>.2`, `<node>.3`, ...); `logs/<step>/nodes.json` remembers which.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

from windrow.common.journal import say
from windrow.common.trees import walk
from windrow.rpc.log_paths import WORKER_LOGS, place_of, worker_place
from windrow.rpc.v1 import agent_service_pb2 as pb

from windrow_master.reports.node_folders import REGISTER, folder_name, read_register, write_register
from windrow_master.script_files import FILES

_NOTICE = (
    b"\n[windrow: the logs of this job have reached %d bytes, the most that the master keeps for a job "
    b"(--job-logs-max);"
)
_NOTICE_END = b" later lines are left out]\n"


class WorkerLogs:
    """Writes pushed log chunks where they belong. Methods block on the disk; any thread may call them."""

    def __init__(self, folder_of: Callable[[int], Path | None], budget: int | None = None) -> None:
        """`folder_of(step_id)`: `logs/<step>` of a known step, else None. `budget`: bytes for one job; None for any."""
        self._folder_of = folder_of
        self._budget = budget
        self._used: dict[Path, int] = {}
        """Bytes by the logs folder of a job."""
        self._node_folders: dict[tuple[Path, str, str], str] = {}
        self._lock = threading.Lock()

    def append(self, node_id: str, node_incarnation: str, chunks: Iterable[pb.LogChunk]) -> None:
        """Write chunks at their offsets: a repeated chunk changes nothing, one beyond the end leaves a gap of zeros.

        What passes the job's budget is left out, with a notice at the end of its file. Raises OSError.
        """
        for chunk in chunks:
            root = self._folder_of(chunk.step_id)
            if root is None:
                continue
            place = place_of(chunk.kind, self._node_folder(root, node_id, node_incarnation), chunk.process_number)
            if place is None:
                continue
            path = root / place
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                if self._budget is not None and not self._take(root, descriptor, chunk, self._budget):
                    continue
                rest, offset = memoryview(chunk.content), chunk.offset
                while rest:
                    written = os.pwrite(descriptor, rest, offset)
                    rest, offset = rest[written:], offset + written
            finally:
                os.close(descriptor)

    def _take(self, root: Path, descriptor: int, chunk: pb.LogChunk, budget: int) -> bool:
        """Count what a chunk adds to a job's logs; False if it is too much, and the end of the file says so."""
        job = root.parent
        length = os.fstat(descriptor).st_size
        growth = max(0, chunk.offset + len(chunk.content) - length)
        with self._lock:
            used = self._used.get(job)
        if used is None:
            # Once for each job: an earlier master may have written some of it.
            used = sum(
                _size(Path(folder, name))
                for folder, _, names in walk(job)
                if f"/{FILES}/" not in f"{folder}/"  # what scripts have uploaded is no log
                for name in names
            )
        with self._lock:
            used = max(used, self._used.get(job, 0))
            fits = used + growth <= budget
            if not fits and used <= budget:
                say(logging.WARNING, "the logs of a job have reached their limit", logs=str(job), bytes=used)
            self._used[job] = used + growth if fits else budget + 1
        if fits:
            return True
        end = os.pread(descriptor, len(_NOTICE_END), max(0, length - len(_NOTICE_END)))
        if end != _NOTICE_END and growth:
            os.pwrite(descriptor, _NOTICE % budget + _NOTICE_END, length)
        # What the master had before may come again.
        return False

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


def logs_of_worker(logs: Path, step_name: str, node_id: str, node_incarnation: str, process_number: int) -> list[str]:
    """The log files of one worker that exist, below the job's `logs` folder. Raises OSError."""
    incarnations = read_register(logs / step_name / REGISTER).get(node_id, [])
    if node_incarnation not in incarnations:
        return []
    node = folder_name(node_id, incarnations.index(node_incarnation) + 1)
    kinds = [kind for kind in WORKER_LOGS if kind != pb.LOG_KIND_ENVIRONMENT]
    paths = [f"{step_name}/{worker_place(kind, node, process_number)}" for kind in kinds]
    return [path for path in paths if (logs / path).is_file()]


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0
