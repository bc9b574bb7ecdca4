"""Temporary folders of processes that answer one question are gone, whenever these are asked to end."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import pathlib, signal, sys
from windrow_master.files import temporary

parent, moment, number = pathlib.Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
make, remove = pathlib.Path.mkdir, temporary.discard_tree

def interrupted_mkdir(path, *arguments, **options):
    make(path, *arguments, **options)
    if moment == "made":
        signal.raise_signal(number)

def interrupted_removal(path):
    if moment == "removed":
        temporary.discard_tree = remove
        signal.raise_signal(number)
    remove(path)

pathlib.Path.mkdir, temporary.discard_tree = interrupted_mkdir, interrupted_removal
with temporary.temporary_folder("made-", parent) as folder:
    (folder / "file").write_text("content")
    assert folder.stat().st_mode & 0o777 == 0o700
    if moment == "used":
        signal.raise_signal(number)
if moment == "never":
    assert signal.getsignal(number) is signal.SIG_DFL or number == signal.SIGINT
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize("moment", ["made", "used", "removed", "never"])
def test_it_is_gone_whenever_a_signal_comes(tmp_path: Path, moment: str, number: signal.Signals) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path), moment, str(int(number))],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == (0 if moment == "never" else 128 + number), done.stderr
    assert not list(tmp_path.iterdir())
