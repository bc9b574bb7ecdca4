"""The datastores of a master: names for folders and for places in remote storage.

Reference: docs/reference/azure-ml/parallel-job.md#inputs-and-outputs.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from windrow.spec.naming.locations import datastore_name, datastore_path
from windrow.storage.urls import parse_url


class UnknownDatastore(ValueError):
    """An address names a datastore that this master does not have; the text says so, and what to do."""


class Datastores:
    """Turns addresses of datastores into paths and addresses of stores."""

    def __init__(self, places: Mapping[str, str | os.PathLike[str]]) -> None:
        """`places`: a folder, or the address of a place in a store, by name."""
        self._places = {name: os.fspath(place) for name, place in places.items()}

    @property
    def places(self) -> dict[str, str]:
        """The place of each datastore, by name."""
        return dict(self._places)

    def has(self, name: str) -> bool:
        """Whether there is a datastore of this name."""
        return name in self._places

    def resolve(self, path: str) -> str:
        """Return the path or address behind the address of a datastore; other paths and addresses are returned
        unchanged. Raises UnknownDatastore.
        """
        if not path.startswith("azureml://"):
            return path
        found = datastore_path(path)
        if found is None:
            raise UnknownDatastore(f"{path} is not an address in a datastore")
        name = datastore_name(path)
        place = self._places.get(name)
        if place is None:
            known = ", ".join(sorted(self._places)) or "none"
            raise UnknownDatastore(
                f"{path} is in the datastore {name!r}, which this master does not have (it has: {known}). Start "
                f"the master with --datastore {name}=PATH, or {name}=s3://bucket/path, to say where that data "
                "is."
            )
        if not found.path:
            return place
        if place.startswith("/"):
            return os.path.join(place, found.path)  # noqa: PTH118  # text, as in documents
        return str(parse_url(place).below(found.path))
