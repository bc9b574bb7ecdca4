"""An index of packages on this machine, with packages made here: what uv asks of PyPI, without a network."""

from __future__ import annotations

import base64
import hashlib
import io
import re
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from textwrap import indent


def wheel(name: str, version: str, text: str, suffix: str) -> bytes:
    """A wheel with one file of the package's name."""
    stem = f"{name}-{version}.dist-info"
    files = {
        f"{name}{suffix}": text,
        f"{stem}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{stem}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = ""
    for path, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content.encode()).digest()).rstrip(b"=").decode()
        record += f"{path},sha256={digest},{len(content)}\n"
    files[f"{stem}/RECORD"] = record + f"{stem}/RECORD,,\n"
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for path, content in files.items():
            archive.writestr(path, content)
    return made.getvalue()


class PackageIndex:
    """`asked`: paths asked for. While `gate` is not set, nothing is answered; `status`: for all, if not 200."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.gate = threading.Event()
        self.gate.set()
        self.status = 200
        self._files: dict[str, bytes] = {}
        index = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                index.asked.append(self.path)
                index.gate.wait(600)
                status, content = index.answer(self.path)
                self.send_response(status)
                self.send_header("Content-Type", "text/html" if self.path.endswith("/") else "application/zip")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_HEAD = do_GET

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: object) -> None:
                """A client that was killed."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/simple"

    def add(self, name: str, version: str, text: str = "", suffix: str = ".py") -> None:
        """A package of one module, or of one file with another suffix."""
        self._files[f"{name}-{version}-py3-none-any.whl"] = wheel(name, version, text, suffix)

    def add_source(self, name: str, build: str) -> None:
        """A package that is built from its source: `build` is what runs then."""
        backend = f"def build_wheel(folder, config_settings=None, metadata_directory=None):\n{indent(build, '    ')}\n"
        project = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        stem = f"{name}-1.0"
        files = {
            "pyproject.toml": project,
            "backend.py": backend,
            "PKG-INFO": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        }
        made = io.BytesIO()
        with tarfile.open(fileobj=made, mode="w:gz") as archive:
            for path, text in files.items():
                member = tarfile.TarInfo(f"{stem}/{path}")
                member.size = len(text.encode())
                archive.addfile(member, io.BytesIO(text.encode()))
        self._files[f"{stem}.tar.gz"] = made.getvalue()

    def add_to_start(self, name: str, line: str) -> None:
        """A package that runs a line whenever Python starts. (Not as `sitecustomize`: Debian's Python has its own.)"""
        self.add(name, "1.0", f"import os; {line}\n", ".pth")

    def answer(self, path: str) -> tuple[int, bytes]:
        """Status and content."""
        if self.status != 200:
            return self.status, b""
        if file := self._files.get(path.rpartition("/")[2]):
            return 200, file
        found = re.fullmatch(r"/simple/([^/]+)/", path)
        names = [file for file in self._files if found and file.split("-")[0] == found[1]]
        if not names:
            return 404, b""
        return 200, "".join(f'<a href="/files/{name}">{name}</a>\n' for name in names).encode()

    def start(self) -> None:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def close(self) -> None:
        self.gate.set()
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def package_index() -> Iterator[PackageIndex]:
    """One with the package `pebble` in two versions."""
    index = PackageIndex()
    index.add("pebble", "1.0", "colour = 'grey'\n")
    index.add("pebble", "2.0", "colour = 'white'\n")
    index.start()
    try:
        yield index
    finally:
        index.close()
