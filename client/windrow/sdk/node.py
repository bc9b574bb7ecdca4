"""Nodes, as plain frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from windrow.common.worker_phases import PHASE_NAMES
from windrow.sdk.job import moment_of

if TYPE_CHECKING:
    from datetime import datetime

    from windrow.rpc.v1 import node_pb2

_STATES = ("unknown", "ready", "disconnected", "draining", "quarantined", "lost")

_BUILDING = 9
"""WORKER_PHASE_BUILDING."""


class Worker(NamedTuple):
    """A worker process of a node, as of the node's last heartbeat.

    Not `windrow_worker`, the process itself.
    """

    process_number: int
    """As in process003."""
    step_id: int
    """The number of the step that it serves, as in `Step.step_id`."""
    phase: str
    """starting, init, idle, loading, running, returning or stopping."""
    phase_s: float
    """For how long it had been in this phase at the heartbeat."""
    rss_bytes: int
    mini_batch_index: int | None = None
    """The mini-batch that it works on, counted from 0 in its step; None if it has none."""
    gpu: WorkerGpu | None = None
    """What it has of GPUs; None if nothing."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {**self._asdict(), "gpu": None if self.gpu is None else self.gpu.to_dict()}


class Gpu(NamedTuple):
    """One GPU of a node, or one part of a GPU that is divided in hardware (MIG), as of the node's last heartbeat.
    Memory in bytes; None if it is not measured.
    """

    device: str
    """As in CUDA_VISIBLE_DEVICES (ROCR_VISIBLE_DEVICES for AMD)."""
    model: str = ""
    memory_bytes: int = 0
    memory_used_bytes: int | None = None
    busy_percent: float | None = None
    trouble: str = ""
    """Why it cannot be used, in words; "" if it can."""


class WorkerGpu(NamedTuple):
    """What a worker has of GPUs, and does with it. Memory in bytes; None if it is not measured."""

    places: tuple[int, ...]
    """Its GPUs: places in `Node.gpus`."""
    share: float
    """What it has of each of them: 1, or a part."""
    memory_bytes: int | None = None
    busy_percent: float | None = None
    idle_s: float = 0.0
    """For how long it has used less than 5 % of them; 0 if it uses them, or nobody knows."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {**self._asdict(), "places": list(self.places)}


class DataCache(NamedTuple):
    """What a node keeps of the data that it has fetched, as of its last heartbeat; counts since its agent started. A
    hit is an object, or a part of one, that was there when it was needed.
    """

    bytes_max: int
    bytes_held: int = 0
    files: int = 0
    hits: int = 0
    misses: int = 0
    bytes_saved: int = 0
    evictions: int = 0
    trouble: str = ""
    """Why it is not used, in words; "" if it is."""


class NodeUser(NamedTuple):
    """A step that has workers on a node. With a token for one project, `job_id` and `step` of others are empty."""

    project: str
    job_id: str
    step: str
    workers: int


class Node(NamedTuple):
    """A node at one moment. Memory in bytes, processor use in percent of all processors. What the node uses and runs is
    from its last heartbeat, `silent_s` seconds ago; None if none has arrived since the start of the master or of the
    node.

    Not the master's record of it (`windrow_master.core.state`), nor a node of a YAML tree (`windrow.spec.reading`).

    Example:
        with windrow.Client("127.0.0.1:8470") as client:
            print([node.node_id for node in client.list_nodes() if node.state == "ready"])
    """

    node_id: str
    state: str
    message: str = ""
    cpu_count: int = 0
    memory_bytes: int = 0
    gpu_count: int = 0
    slots: int = 0
    cpu_percent: float | None = None
    memory_used_bytes: int | None = None
    disk_free_bytes: int | None = None
    workers: int | None = None
    leases: int = 0
    silent_s: float | None = None
    windrow_version: str = ""
    labels: Mapping[str, str] = MappingProxyType({})
    cordoned: bool = False
    """It gets no new work, whatever its state, until it is uncordoned."""
    builds: Mapping[int, float] = MappingProxyType({})
    """Seconds that each environment has been building, by the number of the step."""
    node_incarnation: str = ""
    """Identifies the process of its agent; another one under the same name differs."""
    processes: tuple[Worker, ...] = ()
    """Its worker processes."""
    ca_good_until: datetime | None = None
    """When the certificates expire that it trusts the master by; None if it has none, or has not reported it."""
    protection: str = ""
    """What confines its workers, in words; "" if it has not said."""
    lifetime_s: float | None = None
    """How long it still lives, in seconds, by what its agent knows (--lifetime); None if that knows of no end."""
    allocation: str = ""
    """The allocation of a fleet that it runs in (--allocation); "" if in none."""
    users: tuple[NodeUser, ...] = ()
    """The steps that have live workers there, those with the most first."""
    gpus: tuple[Gpu, ...] = ()
    """Its GPUs, those that cannot be used included; empty until its first heartbeat."""
    gpu_trouble: str = ""
    """Why its GPUs cannot be seen or measured, in words; "" if they can, or it has none."""
    data_cache: DataCache | None = None
    """What it keeps of the data that it has fetched; None if it keeps nothing, or until its first heartbeat."""

    @property
    def pools(self) -> tuple[str, ...]:
        """The names of `compute` that the node works for, from its label `pool`; none means any."""
        return tuple(name for name in self.labels.get("pool", "").split(",") if name)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        ends = self.ca_good_until.isoformat() if self.ca_good_until is not None else None
        return {
            **self._asdict(),
            "labels": dict(self.labels),
            "builds": dict(self.builds),
            "processes": [one.to_dict() for one in self.processes],
            "gpus": [one._asdict() for one in self.gpus],
            "users": [one._asdict() for one in self.users],
            "ca_good_until": ends,
            "data_cache": None if self.data_cache is None else self.data_cache._asdict(),
        }


def node_from_message(message: node_pb2.Node) -> Node:
    """Make a node from its message."""
    heard = message.HasField("usage")
    builds = {worker.step_id: worker.phase_ms / 1000 for worker in message.workers if worker.phase == _BUILDING}
    return Node(
        node_id=message.node_id,
        state=_STATES[message.state] if message.state < len(_STATES) else "unknown",
        message=message.message,
        cpu_count=message.resources.cpu_count,
        memory_bytes=message.resources.memory_bytes,
        gpu_count=message.resources.gpu_count,
        slots=message.resources.slots,
        cpu_percent=message.usage.cpu_percent if heard else None,
        memory_used_bytes=message.usage.memory_used_bytes if heard else None,
        disk_free_bytes=message.usage.disk_free_bytes if heard else None,
        workers=len(message.workers) - len(builds) if heard else None,
        builds=builds,
        leases=message.lease_count,
        silent_s=message.silent_ms / 1000 if heard else None,
        windrow_version=message.windrow_version,
        labels=dict(message.labels),
        cordoned=message.cordoned,
        node_incarnation=message.node_incarnation,
        processes=tuple(_worker(one) for one in message.workers if one.phase != _BUILDING),
        ca_good_until=moment_of(message, "ca_good_until"),
        protection=message.protection,
        lifetime_s=message.lifetime.ToMilliseconds() / 1000 if message.HasField("lifetime") else None,
        allocation=message.allocation,
        gpus=tuple(_gpu(one) for one in message.usage.gpus),
        gpu_trouble=message.usage.gpu_trouble,
        data_cache=_data_cache(message.usage.data_cache) if message.usage.HasField("data_cache") else None,
        users=tuple(NodeUser(one.project, one.job_id, one.step, one.workers) for one in message.users),
    )


def _worker(message: node_pb2.WorkerStatus) -> Worker:
    return Worker(
        message.process_number,
        message.step_id,
        PHASE_NAMES[message.phase] if 0 < message.phase < len(PHASE_NAMES) else "unknown",
        message.phase_ms / 1000,
        message.rss_kib << 10,
        message.mini_batch_index if message.HasField("mini_batch_index") else None,
        _worker_gpu(message.gpu) if message.HasField("gpu") else None,
    )


def _gpu(message: node_pb2.GpuStatus) -> Gpu:
    return Gpu(
        message.device,
        message.model,
        message.memory_bytes,
        message.memory_used_bytes if message.HasField("memory_used_bytes") else None,
        message.busy_percent if message.HasField("busy_percent") else None,
        message.trouble,
    )


def _data_cache(message: node_pb2.DataCache) -> DataCache:
    return DataCache(
        message.bytes_max,
        message.bytes_held,
        message.files,
        message.hits,
        message.misses,
        message.bytes_saved,
        message.evictions,
        message.trouble,
    )


def _worker_gpu(message: node_pb2.WorkerGpu) -> WorkerGpu:
    return WorkerGpu(
        tuple(message.places),
        message.share,
        message.memory_bytes if message.HasField("memory_bytes") else None,
        message.busy_percent if message.HasField("busy_percent") else None,
        message.idle_ms / 1000,
    )
