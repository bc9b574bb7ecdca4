"""Text in the CSV files that Windrow writes for people: a spreadsheet takes it for text, never for a formula.

Names of files and messages of scripts are whoever's who submits a job; whoever opens a list of them is somebody else. A
cell that begins with one of `FORMULA_STARTS` may be run as a formula, in quotes or not. The remedy is OWASP's (CSV
Injection): an apostrophe before it, which spreadsheets hide. Rows that scripts return are data, and stay as they are.
"""

# Only cheap modules: this is on the way to the end of a run.
from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

FORMULA_STARTS = "=+-@\t\r\n＝＋－＠"
"""By OWASP, with the full-width forms that some spreadsheets take for the same."""
MARK = "'"


def as_text(cell: str) -> str:
    """The text of a cell, with an apostrophe before what begins like a formula. So that programs can take it off again
    (`original`), it is also there before apostrophes that such a beginning follows.
    """
    return MARK + cell if _begins_like_a_formula(cell) else cell


def original(cell: str) -> str:
    """What `as_text` was given."""
    return cell[1:] if cell.startswith(MARK) and _begins_like_a_formula(cell) else cell


def as_texts(row: Iterable[object]) -> list[object]:
    """A row whose texts are safe. Numbers stay: a negative one is no formula."""
    return [as_text(cell) if isinstance(cell, str) else cell for cell in row]


def _begins_like_a_formula(cell: str) -> bool:
    begin = cell.lstrip(MARK)[:1]
    return begin != "" and begin in FORMULA_STARTS
