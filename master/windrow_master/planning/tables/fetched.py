"""A slice of a table in storage, fetched to this machine while its rows are read."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from windrow.storage.objects import read_part
from windrow.storage.urls import parse_url

from windrow_master.planning.listing.remote import storage_errors

PART_BYTES = 4 << 20
"""The most bytes of one request, which limits the memory for fetching a slice."""


@contextmanager
def readable(recipe: dict[str, Any], folder: str | None = None) -> Iterator[dict[str, Any]]:
    """The recipe as a worker could carry it out on this machine: as agents hand it over (docs/contracts.md, section 4).

    `folder`: where the file is made; the system's temporary folder if None. Raises PlanningError, OSError.
    """
    if "etag" not in recipe:
        yield recipe
        return
    url, size, keep_offsets = parse_url(recipe["file"]), recipe["size"], "spans" in recipe
    # Without a name, so that a planner that is killed leaves nothing behind.
    with tempfile.TemporaryFile(prefix="windrow-", dir=folder) as file:
        if keep_offsets:
            os.ftruncate(file.fileno(), size)
        for first, last in ranges(recipe):
            for begin in range(first, last, PART_BYTES):
                with storage_errors():
                    data = read_part(url, size, recipe["etag"], begin, min(last, begin + PART_BYTES))
                os.pwrite(file.fileno(), data, begin if keep_offsets else begin - first)
        yield {**recipe, "local": f"/proc/self/fd/{file.fileno()}"}


def ranges(recipe: dict[str, Any]) -> list[tuple[int, int]]:
    """The bytes that a recipe needs of its file."""
    return recipe["spans"] if "spans" in recipe else [(recipe["begin"], recipe["end"])]
