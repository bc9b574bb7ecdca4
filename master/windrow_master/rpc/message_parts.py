"""Counts what an encoded message holds, before it is made into objects: these take a hundred times the memory, and the
event loop waits while they are made and looked at.
"""

from __future__ import annotations

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
"""Wire types. Groups have others; what has one is no message of ours."""
_CONTINUED = bytes(range(128, 256))
"""The bytes of a varint that are not its last."""
_VARINT_BITS_MAX = 70
_DEPTH_MAX = 8
_NOT_COUNTED = frozenset((FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES, FieldDescriptor.TYPE_MESSAGE))
_PACKED_BYTES = {
    FieldDescriptor.TYPE_BOOL: 1,
    FieldDescriptor.TYPE_FIXED32: 4,
    FieldDescriptor.TYPE_SFIXED32: 4,
    FieldDescriptor.TYPE_FLOAT: 4,
    FieldDescriptor.TYPE_FIXED64: 8,
    FieldDescriptor.TYPE_SFIXED64: 8,
    FieldDescriptor.TYPE_DOUBLE: 8,
}
"""Bytes of one number of a packed list; the others are varints."""


def count_parts(raw: bytes, descriptor: Descriptor, most: int) -> int:
    """How many fields a message has, each entry of a list as one; also those of messages in it that are no list. Not
    what is in the entries: that is looked at one by one. Counts no further than one beyond `most`, and never more than
    the message has bytes. Raises DecodeError.
    """
    try:
        return _count(raw, descriptor, most, 0)
    except IndexError:
        raise DecodeError("it ends in the middle of a field") from None


def _count(raw: bytes, descriptor: Descriptor, most: int, depth: int) -> int:
    fields, at, end, found = descriptor.fields_by_number, 0, len(raw), 0
    while at < end and found <= most:
        tag, at = _varint(raw, at)
        wire = tag & 7
        if wire == _VARINT:
            _, at = _varint(raw, at)
        elif wire == _LENGTH:
            length, at = _varint(raw, at)
            field = fields.get(tag >> 3)
            if field is None:
                pass
            elif field.type not in _NOT_COUNTED:
                found += max(1, _packed(raw[at : at + length], field)) - 1
            elif field.message_type is not None and field.has_presence and depth < _DEPTH_MAX:
                found += _count(raw[at : at + length], field.message_type, most - found, depth + 1)
            at += length
        elif wire in (_FIXED64, _FIXED32):
            at += 8 if wire == _FIXED64 else 4
        else:
            raise DecodeError(f"it has a field of the wire type {wire}")
        found += 1
    return min(found, most + 1)


def _packed(raw: bytes, field: FieldDescriptor) -> int:
    """How many numbers a packed list has."""
    size = _PACKED_BYTES.get(field.type)
    return len(raw.translate(None, _CONTINUED)) if size is None else len(raw) // size


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    """A number and where it ends. Raises DecodeError, IndexError."""
    byte = raw[at]
    if byte < 128:
        return byte, at + 1
    number, shift = byte & 127, 7
    while shift < _VARINT_BITS_MAX:
        at += 1
        byte = raw[at]
        number |= (byte & 127) << shift
        if byte < 128:
            return number, at + 1
        shift += 7
    raise DecodeError("it has a number that is too long")
