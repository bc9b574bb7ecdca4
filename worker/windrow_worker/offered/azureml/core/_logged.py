"""What a run has logged so far: by this worker, as its file has it, and by all others, as the agent tells."""

from __future__ import annotations

import csv
import json
import re
import tempfile
from collections import Counter

from ._agent import NoAgent, ask
from ._told import TOLD

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Iterable, Iterator, List, Tuple

    Row = Tuple[str, str, Any, str]
    """Time, name, value and kind of one call."""


VALUES = ("value", "list", "row", "table")
TAGS = ("tag", "untag", "property")
_TABLES = ("row", "table")
_ROW = re.compile(rb"\d{4}-\d\d-\d\dT[\d:.]{15}Z,.*,(\w+),(step|job)")


def rows_of(of_job: bool, only_tags: bool = False) -> List[Row]:
    """The rows of the run of the step, or of its job, by time; among tags, first those that the job was submitted with.
    Raises RuntimeError.
    """
    own = _own_lines()
    lines: List[bytes] = []
    with tempfile.TemporaryFile() as file:
        try:
            ask({"do": "logged", "of_job": of_job, "only_tags": only_tags}, brought=file.fileno())
        except NoAgent:
            pass  # a look at a failure: there are no others
        file.seek(0)
        # What the agent has pushed of the own file is there twice.
        known = Counter(own)
        for line in file.read().split(b"\n"):
            if known[line]:
                known[line] -= 1
            else:
                lines.append(line)
    kinds = TAGS if only_tags else VALUES
    # Of two values of one microsecond, everybody takes the same.
    return sorted(_read(lines + own, b"job" if of_job else b"step", kinds), key=lambda row: row[0])


def tags_of(rows: Iterable[Row], kind: str) -> Dict[str, Any]:
    """The tags of which the newest value counts, or with `property` the properties, of which the first does."""
    found: Dict[str, Any] = {}
    for _, name, value, is_a in rows:
        if kind == "property":
            if is_a == kind:
                found.setdefault(name, value)
        elif is_a == "tag":
            found[name] = value
        elif is_a == "untag":
            found.pop(name, None)
    return found


def as_dictionary(rows: Iterable[Row]) -> Dict[str, Any]:
    """Values as `get_metrics` of Azure ML returns them: see `windrow.sdk.metrics.as_dictionary`."""
    values: Dict[str, List[Any]] = {}
    tables: Dict[str, List[Dict[str, Any]]] = {}
    for _, name, value, kind in rows:
        if kind in _TABLES and name not in values:
            tables.setdefault(name, []).extend([value] if kind == "row" else _rows_of_table(value))
        elif kind not in _TABLES and name not in tables:
            values.setdefault(name, []).extend(value if kind == "list" else [value])
    found: Dict[str, Any] = {name: _alone(given) for name, given in values.items()}
    for name, given in tables.items():
        columns = dict.fromkeys(column for row in given for column in row)
        found[name] = {column: _alone([row.get(column) for row in given]) for column in columns}
    return found


def _rows_of_table(value: Dict[str, List[Any]]) -> List[Dict[str, Any]]:
    return [dict(zip(value, row)) for row in zip(*value.values())]


def _alone(values: List[Any]) -> Any:
    return values[0] if len(values) == 1 else values


def _own_lines() -> List[bytes]:
    try:
        with open(TOLD["metrics_path"], "rb") as file:
            return file.read().split(b"\n")
    except OSError:
        return []  # nothing was logged


def _read(lines: Iterable[bytes], level: bytes, kinds: Tuple[str, ...]) -> Iterator[Row]:
    for line in sorted(lines):
        found = _ROW.fullmatch(line)
        if found is None or found.group(2) != level or found.group(1).decode() not in kinds:
            continue
        try:
            time, name, text, kind, _ = next(csv.reader([line.decode()]))
            value = json.loads(text)
        except (ValueError, csv.Error, RecursionError):
            continue  # the beginning of one row and the end of another, where a file was cut
        if _is_of_kind(kind, value):
            yield time, name, value, kind


def _is_of_kind(kind: str, value: Any) -> bool:
    """Whether a call of this kind logs such a value: a script may write into the file itself."""
    if kind == "list":
        return isinstance(value, list)
    if kind == "row":
        return isinstance(value, dict)
    if kind == "table":
        return isinstance(value, dict) and all(isinstance(column, list) for column in value.values())
    return True
