"""`user/error.txt`: all kinds of errors of a step. Full traces are in `user/error/<node>/processNNN.txt`.

Kinds are those of `windrow.common.failure_kinds`, here counted from the attempts themselves. Attempts are streamed;
memory holds one entry for each kind, of which there are at most KINDS_MAX.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from windrow.common.failure_kinds import FailureKind, headline, key_of, ordered
from windrow.common.quantities import counted
from windrow.spec.one_line.words import failure_in_options

from windrow_master.core.ids import StepId
from windrow_master.core.records import AttemptRow
from windrow_master.core.states import AttemptState, Cause
from windrow_master.core.statuses import process_of, status_of
from windrow_master.reports.mini_batch_tables import utc
from windrow_master.reports.whole_files import whole_file
from windrow_master.store.protocol import StoreReader
from windrow_master.store.records import FailureRow

KINDS_MAX = 200
MINI_BATCHES_NAMED = 10


@dataclass
class _Kind:
    """Attempts that failed in the same way."""

    told: FailureKind
    where: str
    named: list[int] = field(default_factory=list)
    more: bool = False

    def add(self, mini_batch: int, attempts: int) -> None:
        self.told = self.told._replace(attempts=self.told.attempts + attempts)
        if len(self.named) < MINI_BATCHES_NAMED:
            self.named.append(mini_batch)
        else:
            self.more = True


def write_script_errors(
    reader: StoreReader,
    step_id: StepId,
    folders: Mapping[tuple[str, str], str],
    target: Path,
    *,
    settled: bool,
    job_file: str = "",
) -> int:
    """Write the file; return the number of failed attempts (0 removes the file). `settled`: the step is complete.
    `job_file`: of the job, which says how messages call its settings.

    Raises OSError, StateError.
    """
    kinds: dict[tuple[str, ...], _Kind] = {}
    others = total = 0
    given_up = _GivenUp(reader, step_id)
    attempts = (attempt for page in reader.failed_attempts_of(step_id) for attempt in page)
    for mini_batch, group in groupby(attempts, key=lambda attempt: attempt.mini_batch):
        counts: dict[tuple[str, ...], int] = {}
        for attempt in group:
            total += 1
            key = (str(attempt.cause), *key_of(attempt.message))
            if key not in kinds:
                if len(kinds) >= KINDS_MAX:
                    others += 1
                    continue
                kinds[key] = _Kind(_example(attempt), _where(attempt, folders))
            counts[key] = counts.pop(key, 0) + 1  # the last one stands last
        for met, count in counts.items():
            kinds[met].add(mini_batch, count)
        items, is_whole = given_up.items_of(mini_batch)
        if items is None or not counts:
            continue
        last = [*counts][-1]
        for met, count in counts.items():
            # Where only some items failed, the others have got over what is not the kind of these.
            if is_whole or met == last:
                one = kinds[met]
                one.told = one.told._replace(final_attempts=one.told.final_attempts + count)
        told = kinds[last].told
        kinds[last].told = told._replace(mini_batches=told.mini_batches + 1, items=told.items + items)
    if not total:
        target.unlink(missing_ok=True)
        return 0
    by_kind = {id(kind.told): kind for kind in kinds.values()}
    with whole_file(target) as file:
        file.write(f"{counted(total, 'attempt')} failed in {counted(len(kinds), 'way')}; what failed for good first.\n")
        file.write("Full traces: user/error/<node>/processNNN.txt.\n")
        for told in ordered(kind.told for kind in kinds.values()):
            kind = by_kind[id(told)]
            named = ", ".join(map(str, kind.named)) + (", ..." if kind.more else "")
            noun = "mini-batch" if len(kind.named) == 1 else "mini-batches"
            file.write(f"\n{told.status}: {headline(told, settled=settled)}; {noun} {named}\n")
            message = failure_in_options(told.cause, told.message, job_file)
            file.write(f"  First in {kind.where}:\n  {' '.join(message.split())}\n")
            for line in told.detail.rstrip().splitlines():
                file.write(f"    {line}\n")
        if others:
            file.write(f"\n{counted(others, 'more attempt')} failed in other ways.\n")
    return total


class _GivenUp:
    """What failed for good of the mini-batches; asked in ascending order."""

    def __init__(self, reader: StoreReader, step_id: StepId) -> None:
        self._rows: Iterator[FailureRow] = (
            failure for page in reader.failures_of(step_id) for failure in page if failure.cause
        )
        self._next = next(self._rows, None)

    def items_of(self, mini_batch: int) -> tuple[int | None, bool]:
        """The failed items of a mini-batch (None if nothing of it failed for good), and whether these are all."""
        while self._next is not None and self._next.mini_batch < mini_batch:
            self._next = next(self._rows, None)
        items, of = None, 0
        while self._next is not None and self._next.mini_batch == mini_batch:
            items, of = (items or 0) + self._next.item_count, self._next.items
            self._next = next(self._rows, None)
        return items, items is not None and items >= of


def _example(attempt: AttemptRow) -> FailureKind:
    """A kind with its first failure, without any count."""
    found = key_of(attempt.message)
    return FailureKind(
        Cause(attempt.cause).name.lower(), found.error, found.place, 0, 0, 0, 0, attempt.mini_batch, attempt.message,
        attempt.detail, attempt.node_id, process_of(attempt.phase, attempt.process_number),
        status_of(AttemptState.FAILED, attempt.cause, attempt.phase),
    )  # fmt: skip


def _where(attempt: AttemptRow, folders: Mapping[tuple[str, str], str]) -> str:
    node = folders.get((attempt.node_id, attempt.node_incarnation), attempt.node_id)
    number = process_of(attempt.phase, attempt.process_number)
    process = "" if number is None else f"process{number:03d} of "
    return f"{process}node {node}, {utc(attempt.start_unix_us)}"
