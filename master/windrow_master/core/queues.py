"""Queues: what each project may have of the cluster, and has. A project has one queue, of its name.

An operator's settings are kept by name; a project without any has `QueueSettings()`. Settings are changed together, and
each change has a number: one that was made for an earlier number is refused, so that two operators do not undo each
other's work. `shares` acts on them.

Invariants:
1. No settings guarantee more than they allow: each quota is at most the limit of the same nodes.
2. No queue has a higher revision than `CoreState.queue_revision`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from windrow.common.quantities import counted
from windrow.common.queue_settings import WHOLE_CLUSTER, QueueSettings

from windrow_master.core.commands import Moment, SetQueues, UpdateJob
from windrow_master.core.ids import JobKey
from windrow_master.core.ledger import note_lived
from windrow_master.core.refused import Refused, job_ended, job_unknown
from windrow_master.core.shares import fair_slots
from windrow_master.core.state import CoreState, Queue
from windrow_master.core.states import ENDED_JOBS, JobState, StepState
from windrow_master.core.steps import too_many_jobs

QUEUES_MAX = 1_000
"""Queues with settings of their own."""
POOLS_MAX = 100
"""Of one queue's settings."""


class QueueUse(NamedTuple):
    """What a project has, and what waits in its queue. `fair`: the slots that it is entitled to now; `workers`: live
    ones of its steps, on all nodes; `ready`, `leased`: mini-batches. `queued_jobs`: those of the open ones that are not
    admitted yet.
    """

    open_jobs: int = 0
    fair: float = 0.0
    workers: int = 0
    ready: int = 0
    leased: int = 0
    queued_jobs: int = 0


def on_set_queues(state: CoreState, command: SetQueues, now: Moment) -> list[Queue] | Refused:
    """Set all that is named, or nothing."""
    if command.revision is not None and command.revision != state.queue_revision:
        return Refused(
            "QUEUES_CHANGED",
            f"The queues were changed meanwhile: they are at revision {state.queue_revision}, and this change was made "
            f"for {command.revision}. Look at them (windrow queue list), and try again.",
        )
    after = {name: queue.settings for name, queue in state.queues.items()}
    if command.only:
        after = dict.fromkeys(after, QueueSettings())
    after.update(command.queues)
    if refused := _why_refused(state, after, command):
        return refused
    before = {name: state.queues[name].settings if name in state.queues else None for name in after}
    changed = [name for name in sorted(after) if after[name] != before[name]]
    if not changed:
        return []
    state.queue_revision += 1
    for name in changed:
        queue = Queue(name, after[name], state.queue_revision, now.wall_s, command.by)
        state.queues[name] = queue
        state.touch_queue(queue)
    by = f" by {command.by}" if command.by else ""
    state.add_event(now, None, "queues_set", f"revision {state.queue_revision}{by}: {', '.join(changed)}")
    state.share_out_anew()
    state.admission_wanted = True
    return [state.queues[name] for name in changed]


def _why_refused(state: CoreState, after: Mapping[str, QueueSettings], command: SetQueues) -> Refused | None:
    if len(after) > QUEUES_MAX or any(len(settings.pools) > POOLS_MAX for settings in after.values()):
        return Refused(
            "QUEUE_INVALID",
            f"At most {QUEUES_MAX:,} queues have settings, each with bounds for at most {POOLS_MAX} pools.",
        )
    for name, settings in sorted(command.queues.items()):
        for pool, bounds in settings.bounds():
            if bounds.quota > bounds.limit:
                return Refused(
                    "QUEUE_INVALID",
                    f"Queue {name}: the quota {_slots(bounds.quota)}{_in(pool)} is more than the limit, which is "
                    f"{_slots(bounds.limit)}. Raise the limit, or lower the quota.",
                )
    return None if command.overcommit else _why_too_much(state, after)


def _why_too_much(state: CoreState, after: Mapping[str, QueueSettings]) -> Refused | None:
    """More must not be guaranteed than there is. A change that lowers what is guaranteed is let through."""
    before = _guaranteed(queue.settings for queue in state.queues.values())
    for pool, quota in sorted(_guaranteed(after.values()).items()):
        nodes = [node for node in state.nodes.values() if pool == WHOLE_CLUSTER or pool in node.pools]
        slots = sum(node.slots for node in nodes)
        if quota > slots and quota > before[pool]:
            where = f"the pool {pool}" if pool else "the cluster"
            return Refused(
                "QUOTA_TOO_LARGE",
                f"The quotas of all queues in {where} would be {_slots(quota)}, and its {counted(len(nodes), 'node')} "
                f"that are known now have {slots}. Lower them; or, if more nodes will come, or quotas may be owed, "
                "repeat it with --overcommit: where not all quotas fit, they shrink alike.",
            )
    return None


def _guaranteed(queues: Iterable[QueueSettings]) -> defaultdict[str, float]:
    """What all of them guarantee together, by pool."""
    found: defaultdict[str, float] = defaultdict(float)
    for settings in queues:
        for pool, bounds in settings.bounds():
            found[pool] += bounds.quota
    return found


def on_update_job(state: CoreState, command: UpdateJob, now: Moment) -> JobKey | Refused:
    """Change what an open job is worth. What it has run stays as it is."""
    key = state.job_keys.get(command.job_id)
    if key is None:
        return job_unknown(command.job_id)
    job = state.jobs[key]
    if job.state in ENDED_JOBS:
        return job_ended(job.job_id)
    if command.project is not None and command.project != job.queue:
        if refused := too_many_jobs(state, command.project, job.document):
            return refused
        for node in state.nodes.values():
            # What its workers have lived so far is the earlier project's.
            note_lived(state, node, now)
        job.queue = command.project
    if command.priority is not None:
        job.priority = command.priority
    if command.weight is not None:
        job.weight = command.weight
    if command.deadline is not None:
        job.deadline = command.deadline or None
    state.touch_job(job)
    told = [f"{name} {value}" for name, value in command.changes()]
    message = f"{', '.join(told)}{f' by {command.by}' if command.by else ''}"
    if (words := state.update_events.words(job.job_id, message, now.monotonic_s)) is not None:
        state.add_event(now, key, "updated", words)
    state.share_out_anew()
    state.admission_wanted = True
    return key


def uses(state: CoreState) -> dict[str, QueueUse]:
    """What each project has now that has an open job, or settings."""
    found = dict.fromkeys(state.queues, QueueUse())
    fair: dict[str, float] = {}
    for group in state.shares.groups.values():
        for project, slots in fair_slots(group).items():
            fair[project] = fair.get(project, 0.0) + slots
    workers: dict[str, int] = {}
    for node in state.nodes.values():
        for step_id, count in node.workers.items():
            if (step := state.steps.get(step_id)) is not None:
                project = state.jobs[step.job_key].queue
                workers[project] = workers.get(project, 0) + count
    for job in state.jobs.values():
        if job.state in ENDED_JOBS:
            continue
        use = found.get(job.queue, QueueUse())
        running = [step for step in job.steps if step.state == StepState.RUNNING]
        found[job.queue] = use._replace(
            open_jobs=use.open_jobs + 1,
            queued_jobs=use.queued_jobs + (job.state == JobState.QUEUED),
            ready=use.ready + sum(step.counters.queued for step in running),
            leased=use.leased + sum(step.counters.leased for step in running),
        )
    return {name: use._replace(fair=fair.get(name, 0.0), workers=workers.get(name, 0)) for name, use in found.items()}


def _slots(number: float) -> str:
    return f"{number:g} slot{'' if number == 1 else 's'}"


def _in(pool: str) -> str:
    return f" in the pool {pool}" if pool else ""
