"""A slice of a table in storage, brought here for as long as its rows are counted."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from windrow.storage.objects import read_part
from windrow.storage.urls import parse_url

from windrow_master.planning.remote import storage_errors


@contextmanager
def readable(recipe: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The recipe as a worker could carry it out on this machine: as agents hand it over (docs/contracts.md, section 4).

    Raises PlanningError.
    """
    if "etag" not in recipe:
        yield recipe
        return
    url, size = parse_url(recipe["file"]), recipe["size"]
    with tempfile.NamedTemporaryFile(prefix="windrow-") as file:
        whole = "spans" in recipe
        if whole:
            os.ftruncate(file.fileno(), size)
        for begin, end in recipe["spans"] if whole else [(recipe["begin"], recipe["end"])]:
            with storage_errors():
                data = read_part(url, size, recipe["etag"], begin, end)
            os.pwrite(file.fileno(), data, begin if whole else 0)
        yield {**recipe, "local": file.name}
