"""The metrics and tags of a job: what its scripts have logged by `Run.log`, and what they and notebooks have tagged.

Each worker appends rows to a file of its own, `<step>/user/metrics/<node>/processNNN.csv` of the job's logs. The master
appends what clients tag to `tags.csv` of the step's or the job's logs. A row is whole, or is no row: where a file
was cut (docs/reference/files.md#the-logs-of-a-job), the ends of the cut are passed over.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from windrow.sdk.client import Client

POINTS_MAX = 1000
"""Of a metric with more values, every second one is left out of `points`, again and again."""
ROW_BYTES_MAX = 64 << 10
"""Of what `Run.log` and its like write (docs/contracts.md, section 4)."""
DIGITS_MAX = 300
"""A larger integer is a float, so that no figure of it overflows."""
TABLES = ("row", "table")
TAG, UNTAG, PROPERTY = "tag", "untag", "property"
_TAGS = (TAG, UNTAG, PROPERTY)
_FILE = re.compile(r"(?:([^/]+)/user/metrics/[^/]+/process\d+|(?:([^/]+)/)?tags)\.csv")
_ROW = re.compile(rb"\d{4}-\d\d-\d\dT[\d:.]{15}Z,.*,(?:value|list|row|table|tag|untag|property),(?:step|job)")


class Logged(NamedTuple):
    """One call of `Run.log`, `log_list`, `log_row` or `log_table`, or of `tag` and its like. `kind`: `value`, `list`,
    `row`, `table`; `tag`, `untag`, `property`.
    """

    step: str
    of_job: bool
    """By the run's `parent`: a metric of the job, not of the step."""
    time: datetime
    name: str
    kind: str
    value: Any


class Metric(NamedTuple):
    """What a job has logged under one name. For a table, `newest` is its newest row, and there are no numbers."""

    step: str
    """Empty for a metric of the whole job."""
    name: str
    newest: Any
    time: datetime
    """Of the newest value."""
    values: int
    """Values; rows of a table."""
    minimum: float | None
    maximum: float | None
    """None if no value is a number."""
    points: tuple[tuple[float, float], ...]
    """(seconds since 1970, number), by time; of many values, some."""

    def to_dict(self) -> dict[str, Any]:
        """As plain values, as in `windrow job show --metrics --format json`; what JSON has no number for is a text."""
        return {
            "step": self.step,
            "name": self.name,
            "kind": "metric",
            "newest": {key: _jsonable(value) for key, value in self.newest.items()}
            if isinstance(self.newest, dict)
            else _jsonable(self.newest),
            "time": self.time.isoformat(),
            "count": self.values,
            "minimum": _jsonable(self.minimum),
            "maximum": _jsonable(self.maximum),
        }


class Tag(NamedTuple):
    """A tag or property of a run: of a tag the newest value, of a property the first one."""

    step: str
    """Empty for one of the whole job."""
    name: str
    value: str | None
    time: datetime
    """When it got this value."""
    is_property: bool

    def to_dict(self) -> dict[str, Any]:
        """As plain values, with the keys of a metric."""
        return {
            "step": self.step,
            "name": self.name,
            "kind": PROPERTY if self.is_property else TAG,
            "newest": self.value,
            "time": self.time.isoformat(),
            "count": 1,
            "minimum": None,
            "maximum": None,
        }


def metrics_of(client: Client, job_id: str) -> list[Metric]:
    """The metrics of a job, those of the whole job first, then by step and name. Raises NotFound."""
    return metrics_and_tags(client, job_id)[0]


def metrics_and_tags(client: Client, job_id: str) -> tuple[list[Metric], list[Tag]]:
    """The metrics of a job, and the tags and properties that its runs were given while it ran or later; those of the
    whole job first, then by step and name. Raises NotFound.
    """
    found: dict[tuple[str, str], _Gathered] = {}
    tagged: list[Logged] = []
    for one in _everything(client, job_id):
        key = ("" if one.of_job else one.step), one.name
        if one.kind in _TAGS:
            tagged.append(one)
        elif values := _single(one):
            found.setdefault(key, _Gathered()).add(one.time, values)
    return [gathered.metric(step, name) for (step, name), gathered in sorted(found.items())], _tags(tagged)


def logged(client: Client, job_id: str) -> Iterator[Logged]:
    """Everything that a job's scripts have logged so far, file by file. Raises NotFound."""
    return (one for one in _everything(client, job_id) if one.kind not in _TAGS)


def tags_of(client: Client, job_id: str, submitted: Mapping[str, str] = MappingProxyType({})) -> list[Tag]:
    """The tags and properties of the runs of a job. `submitted`: the tags that it was submitted with, which later ones
    replace. Raises NotFound.
    """
    first = datetime.min.replace(tzinfo=UTC)
    before = [Logged("", True, first, name, TAG, value) for name, value in submitted.items()]
    return _tags([*before, *(one for one in _everything(client, job_id) if one.kind in _TAGS)])


def _tags(calls: Iterable[Logged]) -> list[Tag]:
    # Of two values of one microsecond, everybody takes the same, whichever file is read first.
    found: dict[tuple[str, bool, str], Tag] = {}
    for one in sorted(calls, key=lambda one: (one.time, json.dumps([one.name, one.value, one.kind]))):
        step, is_property = "" if one.of_job else one.step, one.kind == PROPERTY
        key = (step, is_property, one.name)
        if one.kind == UNTAG:
            found.pop(key, None)
        elif not (is_property and key in found):
            found[key] = Tag(step, one.name, one.value, one.time, is_property)
    return [tag for _, tag in sorted(found.items())]


def _everything(client: Client, job_id: str) -> Iterator[Logged]:
    for file in client.logs(job_id):
        place = _FILE.fullmatch(file.path)
        if place is not None:
            yield from _read(place[1] or place[2] or "", client.read_log(job_id, file.path))


def _read(step: str, chunks: Iterable[bytes]) -> Iterator[Logged]:
    rest, is_row = b"", True
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if is_row and (one := _logged(step, line)) is not None:
                yield one
            is_row = True
        if len(rest) > ROW_BYTES_MAX:
            # No row is that long. It is not kept, however far it goes on.
            rest, is_row = b"", False


def _logged(step: str, line: bytes) -> Logged | None:
    """A call of a script; None for what is none: the beginning of one row and the end of another, where a file was cut,
    or what a script has written there itself.
    """
    if not _ROW.fullmatch(line):
        return None
    try:
        time, name, text, kind, run = next(csv.reader([line.decode()]))
        value = json.loads(text, parse_int=_whole_number)
        moment = datetime.fromisoformat(time)
    except (ValueError, csv.Error, RecursionError):
        return None
    return Logged(step, run == "job", moment, name, kind, value) if _is_of_kind(kind, value) else None


def _whole_number(digits: str) -> int | float:
    """As an integer, if it is not too large to be compared with other numbers and drawn."""
    return int(digits) if len(digits) <= DIGITS_MAX else float(digits)


def _is_of_kind(kind: str, value: Any) -> bool:
    """Whether a call of this kind logs such a value."""
    if kind == "list":
        return isinstance(value, list)
    if kind == "row":
        return isinstance(value, dict)
    if kind == "table":
        if not isinstance(value, dict):
            return False
        columns = [column for column in value.values() if isinstance(column, list)]
        return len(columns) == len(value) and len({len(column) for column in columns}) <= 1
    return kind not in _TAGS or value is None or isinstance(value, str)


class _Gathered:
    """The values of one name so far, in bounded memory."""

    def __init__(self) -> None:
        self._newest: Any = None
        self._time = datetime.min.replace(tzinfo=UTC)
        self._count = 0
        self._numbers: list[float] = []
        self._points: list[tuple[float, float]] = []
        self._every = 1

    def add(self, time: datetime, values: list[Any]) -> None:
        for value in values:
            self._count += 1
            if isinstance(value, (int, float)) and not isinstance(value, bool) and not math.isnan(value):
                self._numbers = [min([value, *self._numbers]), max([value, *self._numbers])]
                self._plot(time.timestamp(), float(value))
        if time >= self._time:
            self._newest, self._time = values[-1], time

    def _plot(self, time: float, value: float) -> None:
        if self._count % self._every == 0 and math.isfinite(value):
            self._points.append((time, value))
        if len(self._points) > POINTS_MAX:
            del self._points[::2]
            self._every *= 2

    def metric(self, step: str, name: str) -> Metric:
        least, most = self._numbers or (None, None)
        points = tuple(sorted(self._points, key=lambda point: point[0]))
        return Metric(step, name, self._newest, self._time, self._count, least, most, points)


def _single(one: Logged) -> list[Any]:
    if one.kind in TABLES:
        return rows_of(one.value, one.kind)
    return one.value if one.kind == "list" else [one.value]


def rows_of(value: Mapping[str, Any], kind: str) -> list[dict[str, Any]]:
    """The rows of what `log_row` or `log_table` was given."""
    if kind == "row":
        return [dict(value)]
    return [dict(zip(value, row, strict=True)) for row in zip(*value.values(), strict=True)]


def as_dictionary(calls: Iterable[tuple[str, str, Any]]) -> dict[str, Any]:
    """Name, kind and value of calls, as Azure ML's `get_metrics` returns them.

    A name that was logged once has its value, one that was logged several times the list of them. A table is a
    dictionary of its columns, in the same way; a row without a value for a column has None. What a name is, its first
    call decides: a table has no single values, and others no rows.
    """
    values: dict[str, list[Any]] = {}
    tables: dict[str, list[dict[str, Any]]] = {}
    for name, kind, value in calls:
        if kind in TABLES and name not in values:
            tables.setdefault(name, []).extend(rows_of(value, kind))
        elif kind not in TABLES and name not in tables:
            values.setdefault(name, []).extend(value if kind == "list" else [value])
    found: dict[str, Any] = {name: _alone(given) for name, given in values.items()}
    for name, rows in tables.items():
        columns = dict.fromkeys(column for row in rows for column in row)
        found[name] = {column: _alone([row.get(column) for row in rows]) for column in columns}
    return found


def _alone(values: list[Any]) -> Any:
    return values[0] if len(values) == 1 else values


def _jsonable(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
