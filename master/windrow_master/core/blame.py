"""Whose fault failures are: a node's (quarantine), or the script's, which no node can make ready (the step fails)."""

from __future__ import annotations

import json
from itertools import chain

from windrow_master.core.budgets import known_cause
from windrow_master.core.commands import Moment, ReportWorkerFailure
from windrow_master.core.counters import counted
from windrow_master.core.pools import is_in_pool
from windrow_master.core.settings import INIT_FAILURES_AFTER_S, INIT_FAILURES_PER_PROCESS
from windrow_master.core.state import CoreState, Node, Step
from windrow_master.core.states import Cause, NodeState, StepState
from windrow_master.core.statuses import SYSTEM_ERROR, USER_ERROR
from windrow_master.core.steps import MESSAGE_CHARS_MAX, fail_step


def on_report_worker_failure(state: CoreState, command: ReportWorkerFailure, now: Moment) -> None:
    """A worker could not be made ready. When every node has given a step up, the step fails (section 5.4)."""
    step = state.steps.get(command.step_id)
    node = state.nodes.get(command.node_id)
    if step is None or node is None or step.state != StepState.RUNNING:
        return
    cause = known_cause(command.cause)
    message = command.message[:MESSAGE_CHARS_MAX]
    step.counters.add_failure(cause, -1, message, command.detail, command.node_id, command.process_number)
    step.init_failures[command.node_id] = step.init_failures.get(command.node_id, 0) + 1
    step.progress_s = now.monotonic_s  # failing is no standing still; it has limits of its own
    state.touch_step(step)
    fail_if_given_up(state, step, now)
    fail_if_never_ready(state, step, now)


def fail_if_given_up(state: CoreState, step: Step, now: Moment) -> None:
    """Fail a step that every node has given up after its workers failed to start there.

    A node that is away for a moment, has just come, or wants nothing at the moment may still serve it; one that leaves
    or is cordoned will not, but says nothing about the step either.
    """
    if step.state != StepState.RUNNING or step.lease_ids:
        return
    present = _lasting(state, step)
    if present and all(step.step_id in node.given_up for node in present):
        known = chain(state.nodes.values(), state.absent.values())
        if step.counters.ran and any(
            node.cordoned and is_in_pool(node, step) and step.step_id not in node.given_up for node in known
        ):
            # The script works somewhere, and that may be a node that is set aside, or away to be mended: the step waits
            # until it is uncordoned, or removed. Without such proof a broken script would wait for ever.
            return
        example = step.counters.examples.get(str(int(Cause.INIT_FAILED))) or step.counters.examples.get(
            str(int(Cause.NODE_FAULT)), {}
        )
        failures = sum(step.init_failures.values())
        tries = (
            f"{failures} {'try' if failures == 1 else 'tries'} " if failures else ""
        )  # an earlier master may have heard of them
        fail_step(
            state,
            step,
            f"no worker could be made ready ({tries}on {counted(len(present), 'node')}): {example.get('message', '')}",
            now,
            USER_ERROR if str(int(Cause.INIT_FAILED)) in step.counters.examples else SYSTEM_ERROR,
        )


def fail_if_never_ready(state: CoreState, step: Step, now: Moment) -> None:
    """Fail a step whose `init()` fails again and again on whatever node, and has never succeeded (section 5.4).

    Earlier than all nodes have given it up where `init()` takes long to fail, or nodes come and go.
    """
    if step.worker_ready or step.state != StepState.RUNNING or step.offered_s is None:
        return
    if now.monotonic_s - step.offered_s <= INIT_FAILURES_AFTER_S:
        return
    failures = step.counters.failed_attempts.get(str(int(Cause.INIT_FAILED)), 0)
    if not failures:
        return
    nodes = _lasting(state, step)
    processes = sum(sorted((_processes(node, step) for node in nodes), reverse=True)[: step.settings.instance_count])
    if not processes or failures < INIT_FAILURES_PER_PROCESS * processes:
        return
    example = step.counters.examples[str(int(Cause.INIT_FAILED))]
    fail_step(
        state,
        step,
        f"no worker could be made ready: {failures} tries in more than {INIT_FAILURES_AFTER_S / 60:g} minutes, with "
        f"{counted(processes, 'worker process')} on {counted(len(nodes), 'node')}, and none succeeded: "
        f"{example['message']}",
        now,
        USER_ERROR,
    )


def _lasting(state: CoreState, step: Step) -> list[Node]:
    """Nodes that may work on a step, now or in a while."""
    return [
        node
        for node in state.nodes.values()
        if node.state != NodeState.DRAINING and not node.cordoned and is_in_pool(node, step)
    ]


def _processes(node: Node, step: Step) -> int:
    """How many workers a node may have for a step."""
    wanted = step.settings.max_concurrency_per_instance
    return wanted if wanted is not None else max(1, int(json.loads(node.resources or b"{}").get("slots", 1)))


def suspect_node(state: CoreState, node: Node, message: str, now: Moment) -> None:
    """Quarantine a node that fails again and again, as long as another one serves without such a series.

    Where all fail, it is the script, and the budgets of its mini-batches see to that. What is surely the node's own
    fault has no such budget, so that alone, too, it is only tried now and then.
    """
    limit = state.timing.quarantine_failures
    if node.failures < limit or node.state != NodeState.READY:
        return
    if node.faults >= limit or any(
        other.state == NodeState.READY and not other.cordoned and 2 * other.failures < limit
        for other in state.nodes.values()
        if other is not node
    ):
        node.state = NodeState.QUARANTINED
        node.quarantined_until_s = now.monotonic_s + state.timing.quarantine_s
        node.message = f"{node.failures} attempts in a row failed here, the last: {message}"
        node.failures = node.faults = 0
        state.touch_node(node)
        state.add_event(now, None, "node_quarantined", f"{node.node_id}: {node.message}")
        # What has not started would fail here too, and be charged for it.
        state.recall_unstarted(node)
