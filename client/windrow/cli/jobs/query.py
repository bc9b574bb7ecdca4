"""`windrow job query`: SQL over the committed rows of a job."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from windrow.cli import exit_codes
from windrow.cli.messages import RawOutput, say
from windrow.cli.options.declared import Argument, Option, command
from windrow.cli.options.shared import JobOrStep, Master, State, open_client, warn_read_only
from windrow.cli.tables import out, print_table
from windrow.common.quantities import counted
from windrow.sdk.job_names import with_step

if TYPE_CHECKING:
    from windrow.sdk.row_query import Answer

SHOWN_MAX = 1000
"""Rows of an answer that are shown as text."""


class QueryForm(str, Enum):  # noqa: UP042  typer shows the values of a plain str Enum
    """The form of an answer."""

    TEXT = "text"
    CSV = "csv"
    JSON = "json"


@command(epilog='Example: windrow job query last "select count(*) from rows"')
def query(
    job: JobOrStep,
    sql: Annotated[str, Argument(metavar="SQL", help="One statement that reads the rows, as DuckDB takes it.")],
    step: Annotated[
        str | None, Option(metavar="STEP", help="The step of the table rows; the same as JOB:STEP.")
    ] = None,
    master: Master = None,
    state: State = None,
    form: Annotated[QueryForm, Option("--format", help="json: one object a line.")] = QueryForm.TEXT,
) -> int:
    """Query a job's committed rows by SQL, also while it runs.

    rows is the table of the step, and each step that gathers rows has a table of its name. Columns of text without a
    header are column0, column1 and so on; lines has each line as it is.
    """
    from windrow.sdk.row_query import RowQuery, query_rows

    named_job, named = with_step(job, step)
    with open_client(master, state) as client, RowQuery() as database:
        found = client.find(named_job)
        warn_read_only(client)
        open_rows = partial(client.open_rows, found.job_id, as_committed=True)
        answer, progress = query_rows(open_rows, client.document(found.job_id), found.job_id, named, database, sql)
        {QueryForm.TEXT: _as_text, QueryForm.CSV: _as_csv, QueryForm.JSON: _as_json}[form](answer)
        if progress is not None and not progress.complete:
            sys.stdout.flush()
            done = progress.next + progress.behind
            say(f"The job runs: these are the rows of {done:,} of {counted(progress.planned, 'mini-batch')} so far.")
    return exit_codes.DONE


def _rows(answer: Answer) -> Iterator[tuple[Any, ...]]:
    for page in answer.pages:
        yield from page


def _as_text(answer: Answer) -> None:
    shown: list[tuple[Any, ...]] = []
    more = 0
    for row in _rows(answer):
        if len(shown) < SHOWN_MAX:
            shown.append(row)
        else:
            more += 1
    numbers = [
        all(isinstance(row[at], int | float) and not isinstance(row[at], bool) for row in shown) and bool(shown)
        for at in range(len(answer.columns))
    ]
    columns = [f">{name}" if number else name for name, number in zip(answer.columns, numbers, strict=True)]
    print_table(columns, [["-" if cell is None else str(cell) for cell in row] for row in shown])
    if more:
        out(f"… and {counted(more, 'more row')}; --format csv prints all.")


def _as_csv(answer: Answer) -> None:
    writer = csv.writer(_Lines(), lineterminator="\n")
    writer.writerow(answer.columns)
    for row in _rows(answer):
        writer.writerow(["" if cell is None else cell for cell in row])


class _Lines:
    """Takes the lines that `csv` makes."""

    def __init__(self) -> None:
        self._raw = RawOutput()

    def write(self, line: str) -> None:
        """Write a line."""
        self._raw.write_text(line)


def _as_json(answer: Answer) -> None:
    lines = RawOutput()
    for row in _rows(answer):
        row_as_json = json.dumps(dict(zip(answer.columns, row, strict=True)), ensure_ascii=False, default=str)
        lines.write_text(f"{row_as_json}\n")
