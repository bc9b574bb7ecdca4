"""Lists for people: a rich table on a terminal, plain columns elsewhere (never cut off) and where colours are not
wanted.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from windrow.cli.messages import at_words, is_colourful, is_terminal, printable, visible

COLOURS = {
    "completed": "green",
    "completed_with_failures": "red",
    "failed": "red",
    "running": "cyan",
    "cancelled": "yellow",
    "ready": "green",
    "ready,cordoned": "yellow",
    "lost": "red",
    "quarantined": "red",
    "paused": "red",
}

FOLDED_WIDTH = 20
"""The first and the last column may be folded to this width; the others are never folded."""


def shortened(text: str, most: int) -> str:
    """A text of at most so many characters, cut in its middle: names often differ at their ends."""
    if len(text) <= most:
        return text
    keep = (most - 1) // 2
    return f"{text[: most - 1 - keep]}…{text[-keep:]}" if keep else text[:most]


def width_of(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    """How wide `print_table` makes a table that it does not fold."""
    names = [column.lstrip(">") for column in columns]
    return sum(max(len(row[index]) for row in (names, *rows)) + 2 for index in range(len(names))) - 2


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, folds: bool = True) -> None:
    """Print a table. A column whose name begins with `>` is aligned to the right.

    An empty last column is left out. On a terminal that is too narrow, each row becomes a list of fields,
    and the first and last column may be folded before, unless `folds` is False.
    """
    if rows and not any(row[-1] for row in rows):
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    # A cell is one line: what it says cannot look like another row.
    rows = [[cell.replace("\n", " ") for cell in row] for row in rows]
    names = [column.lstrip(">") for column in columns]
    right = [column.startswith(">") for column in columns]
    natural = [max(len(row[index]) for row in (names, *rows)) for index in range(len(names))]
    for index in (0, -1) if folds and is_colourful(sys.stdout) else ():
        natural[index] = min(natural[index], FOLDED_WIDTH)
    too_wide = sum(natural) + 2 * (len(natural) - 1) > shutil.get_terminal_size().columns
    if too_wide and is_terminal(sys.stdout):
        for index, row in enumerate(rows):
            if index:
                out("")
            print_fields([(name, cell) for name, cell in zip(names, row, strict=True) if cell])
        return
    if is_colourful(sys.stdout):
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        console = Console()
        table = Table(box=None, pad_edge=False, header_style="bold")
        for index, (name, is_right) in enumerate(zip(names, right[: len(names)], strict=True)):
            may_fold = folds and index in (0, len(names) - 1)
            table.add_column(name, justify="right" if is_right else "left", overflow="fold", no_wrap=not may_fold)
        for row in rows:
            table.add_row(*(Text(visible(cell), style=COLOURS.get(cell, "")) for cell in row))
        console.print(table)
        return
    cells = [names, *rows]
    widths = [max(len(row[index]) for row in cells) for index in range(len(names))]
    for row in cells:
        padded = (
            cell.rjust(width) if is_right else cell.ljust(width)
            for cell, width, is_right in zip(row, widths, right, strict=True)
        )
        out("  ".join(padded).rstrip(), whole=True)


def print_fields(fields: Sequence[tuple[str, str]]) -> None:
    """Print names and values, one per line. Further lines of a value stand below it: none looks like a field."""
    width = max((len(name) for name, _ in fields), default=0)
    below = "\n" + " " * (width + 2)
    for name, value in fields:
        out(f"{name:<{width}}  {value.replace(chr(10), below)}".rstrip(), hang=width + 2)


def print_json(value: Any) -> None:
    """Print one JSON document."""
    print(json.dumps(value, indent=2), flush=True)


def out(text: str, *, whole: bool = False, hang: int = 0) -> None:
    """Print a line to standard output; characters that its encoding cannot show become escapes.

    On a terminal, what is longer than a line continues below (see `at_words`), unless it is `whole`: data, not words.
    """
    shown = printable(text, sys.stdout.encoding)
    print(shown if whole else at_words(shown, sys.stdout, hang), flush=True)


def ago(moment: datetime | None) -> str:
    """`5 s ago`, `3 h 2 min ago`; empty for None."""
    from windrow.common.quantities import duration

    if moment is None:
        return ""
    return f"{duration(max(0.0, (datetime.now(UTC) - moment).total_seconds()))} ago"


def local_time(moment: datetime | None) -> str:
    """A moment in this machine's time zone, to the second; empty for None."""
    return moment.astimezone().strftime("%Y-%m-%d %H:%M:%S") if moment is not None else ""
