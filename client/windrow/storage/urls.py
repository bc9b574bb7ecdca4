"""Addresses of remote data: their spellings, and the one canonical form.

Keys of object stores are plain text, as the tools of the clouds take them (`s3://bucket/a b%20c` names the key
`a b%20c`); `https:` addresses are encoded as in a browser.
Reference: docs/reference/azure-ml/parallel-job.md#inputs-and-outputs.
"""

from __future__ import annotations

import re
from typing import NamedTuple

SCHEMES = ("s3", "s3a", "gs", "gcs", "abfs", "abfss", "wasb", "wasbs", "az", "http", "https")
"""Schemes that can be read."""

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/]*)(/.*)?", re.DOTALL)
_REMOTE = re.compile("(?:" + "|".join(SCHEMES) + r")://", re.IGNORECASE)
_AZURE_HOST = re.compile(r"([^@]+)@([a-z0-9]{3,24})\.(?:dfs|blob)\.([a-z0-9.-]+)", re.IGNORECASE)
_NAMES = {"s3a": "s3", "gcs": "gs", "abfs": "abfss", "wasb": "abfss", "wasbs": "abfss"}
_FORMS = {
    "s3": "s3://bucket/path",
    "gs": "gs://bucket/path",
    "abfss": "abfss://container@account.dfs.core.windows.net/path",
    "az": "az://container/path",
    "http": "http://host/path",
    "https": "https://host/path",
}


class BadUrl(ValueError):
    """An address that cannot be used; the text says why, and shows a valid one. It has no password or signature of the
    address, since it is shown and logged.
    """

    def __init__(self, message: str) -> None:
        # Not at the top: reading a job file is on the way to the first run().
        from windrow.common.secret_values import shown_text

        super().__init__(shown_text(message))


class StorageUrl(NamedTuple):
    """A place in remote storage. `root`: the store (`s3://bucket`). `key`: the place in it; "" for all of it."""

    scheme: str
    root: str
    key: str

    def __str__(self) -> str:
        return f"{self.root}/{self.key}" if self.key else self.root

    @property
    def is_web(self) -> bool:
        """Whether it is a file of a web server, which cannot be listed."""
        return self.scheme in ("http", "https")

    @property
    def path(self) -> str:
        """The key as the store has it: addresses of web servers are percent-encoded."""
        if not self.is_web:
            return self.key
        # Most jobs name no web server; reading a job file is on the way to the first run().
        from urllib.parse import unquote

        return unquote(self.key)

    def below(self, name: str) -> StorageUrl:
        """The address of a name relative to this one."""
        return self._replace(key=f"{self.key}/{name}" if self.key else name)


def is_remote(text: str) -> bool:
    """Whether a path text is the address of remote data."""
    return _REMOTE.match(text) is not None


def parse_url(text: str) -> StorageUrl:
    """Read an address; a trailing `/` is ignored. Raises BadUrl."""
    found = _URL.fullmatch(text)
    scheme = found[1].lower() if found else ""
    if found is None or scheme not in SCHEMES:
        raise BadUrl(f'"{text}" is not a supported storage address; supported schemes: {", ".join(SCHEMES)}')
    scheme = _NAMES.get(scheme, scheme)
    host, key = found[2], (found[3] or "").strip("/")
    form = _FORMS[scheme]
    if not host:
        raise BadUrl(f'"{text}" has no {form.split("/")[2].split("@")[0]}; write {form}')
    if scheme == "abfss":
        azure = _AZURE_HOST.fullmatch(host)
        if azure is None:
            raise BadUrl(f'"{text}" has no container and account; write {form}')
        host = f"{azure[1]}@{azure[2].lower()}.dfs.{azure[3].lower()}"
    elif scheme in ("http", "https"):
        if "@" in host:
            raise BadUrl("The address contains a user or password; credentials must not be in a job file")
        if "?" in text or "#" in text:
            raise BadUrl(
                f'"{text.partition("?")[0].partition("#")[0]}" has a query or fragment (? or #), which is not '
                "supported; use the store's own address for the object (s3://…, abfss://…)"
            )
    elif "@" in host or ":" in host:
        raise BadUrl(f'"{text}" is not a valid address of this kind; write {form}')
    parts = key.split("/") if key else []
    if any(part in ("", ".", "..") for part in parts):
        raise BadUrl(f'"{text}" has an empty part, "." or ".." in its path, which object stores do not resolve')
    if any(ord(char) < 32 or ord(char) == 127 for char in text):
        raise BadUrl("The address contains control characters")
    return StorageUrl(scheme, f"{scheme}://{host}", key)


def canonical(text: str) -> str:
    """The one spelling of an address. Raises BadUrl."""
    return str(parse_url(text))
