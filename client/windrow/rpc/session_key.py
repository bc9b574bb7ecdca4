"""The key of a private master: a file beside its Unix socket, which processes bring with each call.

A script of the same user may connect to the socket whatever its sandbox: Landlock does not know sockets in the file
system. But a confined script cannot read the key. The master makes the file before it listens, and keeps it when it
starts again, so that open connections stay good.
"""

from __future__ import annotations

import os

SUFFIX = ".key"


def path_of(address: str) -> str:
    """The file of the key; "" for an address that is no Unix socket."""
    if not address.startswith("unix:"):
        return ""
    return "/" + address.removeprefix("unix:").lstrip("/") + SUFFIX


def read(address: str) -> str:
    """The key of the master at an address; "" if it has none, or this process may not read it."""
    path = path_of(address)
    if not path:
        return ""
    try:
        with open(path) as file:
            return file.read()
    except (OSError, UnicodeDecodeError):
        return ""


def make(address: str) -> str:
    """The key of the master that is about to listen at an address: the one that is there, else a new one. "" for an
    address that is no Unix socket. Raises OSError.
    """
    path = path_of(address)
    if not path:
        return ""
    key = read(address)
    if not key:
        key = os.urandom(32).hex()
        # Whole or not there: agents and clients may already be waiting for the socket.
        beside = f"{path}.{os.getpid()}"
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(descriptor, "w") as file:
            file.write(key)
        os.replace(beside, path)  # noqa: PTH105  # no pathlib on the way to the first run()
    return key
