"""A Parquet file from committed rows: valid, in output order, the same each time, or left as it was."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from output_step import STEP, CommittedStep
from windrow_master.core.headers import join_headers
from windrow_master.output import extents, parquet_file
from windrow_master.output.concatenation import RowsLost, concatenate
from windrow_master.output.errors import ColumnUnwritable
from windrow_worker.rows.formats import make_format_writer


def rows_of(rows: object) -> tuple[bytes, bytes]:
    """Header and rows as a worker writes them."""
    pieces: list[bytes] = []
    header = make_format_writer("parquet", {}).write(rows, pieces.append).header
    return header, b"".join(pieces)


@pytest.fixture
def step(tmp_path: Path) -> Iterator[CommittedStep]:
    made = CommittedStep(tmp_path, segment_bytes_max=1 << 24)
    yield made
    made.close()


def commit(step: CommittedStep, mini_batches: list[list[dict[str, object]]]) -> bytes | None:
    """Commit the rows of mini-batches, the last one first; return the columns of all."""
    header = None
    step.plan(len(mini_batches))
    for number, rows in reversed(list(enumerate(mini_batches))):
        found, blob = rows_of(rows)
        if found:
            header = join_headers("parquet", header, found)
        if blob:
            step.commit({number: blob})
    return header


def make(step: CommittedStep, header: bytes | None) -> bytes:
    wanted = replace(step.wanted(header=header, target=step.target.with_suffix(".parquet")), row_format="parquet")
    concatenate(wanted, step.store.reader(), step.store.record_output)
    return wanted.target.read_bytes()


def test_mini_batches_stand_in_output_order_with_the_types_of_all(step: CommittedStep) -> None:
    header = commit(
        step,
        [
            [{"n": 1, "t": None, "e": None}],
            [],
            [{"t": "x", "e": None, "n": 2.5}, {"t": "é\n", "e": None, "n": None}],
        ],
    )
    content = make(step, header)
    table = pq.read_table(pa.BufferReader(content))
    types = {field.name: str(field.type) for field in table.schema}
    assert list(types.items()) == [("n", "double"), ("t", "string"), ("e", "string")]
    assert table.to_pylist() == [
        {"n": 1.0, "t": None, "e": None},
        {"n": 2.5, "t": "x", "e": None},
        {"n": None, "t": "é\n", "e": None},
    ]
    assert make(step, header) == content


def test_row_groups_are_gathered_over_mini_batches(step: CommittedStep, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_file, "ROW_GROUP_ROWS", 1000)
    header = commit(step, [[{"n": number * 100 + at} for at in range(100)] for number in range(35)])
    metadata = pq.read_metadata(pa.BufferReader(make(step, header)))
    assert [metadata.row_group(at).num_rows for at in range(metadata.num_row_groups)] == [1000, 1000, 1000, 500]


def test_large_ranges_are_read_where_they_lie(step: CommittedStep, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extents, "LARGE_BYTES", 1000)
    header = commit(step, [[{"n": at, "t": "x" * 50} for at in range(200)], [{"n": 200, "t": "y"}]])
    table = pq.read_table(pa.BufferReader(make(step, header)))
    assert table.column("n").to_pylist() == list(range(201))


def test_decimals_that_no_type_holds_are_told_and_leave_nothing_behind(step: CommittedStep) -> None:
    header = commit(step, [[{"d": Decimal("1e33")}], [{"d": Decimal("1e-20")}]])
    with pytest.raises(ColumnUnwritable, match=r"decimals of different mini-batches.*Decimal\.quantize"):
        make(step, header)
    assert list(step.target.parent.iterdir()) == []


@pytest.mark.parametrize("large", [True, False])
def test_a_damaged_range_runs_again_and_nothing_is_left_behind(
    step: CommittedStep, monkeypatch: pytest.MonkeyPatch, large: bool
) -> None:
    if large:
        monkeypatch.setattr(extents, "LARGE_BYTES", 10)
    header = commit(step, [[{"n": 1}], [{"n": 2}], [{"n": 3}]])
    (segment,) = step.store.reader().segments_of(STEP)
    (second,) = [row for page in step.store.reader().ranges_of(STEP) for row in page if row.mini_batch == 1]
    descriptor = os.open(step.segments_folder / segment.name, os.O_WRONLY)
    os.pwrite(descriptor, b"\xff", second.offset + 20)
    os.close(descriptor)
    with pytest.raises(RowsLost) as caught:
        make(step, header)
    assert [row.mini_batch for row in caught.value.lost] == [1]
    assert list(step.target.parent.iterdir()) == []


def test_no_rows_are_an_empty_table(step: CommittedStep) -> None:
    step.plan(1)
    header, _ = rows_of([{"n": 1}])
    assert pq.read_table(pa.BufferReader(make(step, header))).schema.names == ["n"]
    assert pq.read_table(pa.BufferReader(make(step, None))).num_columns == 0
