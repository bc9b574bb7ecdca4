"""An object store for measurements: S3's listings and reads over HTTP, with the latency of a store that is far away."""

from __future__ import annotations

import http.server
import threading
import time
import urllib.parse
from types import TracebackType
from xml.sax.saxutils import escape

BUCKET = "bench"
_PAGE = 1000
_LIST = (
    '<?xml version="1.0" encoding="UTF-8"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
    "<Name>{bucket}</Name><KeyCount>{count}</KeyCount><MaxKeys>1000</MaxKeys><IsTruncated>{more}</IsTruncated>{next}"
    "{contents}</ListBucketResult>"
)
_CONTENTS = (
    "<Contents><Key>{key}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>{etag}</ETag><Size>{size}"
    "</Size><StorageClass>STANDARD</StorageClass></Contents>"
)


class ObjectStore:
    """Its context serves `objects`, each `latency_s` after it was asked for. `reads`: how many were asked for."""

    def __init__(self, objects: dict[str, bytes], latency_s: float) -> None:
        self.objects = objects
        self.latency_s = latency_s
        self.reads = 0
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Exchange)
        self._server.store = self  # type: ignore[attr-defined]
        self.environment = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self._server.server_port}",
            "AWS_REGION": "us-east-1",
            "AWS_SKIP_SIGNATURE": "true",
        }

    def __enter__(self) -> ObjectStore:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Exchange(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        store: ObjectStore = self.server.store  # type: ignore[attr-defined]
        address = urllib.parse.urlsplit(self.path)
        key = urllib.parse.unquote(address.path).removeprefix(f"/{BUCKET}").removeprefix("/")
        if not key:
            self._list(store, dict(urllib.parse.parse_qsl(address.query)))
            return
        time.sleep(store.latency_s)
        content = store.objects.get(key)
        if content is None:
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>", {})
            return
        if self.command == "GET":
            store.reads += 1
        first, _, last = self.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")
        begin, end = int(first), min(len(content), int(last or len(content)) + 1)
        ranged = {"Content-Range": f"bytes {begin}-{end - 1}/{len(content)}"} if "Range" in self.headers else {}
        self._answer(206 if ranged else 200, content[begin:end], ranged | {"ETag": _etag(content)})

    do_HEAD = do_GET

    def _list(self, store: ObjectStore, query: dict[str, str]) -> None:
        after = query.get("continuation-token") or query.get("start-after", "")
        keys = sorted(key for key in store.objects if key.startswith(query.get("prefix", "")) and key > after)
        page = keys[:_PAGE]
        contents = "".join(
            _CONTENTS.format(key=escape(key), etag=_etag(store.objects[key]), size=len(store.objects[key]))
            for key in page
        )
        more = len(keys) > len(page)
        token = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if more else ""
        text = _LIST.format(bucket=BUCKET, count=len(page), more=str(more).lower(), next=token, contents=contents)
        self._answer(200, text.encode(), {"Content-Type": "application/xml"})

    def _answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT", **headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Silence."""


def _etag(content: bytes) -> str:
    return f'"{hash(content) & 0xFFFFFFFFFFFF:012x}"'
