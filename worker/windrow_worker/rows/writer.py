"""From what `run()` returned to the bytes that go into the output
(docs/reference/azure-ml/parallel-job.md#return-values, #rows, #dataframe-settings).

Rows are made and counted piece by piece, so that a result of 1 GB is never copied whole in memory. Small results stay
in memory and go into their frame; results above `inline_rows_bytes_max` go to a file in the scratch folder.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, MappingView, Set
from fcntl import F_DUPFD_CLOEXEC, fcntl
from itertools import islice
from zlib import crc32

from windrow_worker import failures
from windrow_worker.rows.return_values import BadReturn, encode_text, is_dataframe, whole_arrays

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Tuple

    from windrow_worker.rows.dataframe import DataFrameWriter
    from windrow_worker.rows.formats import FormatWriter

TEXT_MAX = 300
"""Of a returned text, which may be the message of an exception, so many characters are told."""
_ELEMENTS = 1024
_PIECE_CHARACTERS = 1 << 20

_NO_SEQUENCES = (str, bytes, bytearray, memoryview, Mapping)

_UNLISTED = (Iterator, Set, MappingView)

_open, _write, _close, _unlink, _fchmod = os.open, os.write, os.close, os.unlink, os.fchmod


class ScratchFailed(Exception):
    """The rows could not be written to the scratch folder: this node's fault."""


class Rows:
    """The serialised rows of one attempt: in `inline`, or in the file at `path` (`inline` is then empty).

    Not the effective job's `Rows`, which is a setting.

    `length`: bytes. `count`: rows of a DataFrame or a format, or else lines. `crc32`: of the rows. `header`: the header
    line of a DataFrame, or whatever else must be the same for all mini-batches.
    """

    __slots__ = ("count", "crc32", "header", "inline", "length", "path")

    def __init__(self, inline: bytes, path: bytes, length: int, count: int, crc: int, header: bytes) -> None:
        self.inline = inline
        self.path = path
        self.length = length
        self.count = count
        self.crc32 = crc
        self.header = header


NO_ROWS = Rows(b"", b"", 0, 0, 0, b"")


class RowSink:
    """Takes pieces of rows, in order. A piece is bytes, and need not end with a line."""

    __slots__ = ("_count", "_crc", "_disk_failed", "_fd", "_length", "_most", "_path", "_pieces")

    def __init__(self, path: bytes, inline_bytes_max: int) -> None:
        """`path`: the file that is made once there are more than `inline_bytes_max` bytes."""
        self._path = path
        self._most = inline_bytes_max
        self._pieces: List[Any] = []
        self._length = 0
        self._count = 0
        self._crc = 0
        self._disk_failed = False
        self._fd = -1

    def write(self, piece: Any) -> None:
        """Adds a piece: bytes, or a buffer that does not change. Raises ScratchFailed."""
        self._length += len(piece)
        self._crc = crc32(piece, self._crc)
        if type(piece) is bytes:
            self._count += piece.count(b"\n")
        else:
            self._count += bytes(piece).count(b"\n")
        if self._fd < 0:
            self._pieces.append(piece)
            if self._length <= self._most:
                return
            self._begin_file()
            pieces, self._pieces = self._pieces, []
            for earlier in pieces:
                self._append(earlier)
        else:
            self._append(piece)

    def _begin_file(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            try:
                self._fd = _open(self._path, flags, 0o600)
            except FileNotFoundError:
                # The script has removed the folder. Another try would not find it either.
                os.makedirs(os.path.dirname(self._path), exist_ok=True)
                self._fd = _open(self._path, flags, 0o600)
            # Independent of the script's umask, so that the agent can read it.
            _fchmod(self._fd, 0o600)
            if self._fd <= 2:
                # The script has closed a standard stream: what it still prints must not get into the rows.
                low, self._fd = self._fd, fcntl(self._fd, F_DUPFD_CLOEXEC, 3)
                _close(low)
        except OSError as error:
            raise self._failure(error) from error

    def _append(self, piece: Any) -> None:
        rest = memoryview(piece)
        try:
            while rest:
                rest = rest[_write(self._fd, rest) :]
        except OSError as error:
            raise self._failure(error) from error

    def _failure(self, error: OSError) -> ScratchFailed:
        self._disk_failed = True
        return ScratchFailed(
            f"Rows of at least {self._length} bytes could not be written to {os.fsdecode(self._path)} on this node: "
            f"{error}. "
            "Free space in the agent's folder, or let it use another disk"
        )

    def finish(self, header: bytes, count: Optional[int] = None) -> Rows:
        """The complete rows. `count`: their number, if that is not the number of lines. Raises ScratchFailed."""
        if count is not None:
            self._count = count
        if self._fd < 0:
            pieces = self._pieces
            inline = pieces[0] if len(pieces) == 1 and type(pieces[0]) is bytes else b"".join(pieces)
            return Rows(inline, b"", self._length, self._count, self._crc, header)
        fd, self._fd = self._fd, -1
        try:
            _close(fd)  # Some file systems report a full disk only here.
        except OSError as error:
            raise self._failure(error) from error
        return Rows(b"", self._path, self._length, self._count, self._crc, header)

    def discard(self) -> None:
        """Removes what has been written, unless the disk has failed: without it, a disk that is full would look well.
        The agent removes it once it has looked. Never raises.
        """
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            try:
                _close(fd)
            except OSError:
                pass
        if self._length > self._most and not self._disk_failed:
            try:
                _unlink(self._path)
            except OSError:
                pass
        self._pieces = []


class PieceRows:
    """The rows of a mini-batch that is run piece by piece: together they are what one `run()` would have given."""

    def __init__(
        self,
        write: Callable[[Any, Callable[[Any], None]], Tuple[bytes, Optional[int]]],
        sink: RowSink,
        keeps_rows: bool,
        row_format: Optional[FormatWriter],
    ) -> None:
        """`write` serialises a value, as `RowWriter` does. `row_format`: what joins the pieces; None for text."""
        self._write = write
        self._sink = sink
        self._keeps_rows = keeps_rows
        self._format = row_format
        self._header = b""
        self._count = 0
        self._parts: List[bytes] = []

    def add(self, value: Any) -> None:
        """Adds what a `run()` returned, or nothing of it. Raises as `RowWriter.write`."""
        if not self._keeps_rows:
            return
        made: List[Any] = []
        header, count = self._write(value, made.append)
        if self._format is not None:
            # The columns of a mini-batch depend on all its rows.
            self._count += count or 0
            if made:
                self._parts.append(made[0] if len(made) == 1 else b"".join(made))
            return
        if header and self._header and header != self._header:
            raise BadReturn(
                "What run() returned for a part of the mini-batch has other columns than what it returned for the "
                "parts before. Return the same columns in the same order"
            )
        self._header = header or self._header
        self._count += count if count is not None else sum(bytes(piece).count(b"\n") for piece in made)
        for piece in made:
            self._sink.write(piece)

    def finish(self) -> Rows:
        """The complete rows. Raises as `RowWriter.write`."""
        if not self._keeps_rows:
            return NO_ROWS
        if self._format is not None and self._parts:
            self._header = self._format.join(self._parts, self._sink.write)
        return self._sink.finish(self._header, self._count)

    def discard(self) -> None:
        """Removes what has been written. Never raises."""
        self._sink.discard()


class RowWriter:
    """Turns returned values into rows, as the step's `rows` document says."""

    def __init__(self, settings: Dict[str, Any], scratch_folder: str, inline_bytes_max: int) -> None:
        """Raises ValueError for settings of `DataFrame.to_csv` that cannot be used here, MissingLibrary where the
        format of the rows needs one.
        """
        self._keeps_rows = settings.get("action", "append_row") != "summary_only"
        self._folder = os.fsencode(scratch_folder)
        self._most = inline_bytes_max
        self._settings = dict(settings.get("dataframe_to_csv") or {})
        self._header = bool(settings.get("dataframe_header"))
        self._returns = settings.get("returns", "per_item")
        self._frames: Optional[DataFrameWriter] = None
        self._format: Optional[FormatWriter] = None
        row_format = settings.get("format", "text")
        if row_format != "text" and self._keeps_rows:
            from windrow_worker.rows.formats import make_format_writer

            self._format = make_format_writer(row_format, self._settings)
        if self._settings:
            from windrow_worker.rows import dataframe

            dataframe.check_settings(self._settings)

    def count(self, value: Any) -> int:
        """The number of results in a returned value. Raises BadReturn if the value is not a list, DataFrame or
        sequence.
        """
        kind = type(value)
        if kind is list or kind is tuple:
            return len(value)
        if is_dataframe(value):
            return len(value)
        if any(hasattr(kind, name) for name in ("to_pandas", "iterrows")) and any(
            hasattr(kind, name) for name in ("columns", "column_names")
        ):
            raise BadReturn(_wrong_type(value, "Call its to_pandas() and return that"))
        if isinstance(value, _NO_SEQUENCES) or not (
            hasattr(kind, "__len__") and hasattr(kind, "__getitem__") and hasattr(kind, "__iter__")
        ):
            raise BadReturn(
                _wrong_type(value, "Return a list of its elements: list(...)" if isinstance(value, _UNLISTED) else "")
            )
        try:
            return len(value)
        except TypeError as error:
            raise BadReturn(_wrong_type(value)) from error

    def write(self, value: Any, lease_id: int) -> Rows:
        """Serialises a value that `count` has accepted.

        Raises BadReturn, ScratchFailed, or what the value's own code raises.
        """
        if not self._keeps_rows:
            return NO_ROWS
        sink = self._sink(lease_id)
        try:
            header, count = self._write(value, sink.write)
            return sink.finish(header, count)
        except BaseException:
            sink.discard()
            raise

    def _sink(self, lease_id: int) -> RowSink:
        return RowSink(os.path.join(self._folder, b"rows-%d" % lease_id), self._most)

    def _write(self, value: Any, write: Callable[[Any], None]) -> Tuple[bytes, Optional[int]]:
        """Writes the rows of a value; returns their header, and their number if that is not the number of lines."""
        with whole_arrays():
            return self._write_value(value, write)

    def _write_value(self, value: Any, write: Callable[[Any], None]) -> Tuple[bytes, Optional[int]]:
        if self._format is not None:
            written = self._format.write(value, write)
            return self._checked(written.header), written.rows
        if type(value) is not list and is_dataframe(value):
            if self._frames is None:
                from windrow_worker.rows.dataframe import DataFrameWriter

                self._frames = DataFrameWriter(self._settings, self._header)
            header = self._checked(self._frames.header_of(value))
            self._frames.write(value, write)
            return header, len(value)
        write_elements(value, write)
        return b"", None

    def results_of(self, value: Any, items: int) -> int:
        """For how many of `items` a returned value stands, by the contract of the step (`--returns`); it may be more.
        Raises as `count`.
        """
        count = self.count(value)
        if count >= items or self._returns == "per_item":
            return count
        return items if count or self._returns == "any" else 0

    def gather(self, lease_id: int) -> PieceRows:
        """Gathers the rows of a mini-batch that is run piece by piece."""
        return PieceRows(self._write, self._sink(lease_id), self._keeps_rows, self._format)

    def _checked(self, header: bytes) -> bytes:
        if len(header) > self._most:
            raise BadReturn(
                f"The header of the rows that run() returned is {len(header)} bytes long; the limit is {self._most}. "
                "Return fewer columns"
                + ("" if self._format is not None else ", or set --append_row_dataframe_header False")
            )
        return header


def _wrong_type(value: Any, advice: str = "") -> str:
    # The first and third sentence are worded like the vendor's, so that people find what was written about them.
    advice = advice or (
        "Return one element for each processed item, for example a list of strings; an empty list if there is none"
    )
    # Scripts that return str(error) hide their error here.
    text = f" ({_beginning(value)})" if isinstance(value, str) else ""
    kind = type(value).__name__
    return (
        "The run() method in the entry script should return a list or a pandas DataFrame. The length of the result is "
        f"taken as the number of items that succeeded. The actual type of output is {kind}{text}. {advice}"
    )


def _beginning(text: str) -> str:
    return repr(text if len(text) <= TEXT_MAX else text[: TEXT_MAX - 1] + "…")


def write_elements(values: Any, write: Callable[[bytes], None]) -> None:
    """Writes `str()` of each element as a line. Raises BadReturn, or what the elements' own code raises."""
    start = 0
    if type(values) is list and len(values) <= _ELEMENTS:
        _write_block(list(values), 0, write)
        return
    elements: Iterator[Any] = iter(values)
    while True:
        block = list(islice(elements, _ELEMENTS))
        if not block:
            return
        _write_block(block, start, write)
        start += _ELEMENTS


def _write_block(block: List[Any], start: int, write: Callable[[bytes], None]) -> None:
    """Writes some elements; `start` is the index of the first. Changes `block`."""
    if not block:
        return
    if set(map(type, block)) == _ONLY_TEXT and sum(map(len, block)) <= 4 * _PIECE_CHARACTERS:
        block.append("")
        try:
            write("\n".join(block).encode("utf-8", "surrogateescape"))
            return
        except UnicodeEncodeError:
            block.pop()
    texts: List[str] = []
    size = 0
    for index, element in enumerate(block, start):
        text = element if type(element) is str else _text_of(element, index)
        length = len(text)
        if length > _PIECE_CHARACTERS:
            if texts:
                write(_encode_lines(texts, index))
                texts, size = [], 0
            for at in range(0, length, _PIECE_CHARACTERS):
                write(encode_text(text[at : at + _PIECE_CHARACTERS], index))
            write(b"\n")
            continue
        texts.append(text)
        size += length
        if size > _PIECE_CHARACTERS:
            write(_encode_lines(texts, index + 1))
            texts, size = [], 0
    if texts:
        write(_encode_lines(texts, start + len(block)))


_ONLY_TEXT = {str}


def _text_of(element: Any, index: int) -> str:
    try:
        return str(element)
    except Exception as error:
        raise BadReturn(
            f"str() of element {index} of what run() returned, of type {type(element).__name__}, raised "
            f"{failures.describe(error)}. Return strings, or objects that can be written as text"
        ) from error


def _encode_lines(texts: List[str], end: int) -> bytes:
    """Writes lines; `end` is the index after the last one."""
    try:
        return ("\n".join(texts) + "\n").encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        for index, text in enumerate(texts, end - len(texts)):
            encode_text(text, index)
        raise
