"""Cutting between records, against the rule written down as plainly as possible."""

from __future__ import annotations

import os
import weakref
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from windrow_master.planning.errors import PlanningError
from windrow_master.planning.tables import delimited_files
from windrow_master.planning.tables import window as window_module
from windrow_master.planning.tables.cutting import Cutter, LineCutter, QuotedCutter, slices
from windrow_master.planning.tables.delimited_files import Format, read_head, sample_records
from windrow_master.planning.tables.files import TableFile
from windrow_master.planning.tables.window import BLOCK, Window
from windrow_worker.tables.delimited_text import Text, records
from windrow_worker.tables.encodings import ENCODINGS


def window(folder: Path, data: bytes) -> Window:
    """A file that holds `data`; it is open for as long as the window is in use."""
    path = folder / "cut.csv"
    path.write_bytes(data)
    descriptor = os.open(path, os.O_RDONLY)
    # Looked up at each call: a test counts them.
    window = Window(lambda length, start: os.pread(descriptor, length, start), len(data))
    weakref.finalize(window, os.close, descriptor)
    return window


def line_starts(data: bytes, newline: bytes) -> list[int]:
    """Offsets of all lines that are not of length zero, the slow way."""
    unit = len(newline)
    starts = [0] + [at + unit for at in range(0, len(data), unit) if data[at : at + unit] == newline]
    return [at for at in starts if at < len(data) and data[at : at + unit] != newline]


def by_rule(starts: list[int], size: int, slice_bytes: int) -> list[tuple[int, int]]:
    """Slices by the vendor's formula."""
    groups: dict[int, list[int]] = {}
    for start in starts:
        groups.setdefault(0 if start == 0 else -(-start // slice_bytes) - 1, []).append(start)
    firsts = [group[0] for _, group in sorted(groups.items())]
    return list(zip(firsts, [*firsts, size][1 : len(firsts) + 1], strict=True))


def quoted_records(data: bytes, delimiter: bytes) -> list[tuple[int, int]]:
    """Where all records begin and end, line ends in quotes included: byte by byte, the slow way."""
    found, start, state = [], 0, "field"
    for at, byte in enumerate(data):
        if state == "quoted":
            state = "closing" if byte == ord('"') else "quoted"
        elif byte == ord('"') and state in ("field", "closing"):
            state = "quoted"
        elif byte == ord("\n"):
            found.append((start, at + 1))
            start, state = at + 1, "field"
        else:
            state = "field" if byte == ord(delimiter) else "text"
    rest = [(start, len(data))] if start < len(data) else []
    return [(begin, end) for begin, end in found if data[begin:end] not in (b"\n", b"\r\n")] + rest


def cut(cutter: Cutter, size: int, slice_bytes: int) -> list[tuple[int, int]]:
    """All slices, and the same when cutting is taken up again behind any of them."""
    found = list(slices(cutter, cutter.first_record(0), size, slice_bytes))
    for at, (begin, _, _) in enumerate(found):
        assert list(slices(cutter, begin, size, slice_bytes)) == found[at:]
    return [(begin, end) for begin, end, _ in found]


@settings(max_examples=200, deadline=None)
@given(
    lines=st.lists(st.text("ab", max_size=9), max_size=12),
    end=st.booleans(),
    slice_bytes=st.integers(1, 30),
    encoding=st.sampled_from(["utf-8", "utf-16-le", "utf-32-le"]),
)
@example(lines=["\u0a00", "a\u000a"], end=True, slice_bytes=3, encoding="utf-16-le")
def test_lines_by_the_rule(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], end: bool, slice_bytes: int, encoding: str
) -> None:
    data = ("\n".join(lines) + "\n" * end).encode(encoding)
    how = ENCODINGS[encoding]
    cutter = LineCutter(window(tmp_path_factory.getbasetemp(), data), how)
    assert cut(cutter, len(data), slice_bytes) == by_rule(line_starts(data, how.newline), len(data), slice_bytes)


_PIECES = st.sampled_from(
    ['"', '""', '"""', '\n"', '"\n', "D", 'D"', '"D', "\n", "\r\n", "\n\n", "\r", "a", ".", "a b"]
)


@settings(max_examples=1000, deadline=None)
@given(
    pieces=st.lists(_PIECES, max_size=40),
    delimiter=st.sampled_from([",", "\t", "]", "^", "\\", "-", ".", "a"]),
    slice_bytes=st.integers(1, 60),
    block=st.sampled_from([1, 2, 5, 16, BLOCK]),
)
@example(pieces=['""', "\n", "a"], delimiter=",", slice_bytes=1, block=BLOCK)
@example(pieces=['"', '""', '"', "\n", '"', "\n"], delimiter=",", slice_bytes=2, block=2)
@example(pieces=['a"D"', "\n", '"', "\n"], delimiter=",", slice_bytes=3, block=BLOCK)
def test_quoted_records_byte_by_byte(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[str], delimiter: str, slice_bytes: int, block: int
) -> None:
    data = "".join(pieces).replace("D", delimiter).encode()
    expected = quoted_records(data, delimiter.encode())
    starts = [begin for begin, _ in expected]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(window_module, "BLOCK", block)
        patched.setattr(window_module, "BLOCK_MAX", max(block, 16))
        cutter = QuotedCutter(window(tmp_path_factory.getbasetemp(), data), delimiter.encode())
        assert cutter.first_record(0) == (starts[0] if starts else None)
        assert [cutter.record_end(begin) for begin in starts] == [end for _, end in expected]
        assert cut(cutter, len(data), slice_bytes) == by_rule(starts, len(data), slice_bytes)
        counted = list(slices(cutter, cutter.first_record(0), len(data), slice_bytes))
        assert [count for _, _, count in counted] == [
            sum(begin <= start < end for start in starts) for begin, end, _ in counted
        ]
        # A part of the file that ends before a record, as a partition does.
        for stop in starts[1:]:
            part = list(slices(cutter, starts[0], stop, slice_bytes))
            assert [(begin, end) for begin, end, _ in part] == by_rule(
                [start for start in starts if start < stop], stop, slice_bytes
            )
            assert sum(count for _, _, count in part) == starts.index(stop)
    # The reader has the same records.
    text = Text(delimiter, multi_line=True)
    assert len(list(records(data.decode(), text))) == len(starts)


def test_line_ends_inside_quotes_in_a_large_file(tmp_path: Path) -> None:
    # CPython 3.11.2 and others match nested possessive quantifiers wrongly, but only in long runs of records.
    lines = [
        b'%d,"%d Main Street\nSuite ""%d""\nTown, %d",%d\n' % (number, number, number, number, number % 7)
        for number in range(20_000)
    ]
    data = b"".join(lines)
    starts = [0]
    for line in lines[:-1]:
        starts.append(starts[-1] + len(line))
    cutter = QuotedCutter(window(tmp_path, data), b",")
    for slice_bytes in (1000, 100_000):
        found = list(slices(cutter, 0, len(data), slice_bytes))
        assert [(begin, end) for begin, end, _ in found] == by_rule(starts, len(data), slice_bytes)
        assert sum(count for _, _, count in found) == len(lines)


def test_a_quote_that_nothing_closes_holds_the_rest(tmp_path: Path) -> None:
    data = b"a,b\n" + b'1,"open\n' + b"x\n" * BLOCK
    cutter = QuotedCutter(window(tmp_path, data), b",")
    assert list(slices(cutter, 0, len(data), 3)) == [(0, 4, 1), (4, len(data), 1)]


_FIELDS = st.sampled_from(["a", "", '"q"', '"x,\ny"', '"\n"', '""', '"a""b\r\n"', '"t"x', 'l"m', "'"])


@settings(max_examples=200, deadline=None)
@given(
    rows=st.lists(st.lists(_FIELDS, min_size=1, max_size=3), max_size=8),
    newline=st.sampled_from(["\n", "\r\n"]),
    tail=st.sampled_from(["", "z", 'z,"open\nto the end\n', "\n\n"]),
    slice_bytes=st.integers(1, 40),
)
def test_records_with_line_ends_in_quotes(
    tmp_path_factory: pytest.TempPathFactory, rows: list[list[str]], newline: str, tail: str, slice_bytes: int
) -> None:
    text = Text(multi_line=True)
    lines = [",".join(row) + newline for row in rows] + [tail]
    data = "".join(lines).encode()
    starts = [
        sum(len(line) for line in lines[:at])
        for at in range(len(lines))
        if lines[at] and lines[at] not in ("\n", "\r\n", "\n\n")
    ]
    cutter = QuotedCutter(window(tmp_path_factory.getbasetemp(), data), b",")
    found = cut(cutter, len(data), slice_bytes)
    assert found == by_rule(starts, len(data), slice_bytes)
    # The reader sees the same records in the slices as in the whole.
    parts = [record for begin, end in found for record in records(data[begin:end].decode(), text)]
    assert parts == list(records(data.decode(), text))


@pytest.mark.parametrize("quoted", [False, True])
def test_a_record_longer_than_many_slices_and_blocks(tmp_path: Path, quoted: bool) -> None:
    long = b'"' + b"x\n" * BLOCK * 3 + b'"' if quoted else b"x" * BLOCK * 6
    data = b"a\n" + long + b"\nb\n"
    look = window(tmp_path, data)
    cutter = QuotedCutter(look, b",") if quoted else LineCutter(look, ENCODINGS["utf-8"])
    assert cut(cutter, len(data), 100) == [(0, len(data) - 2), (len(data) - 2, len(data))]


def test_small_slices_of_a_file_of_many_blocks(tmp_path: Path) -> None:
    data = b"".join(b"%d,%s\n" % (at, b"y" * (at % 90)) for at in range(3000))
    starts = line_starts(data, b"\n")
    for cutter in (LineCutter(window(tmp_path, data), ENCODINGS["utf-8"]), QuotedCutter(window(tmp_path, data), b",")):
        for slice_bytes in (7, 64, 5000, 10**9):
            found = list(slices(cutter, 0, len(data), slice_bytes))
            assert [(begin, end) for begin, end, _ in found] == by_rule(starts, len(data), slice_bytes)


def test_a_file_with_quotes_in_every_record_is_read_about_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = b'1,"two ""words""\n, and a line",3\n'
    read = 0
    pread = os.pread

    def counted(descriptor: int, length: int, offset: int) -> bytes:
        nonlocal read
        part = pread(descriptor, length, offset)
        read += len(part)
        return part

    data = record * 60_000
    look = window(tmp_path, data)
    monkeypatch.setattr(os, "pread", counted)
    cutter = QuotedCutter(look, b",")
    found = list(slices(cutter, cutter.first_record(0), len(data), 100_000))
    assert len(found) == -(-len(data) // 100_000)
    assert all(begin % len(record) == 0 for begin, _, _ in found)
    # Each cut, and each end of a block, costs a look at a record of its own.
    assert read < 4 * len(data)


@pytest.mark.parametrize("multi_line", [False, True])
def test_a_sample_ends_between_records(tmp_path: Path, multi_line: bool) -> None:
    data = b"".join(b'%d,"v%s%d"\n' % (at, b"\n" * multi_line, at) for at in range(20_000))
    how = Format(ENCODINGS["utf-8"], Text(multi_line=multi_line))
    file = TableFile(b"cut.csv", len(data), 0)
    look = window(tmp_path, data)
    for wanted in (1, 200, 15_000, 30_000):
        found = sample_records(look, file, how, 0, wanted)
        assert found == list(records(data.decode(), how.text))[:wanted]


def test_a_sample_of_long_records_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delimited_files, "RECORD_BYTES_MAX", 1 << 20)
    data = (b"x" * 100_000 + b"\n") * 100
    how, file = Format(ENCODINGS["utf-8"], Text()), TableFile(b"cut.csv", len(data), 0)
    found = sample_records(window(tmp_path, data), file, how, 0, 90)
    assert 5 <= len(found) < 90
    with pytest.raises(PlanningError, match=r"The first record of .* is longer than 1 MiB"):
        sample_records(window(tmp_path, b"x" * 5_000_000), file, how, 0, 90)


def test_head_without_mark_with_header_and_blank_lines(tmp_path: Path) -> None:
    data = b'\xef\xbb\xbf\n a ,"b",\n\nx,y\n'
    how = Format(ENCODINGS["utf-8"], Text())
    head = read_head(window(tmp_path, data), TableFile(b"cut.csv", len(data), 0), how, header=True)
    assert head.names == ["a", "b", "Column3"] and head.first_record == data.index(b"x")
