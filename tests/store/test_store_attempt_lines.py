"""The lines of a report are the same whether the store makes them or the rows are read one by one."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
from store_groups import attempt_row, begun, lease
from stores.sqlite import in_memory
from windrow_master.core.ids import StepId
from windrow_master.core.records import Dirty
from windrow_master.core.states import AttemptState, Cause, Phase
from windrow_master.reports import attempt_lines
from windrow_master.store.protocol import AttemptLinesReader

STEP = StepId(1)


@pytest.mark.parametrize("folders", [{}, {("node-1", "inc-1"): "node-1.2"}])
def test_both_ways_give_the_same_lines(tmp_path: Path, folders: dict[tuple[str, str], str]) -> None:
    harness = in_memory(tmp_path)
    store = harness.open()
    store.commit(begun(), [], [])
    ends = [*product((AttemptState.FAILED, AttemptState.ABANDONED), Cause, Phase), (AttemptState.RUNNING, 0, 0)]
    attempts = [
        attempt_row(
            number % 8, lease(store, 1000 - number), state, cause=int(cause), phase=int(phase),
            result_count=number % 12, start_unix_us=1_700_000_000_000_000 + 37 * (number * 7919 % 1000),
            elapsed_us=number * 1_000_003,
            message=(f'it said "{number}", with a snowman \u2603\nand a line' * (number % 40)),
        )
        for number, (state, cause, phase) in enumerate(ends)
    ]  # fmt: skip
    attempts += [attempt_row(number, lease(store, 2000 + number), result_count=9 + number) for number in range(8)]
    store.commit(Dirty(attempts=attempts), [], [])
    reader = store.reader()
    assert isinstance(reader, AttemptLinesReader)
    made = "".join(attempt_lines.attempt_lines(reader, STEP, folders))
    assert made.count("\r\n") == len(attempts)
    assert "".join(attempt_lines._lines(reader, STEP, folders)).splitlines() == made.splitlines()
    harness.close()
