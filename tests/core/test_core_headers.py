"""What the mini-batches of a step must agree on: whoever ends first, the same comes out, or a message."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from windrow_master.core.headers import HeaderMisfit, columns_of, join_headers


def header(**types: str) -> bytes:
    return json.dumps([[name, kind, f"packed {kind}"] for name, kind in types.items()]).encode()


def joined(headers: list[bytes]) -> dict[str, tuple[str, str]]:
    pinned = None
    for one in headers:
        pinned = join_headers("parquet", pinned, one)
    return {column.name: (column.type, column.packed) for column in columns_of(pinned or b"[]")}


TYPES = ["null", "int64", "double", "string", "int32", "decimal128(38, 1)", "decimal128(38, 3)", "uint64"]


@given(st.lists(st.sampled_from(TYPES), min_size=1, max_size=4))
def test_columns_come_out_the_same_in_any_order(types: list[str]) -> None:
    found = set()
    for order in itertools.permutations(types):
        try:
            found.add(str(joined([header(a=kind) for kind in order])))
        except HeaderMisfit:
            found.add("misfit")
    assert len(found) == 1


@pytest.mark.parametrize(
    ("types", "result"),
    [
        (["null", "string"], "string"),
        (["int64", "double"], "double"),
        (["decimal128(38, 3)", "decimal128(38, 1)"], "decimal128(38, 3)"),
        (["null", "null"], "null"),
    ],
)
def test_types_that_fit(types: list[str], result: str) -> None:
    assert joined([header(a=kind) for kind in types]) == {"a": (result, f"packed {result}")}


@pytest.mark.parametrize(
    ("pinned", "found", "said"),
    [
        (header(a="int64"), header(a="string"), "'a' of the rows that run() returned is of type string"),
        (header(a="int64"), header(a="int64", b="int64"), "'b' more"),
        (header(a="int64", b="int64"), header(b="int64"), "'a' less"),
        (header(a="decimal128(38, 1)"), header(a="decimal128(38, x"), "does not fit"),
        (None, b"not json", "cannot be read"),
        (None, b"[" * 100_000, "cannot be read"),
        (None, b"[[1]]", "cannot be read"),
    ],
)
def test_what_does_not_fit_is_told(pinned: bytes | None, found: bytes, said: str) -> None:
    with pytest.raises(HeaderMisfit) as caught:
        join_headers("parquet", pinned, found)
    assert said in str(caught.value)


def test_a_header_line_is_the_same_everywhere() -> None:
    assert join_headers("csv", None, b"a,b\n") == b"a,b\n"
    assert join_headers("text", b"a,b\n", b"a,b\n") == b"a,b\n"
    with pytest.raises(HeaderMisfit, match="in dicts: all keys"):
        join_headers("csv", b"a,b\n", b"b,a\n")


@pytest.mark.parametrize("row_format", ["text", "csv"])
def test_headers_that_differ_are_shown_as_text(row_format: str) -> None:
    with pytest.raises(HeaderMisfit, match="other columns than before: 'a é', where 'b' was expected"):
        join_headers(row_format, b"b\n", "a é\r\n".encode())
