"""A real S3 server for tests (moto, in a process of its own), and a proxy before it that can be slow, and can fail."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from local_server import LocalServer

BUCKET = "test-bucket"
ACCESS_KEY = "AKIAWINDROWTESTS0001"
SECRET_KEY = "s3cr3t-that-no-script-may-see-0001"
# Scripts that look for these spell them backwards.
DEADLINE_S = 180.0


def clean_environment(endpoint: str, home: Path) -> dict[str, str]:
    """The environment of a process that may reach the server: with its credentials, and nothing of the tester's own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "AZURE_", "GOOGLE_"))}
    return kept | {
        "HOME": str(home),
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_REGION": "us-east-1",
        "WINDROW_STORAGE_READ_TIMEOUT": "2",
        "WINDROW_STORAGE_RETRY": "10",
    }


class S3Server:
    """The server, with one bucket; `client` is boto3's, so that what is tested is not tested by itself."""

    def __init__(self) -> None:
        import boto3

        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.url = f"http://127.0.0.1:{self.port}"
        end = time.monotonic() + DEADLINE_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                break
            except OSError:
                assert time.monotonic() < end, "the S3 server does not answer"
                time.sleep(0.02)
        self.client: Any = boto3.client(
            "s3",
            endpoint_url=self.url,
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=SECRET_KEY,
            region_name="us-east-1",
        )
        self.client.create_bucket(Bucket=BUCKET)

    def put(self, key: str, body: bytes | str) -> None:
        """Store an object."""
        self.client.put_object(Bucket=BUCKET, Key=key, Body=body)

    def get(self, key: str) -> bytes:
        """Read an object."""
        return bytes(self.client.get_object(Bucket=BUCKET, Key=key)["Body"].read())

    def keys(self, prefix: str = "") -> list[str]:
        """Keys in the server's own order."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
        return [item["Key"] for page in pages for item in page.get("Contents", ())]

    def upload(self, folder: Path, prefix: str) -> None:
        """Store all files of a folder."""
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                self.put(f"{prefix}/{path.relative_to(folder)}", path.read_bytes())

    def stop(self) -> None:
        """End it."""
        self.process.kill()
        self.process.wait()


Fault = Callable[["Exchange"], None]


class Exchange(http.server.BaseHTTPRequestHandler):
    """One connection through the proxy. A fault may answer by itself, wait, or cut the answer short."""

    protocol_version = "HTTP/1.1"
    answered = False
    cut_after: int | None = None
    body = b""

    def _pass_on(self) -> None:
        proxy: Proxy = self.server.owner  # type: ignore[attr-defined]
        self.body = body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.answered, self.cut_after = False, None
        with proxy.lock:
            proxy.requests.append(f"{self.command} {self.path}")
            if self.command == "GET" and self.key and "Range" not in self.headers:
                proxy.whole_reads.append(self.key)
        proxy.fault(self)
        if self.answered:
            return
        connection = http.client.HTTPConnection("127.0.0.1", proxy.port_behind, timeout=30)
        # The host as the client has signed it.
        connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            connection.putheader(name, value)
        connection.endheaders(body or None)
        answer = connection.getresponse()
        content = answer.read()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("transfer-encoding", "connection", "content-length", "server", "date"):
                self.send_header(name, value)
        length = answer.getheader("Content-Length") if self.command == "HEAD" else str(len(content))
        self.send_header("Content-Length", length or "0")
        self.end_headers()
        if self.cut_after is not None and len(content) > self.cut_after:
            self.wfile.write(content[: self.cut_after])
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
        elif self.command != "HEAD":
            self.wfile.write(content)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _pass_on

    def answer(self, status: int, body: bytes = b"") -> None:
        """Answer instead of the server."""
        self.answered = True
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    @property
    def key(self) -> str:
        """The key that is asked for; empty for a listing."""
        path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
        return path.removeprefix(f"/{BUCKET}").removeprefix("/")

    def log_message(self, *_: Any) -> None:
        """Silence."""


class Proxy(LocalServer):
    """Stands before a server; `fault` is called for each request, in its thread."""

    def __init__(self, port_behind: int) -> None:
        self.port_behind = port_behind
        self.fault: Fault = lambda exchange: None
        self.requests: list[str] = []
        self.whole_reads: list[str] = []
        """Keys of which all was asked for in one request."""
        self.lock = threading.Lock()
        self.released = threading.Event()
        super().__init__(Exchange)

    def stop(self) -> None:
        """End it; whatever still waits goes on."""
        self.released.set()
        super().stop()


class Gate:
    """A fault: requests of a method, for keys that end so, wait until it is opened. `held`: one has come."""

    def __init__(self, method: str, key_end: str) -> None:
        self.held = threading.Event()
        self._method = method
        self._key_end = key_end
        self._opened = threading.Event()

    def __call__(self, exchange: Exchange) -> None:
        if exchange.command == self._method and exchange.key.endswith(self._key_end) and not self._opened.is_set():
            self.held.set()
            self._opened.wait(600)

    def open(self) -> None:
        """Let them all go on."""
        self._opened.set()


@contextlib.contextmanager
def proxy_before(server: S3Server) -> Iterator[Proxy]:
    """A proxy for one test."""
    proxy = Proxy(server.port)
    try:
        yield proxy
    finally:
        proxy.stop()
