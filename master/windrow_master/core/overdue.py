"""Steps that take too long as a whole: no first mini-batch, or no progress (parallel-job.md, sections 2.2 and 5.5)."""

from __future__ import annotations

from windrow_master.core.commands import Moment
from windrow_master.core.counters import counted
from windrow_master.core.pools import is_in_pool
from windrow_master.core.state import CoreState, Step
from windrow_master.core.states import JobState, NodeState, StepState
from windrow_master.core.statuses import DEPENDENCY_ERROR, SYSTEM_ERROR
from windrow_master.core.steps import fail_step

SERVING_STATES = frozenset((NodeState.READY, NodeState.QUARANTINED))
"""States of nodes that get work, now or in a while."""


def end_overdue_steps(state: CoreState, now: Moment) -> None:
    """Fail what has no first mini-batch, or has made no progress, for longer than its settings allow."""
    serving = [
        node for node in state.nodes.values() if node.stream and node.state in SERVING_STATES and not node.cordoned
    ]
    for step in list(state.steps.values()):
        if step.state != StepState.RUNNING or state.jobs[step.job_key].state == JobState.PAUSED:
            continue
        if step.is_compared:
            continue  # reading what there is takes as long as it takes: no step fails by what might have spared it
        settings = step.settings
        if step.fault_message and not any(is_in_pool(node, step) for node in serving):
            step.fault_message = ""  # it waits for a node now, whatever it waited for before
        if not len(step.mini_batches) and not step.planned:
            if now.monotonic_s - step.started_s > settings.first_task_creation_timeout_s:
                fail_step(
                    state,
                    step,
                    f"No mini-batch was made within first_task_creation_timeout "
                    f"({settings.first_task_creation_timeout_s:g} s). Raise it, or look why listing the input is slow.",
                    now,
                    DEPENDENCY_ERROR,
                )
        elif (
            settings.progress_update_timeout_s is not None
            and (step.counters.leased or step.fault_message)
            and now.monotonic_s - step.progress_s > settings.progress_update_timeout_s
        ):
            fail_step(state, step, _no_progress(step, now.monotonic_s - step.progress_s), now, SYSTEM_ERROR)


def _no_progress(step: Step, silence_s: float) -> str:
    """Reference: parallel-job.md, section 5.5."""
    timeout_s = step.settings.progress_update_timeout_s
    text = (
        f"No progress update in {silence_s:.0f} seconds, more than progress_update_timeout allows ({timeout_s:g} s): "
    )
    if step.fault_message:
        return text + (
            f"every attempt since then has met a fault of its node, the last on {step.fault_message} "
            "Mend the node, or take it away (`windrow node cordon`), then run the job again."
        )
    return text + (
        f"{counted(step.counters.leased, 'leased mini-batch')}, of which none has ended. Look into the workers' logs, "
        "or raise --progress_update_timeout in program_arguments."
    )
