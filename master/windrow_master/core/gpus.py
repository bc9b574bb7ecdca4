"""GPUs: what workers use of them, which workers hold some without using them, and which of these give them back
(`--idle_gpu_timeout`).

Agents measure, and report with each heartbeat which of their workers use less than 5 % of what they hold, and for how
long. A worker with a mini-batch is only shown: to end it would cost what it has done, and the next one would take the
GPU again. One that has none, of a step with nothing left to begin, ends: nothing is charged, and its place is free for
others, also outside of Windrow. The step gets places again as soon as it has a mini-batch to begin.

What is used is counted in the step's counters. Of the rest nothing is stored: agents report it again to a new master.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from windrow_master.core.commands import GpuUse, IdleWorker, Moment
from windrow_master.core.ids import NodeId, StepId
from windrow_master.core.sharing.placing import Crew, Place
from windrow_master.core.state import CoreState, Node, Step
from windrow_master.core.states import ENDED_STEPS

SHOWN_FROM_S = 600.0
"""Idle for so long, a worker is shown."""

SHOWN_MAX = 100
"""At most this many are named at a time."""

IDLE_MAX = 1_000
"""Of one node, no more are remembered."""

_PAUSE_S = 5.0
"""After a node has given some of a step back, what it reports of the step's others does not count for this time: its
report may be older."""


class IdleGpu(NamedTuple):
    """A worker that holds GPUs and does not use them. `gpus`: how many; below 1, a part of one. `idle_s`: for how long
    by now. `is_working`: it has a mini-batch.
    """

    node_id: NodeId
    step_id: StepId
    project: str
    job_id: str
    step: str
    process_number: int
    gpus: float
    idle_s: float
    is_working: bool
    submitter: str
    """Who has submitted the job; "" if nobody is known."""


def note_idle_gpus(state: CoreState, node: Node, workers: Iterable[IdleWorker], now: Moment) -> None:
    """Note what a heartbeat says of workers that do not use their GPUs."""
    known = [worker for worker in workers if worker.step_id in node.told_steps]
    node.idle_gpus, node.idle_gpus_heard_s = tuple(known[:IDLE_MAX]), now.monotonic_s
    if any(_is_due(state, worker) for worker in node.idle_gpus):
        state.scheduling_wanted = True


def note_gpu_uses(state: CoreState, node: Node, uses: Iterable[GpuUse]) -> None:
    """Note what a heartbeat says of what workers use of their GPUs."""
    for use in uses:
        step = state.steps.get(use.step_id)
        if step is None or step.state in ENDED_STEPS or use.step_id not in node.told_steps:
            continue
        if step.counters.note_gpus(use.peak_bytes, use.measured, use.busy_percent):
            state.touch_step(step)


def idle_gpus(state: CoreState, now: Moment, *, project: str | None = None) -> list[IdleGpu]:
    """The workers that have held GPUs for `SHOWN_FROM_S` without using them, those that have done so longest first, at
    most `SHOWN_MAX`. `project`: only of this one.
    """
    found = [
        one
        for node in state.nodes.values()
        for one in _of_node(state, node, now)
        if one.idle_s >= SHOWN_FROM_S and project in (None, one.project)
    ]
    return sorted(found, key=lambda one: (-one.idle_s, one.node_id, one.process_number))[:SHOWN_MAX]


def _of_node(state: CoreState, node: Node, now: Moment) -> Iterator[IdleGpu]:
    since_s = max(0.0, now.monotonic_s - node.idle_gpus_heard_s)
    for worker in node.idle_gpus:
        step = state.steps.get(worker.step_id)
        if step is not None and step.state not in ENDED_STEPS:
            yield IdleGpu(
                node.node_id,
                step.step_id,
                state.jobs[step.job_key].queue,
                state.jobs[step.job_key].job_id,
                step.settings.name,
                worker.process_number,
                worker.gpus,
                worker.idle_s + since_s,
                worker.is_working,
                state.jobs[step.job_key].submitter,
            )


def _is_due(state: CoreState, worker: IdleWorker) -> bool:
    """Whether a worker is to give its GPUs back, unless its step has something to begin."""
    step = state.steps.get(worker.step_id)
    timeout_s = None if step is None else step.settings.idle_gpu_timeout_s
    return timeout_s is not None and worker.idle_s >= timeout_s and not worker.is_working


def note_demand(step: Step, demand: int) -> None:
    """Note how many workers a step could use: it gets its places again once it has something to begin. `demand`: its
    mini-batches that are ready or running.
    """
    if step.workers.gave_gpus_back and demand > step.counters.leased:
        step.workers.gave_gpus_back = False


def give_gpus_back(
    state: CoreState, step: Step, crew: Crew, demand: int, places: Mapping[NodeId, Place], now: Moment
) -> None:
    """Take the places of the workers of one step that have held GPUs for too long without using them, where the step
    has nothing to begin. `demand`: as in `note_demand`.
    """
    if demand > step.counters.leased:
        return
    for node_id in sorted(crew.on):
        node = state.nodes[node_id]
        if not node.idle_gpus or now.monotonic_s - node.gave_gpus_back_s.get(step.step_id, -_PAUSE_S) < _PAUSE_S:
            continue
        due = sum(worker.step_id == step.step_id and _is_due(state, worker) for worker in node.idle_gpus)
        # Those that have just got a mini-batch are reported as idle still.
        if count := min(due, max(0, crew.on[node_id] - node.held.get(step.step_id, 0))):
            crew.change(places[node_id], -count, now.monotonic_s)
            node.gave_gpus_back_s[step.step_id] = now.monotonic_s
            step.workers.gave_gpus_back = True
