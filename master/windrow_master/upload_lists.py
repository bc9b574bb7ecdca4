"""Lists of the files of clients' data, beside the master's state: by these it is known what two uploads have in common.

`uploads/<digest>` in the state folder: n x RECORD and the name, in the order of the archive; written when it is
unpacked, before its folder stands.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

RECORD = struct.Struct("<32sqI")
"""sha256 of the content, ctime in ns as it was left when it was unpacked, length of the name."""
_READ_BYTES = 1 << 20


class UploadedFile(NamedTuple):
    """One file. `name`: below the folder; `changed_ns`: its ctime, which nobody can set back."""

    name: bytes
    sha256: bytes
    changed_ns: int


def list_path(folder: str | os.PathLike[str], digest: str) -> Path:
    """Where the list of an upload is; `folder`: of all lists."""
    return Path(folder, digest)


def write_file(out: BinaryIO, file: UploadedFile) -> None:
    """Append one. Raises OSError."""
    out.write(RECORD.pack(file.sha256, file.changed_ns, len(file.name)) + file.name)


def read_list(path: Path) -> Iterator[UploadedFile]:
    """All of a list; nothing where there is none, or what is left of one that is cut."""
    try:
        with path.open("rb", _READ_BYTES) as file:
            while len(record := file.read(RECORD.size)) == RECORD.size:
                sha256, changed_ns, length = RECORD.unpack(record)
                if len(name := file.read(length)) < length:
                    return
                yield UploadedFile(name, sha256, changed_ns)
    except FileNotFoundError:
        return
