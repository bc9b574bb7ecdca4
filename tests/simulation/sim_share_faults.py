"""Planted faults of how workers are shared out. They are looked for in storms of submissions (`draw_storm`)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from sim_planting import fault
from windrow_master.core import shares
from windrow_master.core.sharing import entitlements, placing
from windrow_master.core.sharing.entitlements import Claim, Entitlements, Owed, Owner
from windrow_master.core.sharing.placing import Crew, Place, Vector
from windrow_master.core.state import Step


@fault(29, storm=True)
def room_not_looked_at() -> Iterator[None]:
    """A node is told to have workers although all its slots are taken."""
    with patch.object(Place, "fits", lambda self, need, most: most):
        yield


@fault(29, storm=True)
def bound_of_a_step_passed() -> Iterator[None]:
    """A step gets more workers on a node than it allows."""

    def may_add(self: Crew, at: Place, most: int) -> int:
        return at.fits(self.need, most) if self.may_be_on(at.node_id) else 0

    with patch.object(Crew, "may_add", may_add):
        yield


@fault(29, storm=True)
def workers_that_start_are_not_counted() -> Iterator[None]:
    """A worker in `init()` takes no room."""
    original = Place.count_room

    def count_room(self: Place) -> None:
        original(self)
        last_s = max(self.since.values(), default=0.0)
        for step_id, count in self.workers.items():
            if step_id in self.needs and self.since.get(step_id) == last_s:
                self.room = [room + count * each for room, each in zip(self.room, self.needs[step_id], strict=True)]

    with patch.object(Place, "count_room", count_room):
        yield


@fault(30, storm=True)
def a_project_starves() -> Iterator[None]:
    """Jobs share, whosever they are: a project with few of them gets little."""
    original = shares.entitle

    def entitle(claims: Sequence[Claim], owners: Mapping[str, Owner], owed: Owed) -> Entitlements:
        for claim in claims:
            claim.project = "all"
        return original(claims, {"all": Owner("all", (0.0,), (1.0,))}, owed)

    with patch.object(shares, "entitle", entitle):
        yield


@fault(31, storm=True)
def places_change_hands_at_once() -> Iterator[None]:
    """What is owed grows so fast that whoever lacks a worker for a moment gets it from the other one."""
    original = shares.advance

    def advance(owed: Owed, claims: Sequence[Claim], given: Entitlements, passed_s: float) -> None:
        original(owed, claims, given, 100 * passed_s)

    with patch.object(shares, "advance", advance):
        yield


@fault(32, storm=True)
def the_oldest_job_takes_all() -> Iterator[None]:
    """Jobs of one project do not share it: they stand in line."""
    original = shares.entitle

    def entitle(claims: Sequence[Claim], owners: Mapping[str, Owner], owed: Owed) -> Entitlements:
        for claim in claims:
            claim.rank = (-float(claim.step_id),)
        return original(claims, owners, owed)

    with patch.object(shares, "entitle", entitle):
        yield


@fault(33, storm=True)
def free_slots_are_left_alone() -> Iterator[None]:
    """A step gets workers where it has some already, and nowhere else."""
    original = placing._Free.give

    def give(self: placing._Free, crew: Crew, wanted: int) -> int:
        return wanted if crew.held else original(self, crew, wanted)

    with patch.object(placing._Free, "give", give):
        yield


@fault(30, 42, storm=True)
def quotas_are_forgotten() -> Iterator[None]:
    """What is guaranteed to a project is shared by all."""
    with patch.object(shares._Rights, "quota", lambda self, pools: 0.0):
        yield


@fault(30, 42, storm=True)
def weights_are_forgotten() -> Iterator[None]:
    """All projects count alike."""
    with owners_with(weight=1.0):
        yield


@fault(30, 42, storm=True)
def priorities_are_forgotten() -> Iterator[None]:
    """No project goes before another one."""
    with owners_with(priority=0):
        yield


@fault(35, storm=True)
def limits_are_forgotten() -> Iterator[None]:
    """A project takes what nobody else uses, although it may not."""
    with patch.object(shares._Rights, "limit", lambda self, pools: math.inf):
        yield


@fault(35, storm=True)
def a_lower_limit_takes_nothing_away() -> Iterator[None]:
    """A project keeps what it has when its limit falls."""
    with patch.object(shares, "give_back", lambda *arguments: None):
        yield


@fault(29, storm=True)
def memory_is_not_counted() -> Iterator[None]:
    """Workers take processors and GPUs, and no memory."""
    with needs_with(placing.MEMORY, 0.0):
        yield


@fault(29, storm=True)
def a_worker_takes_one_processor() -> Iterator[None]:
    """However many it needs."""
    with needs_with(placing.SLOTS, 1.0):
        yield


@fault(41, storm=True)
def a_gpu_is_overfilled() -> Iterator[None]:
    """A node's GPUs are counted together: what is left of two of them makes one more, of which both are overfilled."""

    def pack(devices: int, needs: Iterable[float]) -> list[tuple[int, ...]] | None:
        return [] if sum(needs) <= devices else None

    with patch.object(placing, "pack", pack):
        yield


@fault(42, storm=True)
def large_ones_never_have_their_turn() -> Iterator[None]:
    """What is less than a worker is given to those whose workers are smaller."""
    with patch.object(entitlements, "_first_in_turn", lambda *arguments: None):
        yield


@fault(42, storm=True)
def large_ones_wait_until_there_is_room() -> Iterator[None]:
    """Small ones that have come first stay, and a large one finds its room in pieces."""
    with patch.object(placing, "_make_room", lambda *arguments: None):
        yield


@contextmanager
def needs_with(resource: int, each: float) -> Iterator[None]:
    """Decisions are made as if each worker took so much of a resource."""
    original = shares.need_of

    def need_of(step: Step, *, is_wide: bool) -> Vector:
        need = list(original(step, is_wide=is_wide))
        need[resource : resource + 1] = [each] if is_wide or resource == placing.SLOTS else []
        return tuple(need)

    with patch.object(shares, "need_of", need_of):
        yield


@contextmanager
def owners_with(**changed: float) -> Iterator[None]:
    """Projects are decided about as if their settings had these values."""
    original = shares._owner

    def owner(*arguments: Any) -> Owner:
        return original(*arguments)._replace(**changed)

    with patch.object(shares, "_owner", owner):
        yield
