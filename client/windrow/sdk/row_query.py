"""SQL over the committed rows of a job, also while it runs. DuckDB answers it, over a copy of the rows on disk.

`rows` is the table of the step that was chosen, or of the only one that gathers rows; each such step has a table of its
name as well. Rows of text are a table if they were DataFrames; `lines` has each line as it is, in one column `line`.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from windrow.errors import UsageError
from windrow.sdk.committed_rows import CommittedRows, Progress, rows_step, rows_steps

if TYPE_CHECKING:
    pass

MISSING = (
    "Querying rows needs DuckDB, which is not installed here. Install it with: pip install 'windrow[query]' "
    "(or: pip install duckdb)."
)
ROWS = "rows"
LINES = "lines"
PART_BYTES = 64 << 20
"""Rows of Parquet are gathered to about this size before they are written."""


class Answer(NamedTuple):
    """The answer to a query. `pages`: its rows, read as they are needed."""

    columns: list[str]
    pages: Iterator[list[tuple[Any, ...]]]


class RowQuery:
    """A database of the rows that were committed when it was made. Use it as a context manager: it has a folder."""

    def __init__(self) -> None:
        """Raises UsageError without DuckDB."""
        try:
            import duckdb
        except ImportError:
            raise UsageError(MISSING) from None
        self._folder = tempfile.TemporaryDirectory(prefix="windrow-query-")
        # In a file, so that rows that do not fit into memory go to the disk.
        self._database = duckdb.connect(str(Path(self._folder.name, "rows.duckdb")))
        self._files = 0

    def __enter__(self) -> RowQuery:
        return self

    def __exit__(self, *raised: object) -> None:
        self._database.close()
        self._folder.cleanup()

    def add(self, reading: CommittedRows, names: Sequence[str]) -> Progress | None:
        """Copy the rows of a step into a table of these names; return how far they were committed.

        Raises WindrowError; UsageError if the rows are no table.
        """
        writer = {"parquet": self._parquet, "jsonl": self._jsonl}.get(reading.step.format, self._delimited)
        source, empty = writer(reading)
        first, *others = names
        import duckdb

        try:
            self._database.execute(f"CREATE TABLE {_quoted(first)} AS SELECT * FROM {empty or source}")
        except duckdb.Error as error:
            raise UsageError(
                f"The rows of step {reading.step.name} are no table ({_line_of(error)}). Query their lines instead: "
                f"select * from {LINES}."
            ) from error
        for name in others:
            self._database.execute(f"CREATE VIEW {_quoted(name)} AS SELECT * FROM {_quoted(first)}")
        return reading.progress

    def add_lines(self, reading: CommittedRows) -> None:
        """Copy the lines of a step of text, or of CSV, into the table `lines`."""
        path = self._path("lines")
        with path.open("wb") as file:
            for found in reading.read():
                file.write(found.content)
        import duckdb

        try:
            self._database.execute(
                f"CREATE TABLE {LINES} AS SELECT column0 AS line FROM read_csv({_text(path)}, header=false, "
                "delim=chr(1), quote='', escape='', columns={'column0': 'VARCHAR'}, auto_detect=false, "
                "max_line_size=16777216)"
            )
        except duckdb.Error as error:
            raise UsageError(
                f"The rows of step {reading.step.name} are no lines of UTF-8 of at most 16 MB ({_line_of(error)}). "
                "`windrow job rows` prints them as they are."
            ) from error

    def refuse(self, sql: str) -> None:
        """Raises UsageError unless the text is one statement, which only reads."""
        import duckdb

        try:
            statements = self._database.extract_statements(sql)
        except duckdb.Error as error:
            raise _refused(error) from error
        if not statements:
            raise UsageError('The query has no statement. Give one, such as "select * from rows".')
        if len(statements) > 1:
            raise UsageError(f"The query has {len(statements)} statements. Give one at a time.")
        kind, results = statements[0].type, statements[0].expected_result_type
        # PIVOT counts as several statements, which may be of any kind.
        if kind != duckdb.StatementType.MULTI and results != [duckdb.ExpectedResultType.QUERY_RESULT]:
            raise UsageError(
                f"DuckDB cannot answer that: a query only reads the rows, and {kind.name} does not. Give a statement "
                'such as "select * from rows".'
            )

    def ask(self, sql: str, page_rows: int = 1000) -> Answer:
        """The answer to one statement, which may read nothing but these tables. Raises UsageError for what DuckDB
        refuses.
        """
        self._database.execute("SET enable_external_access = false")
        self._database.execute("SET lock_configuration = true")
        import duckdb

        try:
            found = self._database.execute(sql)
        except duckdb.Error as error:
            raise _refused(error) from error
        columns = [column[0] for column in found.description or ()]

        def pages() -> Iterator[list[tuple[Any, ...]]]:
            # Rows are computed as they are fetched, so a value may fail behind those that have been given away.
            try:
                while page := found.fetchmany(page_rows):
                    yield page
            except duckdb.Error as error:
                raise _refused(error) from error

        return Answer(columns, pages())

    def _path(self, suffix: str) -> Path:
        self._files += 1
        return Path(self._folder.name, f"{self._files}.{suffix}")

    def _delimited(self, reading: CommittedRows) -> tuple[str, str]:
        step = reading.step
        paths: dict[bytes, Path] = {}
        with contextlib.ExitStack() as opened:
            files: dict[bytes, BinaryIO] = {}
            for found in reading.read():
                # Rows of CSV that are committed while others are read may have more columns.
                if reading.header not in files:
                    paths[reading.header] = self._path("csv")
                    files[reading.header] = opened.enter_context(paths[reading.header].open("wb"))
                    files[reading.header].write(reading.header)
                files[reading.header].write(found.content)
            empty = not any(file.tell() for file in files.values())
        separator = "," if step.format == "csv" else str(step.to_csv.get("sep", " "))
        source = (
            f"read_csv([{', '.join(map(_text, paths.values()))}], delim={_text(separator)}, "
            f"header={str(step.has_header).lower()}, sample_size=-1, union_by_name={str(len(paths) > 1).lower()})"
        )
        return source, _NOTHING if empty else ""

    def _jsonl(self, reading: CommittedRows) -> tuple[str, str]:
        path = self._path("jsonl")
        with path.open("wb") as file:
            for found in reading.read():
                file.write(found.content)
            size = file.tell()
        source = f"read_json({_text(path)}, format='newline_delimited', sample_size=-1, maximum_object_size=67108864)"
        return source, "" if size else _NOTHING

    def _parquet(self, reading: CommittedRows) -> tuple[str, str]:
        import pyarrow
        import pyarrow.parquet

        from windrow.common.arrow_rows import ArrowRows

        folder = self._path("parts")
        folder.mkdir()
        gathered: list[pyarrow.Table] = []
        size = parts = 0

        def write() -> None:
            nonlocal size, parts
            if gathered:
                table = pyarrow.concat_tables(gathered, promote_options="permissive")
                pyarrow.parquet.write_table(table, folder / f"{parts}.parquet")
                parts += 1
            gathered.clear()
            size = 0

        for found in reading.read():
            rows = ArrowRows(found.content)
            gathered.append(pyarrow.Table.from_batches(rows, rows.schema))
            size += len(found.content)
            if size > PART_BYTES:
                write()
        write()
        source = f"read_parquet({_text(folder / '*.parquet')}, union_by_name=true)"
        return source, "" if parts else _NOTHING


_NOTHING = "(SELECT 1 WHERE false) AS nothing(nothing)"
"""No rows are committed yet, so that their columns are not known."""


def query_rows(
    open_rows: Callable[[str], CommittedRows],
    document: Mapping[str, Any],
    job_id: str,
    named: str | None,
    database: RowQuery,
    sql: str,
) -> tuple[Answer, Progress | None]:
    """The answer to a query over the rows of a job: one statement, which reads. `document`: of the job; `named`: the
    step of the table `rows`, if one is named. Raises WindrowError.
    """
    database.refuse(sql)
    steps = [step.name for step in rows_steps(document)]
    chosen = rows_step(job_id, document, named).name if named is not None or len(steps) < 2 else ""
    progress = None
    lowered = sql.casefold()
    for step in steps:
        names = [step] if step != chosen else [ROWS, *([step] if step.casefold() not in (ROWS, LINES) else [])]
        if step == chosen and LINES in lowered and open_rows(step).step.format in ("text", "csv"):
            reading = open_rows(step)
            database.add_lines(reading)
            progress = reading.progress
            if ROWS not in lowered and step.casefold() not in lowered:
                continue
        if step == chosen or step.casefold() in lowered:
            told = database.add(open_rows(step), names)
            progress = told if step == chosen or progress is None else progress
    return database.ask(sql), progress


def _refused(error: Exception) -> UsageError:
    return UsageError(f"DuckDB cannot answer that: {str(error).strip()}")


def _quoted(name: str) -> str:
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def _text(value: str | Path) -> str:
    escaped = str(value).replace("'", "''")
    return f"'{escaped}'"


def _line_of(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
