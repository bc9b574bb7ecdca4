"""Measures the resources of the node at intervals while a step is served: `sys/perf/<node>/` in the step's logs.

Files and columns are as in docs/reference/azure-ml/parallel-job.md#resource-logs; the columns for disks and
processes are Windrow's own, since the vendor's are not public. Each measurement runs in a thread. If one fails, only
its lines are missing.
"""

from __future__ import annotations

import asyncio
import csv
import io
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from windrow.common.journal import Condition
from windrow.rpc.v1 import agent_service_pb2 as rpc

from windrow_agent.steps.step import Step, StepState
from windrow_agent.workers.capture import CapturedFile
from windrow_agent.workers.process_log import utc_now

CHECK_S = 1.0
FIRST_S = 10.0
"""Latest time of the first measurement after a step has started: not while its first workers start."""

_MB = 1 << 20

RESOURCE_COLUMNS = (
    "Utc Time",
    "Cpu Percent",
    "Memory Total (MB)",
    "Memory Available (MB)",
    "Memory Used (MB)",
    "Memory Used Percent",
    "Disk Io Read Count",
    "Disk Io Write Count",
    "Disk Io Read (MB)",
    "Disk Io Write (MB)",
    "Network Sent (MB)",
    "Network Recv (MB)",
    "# of TCP Connections",
    "# of UDP Connections",
)
DISK_COLUMNS = (
    "Utc Time",
    "Device",
    "Mount Point",
    "File System",
    "Total (MB)",
    "Used (MB)",
    "Free (MB)",
    "Used Percent",
)
PROCESS_COLUMNS = (
    "Utc Time",
    "Process",
    "Pid",
    "Parent Pid",
    "Name",
    "Status",
    "Cpu Seconds",
    "Cpu Percent",
    "Memory (MB)",
    "Virtual Memory (MB)",
    "Threads",
    "Io Read (MB)",
    "Io Write (MB)",
)


class _Files(NamedTuple):
    """The files of one measurement."""

    resources: CapturedFile
    disks: CapturedFile
    processes: CapturedFile
    process_list: CapturedFile


@dataclass(slots=True, eq=False)
class _Before:
    """What a step's last measurement found: percentages of the next one are relative to it.

    `minute`: the minute whose list of processes was written. `cpu`: seconds of all processors, and how many were idle.
    `processes`: by pid, the moment (monotonic) and the processor time in seconds.
    """

    minute: int
    cpu: tuple[float, float] = (0.0, 0.0)
    processes: dict[int, tuple[float, float]] = field(default_factory=dict)


class ResourceMonitor:
    """Measures for all steps of an agent, for each at its own interval."""

    def __init__(
        self, steps: Callable[[], Iterable[Step]], folder: Path, until_at_work: Callable[[], Awaitable[object]]
    ) -> None:
        """`folder`: a folder whose disk is always listed. `until_at_work`: waits while there are no steps."""
        self._steps = steps
        self._until_at_work = until_at_work
        self._folder = folder
        self._before: dict[int, _Before] = {}
        self._unseen = Condition(
            logging.WARNING,
            "the resources of this node cannot be measured",
            "the resources of this node are measured again",
        )

    async def run(self) -> None:
        """Never returns."""
        while True:
            await self._until_at_work()
            await asyncio.sleep(CHECK_S)
            now = time.monotonic()
            steps = list(self._steps())
            for gone in self._before.keys() - {step.step_id for step in steps}:
                del self._before[gone]
            for step in steps:
                interval = step.spec.resource_monitor_interval
                # A job of hundreds of steps has workers of a few on each node.
                if not interval or step.state is not StepState.SERVING or not step.workers:
                    continue
                if step.monitor_at is None:
                    step.monitor_at = now + min(interval, FIRST_S) - CHECK_S
                if now >= step.monitor_at:
                    step.monitor_at = now + interval
                    await self._look(step)

    async def _look(self, step: Step) -> None:
        minute = int(time.time() // 60)
        before = self._before.setdefault(step.step_id, _Before(minute))
        if before.minute != minute:
            step.log_file(rpc.LOG_KIND_PROCESS_LIST, before.minute).end()
        before.minute = minute
        files = _Files(
            step.log_file(rpc.LOG_KIND_NODE_RESOURCES, 0),
            step.log_file(rpc.LOG_KIND_NODE_DISKS, 0),
            step.log_file(rpc.LOG_KIND_PROCESS_RESOURCES, 0),
            step.log_file(rpc.LOG_KIND_PROCESS_LIST, minute),
        )
        names = {worker.pid: f"process{worker.process_number:03d}" for worker in step.workers.values()}
        try:
            await asyncio.to_thread(self._write, files, names, before)
        except Exception as error:
            self._unseen.goes_on(step=step.step_id, why=repr(error))
        else:
            self._unseen.is_over()

    def _write(self, files: _Files, names: dict[int, str], before: _Before) -> None:
        moment = utc_now()
        _append(files.resources, RESOURCE_COLUMNS, [(moment, *_resources(before))])
        _append(files.disks, DISK_COLUMNS, [(moment, *row) for row in _disks(self._folder)])
        _append(files.processes, PROCESS_COLUMNS, [(moment, *row) for row in _own_processes(names, before)])
        files.process_list.write(_process_list().encode("utf-8", "backslashreplace"))


def _resources(before: _Before) -> tuple[object, ...]:
    import psutil

    memory = psutil.virtual_memory()
    # Not there in some containers.
    disk, network = psutil.disk_io_counters(), psutil.net_io_counters()
    return (
        f"{_cpu_percent(before):.1f}",
        _mb(memory.total),
        _mb(memory.available),
        _mb(memory.used),
        memory.percent,
        disk.read_count if disk else "",
        disk.write_count if disk else "",
        _mb(disk.read_bytes) if disk else "",
        _mb(disk.write_bytes) if disk else "",
        _mb(network.bytes_sent) if network else "",
        _mb(network.bytes_recv) if network else "",
        _connections("tcp"),
        _connections("udp"),
    )


def _cpu_percent(before: _Before) -> float:
    """Use of all processors since the step's last measurement, or since the machine started.

    Not psutil's own `cpu_percent`: heartbeats use that, and share its last measurement.
    """
    import psutil

    times = psutil.cpu_times()
    total = sum(times[:8])  # guests are counted in user already
    idle = times.idle + getattr(times, "iowait", 0.0)
    before_total, before_idle = before.cpu
    before.cpu = (total, idle)
    spent = total - before_total
    return 100 * (spent - (idle - before_idle)) / spent if spent > 0 else 0.0


def _own_processes(names: dict[int, str], before: _Before) -> list[tuple[object, ...]]:
    """The agent and its descendants. `names`: names of the step's workers, by pid."""
    import psutil

    rows: list[tuple[object, ...]] = []
    own = psutil.Process()
    seen: dict[int, tuple[float, float]] = {}
    now = time.monotonic()
    for process in (own, *own.children(recursive=True)):
        try:
            with process.oneshot():
                times, memory = process.cpu_times(), process.memory_info()
                cpu = times.user + times.system
                then, had = before.processes.get(process.pid, (now, cpu))
                seen[process.pid] = (now, cpu)
                percent = 100 * (cpu - had) / (now - then) if now > then and cpu >= had else ""
                role = "agent" if process.pid == own.pid else names.get(process.pid, "")
                rows.append(
                    (
                        role or names.get(process.ppid(), ""),
                        process.pid,
                        process.ppid(),
                        process.name(),
                        process.status(),
                        f"{cpu:.2f}",
                        f"{percent:.1f}" if percent != "" else "",
                        _mb(memory.rss),
                        _mb(memory.vms),
                        process.num_threads(),
                        *_io(process),
                    )
                )
        except psutil.Error:
            continue
    before.processes = seen
    return rows


def _io(process: object) -> tuple[object, object]:
    import psutil

    try:
        counters = process.io_counters()  # type: ignore[attr-defined]
    except (psutil.Error, AttributeError, OSError):
        return "", ""
    return _mb(counters.read_bytes), _mb(counters.write_bytes)


def _disks(folder: Path) -> list[tuple[object, ...]]:
    import psutil

    places = {part.mountpoint: (part.device, part.fstype) for part in psutil.disk_partitions(all=False)}
    places.setdefault(str(folder), ("", ""))
    rows: list[tuple[object, ...]] = []
    for mount, (device, kind) in places.items():
        try:
            use = psutil.disk_usage(mount)
        except OSError:
            continue
        rows.append((device, mount, kind, _mb(use.total), _mb(use.used), _mb(use.free), use.percent))
    return rows


def _connections(kind: str) -> int:
    """Counts in the kernel's tables: psutil would look through all files of all processes."""
    count = 0
    for name in (kind, f"{kind}6"):
        try:
            count += max(0, Path("/proc/net", name).read_bytes().count(b"\n") - 1)
        except OSError:
            continue
    return count


def _process_list() -> str:
    """All processes of the node as `ps` shows them; slim images have no `ps`."""
    import psutil

    lines = [f"{utc_now()}\n{'USER':<12} {'PID':>8} {'PPID':>8} {'%MEM':>5} {'VSZ':>10} {'RSS':>9} {'STAT':<10} "]
    lines[0] += f"{'START':<20} {'TIME':>9} COMMAND\n"
    wanted = ["username", "pid", "ppid", "memory_percent", "memory_info", "status", "create_time", "cpu_times"]
    for process in psutil.process_iter([*wanted, "cmdline", "name"]):
        info = process.info
        memory, times = info["memory_info"], info["cpu_times"]
        begun = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(info["create_time"] or 0))
        command = " ".join(info["cmdline"] or ()) or f"[{info['name']}]"
        lines.append(
            f"{info['username'] or '?':<12} {info['pid']:>8} {info['ppid'] or 0:>8} "
            f"{info['memory_percent'] or 0:>5.1f} "
            f"{memory.vms // 1024 if memory else 0:>10} {memory.rss // 1024 if memory else 0:>9} "
            f"{info['status'] or '?':<10} {begun:<20} {(times.user + times.system) if times else 0:>9.2f} "
            f"{' '.join(command.split())[:500]}\n"
        )
    return "".join(lines)


def _append(file: CapturedFile, columns: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> None:
    # The first measurement is some seconds after the start.
    from windrow.common.spreadsheet_cells import as_texts

    text = io.StringIO(newline="")
    writer = csv.writer(text)
    if file.empty:
        writer.writerow(columns)
    writer.writerows(map(as_texts, rows))
    file.write(text.getvalue().encode("utf-8", "backslashreplace"))


def _mb(count: int) -> str:
    return f"{count / _MB:.1f}"
