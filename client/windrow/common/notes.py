"""Notes: small JSON documents on disk, written atomically, each with its own checksum.

A note is one JSON object whose last key is `crc32`: the checksum of the object's text without that key. It covers every
byte of the file: a byte that was changed, cut off or added is noticed when the note is read.
"""

# Only cheap modules: this is on the way to the first run().
from __future__ import annotations

import os
from zlib import crc32

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_SUM = b'"crc32": '


class NoteDamaged(Exception):
    """A note was changed on the disk. `where`: its path; `what`: how the damage shows."""

    def __init__(self, where: str, what: str) -> None:
        super().__init__(f"{where} is damaged: {what}")
        self.where = where
        self.what = what


def render(value: Mapping[str, Any]) -> bytes:
    """The text of a note; `value` has no key `crc32`."""
    import json

    body = json.dumps(value).encode("ascii")
    return b"%b%b%b%d}\n" % (body[:-1], b", " if value else b"", _SUM, crc32(body))


def parse(text: bytes, where: str) -> dict[str, Any]:
    """Return the content of a note. Raises NoteDamaged, in which `where` names the note."""
    import json

    body, _, told = text.rpartition(_SUM)
    if body.endswith(b", "):
        body = body[:-2]
    body += b"}"
    # Compared as text: another spelling of the same number is also damage.
    if told != b"%d}\n" % crc32(body):
        raise NoteDamaged(where, "its checksum does not match its content" if text else "it is empty")
    value: dict[str, Any] = json.loads(body)
    return value


def write_note(path: str | os.PathLike[str], value: Mapping[str, Any], *, durable: bool = False) -> None:
    """Write a note atomically. Of several calls at the same time, one is the last.

    `durable`: it is on the disk, with its name, when this returns. Raises OSError.
    """
    if durable:
        from windrow.common.durable import write_whole

        write_whole(path, render(value))
        return
    folder, slash, name = os.fspath(path).rpartition("/")
    # Hidden by this name: otherwise a client that lists a folder of logs may ask for it when it is gone.
    partial = f"{folder}{slash}.{name}.{os.urandom(4).hex()}.windrow-partial"
    try:
        with open(partial, "wb") as file:
            file.write(render(value))
        os.rename(partial, path)  # noqa: PTH104  pathlib is not for the way to the first run()
    except OSError:
        try:
            os.unlink(partial)  # noqa: PTH108  the same
        except OSError:
            pass
        raise


def read_note(path: str | os.PathLike[str]) -> dict[str, Any] | None:
    """Return the content of a note, or None if it does not exist. Raises NoteDamaged, OSError."""
    try:
        with open(path, "rb") as file:
            text = file.read()
    except FileNotFoundError:
        return None
    return parse(text, os.fspath(path))
