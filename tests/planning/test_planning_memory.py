"""Files that take more memory to divide than a planner gets: the step fails, and the message names the file."""

from __future__ import annotations

from pathlib import Path

import pytest
from planner_process import plan

LONG = 60 << 20
MEMORY = 200 << 20


def refused(tmp_path: Path, content: bytes, name: str, definition: str = "") -> str:
    data, step = tmp_path / "data", tmp_path / "step"
    data.mkdir()
    step.mkdir()
    (data / f"1{name}").write_bytes(content)
    if definition:
        (data / "MLTable").write_text(definition)
    found = plan(step, data, "mltable", memory_bytes_max=MEMORY)
    assert found.error is not None and found.error["category"] == "UserError"
    return str(found.error["message"])


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (".jsonl", b'{"a": "' + b"y" * LONG + b'"}\n{"a": "b"}\n'),
        (".csv", b"id,text\n1," + b"x" * LONG + b"\n2,y\n"),
        (".csv", b",".join(b"c%d" % number for number in range(3_000_000)) + b"\n1,2\n"),
    ],
    ids=["a line of JSON", "a line of CSV", "a million columns"],
)
def test_a_file_whose_records_take_too_much_memory_is_named(tmp_path: Path, name: str, content: bytes) -> None:
    message = refused(tmp_path, content, name)
    assert str(tmp_path / "data" / f"1{name}") in message and "planner_memory_bytes" in message


def test_a_file_with_a_quote_that_is_never_closed_is_named(tmp_path: Path) -> None:
    content = b'id,text\n1,"never closed\n' + b"2,abcdefgh\n" * (LONG // 11)
    definition = "paths: [{file: ./1.csv}]\ntransformations: [{read_delimited: {support_multi_line: true}}]\n"
    message = refused(tmp_path, content, ".csv", definition)
    assert str(tmp_path / "data" / "1.csv") in message and "never closed" in message
