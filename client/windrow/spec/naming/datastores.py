"""Datastores as given on a command line: `NAME=PLACE`.

Reference: docs/reference/azure-ml/parallel-job.md#inputs-and-outputs.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from windrow.storage.urls import BadUrl, canonical, is_remote

DEFAULT = "default"
"""The datastore for outputs without a path."""
DEFAULT_DATASTORES = ("${{default_datastore}}", "workspaceblobstore")
"""The names that job files use for the default datastore."""


class BadDatastore(ValueError):
    """A datastore that cannot be used; the text says why, and what to write."""


def read_datastores(items: Iterable[str]) -> dict[str, str]:
    """Return the absolute path of an existing folder, or an address, for each name. Raises BadDatastore."""
    places: dict[str, str] = {}
    for item in items:
        name, _, place = item.partition("=")
        name = DEFAULT if name in DEFAULT_DATASTORES else name
        if name and is_remote(place):
            if name == DEFAULT:
                raise BadDatastore(
                    f"--datastore {item}: the default datastore keeps outputs and uploads, and has to be a folder"
                )
            try:
                places[name] = canonical(place)
            except BadUrl as error:
                raise BadDatastore(f"--datastore {name}: {error}") from error
        elif not name or not place or not os.path.isdir(place):
            raise BadDatastore(
                f"--datastore {item}: write NAME=PATH with a folder that exists, or NAME=s3://bucket/path"
            )
        else:
            places[name] = os.path.realpath(place)
    return places
