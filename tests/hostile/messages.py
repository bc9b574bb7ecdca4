"""Strategies for messages that nobody has sent on purpose: of the right type or not, large, cut, mixed with what is
valid."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message
from hypothesis import strategies as st
from protocol import Rpc

DEPTH_MAX = 4
MANY = 3_000
"""Entries of a repeated field that has many."""
MESSAGE_BYTES_HARD_MAX = 64 << 20
Leaf = str | bytes | int | float | bool
INTEGERS = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
}
ODD_INTEGERS = (
    0,
    1,
    2,
    3,
    255,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**53,
    2**63 - 1,
    2**63,
    2**64 - 1,
    -1,
    -(2**31),
    -(2**63),
)
ODD_FLOATS = (0.0, -0.0, 1.0, -1.0, 1e-300, 1e300, float("inf"), float("-inf"), float("nan"))
ODD_TEXTS = (
    "", ".", "..", "../../etc/passwd", "/etc/passwd", "/", "a/../b", "\0", "a\0b", "\n", "%s%n", "'; DROP TABLE job;--",
    "1", "-1", "1.2", "1.2.3", "9" * 19, "9" * 40, "9" * 5_000, "٣", "²", "nan", "x" * 5_000, "é" * 300, "\U0001f4a3",
    "{}", "[]", "null", "${{inputs.x}}", "azureml:x:1", "s3://x/y", "file:///etc/passwd", "*", "[", "\\", "~", " ",
    "\u202e", "sha256:" + "0" * 64, "0" * 64, "NaN", "1e999", "true",
)  # fmt: skip
ODD_JSON: tuple[Any, ...] = (
    None, True, False, 0, -1, 1.5, 1e308, 2**31, 2**63, 2**64, 10**30, "", "x", "../..", "9" * 30, [], {}, [[]], [None],
    {"": None}, float("nan"), float("inf"), "\ud800",
)  # fmt: skip
DEEP_JSON = b"[" * 100_000 + b"]" * 100_000


class Corpus:
    """What is valid: values by the name of their field, and whole messages by type."""

    def __init__(self) -> None:
        self._values: dict[str, list[Leaf]] = defaultdict(list)
        self._wholes: dict[str, list[bytes]] = defaultdict(list)

    def add(self, message: Message) -> None:
        """Add a message with all values in it."""
        raw = message.SerializeToString(deterministic=True)
        wholes = self._wholes[message.DESCRIPTOR.full_name]
        if raw not in wholes:
            wholes.append(raw)
        for field, value in message.ListFields():
            for one in _entries(field, value):
                if isinstance(one, Message):
                    self.add(one)
                else:
                    self.add_value(field.name, one)

    def add_value(self, name: str, value: Leaf) -> None:
        """Add a value of fields with a name."""
        if value not in self._values[name]:
            self._values[name].append(value)

    def forget(self, value: Leaf) -> None:
        """Leave a value out from now on."""
        for values in self._values.values():
            while value in values:
                values.remove(value)

    def values(self, name: str, kind: type) -> list[Any]:
        """Those of fields with a name, and of a Python type."""
        return [value for value in self._values.get(name, ()) if type(value) is kind]

    def all_values(self, kind: type) -> list[Any]:
        """Those of all fields, of a Python type."""
        return [value for name in self._values for value in self.values(name, kind)]

    def wholes(self, rpc: Rpc) -> list[bytes]:
        """Requests of a method, serialised."""
        return self._wholes.get(rpc.request.DESCRIPTOR.full_name, [])

    def filled(self, rpc: Rpc) -> Message:
        """A request whose fields hold valid values, as far as some are known by their names."""
        message = rpc.request()
        for field in message.DESCRIPTOR.fields:
            kind = {FieldDescriptor.CPPTYPE_STRING: bytes if field.type == FieldDescriptor.TYPE_BYTES else str}
            values = self.values(field.name, kind.get(field.cpp_type, int))
            if values and field.cpp_type != FieldDescriptor.CPPTYPE_MESSAGE and not is_repeated(field):
                setattr(message, field.name, values[0])
        return message


def is_repeated(field: FieldDescriptor) -> bool:
    """Whether a field holds several values. protobuf 7 has no `label`, and protobuf 5 nothing else."""
    found = getattr(field, "is_repeated", None)
    return bool(field.label == FieldDescriptor.LABEL_REPEATED if found is None else found)


def _entries(field: FieldDescriptor, value: Any) -> Iterable[Any]:
    if not is_repeated(field):
        return [value]
    if isinstance(value, dict) or hasattr(value, "items"):
        return [*value.keys(), *value.values()]
    return list(value)


def requests(rpc: Rpc, corpus: Corpus) -> st.SearchStrategy[bytes]:
    """The bytes of one request."""
    made = messages(rpc.request.DESCRIPTOR, corpus).map(lambda fill: _serialised(rpc, fill))
    valid = st.sampled_from([corpus.filled(rpc).SerializeToString(), *corpus.wholes(rpc)])
    nearly = st.builds(partial(_changed, rpc), valid, _one_field(rpc.request.DESCRIPTOR, corpus))
    mutated = st.builds(_mutated, valid | made, st.lists(_mutation, min_size=1, max_size=4))
    large = st.builds(_padded, valid | made, st.sampled_from([1 << 16, 1 << 20, (4 << 20) + 1]))
    huge = st.builds(_padded, valid, st.sampled_from([MESSAGE_BYTES_HARD_MAX - 1000, MESSAGE_BYTES_HARD_MAX + 1]))
    rare = st.sampled_from(range(400)).flatmap(lambda number: huge if number == 7 else large)
    return st.sampled_from(range(100)).flatmap(
        lambda number: (
            made if number < 30
            else nearly if number < 65
            else valid if number < 70
            else mutated if number < 90
            else st.binary(max_size=60) if number < 98
            else rare
        )
    )  # fmt: skip


def _one_field(descriptor: Descriptor, corpus: Corpus) -> st.SearchStrategy[dict[str, Any]]:
    """Another value of one field."""
    fields = [st.fixed_dictionaries({field.name: _field(field, corpus, 1)}) for field in descriptor.fields]
    return st.one_of(fields) if fields else st.just({})


def _changed(rpc: Rpc, raw: bytes, values: dict[str, Any]) -> bytes:
    message = rpc.request.FromString(raw)
    for name, value in values.items():
        message.ClearField(name)
        _set(message, name, value)
    return message.SerializeToString()


def _serialised(rpc: Rpc, fill: Callable[[Message], None]) -> bytes:
    message = rpc.request()
    fill(message)
    return message.SerializeToString()


_mutation = st.tuples(st.sampled_from(["flip", "cut", "insert", "repeat"]), st.integers(0, 2**16), st.integers(0, 255))


def _mutated(raw: bytes, changes: list[tuple[str, int, int]]) -> bytes:
    found = bytearray(raw)
    for way, at, byte in changes:
        place = at % (len(found) + 1)
        if way == "cut":
            del found[place:]
        elif way == "insert":
            found.insert(place, byte)
        elif way == "repeat":
            found += found[place : place + 1 + byte]
        elif place < len(found):
            found[place] ^= 1 << byte % 8
    return bytes(found)


def _padded(raw: bytes, length: int) -> bytes:
    """With an unknown field of so many bytes: number 2000, wire type 2."""
    size, prefix = length, bytearray(b"\x82\x7d")
    while size > 127:
        prefix.append(size & 127 | 128)
        size >>= 7
    prefix.append(size)
    return raw + bytes(prefix) + bytes(length)


def messages(descriptor: Descriptor, corpus: Corpus, depth: int = 0) -> st.SearchStrategy[Callable[[Message], None]]:
    """Functions that fill an empty message."""
    choices = {
        field.name: _field(field, corpus, depth)
        for field in descriptor.fields
        if depth < DEPTH_MAX or field.cpp_type != FieldDescriptor.CPPTYPE_MESSAGE
    }

    def fill(values: dict[str, Any]) -> Callable[[Message], None]:
        def into(message: Message) -> None:
            for name, value in values.items():
                _set(message, name, value)

        return into

    # More are left out than there are: deep messages would be huge.
    return st.fixed_dictionaries({}, optional=choices).map(fill)


def _field(field: FieldDescriptor, corpus: Corpus, depth: int) -> st.SearchStrategy[Any]:
    if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
        kind = field.message_type
        if kind.GetOptions().map_entry:
            value = kind.fields_by_name["value"]
            if value.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
                values: st.SearchStrategy[Any] = messages(value.message_type, corpus, depth + 1)
            else:
                values = _leaf(value, corpus)
            return st.lists(st.tuples(_leaf(kind.fields_by_name["key"], corpus), values), max_size=3)
        one: st.SearchStrategy[Any] = messages(kind, corpus, depth + 1)
    else:
        one = _leaf(field, corpus)
    if not is_repeated(field):
        return one
    # A few different ones, or very many of the same; not very many in each of very many.
    few = st.lists(one, max_size=3)
    return few | one.map(_many) if depth == 0 else few


def _many(value: Any) -> list[Any]:
    long = isinstance(value, str | bytes) and len(value) > 100
    return [value] * (3 if long else MANY)


def _leaf(field: FieldDescriptor, corpus: Corpus) -> st.SearchStrategy[Any]:
    kind = field.cpp_type
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return st.booleans()
    if kind == FieldDescriptor.CPPTYPE_ENUM:
        return st.sampled_from([*(value.number for value in field.enum_type.values), 99, -1, 2**31 - 1])
    if kind in (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT):
        return st.sampled_from(ODD_FLOATS) | st.floats(width=32)
    if kind in INTEGERS:
        least, most = INTEGERS[kind]
        known = [value for value in corpus.values(field.name, int) if least <= value <= most]
        odd = [value for value in ODD_INTEGERS if least <= value <= most]
        return st.sampled_from([*known, *odd, *known]) | st.integers(least, most)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return _bytes(field, corpus)
    texts = corpus.values(field.name, str)
    odd_texts = st.sampled_from([*ODD_TEXTS, *corpus.all_values(str)])
    free = st.text(st.characters(codec="utf-8"), max_size=20)
    return st.sampled_from(texts) | odd_texts | free if texts else odd_texts | free


def _bytes(field: FieldDescriptor, corpus: Corpus) -> st.SearchStrategy[bytes]:
    known = corpus.values(field.name, bytes)
    found = st.binary(max_size=40) | st.sampled_from([text.encode() for text in ODD_TEXTS] + [DEEP_JSON])
    if known:
        found = st.sampled_from(known) | found
    documents = [one for one in known if one[:1] == b"{"]
    if documents:
        wrong = st.builds(
            _wrong_document,
            st.sampled_from(documents),
            st.lists(st.tuples(st.integers(0, 2**16), st.sampled_from(ODD_JSON)), min_size=1, max_size=3),
        )
        found = wrong | wrong | found
    return found


def _wrong_document(document: bytes, changes: list[tuple[int, Any]]) -> bytes:
    """A JSON document with other values in some places."""
    root = json.loads(document)
    for number, value in changes:
        places = list(_places(root))
        if places:
            holder, key = places[number % len(places)]
            holder[key] = value
    return json.dumps(root).encode()


def _places(node: Any) -> Iterable[tuple[Any, Any]]:
    """Everything in a document that can be replaced: its holder, and its key there."""
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in items:
        yield node, key
        yield from _places(value)


def _set(message: Message, name: str, value: Any) -> None:
    field = message.DESCRIPTOR.fields_by_name[name]
    if field.cpp_type != FieldDescriptor.CPPTYPE_MESSAGE:
        if is_repeated(field):
            getattr(message, name).extend(value)
        else:
            setattr(message, name, value)
        return
    if field.message_type.GetOptions().map_entry:
        for key, one in value:
            if callable(one):
                one(getattr(message, name)[key])
            else:
                getattr(message, name)[key] = one
        return
    if not is_repeated(field):
        part = getattr(message, name)
        part.SetInParent()
        value(part)
        return
    if len(value) >= MANY:
        # Made once: filling thousands takes seconds.
        first = getattr(message, name).add()
        value[0](first)
        getattr(message, name).extend([first] * (MANY - 1))
        return
    for fill in value:
        fill(getattr(message, name).add())


def is_readable(rpc: Rpc, raw: bytes) -> bool:
    """Whether bytes are a message of the method."""
    try:
        rpc.request.FromString(raw)
    except DecodeError:
        return False
    return True
