"""The datastores of a private master: those that a command names, and those of the runs that its state folder holds.

`datastores.json` in the state folder keeps them: a run goes on, or is only looked at, by commands that do not name
them.
"""

# Only cheap modules: this is on the way to the first run().
from __future__ import annotations

import os

from windrow.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FILE = "datastores.json"


def read(items: Sequence[str]) -> dict[str, str]:
    """Names, and where each is. `items`: `NAME=PLACE`. Raises UsageError."""
    if not items:
        return {}
    from windrow.spec.datastores import BadDatastore, read_datastores

    try:
        return read_datastores(items)
    except BadDatastore as error:
        raise UsageError(f"{error}.") from error


def gather(folder: str, given: Mapping[str, str]) -> dict[str, str]:
    """Those given, which are kept from now on, and those that the state folder holds already."""
    path = os.path.join(folder, FILE)
    if not given and not os.path.exists(path):
        return {}
    kept = _kept(path)
    together = {**kept, **given}
    if together != kept:
        import json

        with open(f"{path}.new", "w") as file:
            json.dump(together, file)
        os.replace(f"{path}.new", path)
    return _there(together)


def known(folder: str, given: Mapping[str, str]) -> dict[str, str]:
    """What `gather` would return; nothing is kept. The folder need not be there."""
    return _there({**_kept(os.path.join(folder, FILE)), **given})


def _kept(path: str) -> dict[str, str]:
    import json

    try:
        with open(path) as file:
            kept: dict[str, str] = json.load(file)
    except (OSError, ValueError):
        return {}
    return kept


def _there(places: Mapping[str, str]) -> dict[str, str]:
    """A folder that is gone is none any more: what names it will say so."""
    return {name: place for name, place in places.items() if not place.startswith("/") or os.path.isdir(place)}
