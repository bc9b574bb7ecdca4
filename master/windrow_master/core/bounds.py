"""Bounds of what a node reports: about an attempt, about its workers, and about itself.

The numbers of an attempt are made in a process where the script runs, which may write what it likes; all others come
from an agent, and a join token is enough to be one. Whoever reads them later adds them up, stores them in 64 bits and
shows them as times: within these bounds that works, however many there are. A number beyond its bound is made to fit,
since it decides nothing. What a node offers decides where workers go: a node that offers more than a machine has is
refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from windrow.common.device_packing import DEVICES_MAX

if TYPE_CHECKING:
    from windrow.rpc.v1 import agent_service_pb2, node_pb2

    from windrow_master.core.attempt_result import AttemptResult, CacheReport, StartReport

DURATION_US_MAX: Final = 366 * 86_400 * 1_000_000
"""A year."""
CPU_US_MAX: Final = 1024 * DURATION_US_MAX
"""A year on 1,024 processors."""
TIME_US_MAX: Final = 4_102_444_800_000_000
"""The year 2100. A node's clock may be wrong by years, but has to make a date."""
MEMORY_KIB_MAX: Final = 1 << 40
MISFITS_MAX: Final = 1 << 32
"""Values of one column in one mini-batch; it has no more rows."""

NODE_OFFERS_MAX: Final[Mapping[str, tuple[int, str]]] = MappingProxyType(
    {
        "slots": (4_096, "workers"),
        "gpu_count": (DEVICES_MAX, "GPUs"),
        "memory_bytes": (MEMORY_KIB_MAX << 10, "bytes of memory"),
        "cpu_count": (1 << 16, "processors"),
    }
)
"""The most that one node offers."""
_PERCENT_MAX: Final = 100.0
_DATE_S_MAX: Final = 253_402_300_799
"""The end of the year 9999, with which calendars end."""
POOLS_MAX: Final = 100
"""The most pools of one node: each share that it has is worked out for all of them."""
_USAGE: Final = MappingProxyType({"memory_used_bytes": MEMORY_KIB_MAX << 10, "disk_free_bytes": 1 << 60})
_GPU: Final = MappingProxyType({"memory_bytes": MEMORY_KIB_MAX << 10, "memory_used_bytes": MEMORY_KIB_MAX << 10})
_GPU_TEXT_MAX: Final = 400
_WORKER_GPU: Final = MappingProxyType({"memory_bytes": MEMORY_KIB_MAX << 10, "idle_ms": 1 << 40})
_WORKER: Final = MappingProxyType({"phase_ms": DURATION_US_MAX // 1000, "rss_kib": MEMORY_KIB_MAX})
_CACHED_MAX: Final = 1 << 24
"""Objects of one mini-batch, and of a step's inputs."""
_CACHE_USE: Final = MappingProxyType(
    {"hits": _CACHED_MAX, "misses": _CACHED_MAX, "bytes_saved": 1 << 50, "evictions": _CACHED_MAX}
)
_CACHE: Final = MappingProxyType(
    dict.fromkeys(("bytes_max", "bytes_held", "files", "hits", "misses", "bytes_saved", "evictions"), 1 << 60)
)
_STARTS = dict.fromkeys(("prepare_us", "start_us", "init_us"), DURATION_US_MAX)


def measures(result: AttemptResult) -> tuple[int, int, int, int, int]:
    """Return what was measured of an attempt, made to fit: when it began (Unix µs); how long it took in all, in `run()`
    and on processors (µs); the peak of its memory (KiB).
    """
    # Written out: this is done for every result, and a loop takes three times as long.
    start, elapsed = result.start_unix_us, result.elapsed_us
    run, cpu, memory = result.run_us, result.cpu_us, result.peak_rss_kib
    if (
        0 <= start <= TIME_US_MAX
        and elapsed <= DURATION_US_MAX
        and run <= DURATION_US_MAX
        and cpu <= CPU_US_MAX
        and memory <= MEMORY_KIB_MAX
    ):
        return start, elapsed, run, cpu, memory
    return (
        min(max(0, start), TIME_US_MAX),
        min(elapsed, DURATION_US_MAX),
        min(run, DURATION_US_MAX),
        min(cpu, CPU_US_MAX),
        min(memory, MEMORY_KIB_MAX),
    )


def start_told(result: AttemptResult) -> StartReport:
    """Return how the worker of an attempt came to be ready, made to fit."""
    _fit(result.worker_start, _STARTS)
    return result.worker_start


def cache_use_told(result: AttemptResult) -> CacheReport:
    """Return what the data of an attempt had of the data cache, made to fit."""
    _fit(result.data_cache, _CACHE_USE)
    return result.data_cache


def _fit(part: object, largest: Mapping[str, int]) -> None:
    for name, most in largest.items():
        number = getattr(part, name)
        if not 0 <= number <= most:
            setattr(part, name, min(max(0, number), most))


def too_much_for_a_node(resources: node_pb2.NodeResources, pools: int) -> str:
    """What no node can offer, in words that follow its name; empty if there is none of that. `pools`: how many."""
    for name, (most, words) in NODE_OFFERS_MAX.items():
        if (offered := getattr(resources, name)) > most:
            return f"offers {offered:,} {words}; a node has at most {most:,}"
    return f"is in {pools:,} pools; a node is in at most {POOLS_MAX}" if pools > POOLS_MAX else ""


def keep_heartbeat_in_bounds(heartbeat: agent_service_pb2.HeartbeatRequest) -> None:
    """Make every number and list of a heartbeat fit that is only counted or shown, cut texts, and leave out a date that
    is none.
    """
    if heartbeat.HasField("usage"):
        usage = heartbeat.usage
        _fit(usage, _USAGE)
        _fit_fraction(usage, "cpu_percent", _PERCENT_MAX)
        del usage.gpus[DEVICES_MAX:]
        _cut(usage, ("gpu_trouble",))
        if usage.HasField("data_cache"):
            _fit(usage.data_cache, _CACHE)
            _cut(usage.data_cache, ("trouble",))
        for gpu in usage.gpus:
            _fit(gpu, _GPU)
            _fit_fraction(gpu, "busy_percent", _PERCENT_MAX)
            _cut(gpu, ("device", "model", "trouble"))
    for worker in heartbeat.workers:
        _fit(worker, _WORKER)
        if worker.HasField("gpu"):
            del worker.gpu.places[DEVICES_MAX:]
            _fit(worker.gpu, _WORKER_GPU)
            _fit_fraction(worker.gpu, "share", 1.0)
            _fit_fraction(worker.gpu, "busy_percent", _PERCENT_MAX)
    if not 0 <= heartbeat.ca_good_until.seconds <= _DATE_S_MAX or not 0 <= heartbeat.ca_good_until.nanos < 10**9:
        heartbeat.ClearField("ca_good_until")


def _fit_fraction(part: object, name: str, most: float) -> None:
    number = getattr(part, name)
    # Not a number fails every comparison, and becomes 0.
    if not 0 <= number <= most:
        setattr(part, name, most if number > most else 0.0)


def _cut(part: object, names: Iterable[str]) -> None:
    for name in names:
        if len(text := getattr(part, name)) > _GPU_TEXT_MAX:
            setattr(part, name, text[:_GPU_TEXT_MAX])
