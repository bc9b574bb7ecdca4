"""Metrics of a job, put together from the rows of its workers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from windrow.sdk.client import LogFile
from windrow.sdk.metrics import POINTS_MAX, as_dictionary, logged, metrics_of, tags_of

HEAD = "Utc Time,Name,Value,Kind,Run\n"


class Logs:
    """A client that has files of logs, and nothing else."""

    def __init__(self, **files: str) -> None:
        self._files = {f"score/user/metrics/{node}/process000.csv": text.encode() for node, text in files.items()}
        self._files["score/user/stdout/a/process000.stdout.txt"] = b"no table"

    def logs(self, job_id: str) -> list[LogFile]:
        return [LogFile(path, len(content)) for path, content in self._files.items()]

    def read_log(self, job_id: str, path: str) -> Iterator[bytes]:
        # In pieces that end anywhere.
        content = self._files[path]
        yield from (content[at : at + 7] for at in range(0, len(content), 7))


def row(second: float, rest: str) -> str:
    return f"2026-01-01T00:00:{second:09.6f}Z,{rest}\n"


def read(**files: str) -> Any:
    return metrics_of(Logs(**files), "job")  # type: ignore[arg-type]


def test_the_newest_value_is_that_of_any_worker() -> None:
    (loss,) = read(
        a=HEAD + row(1, "loss,3,value,step") + row(5, "loss,1.5,value,step"), b=HEAD + row(4, "loss,9,value,step")
    )
    assert (loss.step, loss.newest, loss.values, loss.minimum, loss.maximum) == ("score", 1.5, 3, 1.5, 9)
    assert [value for _, value in loss.points] == [3, 9, 1.5]
    assert loss.to_dict()["time"] == "2026-01-01T00:00:05+00:00"


def test_what_is_no_row_is_passed_over() -> None:
    """Where a node or the master cut a file, with a notice between the ends; and a row that is not whole yet."""
    cut = "2026-01-01T00:00:02.000000Z,loss,0.12\n[windrow: 9 bytes of output are left out here; a file keeps 64 MB]\n"
    rest = "5,value,step\n" + row(3, "loss,7,value,step")
    (loss,) = read(a=HEAD + row(1, "loss,3,value,step") + cut + rest + row(4, "loss,8,value,step")[:-1])
    assert (loss.values, loss.newest) == (2, 7)
    joined = "2026-01-01T00:00:02.000000Z,lo" + row(3, "loss,7,value,step")
    assert read(a=HEAD + joined) == []
    assert read(a=HEAD + row(1, "ids,[],list,step")) == []


def test_values_that_are_no_numbers_have_no_bounds() -> None:
    text = row(1, '"a, ""b""","""te\\nxt""",value,step') + row(2, '"a, ""b""",true,value,step')
    many = "".join(row(number / 100, f"n,{number},value,job") for number in range(POINTS_MAX * 2 + 1))
    n, a, fruit, odd = read(
        a=HEAD
        + text
        + many
        + row(3, 'fruit,"{""kind"": [""lemon"", ""lime""], ""size"": [7, 3]}",table,step')
        + row(4, 'odd,"[1, NaN, Infinity]",list,step')
    )
    assert (a.name, a.newest, a.values, a.minimum) == ('a, "b"', True, 2, None)
    assert (fruit.newest, fruit.values, fruit.points) == ({"kind": "lime", "size": 3}, 2, ())
    assert (odd.values, odd.minimum, odd.to_dict()["maximum"], len(odd.points)) == (3, 1, "inf", 1)
    assert (n.step, n.values, n.minimum, n.maximum) == ("", POINTS_MAX * 2 + 1, 0, POINTS_MAX * 2)
    assert POINTS_MAX // 2 <= len(n.points) <= POINTS_MAX


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        ([("a", "value", 1)], {"a": 1}),
        ([("a", "value", 1), ("a", "list", [2, 3])], {"a": [1, 2, 3]}),
        ([("a", "list", [2])], {"a": 2}),
        ([("t", "row", {"x": 1})], {"t": {"x": 1}}),
        ([("t", "row", {"x": 1}), ("t", "table", {"x": [2], "y": [3]})], {"t": {"x": [1, 2], "y": [None, 3]}}),
        ([("t", "row", {"x": 1}), ("t", "value", 5)], {"t": {"x": 1}}),
        ([("t", "value", 5), ("t", "row", {"x": 1})], {"t": 5}),
        ([], {}),
    ],
)
def test_a_dictionary_is_as_azure_ml_returns_it(calls: list[tuple[str, str, Any]], expected: dict[str, object]) -> None:
    assert as_dictionary(calls) == expected


LARGE = "9" * 4000


@pytest.mark.parametrize(
    "rest",
    [
        f"x,{'[' * 60_000},value,step",
        "x,5,list,step",
        "x,{},list,step",
        '"x","[1,2]",row,step',
        '"x","{""a"":5,""b"":[1]}",table,step',
        '"x","{""a"":[5,6],""b"":[1]}",table,step',
        "x,[1],tag,step",
        "x\ry,1,value,step",
        f"x,{LARGE * 30},value,step",
    ],
)
def test_what_a_script_has_written_there_itself_is_passed_over(rest: str) -> None:
    logs: Any = Logs(a=HEAD + row(1, rest) + row(2, "loss,3,value,step"))
    (loss,) = metrics_of(logs, "job")
    assert (loss.name, loss.newest) == ("loss", 3)
    assert tags_of(logs, "job") == []
    assert as_dictionary((one.name, one.kind, one.value) for one in logged(logs, "job")) == {"loss": 3}


def test_a_number_beyond_all_floats_is_shown_and_not_drawn() -> None:
    (large, _) = read(a=HEAD + row(1, f"large,{LARGE},value,step") + row(2, "loss,3,value,step"))
    assert (large.newest, large.maximum, large.points) == (float("inf"), float("inf"), ())
    assert large.to_dict()["newest"] == "inf"


def test_an_endless_line_is_not_kept() -> None:
    (loss,) = read(a=HEAD + "x" * 1_000_000 + "\n" + row(2, "loss,3,value,step"))
    assert loss.newest == 3
