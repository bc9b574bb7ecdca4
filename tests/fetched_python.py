"""A Python that uv can fetch without a network: the one that runs, packed as uv's own are."""

from __future__ import annotations

import atexit
import functools
import hashlib
import json
import platform
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path

_LEFT_OUT = ("site-packages", "dist-packages", "test", "__pycache__", "idlelib", "ensurepip", "tkinter", "lib2to3")
MINOR = f"{sys.version_info.major}.{sys.version_info.minor}"


CHANGES_ITS_PYTHON = """\
import json, os, sys
def tried(what, *given):
    try:
        what(*given)
        return "done"
    except OSError as error:
        return type(error).__name__
def change(path):
    with open(path, "a") as file:
        file.write("\\n")
above = os.path.dirname(os.path.realpath(sys.base_prefix))
told = [
    tried(change, json.__file__),
    tried(change, os.path.join(os.path.dirname(json.__file__), "added.py")),
    tried(os.unlink, os.path.realpath(sys.executable)),
    tried(os.mkdir, os.path.join(above, "cpython-3.99")),
    tried(os.rename, os.path.realpath(sys.base_prefix), os.path.join(above, "moved")),
]
print("TOLD " + json.dumps([os.getuid(), above, told]), file=sys.stderr)
sys.exit(1)
"""
"""Code of a package that tries to change the Python with which it is built, and tells its user, where that is, and what
came of it."""


@functools.cache
def packed() -> Path:
    """A folder with this Python in an archive, and the list of downloads that names it."""
    folder = Path(tempfile.mkdtemp(prefix="windrow-fetched-python-"))
    atexit.register(shutil.rmtree, folder)
    folder.chmod(0o755)
    archive = folder / "python.tar.gz"
    base, library = Path(sys.base_prefix), f"lib/python{MINOR}"
    with tarfile.open(archive, "w:gz", compresslevel=1) as file:
        file.add(Path(sys.executable).resolve(), f"python/bin/python{MINOR}")
        file.add(base / library, f"python/{library}", filter=_needed)
        for shared in base.glob("lib/libpython*"):
            file.add(shared, f"python/lib/{shared.name}")
    machine = platform.machine()
    described = {
        "name": "cpython",
        "arch": {"family": machine, "variant": None},
        "os": "linux",
        "libc": "gnu",
        **dict(zip(("major", "minor", "patch"), sys.version_info[:3], strict=True)),
        "prerelease": "",
        "url": archive.as_uri(),
        "sha256": hashlib.sha256(archive.read_bytes()).hexdigest(),
        "variant": None,
        "build": "20260101",
    }
    listed = {f"cpython-{platform.python_version()}-linux-{machine}-gnu": described}
    (folder / "downloads.json").write_text(json.dumps(listed))
    return folder


def downloads() -> dict[str, str]:
    """Variables for uv, with which it fetches this Python, and takes no other one of the machine."""
    return {
        "UV_PYTHON_DOWNLOADS_JSON_URL": (packed() / "downloads.json").as_uri(),
        "UV_PYTHON_DOWNLOADS": "automatic",
        "UV_PYTHON_PREFERENCE": "only-managed",
    }


def _needed(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    # uv unpacks no link that leads out of the archive; Debian's Python has one, to a file in /etc.
    leads_out = member.issym() and member.linkname.startswith("/")
    return None if leads_out or any(part in _LEFT_OUT for part in member.name.split("/")) else member
