"""Lists the files of a side input, in a store or in a local folder. Runs in the fetch process."""

from __future__ import annotations

import os
from pathlib import Path

from windrow.common.state_mark import STATE_MARK
from windrow.common.trees import walk
from windrow.storage.errors import StorageError, Trouble
from windrow.storage.listing import walk_objects
from windrow.storage.objects import stat_object
from windrow.storage.urls import is_remote, parse_url

from windrow_agent.fetch_process.messages import Part

FILES_MAX = 1_000_000
"""The most files and folders of a local folder. Links in it could lead to any number of them."""


def parts_below(address: str) -> tuple[str, list[Part]]:
    """The name of a file or folder within the folder of the request, and the parts to fetch for it.

    Raises StorageError if nothing is there, OSError for a path that cannot be read.
    """
    if not is_remote(address):
        return _local(Path(address))
    url = parse_url(address)
    name = url.key.rpartition("/")[2] or "data"
    single = stat_object(url)
    if single is not None:
        return name, [Part(address, single.size, single.version, name)]
    parts = [
        Part(str(url.below(found.name)), found.size, found.version, f"{name}/{found.name}")
        for chunk in ([] if url.is_web else walk_objects(url))
        for found in chunk
    ]
    if not parts:
        raise StorageError(f"There is nothing at {address}. Check the address.", Trouble.MISSING)
    return name, parts


def _local(path: Path) -> tuple[str, list[Part]]:
    name = path.name or "data"
    if path.is_file():
        return name, [Part(str(path), path.stat().st_size, "", name)]
    parts: list[Part] = []
    found = 0
    for folder, folders, names in walk(path, _raise, follow_links=True):
        # A state folder of Windrow's is not data, and changes all the time.
        folders[:] = [one for one in folders if not (Path(folder) / one / STATE_MARK).exists()]
        below = os.path.relpath(folder, path)
        place = name if below == "." else f"{name}/{below}"
        parts += [Part(os.path.join(folder, file), 0, "", f"{place}/{file}") for file in names]  # noqa: PTH118
        found += 1 + len(names)
        if found > FILES_MAX:
            raise StorageError(
                f"There are more than {FILES_MAX:,} files and folders below {path}, or links lead to the same ones "
                "again and again. Give the step a smaller folder.",
                Trouble.UNSUPPORTED,
            )
    return name, parts


def _raise(error: OSError) -> None:
    raise error
