"""Where each kind of log is below `logs/<step>` of a job; the same on the master and on the node
(docs/reference/azure-ml/parallel-job.md#logs)."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import PurePosixPath

from windrow.rpc.v1 import agent_service_pb2 as pb

WORKER_LOGS = {
    pb.LOG_KIND_STDOUT: ("user/stdout", ".stdout.txt"),
    pb.LOG_KIND_STDERR: ("user/stderr", ".stderr.txt"),
    pb.LOG_KIND_ERROR: ("user/error", ".txt"),
    pb.LOG_KIND_ENTRY_SCRIPT: ("user/entry_script_log", ".log.txt"),
    pb.LOG_KIND_PROCESS: ("sys/node", ".txt"),
    pb.LOG_KIND_RUNTIME_ERROR: ("sys/error", ".txt"),
    pb.LOG_KIND_PROFILE: ("sys/node", ".profile"),
    pb.LOG_KIND_ENVIRONMENT: ("user/environment", ".build.txt"),
    pb.LOG_KIND_METRICS: ("user/metrics", ".csv"),
}
_NODE_LOGS = {
    pb.LOG_KIND_NODE_RESOURCES: "node_resource_usage.csv",
    pb.LOG_KIND_NODE_DISKS: "node_disk_usage.csv",
    pb.LOG_KIND_PROCESS_RESOURCES: "processes_resource_usage.csv",
}


def place_of(kind: pb.LogKind.ValueType, node: str, number: int) -> PurePosixPath | None:
    """The path of one log; None for a kind that only a later version knows.

    `number`: of the process; for a list of processes, the minute since 1970.
    """
    if kind in WORKER_LOGS:
        return worker_place(kind, node, number)
    perf = PurePosixPath("sys/perf", node)
    if kind == pb.LOG_KIND_PROCESS_LIST:
        minute = datetime.fromtimestamp(number * 60, UTC)
        return perf / "os" / f"{minute:%Y%m%d%H}" / f"processes_{minute:%M}"
    name = _NODE_LOGS.get(kind)
    return perf / name if name is not None else None


def worker_place(kind: pb.LogKind.ValueType, node: str, number: int) -> PurePosixPath:
    """The path of one of WORKER_LOGS. `number`: of the process."""
    folder, suffix = WORKER_LOGS[kind]
    return PurePosixPath(folder, node, f"process{number:03d}{suffix}")
