"""`windrow usage`: what worker time was spent on."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from datetime import UTC, date, datetime
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from windrow.cli import exit_codes
from windrow.cli.messages import RawOutput
from windrow.cli.options.declared import Option, command
from windrow.cli.options.shared import Master, State, open_client
from windrow.cli.tables import out, print_json, print_table
from windrow.common.spreadsheet_cells import as_texts
from windrow.errors import UsageError

if TYPE_CHECKING:
    from windrow.sdk.usage import Usage

HOURS_FROM_S = 2 * 3600.0
"""If the most is at least this, text shows hours."""


class UsageForm(str, Enum):  # noqa: UP042  typer shows the values of a plain str Enum
    """The form of the usage."""

    TEXT = "text"
    CSV = "csv"
    JSON = "json"


@command(epilog="Example: windrow usage --by project,day --since 7d --format csv > usage.csv")
def usage(
    by: Annotated[
        list[str] | None,
        Option(
            "--by",
            metavar="KEY,…",
            help="What each line is for: project, user, job, pool or day (UTC). Repeatable. [default: project]",
        ),
    ] = None,
    since: Annotated[
        str,
        Option(metavar="TIME", help="The first day: that of 12h, 7d or 4w ago, or a date such as 2026-05-01."),
    ] = "7d",
    until: Annotated[
        str | None, Option(metavar="TIME", help="The last day, written like the first one [default: today].")
    ] = None,
    project: Annotated[str, Option(metavar="PROJECT", help="Only of this project.")] = "",
    prices: Annotated[
        Path | None,
        Option(
            metavar="FILE",
            help="A file (YAML) with what an hour of one worker costs, by pool; default is for all other nodes. It "
            "adds a column with the money.",
        ),
    ] = None,
    master: Master = None,
    state: State = None,
    form: Annotated[
        UsageForm, Option("--format", help="json: one JSON document on standard output. csv: seconds, as a table.")
    ] = UsageForm.TEXT,
) -> int:
    """Show what worker time was spent on, and by whom.

    useful: attempts that succeeded. retried: attempts that failed. lost: attempts that ended with their node.
    preempted: attempts that were taken back. cancelled: attempts of jobs that were ended. init: the start of workers,
    with the script's imports. idle: whatever else workers lived. An attempt counts on the day on which it ends. What
    deleted jobs have used stays.
    """
    from windrow.sdk.usage import KEYS, priced

    keys = _keys(by or ["project"], KEYS)
    first, last = _day("--since", since), datetime.now(UTC).date() if until is None else _day("--until", until)
    read = None
    if prices is not None:
        from windrow.spec.price_file import load_price_file

        read = load_price_file(prices)
    with open_client(master, state) as client:
        asked = keys if read is None else [*keys, "pool"]
        found = client.queues.usage(asked, since=first, until=last, project=project)
    lines: list[tuple[Usage, float | None]] = [(one, None) for one in found]
    if read is not None:
        lines = [*priced(found, keys, read.by_pool, read.default)]
    {UsageForm.TEXT: _as_text, UsageForm.CSV: _as_csv, UsageForm.JSON: _as_json}[form](keys, lines, first, last)
    return exit_codes.DONE


def _as_text(keys: Sequence[str], lines: Sequence[tuple[Usage, float | None]], first: date, last: date) -> None:
    if not lines:
        out(f"No worker time was spent from {first} to {last} (UTC).")
        return
    unit_s, unit = (3600.0, "hours") if max(one.total_s for one, _ in lines) >= HOURS_FROM_S else (1.0, "seconds")
    columns = [*(key.upper() for key in keys), *(f">{kind.upper()}" for kind in lines[0][0].seconds())]
    cells = [
        [*map(_shown, one.keys(keys)), *(f"{seconds / unit_s:,.1f}" for seconds in one.seconds().values())]
        for one, _ in lines
    ]
    if lines[0][1] is not None:
        columns.append(">COST")
        cells = [[*row, f"{cost:,.2f}"] for row, (_, cost) in zip(cells, lines, strict=True)]
    print_table(columns, cells, folds=False)
    out(f"In worker-{unit}, from {first} to {last} (UTC).")


def _as_csv(keys: Sequence[str], lines: Sequence[tuple[Usage, float | None]], first: date, last: date) -> None:
    class Lines:
        raw = RawOutput()

        def write(self, line: str) -> None:
            self.raw.write_text(line)

    from windrow.sdk.usage import KINDS

    costs = any(cost is not None for _, cost in lines)
    writer = csv.writer(Lines(), lineterminator="\n")
    writer.writerow([*keys, *(f"{kind}_s" for kind in (*KINDS, "total")), *["cost"] * costs])
    for one, cost in lines:
        seconds = (f"{value:.3f}" for value in one.seconds().values())
        writer.writerow([*as_texts(one.keys(keys)), *seconds, *([f"{cost:.4f}"] if costs else [])])


def _as_json(keys: Sequence[str], lines: Sequence[tuple[Usage, float | None]], first: date, last: date) -> None:
    told: list[dict[str, Any]] = [
        one.to_dict() | ({} if cost is None else {"cost": round(cost, 6)}) for one, cost in lines
    ]
    print_json({"first_day": first.isoformat(), "last_day": last.isoformat(), "usage": told})


def _shown(value: object) -> str:
    """A key in a table; one without a name shows as a line."""
    return "-" if value == "" else str(value)


def _keys(given: Sequence[str], known: Sequence[str]) -> list[str]:
    """The keys of `--by`. Raises UsageError."""
    keys = [key.strip().lower() for text in given for key in text.split(",")]
    unknown = next((key for key in keys if key not in known), None)
    if unknown is not None:
        raise UsageError(f"--by: usage is not added up by {unknown!r}. Choose from: {', '.join(known)}.")
    return list(dict.fromkeys(keys))


def _day(option: str, text: str) -> date:
    """The day (UTC) that an option means. Raises UsageError."""
    from windrow.common.quantities import moment_in, seconds_in

    try:
        if seconds_in(text) is None and len(text.strip()) <= len("2026-05-01"):
            return date.fromisoformat(text.strip())  # a day, not the moment at which it begins here
        return moment_in(text, from_now=-1).astimezone(UTC).date()
    except (ValueError, OverflowError) as error:
        raise UsageError(
            f"{option} {text} is not a time. Write how long ago (12h, 7d, 4w), or a date (2026-05-01)."
        ) from error
