"""What must hold in every history; each rule is checked at the moment at which it can first be broken.

1. Lease ids are given once, for ever.
2. Incarnations of committing masters never fall.
3. A mini-batch has one final outcome; only lost rows take it back. Nothing changes in a step that has ended.
4. An outcome is of the lease's own mini-batch and not of an earlier generation.
5. Committed rows can be read, from what is synced.
6. A failed mini-batch has used up the budget of its cause by failures of that cause.
7. What an agent is told is accepted is durable.
8. A node is lost only if nothing was heard of it for as long as its leases live, the master being awake.
9. A node's stream belongs to its present incarnation.
10. When nothing is dirty, reload equals live state, and the stored counters are what a scan gives.
11. A cordoned node is handed nothing; a cordon lasts until it is taken back or its node is removed.
12. A removed node is forgotten, holds nothing, and was not connected.
13. Every job ends; the output holds the rows of each mini-batch's one outcome, once, in order.
14. Every agent hears of every end: in the end none serves anything any more.
15. What is taken over is the whole, committed result of that mini-batch of an earlier job.
16. No agent sits for long on a lease that it has not begun while another, where its mini-batch has not failed, has a
    free slot that is not busy with another step either.
17. No node is handed more than one lease a slot while another has a free slot.
18. A mini-batch that failed on a node is not leased to it again while another, where it has not, has a free slot.
19. A node on which everything fails gets no more than a handful of a step's mini-batches while another does well; one
    now and then is to see whether it still does. Assumed is that on good nodes few mini-batches fail, for whatever
    cause: where many do, failures say little about a node.
20. No commit breaks what the schema demands: at most one success of a mini-batch, plans without gaps.
21. What `windrow_master.core.invariants` says of a state holds after each group of commands.
22. A job becomes CANCELLED only when no node that is connected serves any of its steps.
23. Of a mini-batch that was split, exactly the items that fail alone are stored as failed, each with its cause.
24. No more mini-batches of a step are split at a time than its settings say.
25. A mini-batch with good items is not given up whole where it may be split, if only its items have failed.
26. A mini-batch that is split fails a bounded number of times.
27. Where a step may speculate and all else of it has ended or runs, no mini-batch runs for several times as long as
    others while a node where it has not failed has a free slot, unless it has been begun twice.
28. A master hands out no more leases of a step in a second than its rate limit, and what it may catch up with, allow.
29. No node is told to have workers that need more processors or memory than it has, nor more of a step than the step
    allows; those that still start count as all others.
30. No project has less than its fair share for long while it could use more.
31. No worker is passed on from one project to another and back at once, while nothing else changes.
32. No job has less than its fair share of what its project has for long while it could use more.
33. No room stays free for long while a step lacks a worker that fits into it.
34. After each commit, the ledger of a job says as much of its attempts as they took.
35. No project is given more than its limit.
36. Nothing of a queued job begins: none of its steps is prepared, divided or offered to a node.
37. No job is queued for long while fewer jobs of its project run than are admitted, or while there is a worker for it.
38. No job is admitted beyond the number of its project while those before it have all that its project may have.
39. A step that begins on several nodes at once is leased to none before it has a place on each.
40. No step holds places for long on some of the nodes that it begins on, and not on all.
41. The workers that a node is told to have fit on its GPUs: the parts of one sum to at most 1, and who needs a whole
    one shares it with nobody.
42. Over time every step has its fair share, however many processors its workers need: what it is owed stays within a
    few turns of one of them. A quota counts in whole workers: whoever is guaranteed half of one may have one. Whoever
    needs memory or GPUs has its turn at least: large ones are not starved.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from sim_admission import Admissions
from sim_disk import RowsLost
from sim_gathering import Gathered
from sim_pace import Paces
from sim_placement import Placement
from sim_planting import Broken, asserts
from sim_shares import Shares
from sim_splitting import Splits
from sim_tables import FINAL, ConstraintViolated, SegmentRange
from sim_view import assert_reload_equals_live
from windrow_master.core import commands
from windrow_master.core import effects as fx
from windrow_master.core.causes import TRAITS, Budget
from windrow_master.core.core import Core
from windrow_master.core.effects import Effect
from windrow_master.core.ids import JobKey, NodeId
from windrow_master.core.records import Dirty
from windrow_master.core.refused import Refused
from windrow_master.core.settings import CRASH_TRIES, NODE_LOSSES_UNTIL_FAILED, OOM_TRIES, SPLIT_TRIES
from windrow_master.core.splitting import SPLIT_AT_ONCE
from windrow_master.core.states import ENDED_STEPS, AttemptState, Cause, JobState, MiniBatchState, StepState, Verdict
from windrow_master.core.ticks import STALL_S
from windrow_master.shell.ticking import LOOK_S

if TYPE_CHECKING:
    from sim_run import Simulation

TOLERANCE_S = LOOK_S + STALL_S
"""A pause that falls between two looks at the clock is not noticed, and not made up for."""

GIVEN_BACK = (Cause.PREEMPTED, Cause.CANCELLED, Cause.NODE_LOST)

SIGNS_OF_LIFE = (commands.RegisterNode, commands.HeartbeatNode, commands.OpenWork)


def require(holds: bool, rule: int, what: str) -> None:
    """Raise Broken unless it holds."""
    if not holds:
        raise Broken(rule, what)


def cancelled_jobs(core: Core) -> set[JobKey]:
    """The jobs that are CANCELLED in a core."""
    return {key for key, job in core.state.jobs.items() if job.state == JobState.CANCELLED}


class Checkers:
    """Knows the truth about every lease and result, and compares."""

    def __init__(self, sim: Simulation) -> None:
        self._sim = sim
        self.placement = Placement(sim)
        self.splits = Splits(sim)
        self.paces = Paces(sim)
        self.shares = Shares(sim)
        self.admissions = Admissions(sim, self.shares)
        self.gathered = Gathered(sim, self.shares)
        self.leases: dict[int, tuple[int, int, int]] = {}
        """Every lease ever given: (step, mini-batch, generation)."""
        self.failures: dict[tuple[int, int], Counter[Cause]] = {}
        """Failures that agents reported for a mini-batch, each lease once."""
        self.stream_owner: dict[tuple[int, int], str] = {}
        """(master incarnation, stream) -> node incarnation."""
        self._reported: set[int] = set()
        self._incarnation = 0
        self._heard: dict[tuple[int, NodeId], float] = {}
        self._nodes: dict[NodeId, int] = {}
        self._cordons: dict[int, set[NodeId]] = {}
        """Master incarnation -> the names that must be cordoned."""
        self._cancelled: set[JobKey] = set()
        """Those that were CANCELLED before the command in hand."""
        self._quiet = 0
        self._truth: dict[SegmentRange, bytes] = {}
        """The rows of every committed range."""
        self.adopting = 0
        """Jobs that the store has opened again, and the master has not taken over yet."""

    # Handling

    def before(self, core: Core, command: Any) -> None:
        """A command is about to be handled."""
        state = core.state
        self._cancelled = cancelled_jobs(core)
        if isinstance(command, commands.Tick):
            self._nodes = {node_id: node.stream for node_id, node in state.nodes.items()}
            self.placement.on_tick(core)
            self.shares.on_tick(core)
        elif isinstance(command, commands.RequeueLostRows):
            for lost in command.lost:
                self.placement.forget(command.step_id, lost.mini_batch, command.generation)
        elif isinstance(command, commands.CompleteAttempts):
            self.placement.on_completed(core, command.node_id, command.results, self.leases)
            for result in command.results:
                if result.cause and result.lease_id not in self._reported and result.lease_id in self.leases:
                    self._reported.add(result.lease_id)
                    step_id, mini_batch, _ = self.leases[result.lease_id]
                    self.failures.setdefault((step_id, mini_batch), Counter())[Cause(result.cause)] += 1
                    self.splits.on_failure((step_id, mini_batch), result)

    def after(self, core: Core, command: Any, reply: Any) -> None:
        """A command was handled."""
        state, world = core.state, self._sim.world
        if isinstance(command, commands.Tick):
            present = state.incarnation == self._sim.disk.tables.incarnation
            for node_id, stream in self._nodes.items():
                if present and node_id not in state.nodes:
                    awake_s = self._sim.awake_s(self._heard.get((state.incarnation, node_id), self._sim.master_since_s))
                    ttl_s = state.timing.lease_ttl_s if stream else state.timing.disconnected_ttl_s
                    require(awake_s >= ttl_s - TOLERANCE_S, 8, f"{node_id} was lost after {awake_s:.2f} s of silence")
        elif isinstance(command, SIGNS_OF_LIFE) and not isinstance(reply, Refused):
            self._heard[state.incarnation, command.node_id] = world.now_s
        self._check_cordons(core, command, reply)
        for job in (state.jobs[key] for key in cancelled_jobs(core) - self._cancelled):
            step_ids = {step.step_id for step in job.steps}
            for node in state.nodes.values():
                agent = self._sim.agent_of(node.node_id)
                stream = agent.stream if agent is not None else None
                if agent is None or stream is None or stream.master.core is not core or stream.number != node.stream:
                    continue
                serves = step_ids.intersection(agent.steps)
                require(not serves, 22, f"{job.job_id} is cancelled while {agent.incarnation} serves {serves}")
        if isinstance(command, commands.AdoptJob):
            self.adopting -= 1
        if isinstance(command, (commands.RegisterNode, commands.OpenWork)):
            node = state.nodes.get(command.node_id)
            if node is not None and node.stream:
                owner = self.stream_owner.get((state.incarnation, node.stream))
                require(owner == node.node_incarnation, 9, f"{node.node_incarnation} speaks on a stream of {owner}")

    def _check_cordons(self, core: Core, command: Any, reply: Any) -> None:
        """Whatever happens to a node, its name keeps its cordon; `_cordons` holds what operators said and were told."""
        state = core.state
        known = {**state.nodes, **state.absent}
        cordons = self._cordons.setdefault(state.incarnation, {name for name, node in known.items() if node.cordoned})
        if isinstance(command, commands.RemoveNode) and reply is None:
            require(command.node_id not in known, 12, f"{command.node_id} was removed and is still known")
            left = [lease for lease in state.leases.values() if lease.node_id == command.node_id]
            require(not left, 12, f"{command.node_id} was removed and holds {left}")
            cordons.discard(command.node_id)
        elif isinstance(command, (commands.DrainNode, commands.CordonNode)) and not isinstance(reply, Refused):
            if isinstance(command, commands.DrainNode) or command.cordoned:
                cordons.add(command.node_id)
            else:
                cordons.discard(command.node_id)
        now = {name for name, node in known.items() if node.cordoned}
        require(now == cordons, 11, f"cordoned are {sorted(now)}, asked for {sorted(cordons)}")

    def on_effects(self, core: Core, effects: list[Effect]) -> None:
        """Leases are handed out."""
        for effect in effects:
            if isinstance(effect, fx.SendAssignments):
                node = core.state.nodes[effect.node_id]
                require(not node.cordoned, 11, f"{effect.node_id} is cordoned and is handed {effect.leases}")
                for lease in effect.leases:
                    require(lease.lease_id not in self.leases, 1, f"{lease} was given before")
                    self.leases[lease.lease_id] = (lease.step_id, lease.mini_batch, lease.generation)
        self.placement.on_effects(core, effects)
        self.splits.on_effects(core)
        self.paces.on_effects(core, effects)
        self.shares.on_effects(core, effects)
        self.admissions.on_effects(core)
        self.gathered.on_effects(core, effects)

    # Commits

    def on_commit(self, incarnation: int, dirty: Dirty, ranges: list[SegmentRange]) -> None:
        """A group is committed, and judged. Raises IncarnationSuperseded as the store does."""
        disk = self._sim.disk
        tables = disk.tables
        tables.fence(incarnation)
        require(incarnation >= self._incarnation, 2, f"incarnation {incarnation} commits after {self._incarnation}")
        self._incarnation = incarnation
        self._check_outcomes(dirty)
        for attempt in dirty.attempts:
            given = self.leases.get(attempt.lease_id)
            require(given is not None and given[:2] == (attempt.step_id, attempt.mini_batch), 4, f"{attempt}, {given}")
        self._note_rows(dirty, ranges)
        try:
            tables.commit(incarnation, dirty, ranges)
        except ConstraintViolated as error:
            raise Broken(20, error) from error
        self._check_ledger(dirty)
        self.placement.on_commit(dirty)
        self._check_taken(dirty)
        for at in ranges:
            try:
                disk.read(at, durable=True)
            except RowsLost as error:
                if not disk.is_rotten(at):
                    raise Broken(5, error) from error
        self._check_budgets(dirty)

    def _check_ledger(self, dirty: Dirty) -> None:
        tables = self._sim.disk.tables
        for key in {row.job_key for row in dirty.ledger} | {
            tables.steps[attempt.step_id].job_key for attempt in dirty.attempts
        }:
            told_us, took_us = tables.spent_us[key], tables.took_us[key]
            require(told_us == took_us, 34, f"job {key}: its attempts took {took_us} µs, the ledger says {told_us}")

    def _note_rows(self, dirty: Dirty, ranges: list[SegmentRange]) -> None:
        for outcome in dirty.outcomes:
            if outcome.rows < 0:
                continue
            block, place = dirty.row_blocks[outcome.rows], ranges[outcome.rows]
            if outcome.lease_id:
                self._truth[place] = self._sim.rows[outcome.lease_id]
            else:
                source = SegmentRange(block.source, block.offset, block.length, block.crc32)
                require(source in self._truth, 15, f"{outcome} takes over {source}, which nobody has committed")
                self._truth[place] = self._truth[source]

    def _check_taken(self, dirty: Dirty) -> None:
        tables = self._sim.disk.tables
        for outcome in dirty.outcomes:
            if outcome.state != MiniBatchState.SUCCEEDED or outcome.lease_id:
                continue
            step = tables.steps[outcome.step_id]
            job_id, ordinal = tables.jobs[step.job_key].job_id, step.ordinal
            row = tables.mini_batches[outcome.step_id][outcome.mini_batch]
            if row.lease_id or row.state != MiniBatchState.SUCCEEDED:
                continue  # its rows were lost, in the same group
            items = self._sim.items(job_id, ordinal, outcome.mini_batch)
            whole = (row.items_counted, row.ok_count) == (items, items)
            require(whole, 15, f"{outcome} is taken over, and has {row.ok_count} results for {items} items")
            if self._sim.settings_of(outcome.step_id).append_row:
                require(row.range is not None, 15, f"{outcome} is taken over without its rows")
            if row.range is None:
                continue
            made = {line.rpartition(b":")[0] for line in self._truth[row.range].splitlines()}
            wanted = [
                {f"{origin}/{ordinal}:{outcome.mini_batch}:{at}".encode() for at in range(items)}
                for origin in self._sim.origins(job_id)
            ]
            require(made in wanted, 15, f"{outcome} is taken over with the rows {sorted(made)}")

    def _check_outcomes(self, dirty: Dirty) -> None:
        tables = self._sim.disk.tables
        states: dict[tuple[int, int], int] = {}
        for outcome in dirty.outcomes:
            key = (outcome.step_id, outcome.mini_batch)
            before = states.get(key)
            if before is None:
                rows = tables.mini_batches.get(outcome.step_id, ())
                before = rows[outcome.mini_batch].state if outcome.mini_batch < len(rows) else MiniBatchState.QUEUED
            states[key] = outcome.state
            stored = tables.steps.get(outcome.step_id)
            require(stored is None or stored.state not in ENDED_STEPS, 3, f"{outcome} comes after its step's end")
            final = before in (*FINAL, MiniBatchState.CANCELLED)
            require(final == (outcome.state == MiniBatchState.QUEUED), 3, f"{outcome} follows {before}")
            if outcome.lease_id:
                step_id, mini_batch, generation = self.leases.get(outcome.lease_id, (0, 0, 0))
                require((step_id, mini_batch) == key, 4, f"{outcome} is of a lease on {(step_id, mini_batch)}")
                now = tables.jobs[stored.job_key].generation if stored is not None else 0
                require(generation >= now, 4, f"{outcome} is of generation {generation}, the job's is {now}")

    def _check_budgets(self, dirty: Dirty) -> None:
        tables = self._sim.disk.tables
        for outcome in dirty.outcomes:
            key = (outcome.step_id, outcome.mini_batch)
            row = tables.mini_batches[outcome.step_id][outcome.mini_batch]
            if row.lease_id != outcome.lease_id:
                continue
            failures = self.failures.get(key, Counter())
            lost = sum(
                at.cause == Cause.NODE_LOST
                for at in (tables.attempts.values() if outcome.state == MiniBatchState.FAILED else ())
                if (at.step_id, at.mini_batch) == key
            )
            self.splits.on_outcome(outcome, sum(failures.values()) - self.splits.by_items[key] + lost)
            if outcome.state != MiniBatchState.FAILED or outcome.ok_count:
                continue
            cause = Cause(tables.item_outcomes[key][0].cause)
            if self.splits.by_items[key] and self._sim.settings_of(outcome.step_id).split:
                continue  # its items have failed, each alone: rule 26 bounds that
            if TRAITS[cause].budget == Budget.MAX_RETRIES:
                seen = sum(failures[at] for at in failures if TRAITS[at].budget == Budget.MAX_RETRIES)
                needed = self._sim.settings_of(outcome.step_id).max_retries + 1
            elif cause == Cause.NODE_KILLER:
                seen, needed = lost, NODE_LOSSES_UNTIL_FAILED
            else:
                limits = {Cause.CRASH: CRASH_TRIES, Cause.OOM: OOM_TRIES, Cause.INPUT_CHANGED: 1, Cause.NONE: 0}
                require(cause in limits, 6, f"mini-batch {key} failed for {cause.name}, which is charged to nobody")
                seen, needed = failures[cause], limits[cause]
            if seen < needed and self._sim.settings_of(outcome.step_id).split:
                # While it was split, whole attempts failed: they may have failed for different causes.
                begun = 1 if SPLIT_AT_ONCE & failures.keys() else self._sim.settings_of(outcome.step_id).max_retries + 1
                seen, needed = sum(failures.values()), begun + SPLIT_TRIES + 1
            require(seen >= needed, 6, f"mini-batch {key} failed for {cause.name} after {seen} of {needed} failures")

    def on_acknowledged(self, verdict: Verdict, lease_id: int) -> None:
        """An agent hears the answer to a completion."""
        if verdict == Verdict.ACCEPTED and not self._is_of_the_past(lease_id):
            row = self._sim.disk.tables.attempts.get(lease_id)
            # What failed on a bad node is kept, and charged to nobody.
            durable = row is not None and (
                row.state in (AttemptState.SUCCEEDED, AttemptState.FAILED)
                or (row.state == AttemptState.ABANDONED and row.cause not in GIVEN_BACK)
            )
            require(durable, 7, f"lease {lease_id:#x} was accepted, stored is {row}")

    def _is_of_the_past(self, lease_id: int) -> bool:
        """The job has been retried since: what was durable of a step that began anew is forgotten."""
        tables = self._sim.disk.tables
        step_id, _, generation = self.leases[lease_id]
        return generation < tables.jobs[tables.steps[step_id].job_key].generation

    # States

    def on_quiet(self, core: Core) -> None:
        """Nothing is dirty, nothing on its way to disk."""
        tables = self._sim.disk.tables
        if core.state.incarnation != tables.incarnation or self.adopting:
            return
        self._quiet += 1
        if self._quiet % 40 == 1:
            with asserts(10):
                assert_reload_equals_live(tables, core.state, self._sim.world.moment)
                tables.check()

    def on_restart(self) -> None:
        """A master starts over what the last one left."""
        self.adopting = 0
        self._check_ranges()
        with asserts(10):
            self._sim.disk.tables.check()

    def _check_ranges(self) -> None:
        disk = self._sim.disk
        for step_id, rows in disk.tables.mini_batches.items():
            for at, row in enumerate(rows):
                if row.range is not None and not disk.is_rotten(row.range):
                    try:
                        disk.read(row.range, durable=True)
                    except RowsLost as error:
                        raise Broken(5, f"step {step_id}, mini-batch {at}: {error}") from error

    def on_end(self) -> None:
        """All jobs have ended."""
        disk = self._sim.disk
        with asserts(10):
            disk.tables.check()
        self._check_ranges()
        for step_id, step in disk.tables.steps.items():
            if step.state == StepState.COMPLETED:
                wanted = b"".join(
                    self._sim.rows[row.lease_id] if row.lease_id else self._truth[row.range]
                    for row in disk.tables.mini_batches[step_id]
                    if row.range is not None
                )
                require(disk.outputs.get(step_id) == wanted, 13, f"the output of step {step_id} differs")
                kept = sum(row.ok_count for row in disk.tables.mini_batches[step_id])
                lines = wanted.splitlines()
                keys = {line.rpartition(b":")[0] for line in lines}
                require(len(lines) == len(keys), 13, f"step {step_id}: a row is there twice")
                appended = self._sim.settings_of(step_id).append_row
                require(len(lines) == (kept if appended else 0), 13, f"step {step_id}: {len(lines)} rows, {kept} items")
