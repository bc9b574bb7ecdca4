"""A wall clock that a test sets for the processes that it starts, without touching that of the machine."""

from __future__ import annotations

import functools
import shutil
import struct
import subprocess
import tempfile
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_suffix(".c")
DAY_S = 86_400


@functools.cache
def _library() -> Path | None:
    """The library that moves a process's clock; None where there is no compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    built = Path(tempfile.mkdtemp(prefix="windrow-test-")) / "moved_clock.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(built), str(SOURCE)], check=True)
    return built


class MovedClock:
    """The clock of the processes that get `environment`."""

    def __init__(self, folder: Path) -> None:
        """Skips the test where there is no compiler."""
        library = _library()
        if library is None:
            pytest.skip("a clock is moved by a library that is compiled here, and there is no C compiler (cc)")
        self._file = folder / "moved-clock"
        self.set(0)
        self.environment = {"LD_PRELOAD": str(library), "MOVED_CLOCK": str(self._file)}

    def set(self, seconds: int) -> None:
        """Set it to the machine's time and `seconds` more."""
        # Not by a new file: the processes have mapped this one.
        with self._file.open("r+b" if self._file.exists() else "wb") as file:
            file.write(struct.pack("=q", seconds))
