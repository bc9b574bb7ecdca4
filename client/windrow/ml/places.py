"""The line of a notebook or script that made an object, so that errors can name it."""

from __future__ import annotations

import os
import sys

from windrow.spec.reading.nodes import Place, Source, source_label

KIND = "python"
_PACKAGE = "windrow.ml"


def calling_place() -> Place:
    """The line outside this package that is running. Relative paths start at the working folder."""
    frame = sys._getframe(1)
    while frame.f_back is not None and _is_ours(str(frame.f_globals.get("__name__", ""))):
        frame = frame.f_back
    return Place(Source(KIND, _label(frame.f_code.co_filename), os.getcwd()), frame.f_lineno, 1)


def calling_file() -> str:
    """The script that is running, as an absolute path; in a notebook, a name in the working folder."""
    frame = sys._getframe(1)
    while frame.f_back is not None and _is_ours(str(frame.f_globals.get("__name__", ""))):
        frame = frame.f_back
    name = frame.f_code.co_filename
    return os.path.abspath(name) if _label(name) != _NOTEBOOK and os.path.isfile(name) else os.path.abspath("notebook")


_NOTEBOOK = "notebook cell"


def _is_ours(module: str) -> bool:
    return module == _PACKAGE or module.startswith(f"{_PACKAGE}.")


def _label(file: str) -> str:
    if file.startswith("<") or f"{os.sep}ipykernel_" in file:
        return _NOTEBOOK
    return source_label(os.path.abspath(file))
