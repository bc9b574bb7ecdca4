"""An output in a store: whether an existing object may be replaced, and the upload.

The rows are concatenated in the step's folder first, by the state machine of `concatenation`. Then:

    nothing -> recorded -> uploaded (as a whole or not at all) -> verified

An uploaded object carries its digest as metadata, which is lost when anybody writes to the object: an object is ours
and unchanged if it carries a digest that was recorded for its address.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from io import FileIO
from pathlib import Path

from windrow.storage.errors import StorageError, Trouble, explained
from windrow.storage.stores import open_store
from windrow.storage.urls import parse_url

from windrow_master.crash_points import reach
from windrow_master.output.errors import ConcatenationStopped
from windrow_master.output.target import foreign
from windrow_master.store.records import OutputRow

DIGEST_KEY = "windrow-sha256"
CHUNK_BYTES = 16 << 20
"""Parts of an upload; a store takes at most 10,000 of them."""
PARTS_MAX = 9_000
STAMP_S = 1.0
"""Stores give the time of an object's last change in whole seconds."""
UPLOADS_AT_ONCE = 4


def refuse_foreign_object(
    address: str, outputs_at: Callable[[str], Sequence[OutputRow]], *, submitted: float | None = None
) -> None:
    """Raise TargetForeign unless there is nothing at an address, or an empty object, or what Windrow wrote, unchanged.

    Raises StorageError, also if the bucket does not exist. `submitted`: as in `target.refuse_foreign`.
    """
    url = parse_url(address)
    store = open_store(url.root)
    try:
        found = store.get(url.key, options={"head": True})
    except FileNotFoundError:
        need_bucket(address)
        return
    except Exception as error:
        raise explained(error, "cannot be examined", address) from error
    if found.meta["size"] == 0:
        return
    known = outputs_at(address)
    digest = found.attributes.get(DIGEST_KEY)
    if any(row.digest == digest and row.length == found.meta["size"] for row in known):
        return
    if submitted is not None and digest and found.meta["last_modified"].timestamp() > submitted - STAMP_S:
        return
    raise foreign(address, known=bool(known))


def stands_there(row: OutputRow) -> bool:
    """Whether an object carries the digest, and has the length, of an output. Raises StorageError."""
    url = parse_url(row.path)
    try:
        found = open_store(url.root).get(url.key, options={"head": True})
    except FileNotFoundError:
        return False
    except Exception as error:
        raise explained(error, "cannot be examined", row.path) from error
    return (found.attributes.get(DIGEST_KEY), found.meta["size"]) == (row.digest, row.length)


class _Rows(FileIO):
    """A file that is uploaded, until the upload is to stop."""

    def __init__(self, path: Path, stop: threading.Event) -> None:
        super().__init__(path)
        self._stop = stop

    def read(self, size: int | None = -1, /) -> bytes:
        """Raise OSError if the upload is to stop."""
        if self._stop.is_set():
            raise OSError(f"the upload of {self.name} was stopped")
        return super().read(size)


def upload(rows: Path, row: OutputRow, record: Callable[[OutputRow], None], stop: threading.Event) -> None:
    """Put a file at the address that `row` names; `row` also has its length and digest.

    Raises StorageError, ConcatenationStopped.
    """
    url = parse_url(row.path)
    record(row)
    reach("upload.recorded")
    try:
        store = open_store(url.root)
        with _Rows(rows, stop) as file:
            store.put(
                url.key,
                file,
                attributes={DIGEST_KEY: row.digest},
                chunk_size=max(CHUNK_BYTES, row.length // PARTS_MAX + 1),
                max_concurrency=UPLOADS_AT_ONCE,
            )
        reach("upload.uploaded")
        size = store.head(url.key)["size"]
    except StorageError:
        raise
    except Exception as error:
        if stop.is_set():
            raise ConcatenationStopped(f"The upload of {row.path} was stopped.") from error
        raise explained(error, "cannot be written", row.path) from error
    if size != row.length:
        raise StorageError(f"{row.path} has {size} bytes, but {row.length} were written. Check that store.")


def need_bucket(address: str) -> None:
    """Raise StorageError if the bucket does not exist.

    A store answers "not found" for a missing object and for a missing bucket alike; listing objects distinguishes them.
    """
    url = parse_url(address)
    try:
        next(iter(open_store(url.root).list(url.key, chunk_size=1)), None)
    except Exception as error:
        told = explained(error, "cannot be written", address)
        # Other errors pass: permission to write does not imply permission to list.
        if told.trouble is Trouble.MISSING:
            raise told from error
