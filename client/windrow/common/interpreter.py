"""The Python that runs the user's script: which one it is, and whether it can run scripts."""

# Only cheap modules: finding one is on the way to the first run().
from __future__ import annotations

import os
import sys
import time

from windrow.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Mapping, Sequence


OLDEST = (3, 8)
PROBE_S = 30.0
"""An interpreter that takes longer to answer (on a slow disk) is left to the agent, which will report problems."""
CHECK_S = 0.05
PROBE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "interpreter_probe.py")


class NoInterpreter(UsageError):
    """The interpreter does not exist, or cannot run scripts; the text says which, why, and what to do."""


def find_interpreter(configured: str | None, environment: Mapping[str, str], own: str = sys.executable) -> str:
    """Return the absolute path of the interpreter: the configured one (a bare name is looked up on PATH), else that of
    the active virtual or conda environment, else our own. Raises NoInterpreter if it does not exist or cannot be
    executed.
    """
    if configured:
        return _checked(configured, "given by --python")
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        if folder := environment.get(variable):
            return _checked(os.path.join(folder, "bin", "python"), f"of the active environment, ${variable}")
    return own


def check_interpreter(python: str, check: Callable[[], None] = lambda: None) -> None:
    """Start the interpreter, and check that it is a Python that is new enough. `check`: as of `missing_libraries`.
    Raises NoInterpreter.
    """
    if python != sys.executable:
        missing_libraries(python, check=check)


def missing_libraries(
    python: str,
    libraries: Sequence[str] = (),
    *,
    folder: str = "",
    variables: Mapping[str, str] | None = None,
    check: Callable[[], None] = lambda: None,
) -> list[str]:
    """Return the libraries that an interpreter lacks, with a step's code folder and environment variables; none if it
    does not answer in time. `check`: called while it runs; it may raise. Raises NoInterpreter if it cannot run scripts.
    """
    import subprocess

    command = [python, PROBE, folder, *libraries]
    environment = {**os.environ, **variables} if variables is not None else None
    try:
        process = subprocess.Popen(
            command,
            cwd=folder or None,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    except OSError as error:
        raise NoInterpreter(f"{python!r} cannot be executed: {error.strerror}. {_OTHER}") from error
    with process:
        try:
            said = _said(process, check)
        except BaseException:
            # Ended and reaped here: after an interrupt, `subprocess` would leave it behind.
            process.kill()
            process.wait()
            raise
    if said is None:
        return []
    stdout, stderr = said
    words = stdout.decode(errors="replace").split()
    # A `sitecustomize` may print as well: ours is the last line.
    begin = max((index for index, word in enumerate(words) if word == "windrow:"), default=None)
    if process.returncode != 0 or begin is None:
        lines = (stderr or stdout).decode(errors="replace").strip().splitlines()
        why = f": {lines[-1]}" if lines else ""
        raise NoInterpreter(
            f"{python!r} does not run as a Python interpreter (exit code {process.returncode}){why}. {_OTHER}"
        )
    _check_version(python, words[begin + 1])
    return words[begin + 2 :]


def _said(process: subprocess.Popen[bytes], check: Callable[[], None]) -> tuple[bytes, bytes] | None:
    """What a probe has written, once it has ended; None if that takes too long: it is ended then."""
    import subprocess

    deadline = time.monotonic() + PROBE_S
    while time.monotonic() < deadline:
        check()
        try:
            return process.communicate(timeout=CHECK_S)
        except subprocess.TimeoutExpired:
            pass
    process.kill()
    process.wait()
    return None


def _check_version(python: str, version: str) -> None:
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST:
        raise NoInterpreter(
            f"The Python interpreter {python!r} is Python {version}, too old; Python 3.8 or newer is needed. {_OTHER}"
        )


_OTHER = "Choose another one with --python PATH"


def _checked(path: str, origin: str) -> str:
    full = path if os.sep in path else next((p for p in _search(path) if os.access(p, os.X_OK)), path)
    # Not resolved: a virtual environment's python is a link, and must stay one.
    full = os.path.abspath(full)
    if not os.path.exists(full):
        raise NoInterpreter(f"The Python interpreter {path!r} ({origin}) does not exist. {_OTHER}")
    if os.path.isdir(full) or not os.access(full, os.X_OK):
        raise NoInterpreter(f"The Python interpreter {path!r} ({origin}) cannot be executed. {_OTHER}")
    return full


def _search(name: str) -> list[str]:
    folders = os.environ.get("PATH", "").split(os.pathsep)
    return [os.path.join(folder, name) for folder in folders if folder]
