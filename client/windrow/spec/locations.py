"""Where data lies: the spellings of a `path`, and which of them this version can reach.

Reference: parallel-job.md, section 1.4; client.md, rule 4 and section 3 (paths in dumped pipelines).
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_ASSET = re.compile(r"[\w.-]+(:[\w.-]+|@[\w.-]+)", re.ASCII)


class Location(NamedTuple):
    """A location.

    `kind` is `local` (`value` is a path as written), `datastore` (`value` is what follows `azureml://`), `asset` or
    `remote`.
    """

    kind: str
    value: str


def parse_location(text: str) -> Location:
    """What a path text means; `azureml:` before a path of any kind is what a dumped pipeline writes, and is dropped."""
    rest = text.strip()
    if rest.startswith("azureml://"):
        return Location("datastore", rest.removeprefix("azureml://"))
    if rest.startswith("azureml:"):
        rest = rest.removeprefix("azureml:")
        if _ASSET.fullmatch(rest):
            return Location("asset", rest)
    if rest.startswith("file:"):
        return Location("local", _file_path(rest.removeprefix("file:")))
    if _SCHEME.match(rest):
        return Location("remote", rest)
    return Location("local", rest)


def why_unreachable(location: Location, text: str) -> str:
    """Why a location that is not local cannot be read yet, and what to do instead."""
    what = {
        "asset": f'"{text}" names a registered asset, and Windrow has no registry of assets',
        "datastore": f'"{text}" lies in a datastore, and datastores are not carried out yet',
        "remote": f'"{text}" is a remote address, and remote storage is not carried out yet',
    }[location.kind]
    return f"{what}; give a local path (relative to the file that holds it) or a mounted folder."


def absolute(value: str, folder: str) -> str:
    """A local path as an absolute one, from the folder of the file it is written in.

    `..` is resolved as the file system does, through links; other paths keep the links that they were written with.
    """
    path = os.path.join(folder, value)
    return os.path.realpath(path) if ".." in path.split("/") else os.path.normpath(path)


def _file_path(rest: str) -> str:
    if not rest.startswith("//"):
        return rest
    # A URI: percent-encoded, with an optional host that can only be this one.
    from urllib.parse import unquote

    return unquote("/" + rest.removeprefix("//").removeprefix("localhost").lstrip("/"))
