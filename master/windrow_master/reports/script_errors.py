"""`user/error.txt`: a summary of the script's errors. Full traces are in `user/error/<node>/processNNN.txt`.

Attempts are streamed; memory holds one entry for each kind of error, of which there are at most KINDS_MAX.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from windrow.common.quantities import counted

from windrow_master.core.ids import StepId
from windrow_master.core.states import AttemptState, Cause
from windrow_master.core.statuses import had_worker, status_of
from windrow_master.reports.mini_batch_tables import utc
from windrow_master.reports.whole_files import whole_file
from windrow_master.store.protocol import StoreReader

KINDS_MAX = 200
MINI_BATCHES_NAMED = 10
_NUMBERS = re.compile(r"\d+")


@dataclass
class _Kind:
    """Attempts that failed in the same way."""

    status: str
    cause: Cause
    message: str
    detail: str
    where: str
    attempts: int
    mini_batches: list[int]
    more: bool


def write_script_errors(
    reader: StoreReader, step_id: StepId, folders: Mapping[tuple[str, str], str], target: Path
) -> int:
    """Write the file; return the number of failed attempts (0: the file is removed). Raises OSError, StateError."""
    kinds: dict[tuple[str, str], _Kind] = {}
    others = total = 0
    for page in reader.failed_attempts_of(step_id):
        for attempt in page:
            total += 1
            # Alike but for numbers: "item 17 is bad", "item 18 is bad".
            key = (str(attempt.cause), _NUMBERS.sub("#", attempt.message[:400]))
            kind = kinds.get(key)
            if kind is None:
                if len(kinds) >= KINDS_MAX:
                    others += 1
                    continue
                node = folders.get((attempt.node_id, attempt.node_incarnation), attempt.node_id)
                process = f"process{attempt.process_number:03d} of " if had_worker(attempt.phase) else ""
                where = f"{process}node {node}, {utc(attempt.start_unix_us)}"
                status = status_of(AttemptState.FAILED, attempt.cause, attempt.phase)
                kind = kinds[key] = _Kind(
                    status, Cause(attempt.cause), attempt.message, attempt.detail, where, 0, [], False
                )
            kind.attempts += 1
            # They are sorted by mini-batch: attempts of one follow each other.
            if not kind.mini_batches or kind.mini_batches[-1] != attempt.mini_batch:
                if len(kind.mini_batches) < MINI_BATCHES_NAMED:
                    kind.mini_batches.append(attempt.mini_batch)
                else:
                    kind.more = True
    if not total:
        target.unlink(missing_ok=True)
        return 0
    with whole_file(target) as file:
        file.write(f"{counted(total, 'attempt')} failed in {counted(len(kinds), 'way')}, the most frequent first.\n")
        file.write("Full traces: user/error/<node>/processNNN.txt.\n")
        for kind in sorted(kinds.values(), key=lambda kind: -kind.attempts):
            named = ", ".join(map(str, kind.mini_batches)) + (", ..." if kind.more else "")
            noun = "mini-batch" if len(kind.mini_batches) == 1 else "mini-batches"
            file.write(f"\n{kind.status}: {counted(kind.attempts, 'attempt')}; {noun} {named}\n")
            file.write(f"  First in {kind.where}:\n  {' '.join(kind.message.split())}\n")
            for line in kind.detail.rstrip().splitlines():
                file.write(f"    {line}\n")
        if others:
            file.write(f"\n{counted(others, 'more attempt')} failed in other ways.\n")
    return total
