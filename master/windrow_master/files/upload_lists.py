"""Lists of the files of clients' data, beside the master's state: by these it is known what two uploads have in common.

`uploads/<digest>` in the state folder: a record (`checked_records`) a file, RECORD and the name, in the order of the
archive; written when it is unpacked, before its folder stands.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from windrow_master.files.checked_records import RecordWriter, read_records

RECORD = struct.Struct("<32sq")
"""sha256 of the content, ctime in ns as it was left when it was unpacked. The name follows."""
RECORD_BYTES_MAX = RECORD.size + (1 << 16)
_READ_BYTES = 1 << 20


class UploadedFile(NamedTuple):
    """One file. `name`: below the folder; `changed_ns`: its ctime, which nobody can set back."""

    name: bytes
    sha256: bytes
    changed_ns: int


def list_path(folder: str | os.PathLike[str], digest: str) -> Path:
    """Where the list of an upload is; `folder`: of all lists."""
    return Path(folder, digest)


def write_file(out: RecordWriter, file: UploadedFile) -> None:
    """Append one. Raises OSError."""
    out.write(RECORD.pack(file.sha256, file.changed_ns) + file.name)


def read_list(path: Path) -> Iterator[UploadedFile]:
    """All of a list; nothing where there is none, and of one that is damaged or cut, what stands before that: of files
    that are not listed, nobody knows that they have not changed.
    """
    try:
        with path.open("rb", _READ_BYTES) as file:
            for record in read_records(file, RECORD_BYTES_MAX):
                yield UploadedFile(record[RECORD.size :], *RECORD.unpack_from(record))
    except FileNotFoundError:
        return
