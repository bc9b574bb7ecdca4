"""What this machine has for workers: processors, memory, GPUs, files, and what its kernel can do."""

from __future__ import annotations

import ctypes
import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from windrow.common.open_files import BASE, EACH_WORKER
from windrow.common.quantities import counted, size
from windrow.common.role_query import Unanswered, ask
from windrow.doctor.findings import FAIL, OK, WARN, Finding

AREA = "Machine"
SHARED_MEMORY = Path("/dev/shm")
SHARED_MEMORY_BYTES = 64 << 20
"""The default of container engines."""
MEMORY_EACH_BYTES = 512 << 20
TEMPORARY_BYTES = 256 << 20
_UNSYNCHRONISED = 5
"""TIME_ERROR of adjtimex(2)."""

KERNEL = {
    "pidfd_open": (FAIL, "the death of a worker would not be noticed at once", "Linux 5.3 or newer is needed."),
    "PR_SET_PDEATHSIG": (
        WARN,
        "workers may outlive a killed agent",
        "Allow prctl in the container's seccomp profile.",
    ),
    "PR_SET_CHILD_SUBREAPER": (
        WARN,
        "processes that scripts leave behind may stay",
        "Allow prctl in the container's seccomp profile.",
    ),
    "PR_SET_DUMPABLE": (
        WARN,
        "scripts of the same user could read the agent's memory",
        "Allow prctl in the container's seccomp profile.",
    ),
    "SOCK_SEQPACKET": (FAIL, "work cannot be handed to workers", "A Linux kernel with unix packet sockets is needed."),
    "memfd_create": (FAIL, "`windrow agent` cannot start", "Linux 3.17 or newer is needed."),
}
"""What agents need from the kernel. If it is missing: the level, the effect, and what to do."""


def check() -> Iterator[Finding]:
    """All findings of this area."""
    try:
        node, environments = ask("windrow_agent.node"), ask("windrow_agent.environments")
    except Unanswered as error:
        yield Finding(AREA, "agent", FAIL, f"the agent's code does not run: {error}", "Reinstall Windrow.")
        return
    yield from _size(node)
    yield _open_files(node)
    yield from _kernel(node)
    yield from _sandbox()
    yield _control_groups(node["control_groups"])
    if environments:
        yield _environments(environments)
    yield _shared_memory()
    yield _temporary()
    yield _clock()


def _environments(found: dict[str, Any]) -> Finding:
    left = f", and {counted(found['unfinished'], 'build')} under way or broken off" if found["unfinished"] else ""
    seen = f"{size(found['size'])}: {counted(found['complete'], 'environment')} in {found['folder']}{left}"
    advice = (
        f"Agents keep those in use. Of the others, they keep the {found['most']} used last, "
        f"{size(found['most_bytes'])} in all, and none that was not used for {found['unused_days']} days."
    )
    return Finding(AREA, "environments", OK, seen, advice)


def _size(node: dict[str, Any]) -> Iterator[Finding]:
    slots, all_processors = node["cpu_count"], node["machine_cpu_count"]
    bound = f" of {all_processors} (bounded by the cgroup or by affinity)" if slots < all_processors else ""
    yield Finding(
        AREA, "processors", OK, f"{slots}{bound}: {counted(slots, 'worker')} at a time, unless --slots says otherwise"
    )
    memory, machine = node["memory_bytes"], node["machine_memory_bytes"]
    each = memory // slots
    seen = f"{size(memory)}{f' of {size(machine)} (bounded by the cgroup)' if memory < machine else ''}, "
    seen += f"{size(each)} for each worker"
    if each < MEMORY_EACH_BYTES:
        advice = "Scripts with pandas or a model may need more: use fewer workers (--slots N)."
        yield Finding(AREA, "memory", WARN, seen, advice)
    else:
        yield Finding(AREA, "memory", OK, seen)
    if not node["sees_oom_kills"]:
        yield Finding(
            AREA,
            "memory kills",
            WARN,
            "the cgroup's count of processes killed for lack of memory cannot be read",
            "Such deaths are reported as crash, not as oom. Mount /sys/fs/cgroup into the container.",
        )
    yield from _gpus(node["gpus"])


def _gpus(found: dict[str, Any]) -> Iterator[Finding]:
    devices, trouble = found["devices"], found["trouble"]
    if not devices:
        none = "none are given to this shell (CUDA_VISIBLE_DEVICES)" if found["given"] else "none seen"
        yield Finding(AREA, "GPUs", WARN if trouble else OK, trouble or none)
        return
    named = [f"{one['model'] or one['device']}" for one in devices]
    kinds = [f"{count} × {model}" if count > 1 else model for model, count in Counter(named).items()]
    seen = f"{len(devices)} seen: {', '.join(kinds)}"
    if lost := [one for one in devices if one["trouble"]]:
        why = "; ".join(f"{one['device']}: {one['trouble']}" for one in lost)
        advice = "Agents give workers the others, and this one again when the driver has it back."
        yield Finding(AREA, "GPUs", WARN, f"{seen}. Of them, {len(lost)} cannot be used: {why}", advice)
    elif trouble:
        advice = "Workers get the GPUs, but nobody sees what they use, or whether one is lost."
        yield Finding(AREA, "GPUs", WARN, f"{seen}, but they cannot be measured: {trouble}", advice)
    else:
        memory = sum(one["memory_bytes"] for one in devices)
        yield Finding(AREA, "GPUs", OK, f"{seen}{f'; {size(memory)} of memory in all' if memory else ''}")
    if found["mps"]:
        seen = f"MPS serves {found['mps']}: workers that share a GPU are kept within their part of it"
        yield Finding(AREA, "shares of GPUs", OK, seen)
    elif not found["sees_processes"]:
        seen = "in this container, the driver may not say which process uses what of a GPU that workers share"
        advice = "Use MPS, or run the agent's container in the host's process namespace (pid: host in Compose)."
        yield Finding(AREA, "shares of GPUs", WARN, seen, advice)


def _open_files(node: dict[str, Any]) -> Finding:
    hard, soft = node["open_files"]["hard"], node["open_files"]["soft"]
    needed = BASE + EACH_WORKER * node["cpu_count"]
    seen = f"at most {'any number' if hard is None else f'{hard:,}'} (soft limit {soft:,}); agents need {needed:,}"
    if hard is not None and hard < needed:
        advice = "Raise the hard limit (ulimit -Hn; LimitNOFILE= of a service; --ulimit nofile= of a container)."
        return Finding(AREA, "open files", FAIL, seen, advice)
    return Finding(AREA, "open files", OK, seen)


def _kernel(node: dict[str, Any]) -> Iterator[Finding]:
    features = node["kernel"]
    there = [name for name, works in features.items() if works]
    yield Finding(AREA, "kernel", OK, f"{os.uname().release}, with {', '.join(there)}")
    for name, works in features.items():
        if not works:
            level, effect, advice = KERNEL.get(name, (WARN, "it is used by agents", ""))
            yield Finding(AREA, name, level, f"does not work here: {effect}", advice)


def _sandbox() -> Iterator[Finding]:
    try:
        found = ask("windrow_agent.sandbox")
    except Unanswered as error:
        yield Finding(AREA, "sandbox", WARN, f"it cannot be asked: {error}", "Reinstall Windrow.")
        return
    if found["is_enough"]:
        seen = f"Landlock {found['abi']}: scripts of agents are confined (auto), --sandbox strict can confine them more"
        yield Finding(AREA, "sandbox", OK, seen)
    else:
        advice = "--sandbox auto and given do what can be done here; strict needs Linux 6.12 or newer with Landlock."
        yield Finding(AREA, "sandbox", WARN, f"--sandbox {found['protection']}", advice)
    if found["sockets"]:
        seen = f"{', '.join(found['sockets'])}: by these, scripts of agents that start here as this user have programs "
        seen += "started that no sandbox confines"
        advice = (
            "Start agents as a user who may not open them (--user), or with --job-users, and mount none into their "
        )
        advice += "containers."
        yield Finding(AREA, "sockets", WARN, seen, advice)
    yield _job_users(found["job_users"])


def _job_users(found: dict[str, Any]) -> Finding:
    if found["possible"]:
        seen = f"agents that start here can give each job a user of its own (--job-users auto: {found['how']})"
    else:
        seen = f"none for agents that start here, since {found['how']}"
    return Finding(AREA, "users of jobs", OK, seen)


def _control_groups(found: dict[str, Any]) -> Finding:
    if found["possible"]:
        return Finding(AREA, "control groups", OK, f"agents that start here can limit each worker: {found['how']}")
    seen = f"none for agents that start here, since {found['how']}"
    advice = "A script can start processes and take memory until none is left. "
    advice += "docs/how-to/confine-scripts.md says how an agent gets control groups."
    return Finding(AREA, "control groups", OK, seen, advice)


def _shared_memory() -> Finding:
    try:
        usage = os.statvfs(SHARED_MEMORY)
    except OSError as error:
        advice = "Scripts that share memory between processes (data loaders) will fail. Mount a tmpfs there."
        return Finding(AREA, "/dev/shm", WARN, f"not available: {error.strerror}", advice)
    total, free = usage.f_blocks * usage.f_frsize, usage.f_bavail * usage.f_frsize
    seen = f"{size(free)} free of {size(total)}"
    if total <= SHARED_MEMORY_BYTES:
        advice = (
            "Scripts that share memory between processes (data loaders) may need more: --shm-size of the container."
        )
        return Finding(AREA, "/dev/shm", WARN, seen, advice)
    return Finding(AREA, "/dev/shm", OK, seen)


def _temporary() -> Finding:
    place = tempfile.gettempdir()
    try:
        with tempfile.TemporaryFile(dir=place):
            free = shutil.disk_usage(place).free
    except OSError as error:
        advice = "Set TMPDIR to a folder that this user can write to."
        return Finding(AREA, "temporary files", FAIL, f"{place} cannot be written: {error.strerror}", advice)
    level = OK if free >= TEMPORARY_BYTES else WARN
    advice = "" if level == OK else "Code is packed there. Free some space, or set TMPDIR."
    return Finding(AREA, "temporary files", level, f"{place}, {size(free)} free", advice)


def _clock() -> Finding:
    now = time.strftime("%Y-%m-%d %H:%M:%S %Z")
    try:
        # A struct timex is smaller; all zero asks, and sets nothing.
        state = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(512))
    except (OSError, AttributeError):
        state = -1
    if state == _UNSYNCHRONISED:
        advice = "Synchronise it by network time (chrony, systemd-timesyncd), or from the machine's host: certificates "
        advice += "and times in logs depend on it. Deadlines do not."
        return Finding(AREA, "clock", WARN, f"{now}; the kernel does not report it as synchronised", advice)
    return Finding(AREA, "clock", OK, f"{now}{', synchronised' if state >= 0 else ''}")
