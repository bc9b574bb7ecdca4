"""A web server for tests: with or without parts of files, marks of content, lengths, and answers to HEAD."""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import re
from collections.abc import Iterator

from local_server import LocalServer


class WebServer(LocalServer):
    """`files`: what it has, by path. The other attributes: what it can."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.ranges = True
        self.etags = True
        self.times = True
        self.lengths = True
        self.heads = True
        self.reads: list[tuple[str, str]] = []
        """Path and range of each GET."""
        super().__init__(_Exchange)


class _Exchange(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        if self._web.heads:
            self._answer()
        else:
            self.send_error(405)

    def do_GET(self) -> None:
        self._web.reads.append((self.path, self.headers.get("Range", "")))
        self._answer()

    @property
    def _web(self) -> WebServer:
        found: WebServer = self.server.owner  # type: ignore[attr-defined]
        return found

    def _answer(self) -> None:
        web, content = self._web, self._web.files.get(self.path)
        if content is None:
            self.send_error(404)
            return
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", "")) if web.ranges else None
        part = content[int(asked[1]) : int(asked[2]) + 1] if asked else content
        self.send_response(206 if asked else 200)
        if asked:
            self.send_header("Content-Range", f"bytes {asked[1]}-{asked[2]}/{len(content)}")
        if web.etags:
            self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
        if web.times:
            # Moves with the content.
            seconds = int(hashlib.sha256(content).hexdigest(), 16) % 10**9
            self.send_header("Last-Modified", self.date_time_string(seconds))
        if web.lengths:
            self.send_header("Content-Length", str(len(part)))
        else:
            self.send_header("Transfer-Encoding", "chunked")
            part = b"%x\r\n%b\r\n0\r\n\r\n" % (len(part), part)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(part)

    def log_message(self, *_: object) -> None:
        """Silence."""


@contextlib.contextmanager
def web_server() -> Iterator[WebServer]:
    """A server for one test."""
    server = WebServer()
    try:
        yield server
    finally:
        server.stop()
