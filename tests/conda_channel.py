"""A channel of conda packages, with packages made here: what rattler asks of conda-forge, without a network."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import sys
import tarfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
_SUBDIR = {"x86_64": "linux-64", "aarch64": "linux-aarch64"}[platform.machine()]


class CondaChannel:
    """A folder that is a channel. It has a `python`, which is that of the tests, and `r-base`, whose `Rscript` echoes.

    `asked`: paths asked for while it is served. While `gate` is not set, nothing is answered; `status`: for all, if
    not 200.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = folder.as_uri()
        self.asked: list[str] = []
        self.gate = threading.Event()
        self.gate.set()
        self.status = 200
        self._packages: dict[str, dict[str, object]] = {_SUBDIR: {}, "noarch": {}}
        home = Path(sys.executable).resolve()
        self.add(
            "python",
            f"{PYTHON}.{sys.version_info.micro}",
            {"pyvenv.cfg": f"home = {home.parent}\nversion = {PYTHON}\n"},
            links={"bin/python": str(home), f"bin/python{PYTHON}": "python"},
        )
        self.add("r-base", "4.3", {"bin/Rscript": '#!/bin/sh\necho "R says $*"\n'})

    def add(
        self,
        name: str,
        version: str,
        files: Mapping[str, str],
        *,
        links: Mapping[str, str] | None = None,
        depends: Sequence[str] = (),
        noarch: bool = False,
    ) -> None:
        """A package of executable files and symbolic links; `noarch`: of Python modules, below `site-packages/`."""
        subdir = "noarch" if noarch else _SUBDIR
        index: dict[str, object] = {"name": name, "version": version, "build": "0", "build_number": 0}
        index |= {"depends": list(depends), "subdir": subdir} | ({"noarch": "python"} if noarch else {})
        made, paths = io.BytesIO(), []
        with tarfile.open(fileobj=made, mode="w:bz2") as archive:

            def write(path: str, content: bytes) -> None:
                member = tarfile.TarInfo(path)
                member.size, member.mode = len(content), 0o755
                archive.addfile(member, io.BytesIO(content))

            for path, text in files.items():
                write(path, text.encode())
                paths.append(_entry(path, "hardlink", text.encode()))
            for path, target in (links or {}).items():
                member = tarfile.TarInfo(path)
                member.type, member.linkname = tarfile.SYMTYPE, target
                archive.addfile(member)
                paths.append(_entry(path, "softlink", b""))
            write("info/index.json", json.dumps(index).encode())
            write("info/paths.json", json.dumps({"paths_version": 1, "paths": paths}).encode())
        content, file = made.getvalue(), f"{name}-{version}-0.tar.bz2"
        self._packages[subdir][file] = index | {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}
        for folder, packages in self._packages.items():
            (self.folder / folder).mkdir(parents=True, exist_ok=True)
            document = {"info": {"subdir": folder}, "packages": packages, "packages.conda": {}, "repodata_version": 1}
            (self.folder / folder / "repodata.json").write_text(json.dumps(document))
        (self.folder / subdir / file).write_bytes(content)

    @contextmanager
    def served(self) -> Iterator[str]:
        """Serves it; the address of the channel."""
        channel = self

        class Handler(SimpleHTTPRequestHandler):
            def do_GET(self) -> None:
                channel.asked.append(self.path)
                channel.gate.wait(600)
                if channel.status == 200:
                    super().do_GET()
                else:
                    self.send_error(channel.status)

            def translate_path(self, path: str) -> str:
                return str(channel.folder / path.lstrip("/"))

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: object) -> None:
                """A client that was killed."""

        server = Server(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            self.gate.set()
            server.shutdown()
            server.server_close()


def _entry(path: str, kind: str, content: bytes) -> dict[str, object]:
    digest = hashlib.sha256(content).hexdigest()
    return {"_path": path, "path_type": kind, "sha256": digest, "size_in_bytes": len(content)}
