"""As much of Azure's blob service as the store needs, by its public reference: listings by page, reads by range,
uploads whole and in blocks, properties and metadata. It checks no signature, and keeps its blobs in memory.
"""

from __future__ import annotations

import http.server
import re
import urllib.parse
import xml.etree.ElementTree as xml
from email.utils import formatdate
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

from local_server import LocalServer

PAGE_BLOBS = 3


class Blob(NamedTuple):
    """One blob; `etag` differs for every write."""

    content: bytes
    etag: str
    metadata: dict[str, str]


class AzureServer(LocalServer):
    """The server, for any container; blobs by `container/name`."""

    def __init__(self) -> None:
        self.blobs: dict[str, Blob] = {}
        self.blocks: dict[str, bytes] = {}
        self.requests: list[str] = []
        """Method and path of each, with its range."""
        self.refused: list[str] = []
        """What it was asked and does not know."""
        self._writes = 0
        super().__init__(_Exchange)

    def put(self, key: str, content: bytes, metadata: dict[str, str] | None = None) -> Blob:
        """Store a blob."""
        self._writes += 1
        blob = self.blobs[key] = Blob(content, f'"0x{self._writes:X}"', metadata or {})
        return blob


class _Exchange(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _handle(self) -> None:
        azure: AzureServer = self.server.owner  # type: ignore[attr-defined]
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))
        key = urllib.parse.unquote(url.path).lstrip("/")
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        wanted = self.headers.get("x-ms-range") or self.headers.get("Range") or ""
        azure.requests.append(f"{self.command} {key} {wanted}".rstrip())
        if self.command == "GET" and query.get("comp") == "list":
            self._list(azure, key, query)
        elif self.command in ("GET", "HEAD") and "comp" not in query:
            self._read(azure, key, wanted)
        elif self.command == "PUT" and query.get("comp") == "block":
            azure.blocks[f"{key}\n{query['blockid']}"] = body
            self._answer(201)
        elif self.command == "PUT" and query.get("comp", "blocklist") == "blocklist":
            if query.get("comp"):
                body = b"".join(azure.blocks[f"{key}\n{block.text}"] for block in xml.fromstring(body))
            self._write(azure, key, body)
        elif self.command == "DELETE" and azure.blobs.pop(key, None) is not None:
            self._answer(202)
        else:
            azure.refused.append(f"{self.command} {self.path}")
            self._answer(404 if self.command == "DELETE" else 501)

    do_GET = do_HEAD = do_PUT = do_DELETE = _handle

    def _list(self, azure: AzureServer, container: str, query: dict[str, str]) -> None:
        prefix, after = query.get("prefix", ""), query.get("marker", "")
        names = sorted(key.partition("/")[2] for key in azure.blobs if key.startswith(f"{container}/"))
        names = [name for name in names if name.startswith(prefix) and name > after]
        page = names[:PAGE_BLOBS]
        blobs = "".join(
            f"<Blob><Name>{escape(name)}</Name><Properties><Last-Modified>{formatdate(0, usegmt=True)}</Last-Modified>"
            f"<Etag>{escape(blob.etag)}</Etag><Content-Length>{len(blob.content)}</Content-Length>"
            "<Content-Type>application/octet-stream</Content-Type><BlobType>BlockBlob</BlobType></Properties></Blob>"
            for name in page
            for blob in [azure.blobs[f"{container}/{name}"]]
        )
        more = escape(page[-1]) if len(names) > len(page) else ""
        text = f"<EnumerationResults><Blobs>{blobs}</Blobs><NextMarker>{more}</NextMarker></EnumerationResults>"
        self._answer(200, {"Content-Type": "application/xml"}, text.encode())

    def _read(self, azure: AzureServer, key: str, wanted: str) -> None:
        blob = azure.blobs.get(key)
        if blob is None:
            self._answer(404, {"x-ms-error-code": "BlobNotFound"})
            return
        if self.headers.get("If-Match", blob.etag) != blob.etag:
            self._answer(412, {"x-ms-error-code": "ConditionNotMet"})
            return
        headers = _headers(blob)
        content = blob.content
        if (match := re.fullmatch(r"bytes=(\d+)-(\d*)", wanted)) is not None:
            first, last = int(match[1]), min(int(match[2] or len(content)), len(content) - 1)
            headers["Content-Range"] = f"bytes {first}-{last}/{len(content)}"
            content = content[first : last + 1]
        self._answer(206 if match else 200, headers, content)

    def _write(self, azure: AzureServer, key: str, content: bytes) -> None:
        there = azure.blobs.get(key)
        if self.headers.get("If-None-Match") == "*" and there is not None:
            self._answer(409, {"x-ms-error-code": "BlobAlreadyExists"})
            return
        if "If-Match" in self.headers and (there is None or there.etag != self.headers["If-Match"]):
            self._answer(412, {"x-ms-error-code": "ConditionNotMet"})
            return
        metadata = {name: value for name, value in self.headers.items() if name.lower().startswith("x-ms-meta-")}
        self._answer(201, _headers(azure.put(key, content, metadata)))

    def _answer(self, status: int, headers: dict[str, str] | None = None, body: bytes = b"") -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Silence."""


def _headers(blob: Blob) -> dict[str, str]:
    modified = formatdate(0, usegmt=True)
    return {"ETag": blob.etag, "Last-Modified": modified, "x-ms-blob-type": "BlockBlob", **blob.metadata}
