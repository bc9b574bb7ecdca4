"""The Python that would run scripts on this machine."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Iterator

from windrow.common.interpreter import OLDEST, PROBE_S, find_interpreter
from windrow.doctor.findings import FAIL, OK, WARN, Finding
from windrow.errors import UsageError

AREA = "Scripts"
PACKAGES = {
    "pandas": "tables (inputs of type mltable)",
    "pyarrow": "Parquet, partition keys, and fast reading of text tables",
}
_LOOK = """
import json, sys
try:
    from importlib.metadata import version
except ImportError:
    version = None
found = {}
for name in sys.argv[1:]:
    try:
        found[name] = version(name)
    except Exception:
        found[name] = None
print("windrow: " + json.dumps([list(sys.version_info[:3]), found]))
"""


def check(python: str | None) -> Iterator[Finding]:
    """All findings of this area. `python`: as `--python` gives it."""
    try:
        interpreter = find_interpreter(python, os.environ)
    except UsageError as error:
        yield Finding(AREA, "python", FAIL, str(error), "Choose the interpreter for scripts: --python PATH.")
        return
    try:
        done = subprocess.run(
            [interpreter, "-c", _LOOK, *PACKAGES],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PROBE_S,
            check=False,
        )
        lines = [line for line in done.stdout.decode(errors="replace").splitlines() if line.startswith("windrow: ")]
        version, found = json.loads(lines[-1].removeprefix("windrow: "))
    except (OSError, subprocess.TimeoutExpired, IndexError, ValueError) as error:
        seen = f"{interpreter} does not answer ({error})"
        yield Finding(AREA, "python", FAIL, seen, "Choose one that works: --python PATH.")
        return
    text = ".".join(map(str, version))
    if tuple(version[:2]) < OLDEST:
        yield Finding(AREA, "python", FAIL, f"{text}, {interpreter}", "3.8 or newer is needed: --python PATH.")
        return
    yield Finding(AREA, "python", OK, f"{text}, {interpreter} ({_origin(python, interpreter)})")
    for name, use in PACKAGES.items():
        if found[name] is None:
            advice = f"If scripts need it: {shlex.quote(interpreter)} -m pip install {name}"
            yield Finding(AREA, name, WARN, f"not installed; it is needed for {use}", advice)
        else:
            yield Finding(AREA, name, OK, f"{found[name]}: {use}")


def _origin(python: str | None, interpreter: str) -> str:
    if python:
        return "of --python"
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        if os.environ.get(variable):
            return f"of the active environment, ${variable}"
    return "Windrow's own; no environment is active"
