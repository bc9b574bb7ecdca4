"""A Parquet file from committed rows: valid, in output order, the same each time, or left as it was."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from output_step import STEP, CommittedStep
from windrow.common.arrow_rows import ArrowRows, read_schema
from windrow_master.core.headers import MIXED, join_headers
from windrow_master.output import extents, parquet_file
from windrow_master.output.concatenation import RowsLost, concatenate
from windrow_master.output.errors import ColumnUnwritable, RowsOtherwise
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


def stream(batch: pa.RecordBatch, compression: str | None = None) -> bytes:
    made = io.BytesIO()
    with pa.ipc.new_stream(made, batch.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as out:
        out.write_batch(batch)
    return made.getvalue()


def numbers(*values: int) -> bytes:
    return b"".join(value.to_bytes(4, "little") for value in values)


def beyond_the_end(place: int) -> bytes:
    """Texts of which one lies where the stream has no bytes."""
    rows = stream(pa.record_batch([pa.array(["abcd", "efgh"])], names=["t"]))
    assert rows.count(numbers(0, 4, 8)) == 1
    return rows.replace(numbers(0, 4, 8), numbers(0, place, 8))


def of_one(value: Any, kind: pa.DataType, name: str = "n") -> bytes:
    return stream(pa.record_batch([pa.array(value, kind)], names=[name]))


FEW, MANY = 1_048_577, 1 << 40


def many_times(column: pa.Array) -> bytes:
    """The column with more values, for which there is no byte."""
    rows = stream(pa.record_batch([column], names=["n"]))
    assert FEW.to_bytes(8, "little") in rows
    return rows.replace(FEW.to_bytes(8, "little"), MANY.to_bytes(8, "little"))


FORGED = {
    "beyond the end of its bytes": (lambda: beyond_the_end(30_000), "out of bounds"),
    "far beyond": (lambda: beyond_the_end(2_000_000_000), "out of bounds"),
    "compressed": (
        lambda: stream(pa.record_batch([pa.array([0] * (1 << 20))], names=["n"]), "zstd"),
        "they are compressed",
    ),
    "a dictionary": (lambda: stream(pa.record_batch([pa.array(["x"] * 9).dictionary_encode()], names=["t"])), "type"),
    "views": (lambda: of_one(["x" * 99], pa.string_view()), "type string_view"),
    "runs": (
        lambda: stream(pa.record_batch([pa.RunEndEncodedArray.from_arrays([1 << 30], [1])], names=["n"])),
        "type run_end_encoded",
    ),
    "nothing, many times": (lambda: many_times(pa.nulls(FEW)), "stand for"),
    "nothing, in lists": (
        lambda: many_times(pa.ListArray.from_arrays(pa.array([0, FEW], pa.int32()), pa.nulls(FEW))),
        "stand for",
    ),
    "no rows at all": (lambda: b"no rows at all", "begin|Arrow|Expected|metadata"),
}


@pytest.mark.parametrize("others", [False, True], ids=["alone", "with-others"])
@pytest.mark.parametrize("large", [False, True], ids=["small", "large"])
@pytest.mark.parametrize("what", FORGED)
def test_rows_that_no_worker_writes_cost_their_step_and_no_master(
    step: CommittedStep, monkeypatch: pytest.MonkeyPatch, what: str, large: bool, others: bool
) -> None:
    """Scripts run in workers, so rows may be anything. Arrow would read them from the memory of the master."""
    if large:
        monkeypatch.setattr(extents, "LARGE_BYTES", 10)
    forge, words = FORGED[what]
    rows = forge()
    header, good = rows_of([{"n": 1, "other": 2}])
    with contextlib.suppress(pa.ArrowInvalid):
        header = pa.ipc.open_stream(rows).schema.serialize().to_pybytes()
    step.plan(2)
    step.commit({0: rows})
    if others:
        step.commit({1: good})
    with pytest.raises(RowsOtherwise, match=f"not what a worker of Windrow writes: .*({words})"):
        make(step, MIXED if others else header)
    assert list(step.target.parent.iterdir()) == []


def test_a_batch_of_few_bytes_does_not_become_many_columns(step: CommittedStep) -> None:
    """In a file of many columns, a batch that has few of them gets the others."""
    few = stream(pa.record_batch([pa.nulls(1 << 20)], names=["c0"]))
    header, many = rows_of([{f"c{number}": number for number in range(1000)}])
    step.plan(2)
    step.commit({0: many})
    step.commit({1: few})
    with pytest.raises(RowsOtherwise, match="stand for"):
        make(step, join_headers("parquet", header, pa.ipc.open_stream(few).schema.serialize().to_pybytes()))


def test_rows_of_every_type_that_workers_write_are_read() -> None:
    rows = [
        {
            "text": "é", "bytes": b"\0", "number": 1, "float": 1.5, "yes": True, "nothing": None, "empty": {},
            "decimal": Decimal("1.25"), "day": date(2026, 1, 2), "moment": datetime(2026, 1, 2, tzinfo=UTC),
            "time": time(1, 2), "span": timedelta(1), "list": [1, None], "deep": [{"a": [{"b": None}]}],
            "lists": [[], [[]]],
        },
        {},
    ]  # fmt: skip
    header, blob = rows_of(rows)
    (batch,) = found = list(ArrowRows(blob))
    assert found and batch.schema == pa.ipc.open_stream(blob).schema == read_schema(header)
    frame = pd.DataFrame({"c": pd.Categorical(["a", "b"]), "s": ["x", None], "t": pd.to_datetime(["2026-01-01"] * 2)})
    for more in (frame, frame.convert_dtypes(dtype_backend="pyarrow")):
        assert sum(batch.num_rows for batch in ArrowRows(rows_of(more)[1])) == 2
