"""Where data is: the ways to write a `path`, and which of them Windrow can reach.

Reference: docs/reference/azure-ml/parallel-job.md#inputs-and-outputs; docs/reference/azure-ml/client.md#dumped-jobs.
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from windrow.spec.naming.datastores import DEFAULT, DEFAULT_DATASTORES
from windrow.storage.urls import BadUrl, canonical, is_remote

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_ASSET = re.compile(r"[\w.-]+(:[\w.-]+|@[\w.-]+)", re.ASCII)


class Location(NamedTuple):
    """A location.

    `kind` is `local` (`value` is a path as written), `datastore` (`value` is what follows `azureml://`), `asset`,
    `remote`, `other_host` (a `file:` address that names another machine), or `unknown`: an address of storage that
    cannot be reached.
    """

    kind: str
    value: str


def parse_location(text: str) -> Location:
    """What a path means. `azureml:` before any path is dropped: dumped pipelines write it."""
    rest = text.strip()
    if rest.startswith("azureml://"):
        return Location("datastore", rest.removeprefix("azureml://"))
    if rest.startswith("azureml:"):
        rest = rest.removeprefix("azureml:")
        if _ASSET.fullmatch(rest):
            return Location("asset", rest)
    if rest[:5].lower() == "file:":
        return Location("other_host", rest) if host_of_file_url(rest) else Location("local", _file_path(rest[5:]))
    if is_remote(rest):
        return Location("remote", rest)
    if _SCHEME.match(rest):
        return Location("unknown", rest)
    return Location("local", rest)


def host_of_file_url(text: str) -> str:
    """The machine that a `file:` address names (`file://host/path`), if that is another machine; otherwise empty."""
    found = _FILE_HOST.match(text)
    return "" if found is None or found[1].lower() == "localhost" else found[1]


_FILE_HOST = re.compile("file://([^/]+)", re.IGNORECASE)


def why_missing(path: str) -> str:
    """Why there is neither a file nor a folder at a path, for messages."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return "does not exist"
    except OSError as error:
        return f"cannot be accessed: {error.strerror}"
    return "is neither a file nor a folder"


class DatastorePath(NamedTuple):
    """A place in a datastore of the master: the datastore's name, and the path in it."""

    name: str
    path: str

    def __str__(self) -> str:
        return f"{_DATASTORES}{self.name}/paths/{self.path}"


_DATASTORES = "azureml://datastores/"


def datastore_path(text: str) -> DatastorePath | None:
    """The place named by a datastore address, in its short form (`azureml://datastores/<name>/paths/<path>`) or in
    the long one (`azureml://subscriptions/…/workspaces/<w>/datastores/<name>/paths/<path>`); None for any other text.
    """
    found = _DATASTORE_PATH.fullmatch(text)
    if found is None:
        return None
    parts = [part for part in found[2].split("/") if part not in ("", ".")]
    return None if ".." in parts else DatastorePath(found[1], "/".join(parts))


def datastore_name(text: str) -> str:
    """The master's name for the datastore in an address; "" if it is not a datastore address."""
    found = datastore_path(text)
    return "" if found is None else DEFAULT if found.name in DEFAULT_DATASTORES else found.name


_DATASTORE_PATH = re.compile(
    r"azureml://(?:subscriptions/[^/]+/resource[gG]roups/[^/]+/(?:providers/[^/]+/)?workspaces/[^/]+/)?"
    r"datastores/([^/]+)/paths/(.*)",
    re.DOTALL,
)


def is_elsewhere(text: str) -> bool:
    """Whether the path of an input or output is an address (of a store or datastore) and not a file system path."""
    return is_remote(text) or text.startswith("azureml://")


def elsewhere(location: Location, text: str) -> str:
    """The canonical address of a remote location or datastore path. Raises BadUrl."""
    if location.kind == "remote":
        return canonical(location.value)
    found = datastore_path(f"azureml://{location.value}")
    if found is None:
        raise BadUrl(_why_no_datastore(text))
    return str(found)


def _why_no_datastore(text: str) -> str:
    kind = _OF_A_WORKSPACE.match(text)
    if kind is not None:
        return (
            f'"{text}" names something in a workspace or registry of Azure ML, which Windrow cannot reach; register '
            "the data here (windrow data create, windrow model create) and write azureml:<name>:<version>, or give the "
            "address of its store or a path"
        )
    return f'"{text}" is not the address of a datastore; write azureml://datastores/<name>/paths/<path>'


_OF_A_WORKSPACE = re.compile(
    r"azureml://(?:locations/|registries/|subscriptions/.*/(?:data|models|environments|components)/)"
)


def why_unreachable(location: Location, text: str) -> str:
    """Why a location cannot be used, and what to do instead."""
    if location.kind == "other_host":
        host = host_of_file_url(location.value)
        return (
            f'"{text}" names the host "{host}", and a file: address can only name this machine; write file:///PATH '
            "(three slashes), or the path alone."
        )
    what = {
        "asset": f'"{text}" names a registered asset, and this has to be a local folder',
        "datastore": f'"{text}" is in a datastore, and this has to be a local folder',
        "remote": f'"{text}" is a remote address, and this has to be a local folder',
        "unknown": f'"{text}" is an address that Windrow cannot reach (s3://, gs://, abfss://, az:// and https:// are '
        "known)",
    }[location.kind]
    return f"{what}; give a local path (relative to the file that holds it) or a mounted folder."


def absolute(value: str, folder: str) -> str:
    """The absolute path for a local path, relative to the folder of the file that holds it.

    `..` is resolved as the file system does, through links; other paths keep their links.
    """
    path = os.path.join(folder, value)
    return os.path.realpath(path) if ".." in path.split("/") else os.path.normpath(path)


def _file_path(rest: str) -> str:
    if not rest.startswith("//"):
        return rest
    # A URI: percent-encoded, its host absent or `localhost`.
    from urllib.parse import unquote

    return unquote("/" + rest[2:].partition("/")[2].lstrip("/"))
