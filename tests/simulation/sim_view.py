"""What of a core's state is durable, in a form in which two cores can be compared: reload equals live state."""

from __future__ import annotations

import json
from typing import Any

from sim_tables import MemoryTables
from windrow_master.core.commands import Moment
from windrow_master.core.core import Core
from windrow_master.core.records import Snapshot
from windrow_master.core.settings import Iteration, JobSettings, RunIf, StepSettings
from windrow_master.core.state import CoreState, Step
from windrow_master.core.states import ENDED_JOBS, MiniBatchState, NodeState

OPEN = (MiniBatchState.QUEUED, MiniBatchState.LEASED)
VOLATILE_COUNTERS = ("leased",)
"""They count leases, of which the youngest do not survive a restart."""


def document_of(settings: tuple[StepSettings, ...], *, continue_on_step_failure: bool = False) -> bytes:
    """A job document that holds nothing but settings."""
    return json.dumps([continue_on_step_failure, [step._asdict() for step in settings]]).encode()


def settings_of(document: bytes) -> JobSettings:
    """The inverse of `document_of`."""
    goes_on, steps = json.loads(document)
    return JobSettings(tuple(map(_settings, steps)), goes_on)


def _settings(step: dict[str, Any]) -> StepSettings:
    tuples = {
        "depends_on": tuple(step["depends_on"]),
        "reads": tuple(step["reads"]),
        "run_if": tuple(RunIf(*condition) for condition in step["run_if"]),
        "iterations": tuple(Iteration(*iteration) for iteration in step["iterations"]),
    }
    return StepSettings(**{**step, **tuples})


def durable_view(state: CoreState) -> dict[str, Any]:
    """All that a restart must bring back, without what is volatile by design.

    Volatile: leases not yet written down, deadlines, delays, streams, capacities, tallies of `init` failures.
    """
    jobs = {key: job for key, job in state.jobs.items() if job.state not in ENDED_JOBS}
    return {
        "last": (state.job_key_last, state.step_id_last),
        "jobs": {key: (job.row(), job.continue_on_step_failure) for key, job in jobs.items()},
        "steps": {step_id: _step_view(step) for step_id, step in state.steps.items() if step.job_key in jobs},
        "nodes": {
            node_id: (
                node.node_incarnation,
                node.resources,
                node.labels,
                node.pools,
                node.state == NodeState.DRAINING,
                node.cordoned,
            )
            for node_id, node in state.nodes.items()
        },
        "ledger": {key: sorted(entry.row() for entry in job.ledger.values()) for key, job in jobs.items()},
        "absent": {node_id: node.row() for node_id, node in state.absent.items()},
        "leases": {
            lease_id: (lease.step_id, lease.mini_batch, lease.node_id)
            for lease_id, lease in state.leases.items()
            if lease.stored
        },
    }


def _step_view(step: Step) -> dict[str, Any]:
    table = step.mini_batches
    counters = json.loads(step.counters.to_json())
    for name in VOLATILE_COUNTERS:
        del counters[name]
    open_ones = [at for at in range(len(table)) if table.states[at] in OPEN]
    tries = {at: table.tries[at] for at in open_ones if at in table.tries}
    return {
        "row": step.row()._replace(counters=b""),
        "planned": step.plan.is_done,
        "counters": counters,
        "states": [MiniBatchState.QUEUED if state in OPEN else state for state in table.states],
        "columns": [
            list(column)
            for column in (
                table.item_firsts, table.item_counts, table.recipe_offsets, table.recipe_lengths, table.recipe_crcs,
                table.lease_ids,
            )
        ],
        "attempts": {at: table.attempts[at] for at in open_ones if table.attempts.get(at)},
        "tries": {
            at: (dict(t.failures), frozenset(t.lease_ids), frozenset(t.lost_lease_ids))
            for at, t in tries.items()
            if t.lease_ids or t.lost_lease_ids
        },
    }  # fmt: skip


def reloaded(snapshot: Snapshot, live: CoreState, now: Moment) -> CoreState:
    """The state that a new master would make of a snapshot."""
    core = Core(live.incarnation + 1, live.lease_prefix ^ 1, live.timing)
    core.load(snapshot, settings_of, now)
    return core.state


def assert_reload_equals_live(tables: MemoryTables, live: CoreState, now: Moment) -> None:
    """Raise AssertionError, naming what differs. To be called when nothing is dirty and no commit is on its way."""
    fresh = reloaded(tables.load(), live, now)
    differences = _differences("state", durable_view(live), durable_view(fresh))
    assert not differences, "reload differs from live state: " + "; ".join(differences[:5])


def _differences(name: str, live: Any, fresh: Any) -> list[str]:
    if live == fresh:
        return []
    if isinstance(live, dict) and isinstance(fresh, dict):
        keys = [*live, *(key for key in fresh if key not in live)]
        return [line for key in keys for line in _differences(f"{name}.{key}", live.get(key), fresh.get(key))]
    return [f"{name}: live {live}, reloaded {fresh}"]
