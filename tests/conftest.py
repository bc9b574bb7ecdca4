"""For all tests: Ctrl-C means Ctrl-C, and a disk that is small enough to be full.

A shell starts a background command with SIGINT ignored; every process below inherits that, and CI runners start
tests so.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

UNMOUNT_S = 90.0

signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 24 MB; its mount needs root. Unmounted as soon as no process has a file there any more."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() != 0 or subprocess.call(["mount", "-t", "tmpfs", "-o", "size=24m", "none", folder]) != 0:
        pytest.skip("needs root and mount")
    yield folder
    deadline = time.monotonic() + UNMOUNT_S
    while subprocess.call(["umount", folder], stderr=subprocess.DEVNULL) != 0:
        assert time.monotonic() < deadline, f"{folder} is still in use after {UNMOUNT_S} s"
        time.sleep(0.01)
