"""What tests of users of jobs need: root, and places that all users reach."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_REPOSITORY = Path(__file__).parents[1]


def _closed(place: Path) -> str:
    """The first folder above a place that users without rights cannot enter, or the place if they cannot read it; "" if
    they can.
    """
    closed = (str(folder) for folder in reversed(place.parents) if not folder.stat().st_mode & 0o001)
    return next(closed, "" if place.stat().st_mode & 0o005 == 0o005 else str(place))


def _places() -> Iterator[tuple[str, str]]:
    """What a Python with Windrow needs, as far as users without rights do not reach it: the closed folder above, and
    the folder, or what is in it if it is closed itself.
    """
    for place in dict.fromkeys(map(Path, (os.path.realpath(sys.base_prefix), sys.prefix, _REPOSITORY))):
        closed = _closed(place)
        if closed == str(place):
            yield from ((closed, str(entry)) for entry in sorted(place.iterdir()) if entry.is_dir())
        elif closed:
            yield closed, str(place)


def opened(beside: Path) -> list[str]:
    """The words before a command that sees its Python in a place that all users reach, whatever is above it: an empty
    folder is mounted over each closed one, and what is needed of it into that. `beside`: a folder for mounts that the
    command alone has.
    """
    places = list(_places())
    if not places:
        return []
    steps = []
    for number, (_, place) in enumerate(places):
        held = shlex.quote(f"{beside}/{number}")
        steps.append(f"mkdir -p {held} && mount --bind {shlex.quote(place)} {held}")
    steps += [f"mount -t tmpfs -o mode=0755 none {shlex.quote(one)}" for one in dict.fromkeys(one for one, _ in places)]
    for number, (_, place) in enumerate(places):
        there, held = shlex.quote(place), shlex.quote(f"{beside}/{number}")
        steps.append(f"(umask 022 && mkdir -p {there}) && mount --bind {held} {there}")
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
