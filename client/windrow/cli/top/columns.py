"""Lays cells out in columns within a width. Pure.

A column that does not fit is left out, the least important first, and so is one without a text; the widest texts are
cut; what is left is the bar's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.text import Text

GAP = 2
BAR_MIN, BAR_MAX = 8, 40


class Column(NamedTuple):
    """One column of a table."""

    name: str
    right: bool = False
    """Aligned to the right, as numbers are."""
    cut_to: int = 0
    """Its text may be cut to this width, and ends with … then; 0: it is never cut."""
    keep: int = 9
    """Columns with a smaller number are left out first."""
    is_bar: bool = False
    """Its cells are bars, which take the width that is left."""


class Bar(NamedTuple):
    """A bar: parts of a whole, each 0 to 1."""

    done: float
    failed: float = 0.0
    style: str = "cyan"


class Cell(NamedTuple):
    """A text in a style of rich."""

    text: str
    style: str = ""


class Below(NamedTuple):
    """A remark below a row, over the whole width."""

    text: str
    style: str = "dim"


Row = Sequence[Cell | Bar]


def laid_out(columns: Sequence[Column], rows: Sequence[Row | Below], width: int) -> list[Text]:
    """The heading and a line for each row, none wider than `width`."""
    cells = [row for row in rows if not isinstance(row, Below)]
    natural = [_natural(column, [row[index] for row in cells]) for index, column in enumerate(columns)]
    kept = _kept(columns, natural, width)
    widths = _widths(columns, natural, kept, width)
    heading = [Cell(column.name, "bold") for column in columns]
    lines = [_line(columns, heading, kept, widths)]
    for row in rows:
        if isinstance(row, Below):
            lines.append(Text(_cut(f"  {row.text}", width), style=row.style))
        else:
            lines.append(_line(columns, row, kept, widths))
    return lines


def _natural(column: Column, cells: Sequence[Cell | Bar]) -> int:
    """The width of the widest cell; 0 for a column without a text."""
    if column.is_bar:
        return BAR_MIN
    widest = max((len(_text(cell)) for cell in cells), default=0)
    return max(widest, len(column.name)) if widest else 0


def _text(cell: Cell | Bar) -> str:
    return cell.text if isinstance(cell, Cell) else ""


def _kept(columns: Sequence[Column], natural: Sequence[int], width: int) -> list[int]:
    """The indexes of the columns that there is room for."""
    kept = [index for index in range(len(columns)) if columns[index].is_bar or natural[index]]

    def least() -> int:
        return sum(_least(columns[index], natural[index]) for index in kept) + GAP * (len(kept) - 1)

    while len(kept) > 1 and least() > width:
        kept.remove(min(kept, key=lambda index: (columns[index].keep, -index)))
    return kept


def _least(column: Column, natural: int) -> int:
    return min(natural, column.cut_to) if column.cut_to else natural


def _widths(columns: Sequence[Column], natural: Sequence[int], kept: Sequence[int], width: int) -> dict[int, int]:
    widths = {index: natural[index] for index in kept}
    room = width - GAP * (len(kept) - 1) - sum(widths.values())
    for index in sorted(kept, key=lambda index: -natural[index]):
        if room < 0:
            narrower = min(-room, widths[index] - _least(columns[index], natural[index]))
            widths[index] -= narrower
            room += narrower
    for index in kept:
        if columns[index].is_bar and room > 0:
            widths[index] += min(room, BAR_MAX - BAR_MIN)
    return widths


def _line(columns: Sequence[Column], row: Row, kept: Sequence[int], widths: dict[int, int]) -> Text:
    line = Text(no_wrap=True)
    for position, index in enumerate(kept):
        if position:
            line.append(" " * GAP)
        cell, width = row[index], widths[index]
        if isinstance(cell, Bar):
            _draw(line, cell, width)
            continue
        text = _cut(cell.text, width)
        padding = " " * (width - len(text))
        line.append(padding if columns[index].right else "")
        line.append(text, cell.style)
        line.append("" if columns[index].right else padding)
    line.rstrip()
    return line


def _draw(line: Text, bar: Bar, width: int) -> None:
    failed = min(width, round(bar.failed * width) or (1 if bar.failed else 0))
    done = min(width - failed, int(bar.done * width))
    line.append("━" * done, bar.style)
    line.append("━" * failed, "red")
    line.append("─" * (width - done - failed), "dim")


def _cut(text: str, width: int) -> str:
    text = text.replace("\n", " ")
    return text if len(text) <= width else f"{text[: max(0, width - 1)]}…"
