"""Where each kind of log lies below a step's `logs` folder on its node, as in the master's (reference 7.1)."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import PurePosixPath

from windrow.rpc.v1 import agent_service_pb2 as rpc

WORKER_LOGS = {
    rpc.LOG_KIND_STDOUT: ("user/stdout", ".stdout.txt"),
    rpc.LOG_KIND_STDERR: ("user/stderr", ".stderr.txt"),
    rpc.LOG_KIND_ERROR: ("user/error", ".txt"),
    rpc.LOG_KIND_ENTRY_SCRIPT: ("user/entry_script_log", ".log.txt"),
    rpc.LOG_KIND_PROCESS: ("sys/node", ".txt"),
    rpc.LOG_KIND_RUNTIME_ERROR: ("sys/error", ".txt"),
    rpc.LOG_KIND_PROFILE: ("sys/node", ".profile"),
    rpc.LOG_KIND_ENVIRONMENT: ("user/environment", ".build.txt"),
}
_NODE_LOGS = {
    rpc.LOG_KIND_NODE_RESOURCES: "node_resource_usage.csv",
    rpc.LOG_KIND_NODE_DISKS: "node_disk_usage.csv",
    rpc.LOG_KIND_PROCESS_RESOURCES: "processes_resource_usage.csv",
}


def place_of(kind: rpc.LogKind.ValueType, node_id: str, number: int) -> PurePosixPath:
    """`number`: of the process; of a list of processes the minute, counted from 1970."""
    if kind in WORKER_LOGS:
        folder, suffix = WORKER_LOGS[kind]
        return PurePosixPath(folder, node_id, f"process{number:03d}{suffix}")
    perf = PurePosixPath("sys/perf", node_id)
    if kind == rpc.LOG_KIND_PROCESS_LIST:
        minute = datetime.fromtimestamp(number * 60, UTC)
        return perf / "os" / f"{minute:%Y%m%d%H}" / f"processes_{minute:%M}"
    return perf / _NODE_LOGS[kind]
