"""Columns of Arrow with different types in one file: each gets the type that holds all its values, which is text if
nothing else does.

Worker and master share these rules: the worker for the values of one mini-batch, the master for mini-batches. So the
file does not depend on how the input is cut.
"""

from __future__ import annotations

import json
from datetime import datetime, timezone
from decimal import Decimal

import pyarrow

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Iterable, List, Tuple

_types = pyarrow.types

_MIXED = b"windrow.mixed"
"""Among the metadata of a field: the types of values that are no text and became text."""
_TEXTS_AT_ONCE, _TEXT_BYTES_AT_ONCE = 1 << 16, 1 << 20
"""The most values, and about the most bytes of Arrow, that are objects of Python at a time."""


def join_schemas(schemas: Iterable[Tuple[Any, bool]]) -> Any:
    """The schema of a file with the columns of all, in the order in which they first appear.

    `schemas`: each with whether it has rows. The types of one without rows count only where no other has the column:
    pandas makes columns of floats or objects where there is nothing.
    """
    of_rows: Dict[str, Dict[Any, Any]] = {}
    of_none: Dict[str, Dict[Any, Any]] = {}
    for schema, has_rows in schemas:
        for field in schema:
            of_rows.setdefault(field.name, {})
            of_none.setdefault(field.name, {})
            (of_rows if has_rows else of_none)[field.name][field.type, tuple(mixed_types(field))] = field.type
    return pyarrow.schema([_join_fields(name, list(kinds or of_none[name])) for name, kinds in of_rows.items()])


def _join_fields(name: str, found: List[Tuple[Any, Tuple[str, ...]]]) -> Any:
    """The field of a column. `found`: its types, and what each was before it became text."""
    joined = pyarrow.null()
    for kind, _ in found:
        joined = join_types(joined, kind)
    mixed = [one for _, types in found for one in types]
    if mixed or any(becomes_text(kind, joined) for kind, _ in found):
        mixed += [str(kind) for kind, types in found if not types and not _types.is_null(kind)]
    return mixed_field(name, joined, mixed)


def mixed_field(name: str, kind: Any, mixed: List[str]) -> Any:
    """A field. `mixed`: the types of its values, if they became text because nothing else holds them all."""
    return pyarrow.field(name, kind, metadata={_MIXED: "; ".join(sorted(set(mixed)))} if mixed else None)


def mixed_types(field: Any) -> List[str]:
    """Of which types the values of a field were before they became text; empty if they did not."""
    types = (field.metadata or {}).get(_MIXED)
    return types.decode().split("; ") if types else []


def fit_table(table: Any, schema: Any) -> Any:
    """A table or a batch with the columns of a schema that was made of its own, and of others. Raises KeyError for a
    column that the schema lacks, and as `fit_array`."""
    names = set(table.schema.names)
    if not names <= set(schema.names):
        raise KeyError(", ".join(sorted(names - set(schema.names))))
    arrays = []
    for field in schema:
        if field.name not in names:
            arrays.append(pyarrow.nulls(table.num_rows, field.type))
            continue
        column = table.column(field.name)
        chunks = column.chunks if isinstance(column, pyarrow.ChunkedArray) else [column]
        fitted = [fit_array(chunk, field.type) for chunk in chunks]
        arrays.append(fitted[0] if len(fitted) == 1 else pyarrow.chunked_array(fitted, field.type))
    return type(table).from_arrays(arrays, schema=schema)


def join_types(one: Any, other: Any) -> Any:
    """The type of a column that holds values of both types.

    Missing values fit anything. Numbers get the wider type; of whole numbers and floats that is float64, of whole
    numbers and decimals a decimal. Decimals get the larger number of digits after the point; times of different units,
    microseconds; times of different zones, UTC. Elements of lists and fields of structs are joined each by itself. All
    else is text.
    """
    if one == other or _types.is_null(other):
        return one
    if _types.is_null(one):
        return other
    if _types.is_list(one) and _types.is_list(other):
        return pyarrow.list_(join_types(one.value_type, other.value_type))
    if _types.is_struct(one) and _types.is_struct(other):
        fields = {field.name: field.type for field in one}
        for field in other:
            fields[field.name] = join_types(fields.get(field.name, field.type), field.type)
        return pyarrow.struct(list(fields.items()))
    if _is_number(one) and _is_number(other):
        return _join_numbers(one, other)
    for exact, number in ((one, other), (other, one)):
        if _types.is_decimal128(exact) and _types.is_integer(number):
            return exact
    if _types.is_decimal128(one) and _types.is_decimal128(other):
        return max(one, other, key=lambda kind: kind.scale)
    if _types.is_timestamp(one) and _types.is_timestamp(other) and (one.tz is None) == (other.tz is None):
        unit = one.unit if one.unit == other.unit else "us"
        return pyarrow.timestamp(unit, one.tz if one.tz == other.tz else "UTC")
    return pyarrow.string()


def becomes_text(kind: Any, joined: Any) -> bool:
    """Whether values of type `kind` that are no text become text in a column of the type `joined`."""
    if kind == joined or _types.is_null(kind):
        return False
    if _types.is_list(kind) and _types.is_list(joined):
        return becomes_text(kind.value_type, joined.value_type)
    if _types.is_struct(kind) and _types.is_struct(joined):
        return any(becomes_text(field.type, joined.field(field.name).type) for field in kind)
    return bool(_types.is_string(joined))


def settle_type(kind: Any) -> Any:
    """The type that a file gets: few readers know a column without any value or field, which becomes one of text."""
    if _types.is_null(kind) or (_types.is_struct(kind) and not kind.num_fields):
        return pyarrow.string()
    if _types.is_list(kind):
        return pyarrow.list_(settle_type(kind.value_type))
    if _types.is_struct(kind):
        return pyarrow.struct([(field.name, settle_type(field.type)) for field in kind])
    return kind


def fit_array(array: Any, kind: Any) -> Any:
    """The array with a type that `join_types` and `settle_type` made of its own.

    Raises pyarrow.ArrowException for a decimal with more digits than the joined type has.
    """
    if array.type == kind:
        return array
    if _types.is_null(array.type):
        return pyarrow.nulls(len(array), kind)
    if _types.is_list(array.type) and _types.is_list(kind):
        values = fit_array(array.values, kind.value_type)
        return pyarrow.ListArray.from_arrays(array.offsets, values, type=kind, **_mask(array))
    if _types.is_struct(array.type) and _types.is_struct(kind):
        own = {field.name: at for at, field in enumerate(array.type)}
        fields = [
            fit_array(array.field(own[field.name]), field.type)
            if field.name in own
            else pyarrow.nulls(len(array), field.type)
            for field in kind
        ]
        return pyarrow.StructArray.from_arrays(fields, fields=list(kind), **_mask(array))
    if _types.is_string(kind):
        return _as_texts(array, kind)
    # Unchecked, an int64 in a column of float64 loses digits beyond 2**53, and a decimal that is too long all of them.
    return array.cast(kind, safe=_types.is_decimal(kind))


def _as_texts(array: Any, kind: Any) -> Any:
    """The array's values as text, a part at a time: as objects of Python, they take many times their memory."""
    at_once = max(1, min(_TEXTS_AT_ONCE, len(array) * _TEXT_BYTES_AT_ONCE // max(1, array.nbytes)))
    parts = [
        pyarrow.array(
            [None if value is None else _text_of(value) for value in array.slice(begin, at_once).to_pylist()], kind
        )
        for begin in range(0, len(array), at_once)
    ]
    return pyarrow.concat_arrays(parts) if parts else pyarrow.array([], kind)


def _mask(array: Any) -> Dict[str, Any]:
    """The argument that keeps an array's nulls. Older versions of Arrow do not know it."""
    return {"mask": array.is_null()} if array.null_count else {}


def _is_number(kind: Any) -> bool:
    return bool(_types.is_integer(kind) or _types.is_floating(kind))


def _join_numbers(one: Any, other: Any) -> Any:
    if _types.is_floating(one) and _types.is_floating(other):
        return max(one, other, key=lambda kind: kind.bit_width)
    if _types.is_integer(one) and _types.is_integer(other):
        if _types.is_signed_integer(one) == _types.is_signed_integer(other):
            return max(one, other, key=lambda kind: kind.bit_width)
        # The next larger signed type holds all unsigned values.
        bits = max(kind.bit_width * (1 if _types.is_signed_integer(kind) else 2) for kind in (one, other))
        if bits <= 64:
            return {16: pyarrow.int16(), 32: pyarrow.int32(), 64: pyarrow.int64()}[bits]
    return pyarrow.float64()


def _text_of(value: Any) -> str:
    """A value as text, the same from whichever type it comes: 3 and 3.0 are "3"."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, (list, dict)):
        return json.dumps(_json_of(value), ensure_ascii=False, default=_text_of)
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    if isinstance(value, Decimal):
        return format(value.normalize(), "f")
    if isinstance(value, datetime) and value.tzinfo is not None:
        return str(value.astimezone(timezone.utc))
    return str(value)


def _json_of(value: Any) -> Any:
    """A list or dict for JSON. A key without a value is left out: whether it is there depends on the other rows."""
    if isinstance(value, dict):
        return {name: _json_of(field) for name, field in value.items() if field is not None}
    if isinstance(value, list):
        return [_json_of(element) for element in value]
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    return value
