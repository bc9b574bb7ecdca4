"""Why a worker process died: the cause, and a message for the user."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from windrow.common.beneath import Folder
from windrow.common.signal_names import signal_name
from windrow.rpc.v1 import work_pb2 as work

from windrow_agent.workers.deadlines import Overrun
from windrow_agent.workers.page import BUSY, Phase

if TYPE_CHECKING:
    from windrow_agent.node.control_groups import WorkerGroup

NOT_CONFINED = 196
CODE_CHANGED = 195
TOO_OLD = 194
HOST_FAULT = 193
CHANNEL_CLOSED = 192
"""Exit codes of the worker's host (worker/windrow_worker/protocol/exits.py); TOO_OLD and NOT_CONFINED are
`launch.py`'s."""

_NAME_BYTES_MAX = 4096

_DOING = {
    Phase.NONE: "while the interpreter started",
    Phase.STARTING: "while the interpreter started",
    Phase.INIT: "in init() or while its script was imported",
    Phase.IDLE: "between two mini-batches",
    Phase.LOADING: "while it loaded the mini-batch",
    Phase.RUNNING: "in run()",
    Phase.RETURNING: "while it wrote what run() had returned",
    Phase.STOPPING: "in shutdown()",
}


@dataclass(frozen=True, slots=True)
class Exit:
    """How a process ended: by an exit `code`, or by a `signal`; the other is 0."""

    code: int = 0
    signal: int = 0


@dataclass(frozen=True, slots=True)
class Death:
    """The cause to report, and one line about it."""

    cause: work.Cause.ValueType
    message: str


def changed_code(exit_: Exit, sums: Path) -> str:
    """The changed file because of which a worker that compares its code ended; "" for any other end. `sums`: the
    checksum file of its code, beside which the worker leaves the name.
    """
    if exit_.code != CODE_CHANGED and exit_.signal != signal.SIGKILL:
        return ""
    left = changed_of(sums)
    try:
        # Scripts can write there: only a plain file is read, and not more of it than a name has.
        with Folder.open(os.path.realpath(left.parent)) as folder, open(folder.read(left.name), "rb") as file:
            name = os.fsdecode(file.read(_NAME_BYTES_MAX))
    except OSError:
        name = ""
    # If a child of the worker found it, the exit of the worker itself does not show it.
    return name or ("a file" if exit_.code == CODE_CHANGED else "")


def changed_of(sums: Path) -> Path:
    """The file in which a worker names what has changed; empty or not there if nothing has."""
    return sums.with_suffix(".changed")


def of_changed_code(name: str, *, again: bool) -> Death:
    """The death because of a changed file. `again`: it changed also in the copy that was unpacked for this reason."""
    if again:
        then = "This is the second time, so the script seems to write the file itself: from now on it is used as it is"
    else:
        then = "The code is unpacked again. If the script does not write this file itself, check this node's disk"
    return Death(
        work.CAUSE_NODE_FAULT, f"{name!r} in the step's code has changed since it was unpacked on this node. {then}"
    )


def lack_of_memory(doing: str, memory_max: int | None, killed: str) -> str:
    """What the kernel has killed for lack of memory, and what to do. `memory_max`: as in `explain`."""
    if memory_max is None:
        return (
            f"The system killed {killed} for lack of memory {doing}. "
            "Give the job fewer workers per node (max_concurrency_per_instance), smaller mini-batches, or more memory"
        )
    from windrow.common.quantities import size

    return (
        f"The processes of the worker used all memory that a worker may use on this node, {size(memory_max)}, and "
        f"the system killed {'them' if killed == 'the worker process' else killed} {doing}. Give the job smaller "
        "mini-batches, or let workers of this node use more (windrow agent --worker-memory)"
    )


def of_its_child(group: WorkerGroup | None, message: str) -> str:
    """The message of an attempt that failed because the kernel had killed a process that the script started; "" if it
    has killed none. `message`: what the script, or the command, says of it.
    """
    if group is None or not group.lacked_memory():
        return ""
    memory_max = group.limits.memory if group.reached_own_memory_limit() else None
    return f"{lack_of_memory('in run()', memory_max, 'a process of its script')}. What the script says: {message}"


def explain(
    exit_: Exit,
    phase: Phase,
    *,
    overrun: Overrun | None,
    oom: bool,
    memory_max: int | None = None,
    killed_for: str | None = None,
    lacked_gpu_memory: bool = False,
    place: str = "",
) -> Death:
    """Finds the cause. `overrun`: the agent killed the worker for a deadline; `killed_for`: for another reason, which
    was, with `lacked_gpu_memory`, that it used the memory of others on a GPU.

    `oom`: the kernel has killed for lack of memory. `memory_max`: the bytes that a worker may use, if it used up those.
    `place`: where the script was, if that is known.
    """
    doing = _DOING[phase]
    if overrun is not None:
        return Death(work.CAUSE_TIMEOUT, overrun.text(place))
    if killed_for is not None:
        return Death(work.CAUSE_OOM if lacked_gpu_memory else work.CAUSE_CRASH, killed_for)
    if exit_.signal == signal.SIGKILL and oom:
        return Death(work.CAUSE_OOM, lack_of_memory(doing, memory_max, "the worker process"))
    if exit_.signal:
        hint = {
            signal.SIGSEGV: ": native code used by the script accessed invalid memory",
            signal.SIGABRT: ": native code used by the script aborted",
            signal.SIGBUS: ": a mapped file was cut short, or a disk is full",
            signal.SIGKILL: ": somebody or something killed it; the kernel reports no lack of memory",
        }.get(signal.Signals(exit_.signal) if exit_.signal in set(signal.Signals) else signal.SIGCHLD, "")
        at = f" ({place})" if place else ""
        return Death(
            work.CAUSE_CRASH, f"The worker process was killed by {signal_name(exit_.signal)} {doing}{hint}{at}"
        )
    if exit_.code == CHANNEL_CLOSED:
        return Death(
            work.CAUSE_CRASH,
            f"The script has closed or replaced file descriptors that are not its own ({doing}); "
            "results could not be sent. Close only what the script has opened itself",
        )
    if exit_.code == TOO_OLD and phase is Phase.NONE:
        return Death(
            work.CAUSE_NODE_FAULT,
            "The Python that should run the script is too old; Python 3.8 or newer is needed. Choose another one "
            "with --python PATH, or activate its environment",
        )
    if exit_.code == NOT_CONFINED and phase is Phase.NONE:
        return Death(
            work.CAUSE_NODE_FAULT,
            "This node could not confine the script (--sandbox, --job-users, --control-groups); the end of its stderr "
            "says what is missing",
        )
    if exit_.code == HOST_FAULT:
        # During a mini-batch, that one is charged, so that it is not tried without end.
        cause = work.CAUSE_CRASH if phase in BUSY else work.CAUSE_NODE_FAULT
        return Death(cause, f"The worker process failed in its own code {doing}; the end of its stderr shows the error")
    if phase in (Phase.NONE, Phase.STARTING):
        return Death(work.CAUSE_NODE_FAULT, f"The worker process ended with exit code {exit_.code} {doing}")
    return Death(
        work.CAUSE_CRASH,
        f"The worker process ended with exit code {exit_.code} {doing}; a script must return, not exit",
    )
