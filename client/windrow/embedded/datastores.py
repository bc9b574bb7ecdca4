"""The datastores of a private master: those that a command names, and those of earlier runs over its state folder.

`datastores.json` in the state folder keeps them, so that later commands need not name them again.
"""

# Only cheap modules: this is on the way to the first run().
from __future__ import annotations

import os

from windrow.errors import StateFolderError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FILE = "datastores.json"


def read(items: Sequence[str]) -> dict[str, str]:
    """Places by name, from `NAME=PLACE` items. Raises UsageError."""
    if not items:
        return {}
    from windrow.spec.naming.datastores import BadDatastore, read_datastores

    try:
        return read_datastores(items)
    except BadDatastore as error:
        raise UsageError(f"{error}.") from error


def gather(folder: str, given: Mapping[str, str]) -> dict[str, str]:
    """The given datastores, which are kept from now on, and those that the state folder keeps already.

    Raises StateFolderError.
    """
    path = os.path.join(folder, FILE)
    if not given and not os.path.exists(path):
        return {}
    kept = _kept(path)
    together = {**kept, **given}
    if together != kept:
        from windrow.common.notes import write_note

        write_note(path, {"datastores": together})
    return _there(together)


def known(folder: str, given: Mapping[str, str]) -> dict[str, str]:
    """What `gather` would return, without keeping anything. The folder may not exist. Raises StateFolderError."""
    return _there({**_kept(os.path.join(folder, FILE)), **given})


def _kept(path: str) -> dict[str, str]:
    if not os.path.exists(path):
        return {}
    from windrow.common.notes import NoteDamaged, read_note

    try:
        kept: dict[str, str] = (read_note(path) or {"datastores": {}})["datastores"]
    except (NoteDamaged, KeyError) as error:
        raise StateFolderError(
            f"{error}. It keeps the datastores of the runs over this folder. Remove that file, and give all of them "
            "again: --datastore NAME=PLACE."
        ) from error
    except OSError as error:
        raise StateFolderError(f"{path} cannot be read: {error.strerror}. Check that disk.") from error
    return kept


def _there(places: Mapping[str, str]) -> dict[str, str]:
    """Leave out folders that no longer exist; whatever names them reports that."""
    return {name: place for name, place in places.items() if not place.startswith("/") or os.path.isdir(place)}
