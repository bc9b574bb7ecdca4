"""What tests of users of jobs need: root, and places that all users reach."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_REPOSITORY = Path(__file__).parents[1]


def _closed() -> str:
    """The first folder above the interpreter that is closed to users without rights; "" if there is none."""
    for way in (Path(sys.executable), Path(os.path.realpath(sys.executable)), Path(sys.base_prefix), _REPOSITORY):
        for above in reversed(way.parents):
            if not above.stat().st_mode & 0o001:
                return str(above)
    return ""


def opened(beside: Path) -> list[str]:
    """The words before a command that sees its Python in a place that all users reach, whatever is above it. `beside`:
    a folder for mounts that the command alone has.
    """
    closed = _closed()
    if not closed:
        return []
    places = dict.fromkeys(map(str, (os.path.realpath(sys.base_prefix), sys.prefix, _REPOSITORY)))
    inside = [place for place in places if place.startswith(f"{closed}/")]
    held = [f"{beside}/{number}" for number, _ in enumerate(inside)]
    steps = [f"mkdir -p {there} && mount --bind {place} {there}" for place, there in zip(inside, held, strict=True)]
    steps.append(f"mount -t tmpfs -o mode=0755 none {closed}")
    steps += [f"mkdir -p {place} && mount --bind {there} {place}" for place, there in zip(inside, held, strict=True)]
    return ["unshare", "--mount", "sh", "-c", " && ".join([*steps, 'exec "$@"']), "sh"]


@contextmanager
def open_folder() -> Iterator[Path]:
    """A folder that all users reach. It is removed afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="wju-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def why_not() -> str:
    """Why no process can become another user here; "" if it can."""
    if os.geteuid() != 0:
        return "only root starts processes of other users"
    with open_folder() as folder:
        try:
            words = [*opened(folder), "setpriv", "--reuid=2100000000", "--regid=2100000000", "--clear-groups"]
            done = subprocess.run([*words, sys.executable, "-c", "import windrow"], capture_output=True, check=False)
        except OSError as error:
            return str(error)
        return "" if done.returncode == 0 else done.stderr.decode().strip()


NEEDS_USERS = pytest.mark.skipif(bool(WHY_NOT := why_not()), reason=f"no users of jobs here: {WHY_NOT}")
