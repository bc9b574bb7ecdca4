"""The metrics of a job: what its scripts have logged by `Run.log`, read from the files of the workers.

Each worker appends rows to a file of its own, `<step>/user/metrics/<node>/processNNN.csv` of the job's logs. A row is
whole, or is no row: where a file was cut (docs/reference/files.md#the-logs-of-a-job), the ends of the cut are passed
over.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from windrow.sdk.client import Client

POINTS_MAX = 1000
"""Of a metric with more values, every second one is left out of `points`, again and again."""
TABLES = ("row", "table")
_FILE = re.compile(r"([^/]+)/user/metrics/[^/]+/process\d+\.csv")
_ROW = re.compile(rb"\d{4}-\d\d-\d\dT[\d:.]{15}Z,.*,(?:value|list|row|table),(?:step|job)")


class Logged(NamedTuple):
    """One call of `Run.log`, `log_list`, `log_row` or `log_table`. `kind`: `value`, `list`, `row` or `table`."""

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
            "newest": {key: _jsonable(value) for key, value in self.newest.items()}
            if isinstance(self.newest, dict)
            else _jsonable(self.newest),
            "time": self.time.isoformat(),
            "count": self.values,
            "minimum": _jsonable(self.minimum),
            "maximum": _jsonable(self.maximum),
        }


def metrics_of(client: Client, job_id: str) -> list[Metric]:
    """The metrics of a job, those of the whole job first, then by step and name. Raises NotFound."""
    found: dict[tuple[str, str], _Gathered] = {}
    for one in logged(client, job_id):
        key = ("" if one.of_job else one.step), one.name
        if values := _single(one):
            found.setdefault(key, _Gathered()).add(one.time, values)
    return [gathered.metric(step, name) for (step, name), gathered in sorted(found.items())]


def logged(client: Client, job_id: str) -> Iterator[Logged]:
    """Everything that a job's scripts have logged so far, file by file. Raises NotFound."""
    for file in client.logs(job_id):
        place = _FILE.fullmatch(file.path)
        if place is not None:
            yield from _read(place[1], client.read_log(job_id, file.path))


def _read(step: str, chunks: Iterable[bytes]) -> Iterator[Logged]:
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if _ROW.fullmatch(line):
                try:
                    time, name, value, kind, run = next(csv.reader([line.decode()]))
                    moment = datetime.fromisoformat(time)
                    yield Logged(step, run == "job", moment, name, kind, json.loads(value))
                except ValueError:
                    # The beginning of one row and the end of another, where a file was cut.
                    continue


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
