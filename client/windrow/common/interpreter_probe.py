# ruff: noqa: I002, RUF005
"""Run by another interpreter, as `python interpreter_probe.py CODE_FOLDER LIBRARY...`: prints its version and which
of the libraries it lacks.

Even Python 2 can read this file, so that an interpreter that is too old is distinguished from a broken one.
"""

import sys


def _lacks(name):
    # type: (str) -> bool
    from importlib.util import find_spec

    try:
        return find_spec(name) is None
    except ValueError:
        return False


if __name__ == "__main__":
    # As in a worker: the code folder is searched first, and none of our folders.
    sys.path[:1] = [sys.argv[1]] if sys.argv[1] else []
    _missing = [name for name in sys.argv[2:] if _lacks(name)] if sys.version_info >= (3, 8) else []
    print(" ".join(["windrow:", ".".join(str(part) for part in sys.version_info[:3])] + _missing))
