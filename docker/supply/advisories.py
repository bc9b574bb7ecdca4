"""A database of advisories in a file, served on this machine as OSV serves its own, for places without a network.

The file is what OSV publishes for PyPI: a zip of JSON documents, one for each advisory.
"""

from __future__ import annotations

import json
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version


class DatabaseError(Exception):
    """The file is not such a database; the text says what it is."""


class Advisories:
    """`newest`: when the newest of them was changed, as it says; `count`: how many there are."""

    def __init__(self, path: Path) -> None:
        """Raises DatabaseError."""
        self._by_package: dict[str, list[dict[str, Any]]] = {}
        self.newest = ""
        self.count = 0
        try:
            with zipfile.ZipFile(path) as archive:
                for name in archive.namelist():
                    if name.endswith(".json"):
                        self._add(json.loads(archive.read(name)))
        except (OSError, zipfile.BadZipFile, ValueError, KeyError, TypeError) as error:
            raise DatabaseError(f"{path} is not a zip of OSV's advisories: {error!r}") from error
        if not self.count:
            raise DatabaseError(f"{path} holds no advisory for a package of PyPI")

    def _add(self, advisory: dict[str, Any]) -> None:
        names = {
            canonicalize_name(one["package"]["name"])
            for one in advisory.get("affected", [])
            if one["package"]["ecosystem"] == "PyPI"
        }
        for name in names:
            self._by_package.setdefault(name, []).append(advisory)
        self.count += bool(names)
        self.newest = max(self.newest, advisory["modified"])

    def of(self, name: str, version: str) -> list[dict[str, Any]]:
        """Those that a version of a package is affected by."""
        found = self._by_package.get(canonicalize_name(name), [])
        return [advisory for advisory in found if _affects(advisory, name, version)]


def _affects(advisory: dict[str, Any], name: str, version: str) -> bool:
    """Whether a version is in the list of an advisory, or in one of its ranges."""
    for affected in advisory["affected"]:
        package = affected["package"]
        if package["ecosystem"] != "PyPI" or canonicalize_name(package["name"]) != canonicalize_name(name):
            continue
        if version in affected.get("versions", []):
            return True
        ranges = [one["events"] for one in affected.get("ranges", []) if one["type"] == "ECOSYSTEM"]
        if any(_within(events, Version(version)) for events in ranges):
            return True
    return False


def _within(events: list[dict[str, str]], version: Version) -> bool:
    """By the rule of OSV's schema: in the order of versions, each event begins or ends what is affected."""
    affected = False
    changes = [(_order(at), kind) for event in events for kind, at in event.items()]
    for place, kind in sorted(changes, key=lambda change: change[0]):
        if kind == "introduced" and version >= place:
            affected = True
        elif (kind == "fixed" and version >= place) or (kind == "last_affected" and version > place):
            affected = False
    return affected


def _order(version: str) -> Version:
    """A version that cannot be read comes first: what it introduces is then taken to concern all."""
    try:
        return Version(version)
    except InvalidVersion:
        return Version("0")


@contextmanager
def served(advisories: Advisories) -> Iterator[str]:
    """The address that answers the queries of pip-audit with them."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            query = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            found = advisories.of(query["package"]["name"], query["version"])
            content = json.dumps({"vulns": found} if found else {}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1/query"
    finally:
        server.shutdown()
        server.server_close()
