"""The options of a run on this machine, kept for its retry: `jobs/<job>/run.json` in the state folder.

Only options that were typed are kept; a run without any leaves no file.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

from windrow.common.notes import NoteDamaged, read_note, write_note
from windrow.errors import StateFolderError


class RememberedOptions(NamedTuple):
    """`python`: interpreter for the scripts, absolute, or None; `datastores`: NAME=PLACE, with absolute paths."""

    python: str | None = None
    environments: str = "build"
    datastores: tuple[str, ...] = ()


def remember(folder: str, job_id: str, python: str | None, environments: str, datastores: Sequence[str]) -> None:
    """Keep the options of a run. Raises OSError."""
    options = RememberedOptions(python, environments, tuple(_absolute(one) for one in datastores))
    path = _path(folder, job_id)
    if options == RememberedOptions():
        return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    write_note(path, options._asdict())


def recall(folder: str, job_id: str) -> RememberedOptions:
    """The options kept of a run; the defaults if nothing was kept. Raises StateFolderError if they are damaged."""
    try:
        found = read_note(_path(folder, job_id))
        if found is None:
            return RememberedOptions()
        return RememberedOptions(found["python"], found["environments"], tuple(found["datastores"]))
    except (NoteDamaged, LookupError, TypeError) as error:
        raise StateFolderError(
            f"{error}. It holds the Python and the datastores of {job_id}, so the job is not retried. Run its job file "
            f"again, with the same options and `--since {job_id}`, which takes over what is done."
        ) from error
    except OSError as error:
        raise StateFolderError(f"{_path(folder, job_id)} cannot be read: {error.strerror}. Check that disk.") from error


def _path(folder: str, job_id: str) -> str:
    return os.path.join(folder, "jobs", job_id, "run.json")


def _absolute(datastore: str) -> str:
    name, equals, place = datastore.partition("=")
    return datastore if not equals or "://" in place else f"{name}={os.path.abspath(place)}"
