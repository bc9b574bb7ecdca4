"""`<python> -I reach.py`: says what this user cannot read or write. A document on stdin, `{"read": [path], "write":
[path]}`; one on stdout, `{"read": [[path, the part of it that is closed]], "write": [[path, that part]]}`.

It runs in the interpreter of scripts, as the user of a job, and uses the standard library only (Python 3.7 or newer).
Of a folder, its first files are looked at, too.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
from pathlib import Path

_FILES_MAX = 20


def closed_part(path: str, mode: int) -> str:
    """The first part of an existing path, or of the path that it leads to, that this user may not use; "" if none."""
    target = os.path.realpath(path)
    for way in (path, target):
        for end, letter in enumerate(way):
            if letter == "/" and end and not os.access(way[:end], os.X_OK):
                return way[:end]
    return "" if os.access(target, mode | (os.X_OK if Path(target).is_dir() else 0)) else target


def unreadable(path: str) -> str:
    """What of a file, or of a folder with its first files, cannot be read; "" if all can."""
    found = closed_part(path, os.R_OK)
    if found or not Path(path).is_dir():
        return found
    with os.scandir(path) as entries:
        for entry in itertools.islice(entries, _FILES_MAX):
            if entry.is_file() and not os.access(entry.path, os.R_OK):
                return entry.path
    return ""


def _main() -> None:
    asked = json.load(sys.stdin)
    answer = {
        "read": [[path, part] for path in asked["read"] for part in [unreadable(path)] if part],
        "write": [[path, part] for path in asked["write"] for part in [closed_part(path, os.R_OK | os.W_OK)] if part],
    }
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    _main()
