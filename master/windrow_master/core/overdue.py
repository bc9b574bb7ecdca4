"""Steps that take too long as a whole: no first mini-batch, or no progress
(docs/reference/azure-ml/parallel-job.md#program-arguments, #the-end-of-a-job)."""

from __future__ import annotations

import math

from windrow.common.quantities import counted

from windrow_master.core.causes import DEPENDENCY_ERROR, SYSTEM_ERROR
from windrow_master.core.commands import Moment
from windrow_master.core.pools import is_in_pool
from windrow_master.core.state import CoreState, Step
from windrow_master.core.states import JobState, NodeState, StepState
from windrow_master.core.steps import fail_step

SERVING_STATES = frozenset((NodeState.READY, NodeState.QUARANTINED))
"""States of nodes that get work, now or in a while."""


def fail_if_overdue(state: CoreState, step: Step, now: Moment) -> None:
    """Fail a step that has no first mini-batch, or has made no progress, for longer than its settings allow."""
    if _waits_for_node(state, step):
        step.progress.fault_message = ""  # from now on it waits for a node
    if now.monotonic_s <= overdue_s(state, step):
        return
    if _is_unplanned(step):
        timeout_s = step.settings.first_task_creation_timeout_s
        message = (
            f"No mini-batch was created within first_task_creation_timeout ({timeout_s:g} s). Raise it, or find "
            "out why listing the input is slow."
        )
        fail_step(state, step, message, now, DEPENDENCY_ERROR)
    else:
        fail_step(state, step, _no_progress(step, now.monotonic_s - step.progress.last_s), now, SYSTEM_ERROR)


def overdue_s(state: CoreState, step: Step) -> float:
    """The moment (monotonic) after which a step that makes no progress needs attention; inf: never."""
    if not _is_judged(state, step):
        return math.inf
    if _waits_for_node(state, step):
        return -math.inf
    settings = step.settings
    if _is_unplanned(step):
        return step.progress.started_s + settings.first_task_creation_timeout_s
    if step.splits.running and not step.progress.fault_message:
        # An attempt that splits calls run() many times. Each call has its own limit, on the node.
        return math.inf
    if settings.progress_update_timeout_s is not None and (step.counters.leased or step.progress.fault_message):
        return step.progress.last_s + settings.progress_update_timeout_s
    return math.inf


def _is_judged(state: CoreState, step: Step) -> bool:
    """Whether a step may be overdue: it runs, and its job is neither paused nor held. While its inputs are compared or
    verified, or while it waits until it may be divided, it is never overdue, however long that takes."""
    paused = state.jobs[step.job_key].state == JobState.PAUSED
    waits = step.is_read_first or (step.progress.waits_for_planner and _is_unplanned(step))
    return step.state == StepState.RUNNING and not paused and not waits and not state.held


def _is_unplanned(step: Step) -> bool:
    return not len(step.mini_batches) and not step.plan.is_done


def _waits_for_node(state: CoreState, step: Step) -> bool:
    """Whether the step's last attempt failed by a fault of its node, and no node is left to continue."""
    return (
        bool(step.progress.fault_message)
        and _is_judged(state, step)
        and not any(
            node.stream and node.state in SERVING_STATES and not node.cordoned and is_in_pool(node, step)
            for node in state.nodes.values()
        )
    )


def _no_progress(step: Step, silence_s: float) -> str:
    """The message for a step without progress. Reference: docs/reference/azure-ml/parallel-job.md#the-end-of-a-job."""
    timeout_s = step.settings.progress_update_timeout_s
    text = (
        f"No progress update in {silence_s:.0f} seconds, more than progress_update_timeout allows ({timeout_s:g} s): "
    )
    if step.progress.fault_message:
        return text + (
            "every attempt since then has failed because of its node, the last on "
            f"{step.progress.fault_message} Fix the node, or cordon it (`windrow node cordon`), then run the "
            "job again."
        )
    return text + (
        f"{counted(step.counters.leased, 'leased mini-batch')}, of which none has ended. See the workers' logs, "
        "or raise --progress_update_timeout in program_arguments."
    )
