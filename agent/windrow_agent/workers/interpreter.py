"""The Python that runs the user's script."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path


class NoInterpreter(Exception):
    """There is no such interpreter; the text says which, why, and what to do."""


def find_interpreter(configured: str | None, environment: Mapping[str, str], own: str = sys.executable) -> str:
    """Path of the interpreter: the configured one, else the active virtual or conda environment's, else our own.

    Raises NoInterpreter for one that is not there or cannot be executed.
    """
    if configured:
        return _checked(configured, "given by --python")
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        if folder := environment.get(variable):
            return _checked(str(Path(folder) / "bin" / "python"), f"of the active environment, ${variable}")
    return own


def _checked(path: str, origin: str) -> str:
    full = path if os.sep in path else next((p for p in _search(path) if os.access(p, os.X_OK)), path)
    if not Path(full).exists():
        raise NoInterpreter(
            f"The Python interpreter {path!r} ({origin}) does not exist. Name another one with --python PATH"
        )
    if Path(full).is_dir() or not os.access(full, os.X_OK):
        raise NoInterpreter(
            f"The Python interpreter {path!r} ({origin}) cannot be executed. Name another one with --python PATH"
        )
    # Not resolved: a virtual environment's python is a link, and must stay one.
    return str(Path(full).absolute())


def _search(name: str) -> list[str]:
    return [str(Path(folder) / name) for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
