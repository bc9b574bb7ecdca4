"""Whose fault a failure is: the node's, the mini-batch's, or that of a script which no node can make ready.

Standing of a node with a step:

    GOOD    -> DOUBTED  mini-batches fail there one after the other, at least `EVIDENCE_MIN` and more than chance
                        explains, while another node is in good standing
    DOUBTED -> GOOD     one succeeds there; or those that failed there fail on a proven node, too (it is the data or the
                        script); or no other node in good standing is left
    DOUBTED -> ASIDE    of those that failed there, half as many as it takes to doubt it have succeeded on other nodes
    ASIDE   -> TRIAL    a while has passed (`quarantine_s`, twice as long each time), or it has come back under its name
    TRIAL   -> GOOD     a mini-batch succeeds there, or no other node is left
    TRIAL   -> ASIDE    one fails there that has failed nowhere else

A doubted node gets one mini-batch every `retry_wait_s`, so that a step continues while its other nodes are busy
for hours. A node on trial may hold one mini-batch. A failure there is not charged. Once a node
is set aside, its failures since its last success are not charged either: they do not mean that the mini-batch is bad.

Invariants:
1. Where a step has one node only, or all fail alike, none of them is doubted or aside.
2. `StepNodes.doubted` names the nodes whose standing is suspicious.
3. Evidence against a node are mini-batches that failed there since its last success and on no other node before: only
   those can distinguish a node from a mini-batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import chain

from windrow.common.failure_kinds import within
from windrow.common.quantities import counted

from windrow_master.core.budgets import uncount_failure
from windrow_master.core.causes import SYSTEM_ERROR, USER_ERROR, reported_cause
from windrow_master.core.commands import Moment, ReportWorkerFailure
from windrow_master.core.ids import NodeId
from windrow_master.core.leases import Lease
from windrow_master.core.needs import most_on
from windrow_master.core.pools import is_in_pool, works_on
from windrow_master.core.settings import INIT_FAILURES_AFTER_S, INIT_FAILURES_PER_PROCESS
from windrow_master.core.standing import EVIDENCE_MAX, EVIDENCE_MIN, Evidence, Standing
from windrow_master.core.state import CoreState, Node, Step
from windrow_master.core.states import Cause, MiniBatchState, NodeState, StepState
from windrow_master.core.steps import MESSAGE_CHARS_MAX, fail_step, warn_of

CHANCE = 1e-4
"""How improbable a series of failures has to be for a node to be doubted, if it were as good as the others."""


def on_report_worker_failure(state: CoreState, command: ReportWorkerFailure, now: Moment) -> None:
    """Count a worker that could not be made ready, once: a node sends it again until it is acknowledged. The step fails
    once every node has given it up.

    Reference: docs/reference/azure-ml/parallel-job.md#lost-workers-and-nodes.
    """
    step = state.steps.get(command.step_id)
    node = state.nodes.get(command.node_id)
    if step is None or node is None or step.state != StepState.RUNNING or step.step_id not in node.told_steps:
        return
    if not step.counters.hear_worker_failure(node.node_id, node.node_incarnation, command.number):
        return
    cause = reported_cause(command.cause)
    message = within(command.message, MESSAGE_CHARS_MAX)
    step.counters.add_failure(cause, -1, message, command.detail, command.node_id, command.process_number)
    step.workers.init_failures[command.node_id] = step.workers.init_failures.get(command.node_id, 0) + 1
    step.progress.last_s = now.monotonic_s  # failing is not standing still; it has its own limits
    state.touch_step(step)
    fail_if_given_up(state, step, now)
    fail_if_never_ready(state, step, now)


def fail_if_given_up(state: CoreState, step: Step, now: Moment) -> None:
    """Fail a step if every node has given it up after its workers failed to start there.

    A node that is away for a moment, has just arrived, or wants nothing at the moment may still serve the step. A node
    that is leaving or cordoned will not, so it does not count.
    """
    if not is_given_up(state, step):
        return
    example = step.counters.examples.get(str(int(Cause.INIT_FAILED))) or step.counters.examples.get(
        str(int(Cause.NODE_FAULT)), {}
    )
    failures = sum(step.workers.init_failures.values())
    tries = (
        f"{failures} {'try' if failures == 1 else 'tries'} " if failures else ""
    )  # an earlier master may have heard of them
    step.counters.starts_failed()
    fail_step(
        state,
        step,
        f"no worker could be made ready ({tries}on {counted(len(list(_lasting(state, step))), 'node')}): "
        f"{example.get('message', '')}",
        now,
        USER_ERROR if str(int(Cause.INIT_FAILED)) in step.counters.examples else SYSTEM_ERROR,
    )


def is_given_up(state: CoreState, step: Step) -> bool:
    """Whether no node will run a step, because all present nodes have given it up."""
    if step.state != StepState.RUNNING or step.lease_ids:
        return False
    has_any = False
    for node in _lasting(state, step):  # nearly always, the first one has not
        if step.step_id not in node.given_up:
            return False
        has_any = True
    if not has_any:
        return False
    known = chain(state.nodes.values(), state.absent.values())
    # If the script has run somewhere, it may run on a node that is cordoned now: the step waits until that node is
    # uncordoned or removed. Without that proof, a broken script would wait forever.
    return not (
        step.counters.ran
        and any(node.cordoned and is_in_pool(node, step) and step.step_id not in node.given_up for node in known)
    )


def fail_if_never_ready(state: CoreState, step: Step, now: Moment) -> None:
    """Fail a step whose `init()` fails again and again on all nodes, and has never succeeded.

    If `init()` takes long to fail, or nodes come and go, this ends the step before all nodes have given it up.
    """
    if now.monotonic_s <= never_ready_s(state, step):
        return
    failures = step.counters.failed_attempts[str(int(Cause.INIT_FAILED))]
    nodes = list(_lasting(state, step))
    processes = _processes_of(nodes, step)
    example = step.counters.examples[str(int(Cause.INIT_FAILED))]
    step.counters.starts_failed()
    fail_step(
        state,
        step,
        f"no worker could be made ready: {failures} tries in more than {INIT_FAILURES_AFTER_S / 60:g} minutes, with "
        f"{counted(processes, 'worker process')} on {counted(len(nodes), 'node')}, and none succeeded: "
        f"{example['message']}",
        now,
        USER_ERROR,
    )


def never_ready_s(state: CoreState, step: Step) -> float:
    """The moment (monotonic) after which a step fails, given the number of its failures of `init()`; inf if it does
    not fail.
    """
    if step.workers.is_ready or step.state != StepState.RUNNING or step.workers.offered_s is None:
        return math.inf
    failures = step.counters.failed_attempts.get(str(int(Cause.INIT_FAILED)), 0)
    if not failures:
        return math.inf
    processes = _processes_of(_lasting(state, step), step)
    if not processes or failures < INIT_FAILURES_PER_PROCESS * processes:
        return math.inf
    return step.workers.offered_s + INIT_FAILURES_AFTER_S


def _lasting(state: CoreState, step: Step) -> Iterator[Node]:
    """Nodes that may work on a step, now or later."""
    for node in state.nodes.values():
        if node.state != NodeState.DRAINING and not node.cordoned and is_in_pool(node, step):
            yield node


def _processes_of(nodes: Iterable[Node], step: Step) -> int:
    """How many workers a step may have on these nodes."""
    return sum(sorted((_processes(node, step) for node in nodes), reverse=True)[: step.settings.instance_count])


def _processes(node: Node, step: Step) -> int:
    """How many workers a node may have for a step."""
    wanted = step.settings.max_concurrency_per_instance
    if step.settings.has_needs:
        fitting = most_on(node, step)
        return fitting if wanted is None else min(wanted, fitting)
    return wanted if wanted is not None else node.slots


def quarantine_if_faulty(state: CoreState, node: Node, step: Step, message: str, now: Moment) -> None:
    """Quarantine a node whose attempts keep failing through its own fault, even if it is the only node: such faults
    have no budget that would end them. `message`: of the last one, an attempt of the step.
    """
    if node.faults < state.timing.quarantine_faults or node.state != NodeState.READY:
        return
    node.become(NodeState.QUARANTINED)
    node.quarantined_until_s = now.monotonic_s + state.timing.quarantine_s
    # All projects read this, and the event. The message is for those that see the job.
    node.message = f"{node.faults} attempts in a row failed because of this node."
    node.last_fault = (step.step_id, message)
    node.faults = 0
    state.touch_node(node)
    state.add_node_event(now, node.node_id, "node_quarantined", f"{node.node_id}: {node.message}")
    # Mini-batches that have not started would fail by it as well.
    state.recall_unstarted(node)


# The standing of a node with a step


def note_success(state: CoreState, step: Step, node_id: NodeId, mini_batch: int, now: Moment) -> None:
    """Note that a mini-batch succeeded on a node. That speaks for the node, and against the nodes where the
    mini-batch failed before.
    """
    standing = step.standing_of(node_id)
    standing.succeeded += 1
    if standing.evidence or standing.aside_until_s is not None:
        standing.evidence.clear()
        if standing.aside_until_s is not None and now.monotonic_s >= standing.aside_until_s:
            _take_back(state, step, node_id, now, "A mini-batch has succeeded there.")
        _judge(state, step, node_id, now)
    tries = step.mini_batches.tries.get(mini_batch)
    for other_id in sorted(set(tries.nodes)) if tries is not None else ():
        other = step.nodes.standings.get(other_id)
        evidence = other.evidence.get(mini_batch) if other is not None else None
        if evidence is not None:
            evidence.cleared = True
            _judge(state, step, other_id, now)


def note_failure(
    state: CoreState, step: Step, lease: Lease, cause: Cause, message: str, now: Moment, *, final: bool
) -> None:
    """Note that a mini-batch failed on a node; its own records are up to date. `final`: it has no tries left."""
    node_id, mini_batch = lease.node_id, lease.mini_batch
    standing = step.standing_of(node_id)
    standing.failed += 1
    elsewhere = set(step.tries_of(mini_batch).nodes) - {node_id}
    for other_id in sorted(elsewhere):
        other = step.nodes.standings.get(other_id)
        evidence = other.evidence.get(mini_batch) if other is not None else None
        if other is None or evidence is None:
            continue
        evidence.final = final
        if standing.is_proven:
            del other.evidence[mini_batch]
            _judge(state, step, other_id, now)
    if elsewhere:
        return
    if standing.aside_until_s is not None:
        if lease.trial:
            standing.evidence[mini_batch] = Evidence(lease.lease_id, cause, message, final=False)
            _set_aside(state, step, node_id, now)
    elif len(standing.evidence) < EVIDENCE_MAX or mini_batch in standing.evidence:
        standing.evidence[mini_batch] = Evidence(lease.lease_id, cause, message, final)
        _judge(state, step, node_id, now)


def lease_limit(state: CoreState, step: Step, node: Node, now: Moment) -> int | None:
    """How many leases of a step a node may hold, given its standing; None if there is no limit."""
    if node.node_id not in step.nodes.doubted:
        return None
    standing = step.nodes.standings[node.node_id]
    if standing.aside_until_s is not None:
        if not _good_others(state, step, node.node_id):
            _take_back(state, step, node.node_id, now, "No other node is left for the step.")
            return None
        return int(now.monotonic_s >= standing.aside_until_s)
    if not _is_doubted(state, step, node.node_id):
        standing.doubted_s = None
        return None
    _judge(state, step, node.node_id, now)  # the others may have done well since
    if standing.doubted_s is None:
        return 0
    return int(now.monotonic_s - standing.doubted_s >= state.timing.retry_wait_s)


def forget_standing(state: CoreState, node_id: NodeId, now: Moment) -> None:
    """Forget how a node did, since it is gone. A new node under its name may be repaired, so if the old one was set
    aside, the new one is on trial.
    """
    for step in state.steps.values():
        with state.contained(step):
            standing = step.nodes.standings.pop(node_id, None)
            step.nodes.doubted.discard(node_id)
            if standing is not None and standing.asides:
                step.nodes.standings[node_id] = Standing(asides=standing.asides, aside_until_s=now.monotonic_s)
                step.nodes.doubted.add(node_id)


def _good_others(state: CoreState, step: Step, node_id: NodeId) -> list[Node]:
    """The other nodes that may work on a step and are in good standing with it."""
    return [
        node
        for node in state.nodes.values()
        if node.node_id != node_id
        and node.node_id not in step.nodes.doubted
        and node.state in (NodeState.READY, NodeState.DISCONNECTED)
        and not node.cordoned
        and step.step_id not in node.given_up
        and works_on(node, step)
    ]


def _is_doubted(state: CoreState, step: Step, node_id: NodeId) -> bool:
    """Whether more fails on a node than on the others, by more than chance."""
    evidence = len(step.nodes.standings[node_id].evidence)
    if evidence < EVIDENCE_MIN:
        return False
    others = _good_others(state, step, node_id)
    return bool(others) and evidence >= _needed(step, others)


def _needed(step: Step, others: list[Node]) -> int:
    """How many failures in a row are too many for a node.

    A node that does as well as these others has that many in a row with a probability of at most `CHANCE`. If nothing
    is known about the others, one failure in eight is assumed.
    """
    standings = [step.nodes.standings[node.node_id] for node in others if node.node_id in step.nodes.standings]
    failed = sum(standing.failed for standing in standings)
    ended = failed + sum(standing.succeeded for standing in standings)
    share = (failed + 0.5) / (ended + 4)
    return max(EVIDENCE_MIN, math.ceil(math.log(CHANCE) / math.log(share)))


def _judge(state: CoreState, step: Step, node_id: NodeId, now: Moment) -> None:
    """Judge a node again, after the evidence against it has changed."""
    standing = step.nodes.standings[node_id]
    if not standing.is_suspicious:
        step.nodes.doubted.discard(node_id)
        standing.doubted_s = None
        return
    step.nodes.doubted.add(node_id)
    if standing.aside_until_s is not None or not _is_doubted(state, step, node_id):
        return
    node = state.nodes.get(node_id)
    if node is not None and standing.doubted_s is None:
        standing.doubted_s = now.monotonic_s
        state.recall_unstarted(node, step.step_id)  # it would also fail
    testable = [evidence for evidence in standing.evidence.values() if not evidence.final or evidence.cleared]
    cleared = sum(evidence.cleared for evidence in testable)
    others = _good_others(state, step, node_id)
    proven = sum(
        step.nodes.standings[other.node_id].succeeded for other in others if other.node_id in step.nodes.standings
    )
    if 2 * cleared >= min(len(testable), _needed(step, others)) and (cleared or proven >= EVIDENCE_MIN):
        _set_aside(state, step, node_id, now)


def _set_aside(state: CoreState, step: Step, node_id: NodeId, now: Moment) -> None:
    standing, timing = step.nodes.standings[node_id], state.timing
    standing.asides += 1
    for_s = min(timing.aside_max_s, timing.quarantine_s * 2.0 ** min(standing.asides - 1, 30))
    standing.aside_until_s, standing.doubted_s = now.monotonic_s + for_s, None
    step.nodes.doubted.add(node_id)
    last = list(standing.evidence.values())[-1]
    count = len(standing.evidence)
    for mini_batch, evidence in standing.evidence.items():
        _discharge(state, step, mini_batch, evidence)
    standing.evidence.clear()
    what = f"{counted(count, 'mini-batch')} in a row failed there" if count > 1 else "a mini-batch failed there again"
    job = state.jobs[step.job_key]
    text = (
        f"Set aside for step {step.settings.name!r} of {job.job_id}: {what}, while other nodes do well. The last: "
        f"{last.cause.name.lower()}: {last.message.rstrip('.')}. It gets one mini-batch after {for_s:g} s."
    )
    if standing.asides == 1:
        warn_of(
            state,
            step,
            f"Step {step.settings.name!r}: node {node_id} was set aside: {what}, while other nodes do well. Its "
            f"failed mini-batches run on other nodes. The last: {last.cause.name.lower()}: "
            f"{last.message.rstrip('.')}.",
        )
    state.add_event(now, step.job_key, "node_set_aside", f"{node_id}: {text}")
    node = state.nodes.get(node_id)
    if node is not None:
        node.aside_for[step.step_id] = text
        state.touch_node(node)
        state.recall_unstarted(node, step.step_id)


def _take_back(state: CoreState, step: Step, node_id: NodeId, now: Moment, why: str) -> None:
    """Give a node that was set aside work of the step again, like any other node."""
    standing = step.nodes.standings[node_id]
    standing.aside_until_s, standing.asides = None, 0
    step.nodes.doubted.discard(node_id)
    node = state.nodes.get(node_id)
    if node is not None and node.aside_for.pop(step.step_id, ""):
        state.touch_node(node)
    text = f"{node_id} works on step {step.settings.name!r} again. {why}"
    state.add_event(now, step.job_key, "node_taken_back", text)


def _discharge(state: CoreState, step: Step, mini_batch: int, evidence: Evidence) -> None:
    """Undo the charges for failures on a node that is now set aside, for mini-batches that are still open."""
    table = step.mini_batches
    if table.states[mini_batch] not in (MiniBatchState.QUEUED, MiniBatchState.LEASED):
        return
    tries = table.tries.get(mini_batch)
    if tries is None or evidence.lease_id not in tries.lease_ids:
        return
    tries.lease_ids.discard(evidence.lease_id)
    uncount_failure(tries, evidence.cause)
    state.abandon_failed(step, mini_batch, evidence.lease_id, evidence.cause, evidence.message)
