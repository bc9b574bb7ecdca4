"""GPUs that are not there: a library with the names and structures of NVIDIA's NVML (`standin_nvml.c`), whose answers a
test writes into files. What asks it is the real driver process of a real agent.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

SOURCE = Path(__file__).with_name("standin_nvml.c")
VERSION_MISMATCH = 18
"""NVML_ERROR_LIB_RM_VERSION_MISMATCH."""

SCRIPT = """\
import os, pathlib, time

PLACE = pathlib.Path({place!r})

def use(mib, busy):
    '''As if this process used so much of its GPU.'''
    part = PLACE / f".{{os.getpid()}}"
    part.write_text(f"{{os.environ['CUDA_VISIBLE_DEVICES']}}|{{os.getpid()}}|{{mib}}|{{busy}}\\n")
    part.rename(PLACE / f"process-{{os.getpid()}}")

def sees():
    '''Leave behind which GPUs this process sees.'''
    (PLACE / f"sees-{{os.getpid()}}").write_text(os.environ["CUDA_VISIBLE_DEVICES"])

def wait_for(name):
    while not (PLACE / name).exists():
        time.sleep(0.01)

"""
"""How the scripts of tests begin."""


class Gpu(NamedTuple):
    """One device. `state`: as in `standin_nvml.c`."""

    uuid: str
    total_mib: int = 40960
    used_mib: int = 0
    busy: int = 0
    state: str = "ok"
    name: str = "NVIDIA A100-SXM4-40GB"


class StandInGpus:
    """The devices of one test."""

    def __init__(self, folder: Path) -> None:
        self.place = folder / "gpus"
        self.place.mkdir()
        self._library = folder / "lib"
        self._library.mkdir()
        (self._library / "libnvidia-ml.so.1").symlink_to(_compiled())

    def has(self, gpus: Sequence[Gpu]) -> None:
        """What the driver shows from now on."""
        lines = [f"{one.uuid}|{one.name}|{one.total_mib}|{one.used_mib}|{one.busy}|{one.state}\n" for one in gpus]
        self._replace("gpus", "".join(lines))

    def refuses(self, code: int | None) -> None:
        """The driver cannot be opened, for this reason of NVML's; None: it can."""
        if code is None:
            (self.place / "init").unlink()
        else:
            self._replace("init", str(code))

    def hangs(self, hangs: bool) -> None:
        """The driver does not answer."""
        if hangs:
            self._replace("hang", "")
        else:
            (self.place / "hang").unlink()

    def mark(self, name: str) -> None:
        """What a script waits for (`wait_for`)."""
        self._replace(name, "")

    def seen(self) -> set[str]:
        """What scripts that have called `sees` saw."""
        return {path.read_text() for path in self.place.glob("sees-*")}

    def _replace(self, name: str, text: str) -> None:
        part = self.place / f".{name}.part"
        part.write_text(text)
        part.rename(self.place / name)

    def script(self, text: str) -> str:
        """A script that can `use` a GPU."""
        return SCRIPT.format(place=str(self.place)) + text

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs to find this driver."""
        paths = [str(self._library), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
        return {"LD_LIBRARY_PATH": os.pathsep.join(paths), "STANDIN_GPUS": str(self.place)}


@cache
def _compiled() -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("the stand-in for NVIDIA's library is compiled by the test, and there is no C compiler (cc, gcc)")
    made = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "windrow-tests" / "nvml"
    made.mkdir(parents=True, exist_ok=True)
    library = made / f"{os.getpid()}.so"
    flags = ["-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC"]
    subprocess.run([compiler, *flags, "-o", str(library), str(SOURCE)], check=True)
    return library
