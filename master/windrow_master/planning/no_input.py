"""Makes mini-batches without input, in the messages that a planner would send. It does not need a process, because
there is nothing to list.

Reference: docs/reference/azure-ml/parallel-job.md#program-arguments (`--rank_mini_batch_count`); docs/contracts.md,
section 3.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from windrow_master.planning.emitter import GROUP_MAX, RECORD
from windrow_master.planning.plan_files.checkpoint import Checkpoint

_NOTHING = RECORD.pack(0, 0, 0, 0, 0)


def groups_without_input(count: int, stored: Any) -> Iterator[tuple[dict[str, Any], bytes]]:
    """The messages with their records, from the stored checkpoint (the beginning if None) to the end.

    Raises PlanningError if the stored value is not a checkpoint.
    """
    start = None if stored is None else Checkpoint.from_json(stored)
    done = 0 if start is None else start.mini_batches
    sent = stored
    while start is None or not start.done:
        taken = min(GROUP_MAX, count - done)
        done += taken
        start = Checkpoint(done, position={"next": None, "frontier": None}, done=done == count)
        message = {"type": "group", "from": sent, "to": start.to_json(), "count": taken, "warnings": []}
        if sent is None:
            message["reader"] = {"kind": "none"}
        yield message, _NOTHING * taken
        sent = message["to"]
