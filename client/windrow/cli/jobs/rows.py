"""`windrow job rows`: the committed rows of a job, also while it runs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

from windrow.cli import exit_codes
from windrow.cli.messages import RawOutput, say
from windrow.cli.options.declared import Option, command
from windrow.cli.options.shared import JobOrStep, Master, Output, OutputForm, State, open_client, warn_read_only
from windrow.common.quantities import counted
from windrow.sdk.job_names import with_step

if TYPE_CHECKING:
    from windrow.sdk.committed_rows import CommittedRows, Progress


@command(epilog="Example: windrow job rows last --follow")
def rows(
    job: JobOrStep,
    step: Annotated[
        str | None, Option(metavar="STEP", help="The step, if several gather rows; the same as JOB:STEP.")
    ] = None,
    follow: Annotated[bool, Option("--follow", "-f", help="Go on until the step has ended.")] = False,
    as_committed: Annotated[
        bool,
        Option("--as-committed", help="Also rows behind a mini-batch that is not done; with --follow, as they come."),
    ] = False,
    limit: Annotated[int | None, Option("--limit", "-n", min=1, metavar="N", help="At most N rows.")] = None,
    master: Master = None,
    state: State = None,
    output: Output = OutputForm.TEXT,
) -> int:
    """Print a job's committed rows, also while it runs.

    They come in the order of the output, up to the first mini-batch that is not done. A CSV begins with its header;
    rows of Parquet are JSON objects. With --format json, each row is one: of text, {"row": "..."}.
    """
    job, named = with_step(job, step)
    with open_client(master, state) as client:
        found = client.find(job)
        warn_read_only(client)
        follow = follow and not (client.runs_nothing and not found.state.ended)
        reading = client.open_rows(found.job_id, named, as_committed=as_committed)
        left = _print(reading, limit, follow=follow, as_json=output is OutputForm.JSON)
        if left and reading.progress is not None and (note := _note(reading.progress, as_committed=as_committed)):
            sys.stdout.flush()
            say(note)
    return exit_codes.DONE


def _print(reading: CommittedRows, limit: int | None, *, follow: bool, as_json: bool) -> bool:
    """Print rows as they come; False if there were more than the limit."""
    to_json = _ToJson(reading) if as_json else None
    # Into a file as it is: rows may be in another encoding than the terminal's.
    write = RawOutput().write
    count, above = 0, b""
    for found in reading.follow() if follow else reading.read():
        if reading.header != above and to_json is None:
            if above:
                # Rows that came later have columns that those before lack.
                sys.stdout.flush()
                say(f"The rows have more columns from here on: {reading.header.decode('utf-8', 'replace').strip()}")
            else:
                write(reading.header)
            above = reading.header
        if limit is None and to_json is None and reading.step.format != "parquet":
            write(found.content)
        else:
            for row in reading.rows(found) if to_json is None else to_json.rows(found):
                if limit is not None and count >= limit:
                    sys.stdout.flush()
                    return False
                write(row.encode("utf-8", "surrogateescape") + b"\n")
                count += 1
        if follow:
            sys.stdout.flush()
    sys.stdout.flush()
    return True


def _note(progress: Progress, *, as_committed: bool) -> str:
    """What is not there yet; "" if nothing is missing."""
    if progress.complete:
        return ""
    of = f"{counted(progress.planned, 'mini-batch')} so far"
    if as_committed:
        done = progress.next + progress.behind
        return f"These are the rows of {done:,} of {of}. --follow goes on."
    behind = (
        f" {progress.behind:,} behind it {'is' if progress.behind == 1 else 'are'} done: --as-committed shows all."
        if progress.behind
        else ""
    )
    return f"Mini-batch {progress.next} of {of} is not done.{behind} --follow goes on."


class _ToJson:
    """Makes each row a JSON object."""

    def __init__(self, reading: CommittedRows) -> None:
        self._reading = reading

    def rows(self, found: object) -> list[str]:
        """The rows of a mini-batch."""
        import csv
        import io
        import json

        from windrow.sdk.committed_rows import RowsOf

        assert isinstance(found, RowsOf)
        reading = self._reading
        if reading.step.format in ("jsonl", "parquet"):
            return list(reading.rows(found))
        if reading.step.format == "csv":
            header = next(csv.reader(io.StringIO(reading.header.decode("utf-8", "replace"))), [])
            records = csv.reader(io.StringIO(found.content.decode("utf-8", "replace"), newline=""))
            return [json.dumps(dict(zip(header, record, strict=False)), ensure_ascii=False) for record in records]
        return [
            json.dumps({"row": row.encode("utf-8", "surrogateescape").decode("utf-8", "replace")}, ensure_ascii=False)
            for row in reading.rows(found)
        ]
