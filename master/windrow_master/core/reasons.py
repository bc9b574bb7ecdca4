"""Why a job stands where it stands: for each of its steps a code and a text, made from the very state that decides.

Nothing is kept for it: the same questions are asked that the scheduler asks (`scheduling.pick`, `pools.working_nodes`),
in the same order, and the first that holds something up is the reason. Codes are for programs, and never renamed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from windrow.common.quantities import counted

from windrow_master.core.commands import ExplainJob, Moment, Refused
from windrow_master.core.leases import Lease
from windrow_master.core.pools import is_in_pool, working_nodes
from windrow_master.core.state import CoreState, Job, Node, Step
from windrow_master.core.states import JobState, NodeState, StepState

QUIET_S = 60.0
"""Without any result for so long, a step that runs is told as one that makes no progress."""
NAMES_MAX = 5


class Reason(NamedTuple):
    """Of one step. `code`: one of those below; `message`: for people, with what to do where something can be done."""

    step: str
    code: str
    message: str


def on_explain_job(state: CoreState, command: ExplainJob, now: Moment) -> list[Reason] | Refused:
    """Tell of each step of a job why it does not go on, or how it does."""
    key = state.job_keys.get(command.job_id)
    if key is None:
        return Refused("JOB_UNKNOWN", f"There is no job named {command.job_id!r} at work.")
    job = state.jobs[key]
    return [Reason(step.settings.name, *_reason(state, job, step, now)) for step in job.steps]


def _reason(state: CoreState, job: Job, step: Step, now: Moment) -> tuple[str, str]:
    match step.state:
        case StepState.COMPLETED | StepState.FAILED | StepState.CANCELLED:
            return reason_of_ended(step.state, step.message, job.message)
        case StepState.WAITING:
            return _waiting(job, step)
        case StepState.CONCATENATING:
            return _finishing(step)
    if job.state == JobState.PAUSED:
        return "JOB_PAUSED", f"{job.message}. `windrow job cancel {job.job_id}` ends it; please report this."
    if state.held:
        return "MASTER_HELD", "The master hands out nothing until a `windrow run` of this state folder asks for work."
    if step.counters.leased:
        return _running(state, step, now)
    if step.is_read_first:
        read = f"being read, for {now.monotonic_s - step.started_s:.0f} s"
        if step.settings.reuse:
            return "COMPARING_INPUTS", (
                f"Its inputs are {read}, to see whether an earlier job has made the same (is_deterministic, "
                "force_rerun). What has not changed by next time is not read again."
            )
        return "VERIFYING_ROWS", f"The rows of earlier steps are {read}, to see that they are what was written."
    if nowhere := _nowhere(state, step):
        return nowhere
    if not step.counters.queued and not step.planned:
        return _dividing(step, now)
    return _unleased(state, step, now)


def reason_of_ended(state: StepState, message: str, job_message: str) -> tuple[str, str]:
    """Code and message of a step that has ended, from its own message and its job's, which is of another step's doing
    where this one is done."""
    return state.name, message or ("It is done." if state == StepState.COMPLETED else job_message)


def _waiting(job: Job, step: Step) -> tuple[str, str]:
    open_ = [
        f"{other.settings.name} ({other.state.name.lower()})"
        for other in job.steps
        if other.settings.name in step.settings.depends_on and other.state != StepState.COMPLETED
    ]
    return "WAITS_FOR_STEPS", f"It reads outputs of {_listed(open_)}, and begins when these are done."


def _finishing(step: Step) -> tuple[str, str]:
    if step.ending_on:
        return "ENDING_WORKERS", (
            f"All mini-batches are done. Workers end on {_listed(sorted(step.ending_on))}: shutdown() is called there, "
            "and what goes to a store is brought to it."
        )
    return "GATHERING_ROWS", step.message or "All mini-batches are done; the output is being written."


def _dividing(step: Step, now: Moment) -> tuple[str, str]:
    if step.counters.planned:
        return "DIVIDING_INPUT", (
            f"The input is still being listed and divided: {counted(step.counters.planned, 'mini-batch')} so far, and "
            "none is left to run. Those that follow run as they come."
        )
    limit_s = step.settings.first_task_creation_timeout_s
    return "DIVIDING_INPUT", (
        f"The input is being listed and divided, for {now.monotonic_s - step.started_s:.0f} s; there is no mini-batch "
        f"yet. After {limit_s:g} s (--first_task_creation_timeout) the step fails."
    )


def _running(state: CoreState, step: Step, now: Moment) -> tuple[str, str]:
    leases = [state.leases[lease_id] for lease_id in step.lease_ids]
    nodes = Counter(lease.node_id for lease in leases)
    where = _listed([f"{node} ({count})" for node, count in nodes.most_common()])
    what = f"{counted(len(leases), 'mini-batch')} leased on {where}"
    waiting = f", {step.counters.queued:,} wait" if step.counters.queued else ", none waits"
    more = "" if step.planned else "; the input is still being divided"
    doubts = _doubts(state, step)
    silence_s = now.monotonic_s - step.progress_s
    if not step.worker_ready and not step.counters.ran:
        return "WORKERS_STARTING", (
            f"{what}{waiting}. No worker is ready yet: scripts are loaded and init() runs, for {silence_s:.0f} s. "
            "`windrow job logs` shows what they print."
        )
    oldest = min(leases, key=lambda lease: lease.granted_s)
    if silence_s > QUIET_S:
        return "NO_PROGRESS", (
            f"{what}{waiting}, but no result has come for {silence_s:.0f} s. {_oldest(oldest, now)}{_bound(step)}"
            f"{doubts}"
        )
    return "RUNNING", f"{what}{waiting}{more}. {_oldest(oldest, now)}{doubts}"


def _doubts(state: CoreState, step: Step) -> str:
    """Which nodes get nothing of a step, or nearly nothing, and why."""
    told = []
    for node_id in sorted(step.doubted):
        node, standing = state.nodes.get(node_id), step.standings[node_id]
        if node is None:
            continue
        if step.step_id in node.aside_for:
            told.append(f" {node_id} is set aside: {node.aside_for[step.step_id]}")
        elif standing.doubted_s is not None:
            told.append(
                f" {node_id} is held back: {counted(len(standing.evidence), 'mini-batch')} in a row failed there; "
                "whether they fail on other nodes, too, is being tried."
            )
    given_up = sorted(node.node_id for node in state.nodes.values() if step.step_id in node.given_up)
    if given_up:
        told.append(f" No worker could be made ready on {_listed(given_up)}, which the others do without.")
    return "".join(told)


def _oldest(lease: Lease, now: Moment) -> str:
    return (
        f"The oldest lease is mini-batch {lease.mini_batch} on {lease.node_id}, for "
        f"{now.monotonic_s - lease.granted_s:.0f} s (try {lease.attempt})."
    )


def _bound(step: Step) -> str:
    timeout_s = step.settings.progress_update_timeout_s
    return "" if timeout_s is None else f" After {timeout_s:g} s (--progress_update_timeout) the step fails."


def _nowhere(state: CoreState, step: Step) -> tuple[str, str] | None:
    """There is no node that takes work of the step."""
    nodes = [*state.nodes.values(), *state.absent.values()]
    if not nodes:
        return "NO_NODE", "No node is here: the job waits for one. `windrow node list` tells more."
    pool = [node for node in nodes if is_in_pool(node, step)]
    if not pool:
        wanted, there = step.settings.compute, sorted({name for node in nodes for name in node.pools})
        return "NO_NODE_IN_POOL", (
            f"No node of the pool {wanted!r} (compute) is here: the step waits for one. There are nodes of "
            f"{_listed(there)}. Start one with `windrow agent --pool {wanted}`, or name another compute."
        )
    if not _serving(pool):
        return "NODES_SET_ASIDE", (
            f"No node takes work ({_set_aside(pool)}): the job waits for one. {_why(pool)}`windrow node list` tells "
            "more."
        )
    return None


def _serving(nodes: Iterable[Node]) -> list[Node]:
    return [node for node in nodes if node.state == NodeState.READY and node.stream and not node.cordoned]


def _unleased(state: CoreState, step: Step, now: Moment) -> tuple[str, str]:
    """Mini-batches wait, and none is leased: what the scheduler stumbles over."""
    waits = f"{counted(step.counters.queued, 'mini-batch')} wait{'s' * (step.counters.queued == 1)}"
    if step.fault_message:
        fault = step.fault_message
        return "NODE_FAULT", f"{waits}. The last attempt has met a fault of its node: {fault}{_bound(step)}"
    if not step.ready.ready_count(now.monotonic_s):
        return "RETRY_DELAYED", f"{waits} for a moment before the next try: their last attempts have failed."
    if doubts := _doubts(state, step):
        return "NODES_DOUBTED", f"{waits}.{doubts}"
    chosen = working_nodes(state, step, _serving(state.nodes.values()))
    given_up = [node.node_id for node in chosen if step.step_id in node.given_up]
    if given_up and len(given_up) == len(chosen):
        example = step.counters.main_failure()
        return "NODES_GAVE_UP", f"{waits}. No worker could be made ready on {_listed(given_up)}: {example}"
    if any(step.step_id not in node.capacity for node in chosen) or not chosen:
        return "NODES_ANSWER", f"{waits}; {_listed([node.node_id for node in chosen])} is told of the step just now."
    return _busy(state, step, chosen, waits)


def _busy(state: CoreState, step: Step, chosen: list[Node], waits: str) -> tuple[str, str]:
    """The nodes want nothing of this step: other work has their slots."""
    others: Counter[str] = Counter()
    for node in chosen:
        for step_id, held in node.held.items():
            other = state.steps.get(step_id)
            if held and other is not None and other is not step:
                others[f"{state.jobs[other.job_key].job_id}/{other.settings.name}"] += held
    if not others:
        return "NODES_FULL", (
            f"{waits}, and {_listed([node.node_id for node in chosen])} can take nothing at the moment: results wait "
            "to be delivered, or the disk is full."
        )
    what = _listed([f"{name} ({held})" for name, held in others.most_common()])
    return "NODES_BUSY", f"{waits}, and all slots of the nodes are taken by {what}."


def _set_aside(nodes: list[Node]) -> str:
    counts = Counter("cordoned" if node.cordoned else node.state.name.lower() for node in nodes)
    return ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))


def _why(nodes: list[Node]) -> str:
    node = next((node for node in nodes if node.state == NodeState.QUARANTINED and node.message), None)
    return "" if node is None else f"{node.node_id}: {node.message.rstrip('.')}. "


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:NAMES_MAX])
    return f"{shown} and {len(names) - NAMES_MAX} more" if len(names) > NAMES_MAX else shown or "none"
