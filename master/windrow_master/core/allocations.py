"""Fleets, and what they ask engines for: one allocation holds one agent. `fleets` changes them."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from windrow_master.core.records import AllocationRow, FleetRow
from windrow_master.core.states import OPEN_ALLOCATIONS, AllocationState
from windrow_master.core.transitions import ALLOCATION


class Shape(NamedTuple):
    """What one agent offers. `slots`: workers that need a processor each; `memory_bytes`: 0 if nobody said."""

    slots: float
    memory_bytes: int = 0
    gpus: int = 0


class GroupStatus(NamedTuple):
    """How a group of a fleet stands, as the fleet's program says. `retry_time`: seconds since 1970. The last four
    fields are for the program that has the fleet next.
    """

    wanted: int = 0
    reason: str = ""
    retry_time: float | None = None
    failed: int = 0
    unjoined: int = 0
    pauses: int = 0
    failure: str = ""

    @property
    def brief_reason(self) -> str:
        """The first line of its reason. Further lines may be of an agent's log, which tells of jobs of all projects."""
        return _first_line(self.reason)

    @property
    def brief_failure(self) -> str:
        """The first line of its failure."""
        return _first_line(self.failure)


class FleetGroup(NamedTuple):
    """Agents of one kind, from one engine. `min_set`, `max_set`: what an operator has set instead of the file's. Times
    are in seconds; None: without an end, or never.
    """

    name: str
    pool: str
    provider: str
    shape: Shape
    min: int
    max: int
    lifetime_s: float | None = None
    exit_idle_s: float | None = None
    price_per_hour: float = 0.0
    min_set: int | None = None
    max_set: int | None = None
    status: GroupStatus = GroupStatus()

    @classmethod
    def from_dict(cls, read: dict[str, Any]) -> FleetGroup:
        """The group of what `_asdict` gave, once JSON has made lists of its parts."""
        return cls(**{**read, "shape": Shape(*read["shape"]), "status": GroupStatus(*read["status"])})


class Fleet(NamedTuple):
    """A fleet. `program`: who runs it, in words, since `program_time`; `earlier`: digests of the incarnations that had
    it before, the newest last. Times are seconds since 1970, for people.
    """

    name: str
    program: str
    program_incarnation: str
    program_time: float
    groups: tuple[FleetGroup, ...] = ()
    earlier: tuple[str, ...] = ()
    paused: bool = False
    paused_by: str = ""
    pause_time: float | None = None
    revision: int = 0
    """Counted up by each change of an operator."""

    def group(self, name: str) -> FleetGroup | None:
        """One of its groups."""
        return next((group for group in self.groups if group.name == name), None)

    def row(self) -> FleetRow:
        """Return the stored form."""
        return FleetRow(
            name=self.name,
            groups=json.dumps([group._asdict() for group in self.groups]).encode(),
            program=self.program,
            program_incarnation=self.program_incarnation,
            program_time=self.program_time,
            earlier=json.dumps(self.earlier).encode(),
            paused=int(self.paused),
            paused_by=self.paused_by,
            pause_time=self.pause_time,
            revision=self.revision,
        )

    @classmethod
    def from_row(cls, row: FleetRow) -> Fleet:
        """The fleet of a stored row."""
        return cls(
            name=row.name,
            program=row.program,
            program_incarnation=row.program_incarnation,
            program_time=row.program_time,
            groups=tuple(map(FleetGroup.from_dict, json.loads(row.groups))),
            earlier=tuple(json.loads(row.earlier)),
            paused=bool(row.paused),
            paused_by=row.paused_by,
            pause_time=row.pause_time,
            revision=row.revision,
        )


class Allocation(NamedTuple):
    """What a fleet asks an engine for. Times are seconds since 1970, for people. `node_id`, `node_incarnation`: which
    node its agent is, or was last; empty if none has joined.
    """

    name: str
    fleet: str
    group: str
    begin_time: float
    state: AllocationState = AllocationState.BEGUN
    engine_id: str = ""
    reason: str = ""
    queue_time: float | None = None
    start_time: float | None = None
    join_time: float | None = None
    end_time: float | None = None
    node_id: str = ""
    node_incarnation: str = ""

    @property
    def has_ended(self) -> bool:
        """Whether nothing more comes of it."""
        return self.state not in OPEN_ALLOCATIONS

    @property
    def brief_reason(self) -> str:
        """What its engine says in one line. Further lines may be of its agent's log, which tells of jobs of all
        projects.
        """
        return _first_line(self.reason)

    def become(self, after: AllocationState, now_s: float) -> Allocation:
        """The allocation in another state, which it has since `now_s`. Raises IllegalTransition."""
        ALLOCATION.check(self.state, after)
        changed = self._replace(state=after)
        if after == AllocationState.QUEUED:
            return changed._replace(queue_time=now_s, start_time=None)
        if after == AllocationState.STARTED:
            return changed._replace(queue_time=self.queue_time or now_s, start_time=now_s)
        return changed._replace(end_time=self.end_time or now_s)

    def row(self) -> AllocationRow:
        """Return the stored form."""
        return AllocationRow(
            name=self.name,
            fleet=self.fleet,
            group_name=self.group,
            engine_id=self.engine_id,
            state=self.state,
            reason=self.reason,
            begin_time=self.begin_time,
            queue_time=self.queue_time,
            start_time=self.start_time,
            join_time=self.join_time,
            end_time=self.end_time,
            node_id=self.node_id,
            node_incarnation=self.node_incarnation,
        )

    @classmethod
    def from_row(cls, row: AllocationRow) -> Allocation:
        """The allocation of a stored row."""
        fields = row._asdict()
        return cls(group=fields.pop("group_name"), state=AllocationState(fields.pop("state")), **fields)


def _first_line(words: str) -> str:
    return words.partition("\n")[0].strip()
