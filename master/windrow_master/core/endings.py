"""Ended workers that the master waits for: each node reports that its workers are done, or is gone itself.

A step whose scripts have a `shutdown()`, or write to a store, waits before its output is made (`steps.conclude_step`).
A cancelled job is CANCELLING until no node has workers of it (`steps.go_on_cancelling`).
"""

from __future__ import annotations

import math

from windrow_master.core.causes import DEPENDENCY_ERROR
from windrow_master.core.commands import ConfirmStepEnd, Moment
from windrow_master.core.state import CoreState, Node, Step
from windrow_master.core.states import ENDED_STEPS, StepState
from windrow_master.core.steps import ENDING, MESSAGE_CHARS_MAX, fail_step, make_output, settle_job, warn_of

ENDING_ANNOUNCED_AFTER_S = 3.0
"""Most workers have ended before anybody could wonder."""


def announce_ending(state: CoreState, step: Step, now: Moment) -> None:
    """Say what a step is waiting for, if it has waited for its workers for a while."""
    if now.monotonic_s > ending_announced_s(step):
        step.message = ENDING
        state.touch_step(step)


def ending_announced_s(step: Step) -> float:
    """The moment (monotonic) after which a step's wait for its workers is announced; inf: never."""
    waits = step.state == StepState.CONCATENATING and step.workers.ending_on and not step.message
    return step.progress.last_s + ENDING_ANNOUNCED_AFTER_S if waits else math.inf


def on_confirm_step_end(state: CoreState, command: ConfirmStepEnd, now: Moment) -> None:
    """A node has ended the workers of a step."""
    step = state.steps.get(command.step_id)
    node = state.nodes.get(command.node_id)
    if step is None or node is None or node.stream != command.stream:
        return
    generation = state.jobs[step.job_key].generation
    if command.asked_generation not in (0, generation):
        return  # the answer to an earlier EndStep: the node may have been offered the step again since
    if step.state in ENDED_STEPS:
        _forget_node(state, step, node, now)
        return
    if command.node_id not in step.workers.ending_on:
        return
    # A node that had only an earlier generation reports how that one ended.
    if command.generation == generation:
        if command.unsaved:
            message = f"node {command.node_id}: {command.unsaved[:MESSAGE_CHARS_MAX]}"
            fail_step(state, step, message, now, DEPENDENCY_ERROR)
            return
        if command.shutdown_failures and not step.workers.shutdown_failures:
            step.workers.shutdown_failure = f"{command.shutdown_failure[:MESSAGE_CHARS_MAX]} (node {command.node_id})"
        step.workers.shutdown_failures += command.shutdown_failures
    step.workers.ending_on.discard(command.node_id)
    make_output(state, step)


def forget_node_of_endings(state: CoreState, node: Node, now: Moment, *, left: bool) -> None:
    """Stop waiting for a node, which will no longer report that its workers have ended. `left`: it left in good
    order, so they have.
    """
    for step in list(state.steps.values()):
        with state.contained(step):
            if step.state in ENDED_STEPS:
                _forget_node(state, step, node, now)
            else:
                step.workers.may_be_on.discard(node.node_id)
                if node.node_id in step.workers.ending_on:
                    _go_on_without(state, step, node, now, left=left)


def _go_on_without(state: CoreState, step: Step, node: Node, now: Moment, *, left: bool) -> None:
    step.workers.ending_on.discard(node.node_id)
    if not left:
        name = repr(step.settings.name)
        what = (
            f"was lost while it ended its workers of step {name}"
            if node.has_reported
            else f"has not come back since the master was restarted, and may have had workers of step {name}"
        )
        message = (
            f"Node {node.node_id} {what}: what their shutdown() does may be missing. The results of run() are complete."
        )
        warn_of(state, step, message)
        state.add_event(now, step.job_key, "shutdown_lost", message)
    make_output(state, step)


def _forget_node(state: CoreState, step: Step, node: Node, now: Moment) -> None:
    """Note that a node no longer has workers of a step that has ended."""
    step.workers.may_be_on.discard(node.node_id)
    if node.node_id in step.workers.ending_on:
        step.workers.ending_on.discard(node.node_id)
        settle_job(state, state.jobs[step.job_key], now)
