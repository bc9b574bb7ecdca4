"""Whether an object is still what was listed, known by its size and the store's mark of its content."""

from __future__ import annotations

from typing import Any

from windrow.storage.errors import StorageError, Trouble
from windrow.storage.urls import StorageUrl


def get_options(url: StorageUrl, version: str, begin: int, end: int) -> dict[str, Any]:
    """Options to read the bytes from `begin` to `end`, but only of the content that `version` marks."""
    options: dict[str, Any] = {"range": (begin, end)}
    if version.startswith(('"', "W/")) and not url.is_web:
        options["if_match"] = version
    return options


def check_same(url: StorageUrl, meta: Any, size: int, version: str) -> None:
    """Raises StorageError (CHANGED) if an object has changed since it was listed."""
    if meta["size"] != size or version_of(meta) != version:
        raise StorageError(
            f"{url} has changed since it was listed: it had {size} bytes ({version}) and now has {meta['size']} "
            f"({version_of(meta)}). Submit the job again when it no longer changes.",
            Trouble.CHANGED,
        )


def version_of(meta: dict[str, object]) -> str:
    """The mark of an object's content: its etag, or the time of its last change from a web server without etags."""
    return str(meta.get("e_tag") or meta.get("last_modified") or "")
