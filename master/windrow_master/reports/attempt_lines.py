"""The lines of `processed_mini-batches.csv`: made by the store if it can, else here from its rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from windrow_master.core.ids import LeaseId, StepId
from windrow_master.core.records import AttemptRow
from windrow_master.core.states import AttemptState
from windrow_master.core.statuses import category_of, process_of, status_of
from windrow_master.store.protocol import MESSAGE_CHARS_MAX, AttemptLinesReader, StoreReader
from windrow_master.store.records import MiniBatchRow


def attempt_lines(reader: StoreReader, step_id: StepId, folders: Mapping[tuple[str, str], str]) -> Iterator[str]:
    """The table in pieces, one line for each attempt, in order of lease id. Raises StateError.

    `folders`: (node id, node incarnation) -> the name of the node in the logs, where that is not its id.
    """
    if isinstance(reader, AttemptLinesReader):
        return reader.attempt_lines_of(step_id, folders)
    return _lines(reader, step_id, folders)


def _lines(reader: StoreReader, step_id: StepId, folders: Mapping[tuple[str, str], str]) -> Iterator[str]:
    for page in reader.attempts_of(step_id):
        indices = sorted({attempt.mini_batch for attempt in page})
        batches = {row.mini_batch: row for row in reader.mini_batches_at(step_id, indices)}
        picks: dict[LeaseId, int] = {}
        tries: Counter[int] = Counter()
        for other in reader.attempts_at(step_id, indices):
            picks[other.lease_id] = 1 + tries[other.mini_batch]
            tries[other.mini_batch] += other.state != AttemptState.SUCCEEDED
        lines = []
        for attempt in page:
            node = folders.get((attempt.node_id, attempt.node_incarnation), attempt.node_id)
            lines.append(_line(attempt, batches[attempt.mini_batch], picks[attempt.lease_id], node))
        yield "".join(lines)


def _line(attempt: AttemptRow, batch: MiniBatchRow, picked: int, node: str) -> str:
    succeeded = attempt.state == AttemptState.SUCCEEDED
    ok = min(attempt.result_count, attempt.item_count) if succeeded else 0
    begun = datetime.fromtimestamp(attempt.start_unix_us // 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    message = attempt.message[:MESSAGE_CHARS_MAX].replace('"', '""')
    detail = (
        f'{{""id"":{attempt.mini_batch},""dequeue_count"":{picked},""item_first"":{batch.item_first},'
        f'""item_count"":{batch.item_count},""generation"":{attempt.generation}}}'
    )
    process = process_of(attempt.phase, attempt.process_number)
    fields = (
        attempt.mini_batch,
        picked,
        "" if process is None else f"process{process:03d}",
        f"{begun}.{attempt.start_unix_us % 1_000_000:06d}Z",
        attempt.item_count,
        ok,
        attempt.item_count - ok,
        *(f"{us / 1e6:.6f}" for us in (attempt.elapsed_us, attempt.cpu_us, attempt.run_us)),
        status_of(attempt.state, attempt.cause, attempt.phase),
        "" if succeeded else category_of(attempt.cause, attempt.phase),
        f'"{message}"' if message else "",
        f'"{detail}"',
        node,
    )
    return ",".join(map(str, fields)) + "\r\n"
