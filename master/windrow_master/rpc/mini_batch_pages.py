"""Pages of mini-batches, stored and currently leased, by index or newest first."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from windrow_master.core.ids import StepId
from windrow_master.core.records import AttemptRow
from windrow_master.core.states import AttemptState, MiniBatchState
from windrow_master.store.protocol import StoreReader
from windrow_master.store.records import MiniBatchRow

LOOKED_AT_MAX = 20_000
"""Attempts looked at for one page of the newest, at most: then the page ends short."""


class Wanted(NamedTuple):
    """The checked filters of a request for a page."""

    states: frozenset[int]
    """core.states.MiniBatchState; empty: any."""
    cause: int | None
    newest_first: bool
    size: int


class Found(NamedTuple):
    """A mini-batch with its attempts, oldest first.

    Not the `Found` of `windrow.storage`, which is an object of a store.
    """

    row: MiniBatchRow
    attempts: list[AttemptRow]


def by_index(
    reader: StoreReader, step_id: StepId, wanted: Wanted, size: int, after: tuple[int, ...], leased: Iterable[int]
) -> tuple[list[Found], tuple[int, ...]]:
    """Return the mini-batches after one, and the place after which the next page begins (empty at the end)."""
    leased = frozenset(leased)
    last = after[0] if after else -1
    # What is leased is stored as QUEUED: leases are volatile.
    stored = {MiniBatchState.QUEUED if state == MiniBatchState.LEASED else state for state in wanted.states}
    kept: list[int] = []
    asked = size + 1
    while True:
        if wanted.states == {MiniBatchState.LEASED} and wanted.cause is None:
            found = sorted(index for index in leased if index > last)[:asked]
        else:
            found = reader.mini_batches_after(step_id, last, asked, sorted(stored), wanted.cause)
        for row in reader.mini_batches_at(step_id, found):
            if len(kept) == size:
                return _with_attempts(reader, step_id, kept), (kept[-1],)
            if not wanted.states or _state_of(row, leased) in wanted.states:
                kept.append(row.mini_batch)
        if len(found) < asked:
            return _with_attempts(reader, step_id, kept), ()
        last = found[-1]


def _state_of(row: MiniBatchRow, leased: frozenset[int]) -> int:
    return MiniBatchState.LEASED if row.mini_batch in leased else row.state


def newest(
    reader: StoreReader, step_id: StepId, wanted: Wanted, size: int, after: tuple[int, ...], leased: Iterable[int]
) -> tuple[list[Found], tuple[int, ...]]:
    """Like `by_index`, but the last begun comes first."""
    leased = frozenset(leased)
    before = (after[0], after[1]) if len(after) == 2 else None
    kept: list[Found] = []
    looked_at = 0
    while True:
        begun = reader.begun_before(step_id, before, size + 1)
        found = {at.row.mini_batch: at for at in _with_attempts(reader, step_id, {one.mini_batch for one in begun})}
        for one in begun:
            if len(kept) == size or looked_at >= LOOKED_AT_MAX:
                return kept, before or ()
            looked_at += 1
            before = (one.incarnation, one.lease_id)
            at = found.get(one.mini_batch)
            if at is None or at.attempts[-1].lease_id != one.lease_id:
                continue
            if wanted.states and _state_of(at.row, leased) not in wanted.states:
                continue
            if wanted.cause and all(attempt.cause != wanted.cause for attempt in at.attempts):
                continue
            if wanted.cause == 0 and not _is_short(at):
                continue
            kept.append(at)
        if len(begun) <= size:
            return kept, ()


def _is_short(found: Found) -> bool:
    """Whether `run()` returned fewer results than items; with error_threshold, that makes the mini-batch failed."""
    row = found.row
    returned = any(one.lease_id == row.lease_id and one.state == AttemptState.SUCCEEDED for one in found.attempts)
    return returned and row.ok_count < row.items_counted


def _with_attempts(reader: StoreReader, step_id: StepId, indices: Iterable[int]) -> list[Found]:
    wanted = sorted(indices)
    attempts: dict[int, list[AttemptRow]] = {}
    for row in reader.attempts_at(step_id, wanted):
        attempts.setdefault(row.mini_batch, []).append(row)
    return [Found(row, attempts.get(row.mini_batch, [])) for row in reader.mini_batches_at(step_id, wanted)]
