"""Selects the log files of a job that a client asks for."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from windrow.rpc.v1 import job_service_pb2 as pb

from windrow_master.core.ids import MINI_BATCH_SHIFT
from windrow_master.core.records import StepRow
from windrow_master.jobs import Jobs
from windrow_master.reports.node_folders import other_names
from windrow_master.reports.whole_files import PARTIAL_SUFFIX
from windrow_master.rpc.files import walk_files


def select_logs(request: pb.ListLogsRequest, root: Path, jobs: Jobs, steps: Iterable[StepRow]) -> list[tuple[str, int]]:
    """(path below `root`, bytes) of the files that a request selects, sorted by path. Blocks on disk and store.

    Files that are being made, and Windrow's own, are left out. Raises OSError, StateError.
    """
    files = [
        (path, length)
        for path, length in walk_files(root)
        if not path.rpartition("/")[2].startswith(".") and not path.endswith(PARTIAL_SUFFIX)
    ]
    if request.step_name:
        files = [file for file in files if file[0].startswith(f"{request.step_name}/")]
    if request.node_id:
        # Also the folders of its later incarnations.
        folder = re.compile(rf"/{re.escape(request.node_id)}(\.\d+)?/")
        files = [file for file in files if folder.search(file[0])]
    if request.HasField("mini_batch_index"):
        workers: set[tuple[str, str, str]] = set()
        # Numbers beyond a store's are of no mini-batch.
        for step in steps if request.mini_batch_index < 1 << MINI_BATCH_SHIFT else ():
            names = other_names(root / step.name)
            workers |= {
                (step.name, names.get((node_id, incarnation), node_id), f"process{number:03d}")
                for node_id, incarnation, number in jobs.workers_of(step, request.mini_batch_index)
            }
        files = [file for file in files if _worker_of(file[0]) in workers]
    return files


def _worker_of(path: str) -> tuple[str, str, str]:
    """The (step, node, process) that a log file belongs to, as far as its path shows."""
    parts = path.split("/")
    return (parts[0], parts[-2] if len(parts) > 1 else "", parts[-1].partition(".")[0])
