"""Devices by which a process gets round what is closed to it: it reads and changes there all files of a disk, or the
memory of the machine, or reads what others type and see. Root may open them, and some groups, such as `disk`.
"""

from __future__ import annotations

import os
import re
import stat
from functools import lru_cache
from pathlib import Path

_FOLDERS = ("mapper", "bsg", "input")
"""Folders of such devices. More of them may come while a script runs."""
_NAMES = re.compile("(sg|ng|nvme|mtd|bsg)[0-9].*|mem|kmem|port|tty[0-9]+|vcs[au]?[0-9]*")
"""Of those that are no block devices: commands to disks, flash memory, the memory of the machine and its ports, and
consoles.
"""


def raw_devices(folder: str = "/dev") -> list[str]:
    """Those that this user may open, and folders of them."""
    try:
        # Nothing is looked at again until some have come or gone.
        return list(_found(folder, Path(folder).stat().st_mtime_ns))
    except OSError:
        return []


@lru_cache(maxsize=1)
def _found(folder: str, changed_ns: int) -> tuple[str, ...]:
    found = []
    with os.scandir(folder) as entries:
        for entry in entries:
            try:
                mode = entry.stat(follow_symlinks=False).st_mode
            except OSError:
                continue  # it has just gone
            if stat.S_ISDIR(mode):
                is_raw = entry.name in _FOLDERS
            else:
                is_raw = stat.S_ISBLK(mode) or (stat.S_ISCHR(mode) and _NAMES.fullmatch(entry.name) is not None)
            if is_raw and (os.access(entry.path, os.R_OK) or os.access(entry.path, os.W_OK)):
                found.append(entry.path)
    return tuple(found)
