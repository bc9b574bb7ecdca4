"""Lists of the files that clients uploaded, kept beside the master's state. They show what two uploads have in common.

`uploads/<digest>` in the state folder has a record (`checked_records`) for each file: RECORD and the name, in the order
of the archive. It is written while the archive is unpacked, before its folder is in place.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from windrow_master.files.checked_records import RecordWriter, read_records

RECORD = struct.Struct("<32sq")
"""The sha256 of the content, and the ctime in ns after unpacking. The name follows."""
RECORD_BYTES_MAX = RECORD.size + (1 << 16)
_READ_BYTES = 1 << 20


class UploadedFile(NamedTuple):
    """One file. `name`: its path below the folder; `changed_ns`: its ctime, which nobody can set back."""

    name: bytes
    sha256: bytes
    changed_ns: int


def list_path(folder: str | os.PathLike[str], digest: str) -> Path:
    """The path of the list of an upload. `folder`: the folder of all lists."""
    return Path(folder, digest)


def write_file(out: RecordWriter, file: UploadedFile) -> None:
    """Append a file to a list. Raises OSError."""
    out.write(RECORD.pack(file.sha256, file.changed_ns) + file.name)


def read_list(path: Path) -> Iterator[UploadedFile]:
    """The files in a list. A missing list yields nothing; a damaged or cut one yields what stands before the damage.

    A file that is not listed may have changed.
    """
    try:
        with path.open("rb", _READ_BYTES) as file:
            for record in read_records(file, RECORD_BYTES_MAX):
                yield UploadedFile(record[RECORD.size :], *RECORD.unpack_from(record))
    except FileNotFoundError:
        return
