"""Which state folder a command line is going to ask, told before typer is loaded (`windrow.embedded.early_session`)."""

from __future__ import annotations

import os

from windrow.common.state_mark import STATE_MARK
from windrow.embedded import state_folder

ASKING = {
    "job": ("list", "show", "explain", "logs", "rows", "query", "report"),
    "mb": ("list", "show"),
    "node": ("list",),
    "data": ("list", "show"),
    "model": ("list", "show"),
}
"""Commands that ask a master and change nothing."""


def asked_folder(arguments: list[str]) -> str | None:
    """The state folder that a command line asks; None for one that asks a master, does something else, or cannot be
    told.
    """
    if not _asks(arguments) or {"--help", "-h", "--"}.intersection(arguments):
        return None
    named = [argument.partition("=")[0] for argument in arguments]
    # typer takes any unambiguous beginning of an option for it.
    if any(len(name) > 3 and "--master".startswith(name) for name in named):
        return None
    folder = _named_folder(arguments)
    if folder is None:
        from windrow.errors import UsageError
        from windrow.rpc.contexts import Contexts

        try:
            if os.environ.get("WINDROW_MASTER") or Contexts().in_use() is not None:
                return None
        except UsageError:
            return None
        folder = state_folder.DEFAULT
    return folder if os.path.isfile(os.path.join(folder, STATE_MARK)) else None  # noqa: PTH113, PTH118  pathlib costs milliseconds


def _asks(arguments: list[str]) -> bool:
    if not arguments:
        return False
    if arguments[0] == "top":
        return True
    return len(arguments) > 1 and arguments[1] in ASKING.get(arguments[0], ())


def _named_folder(arguments: list[str]) -> str | None:
    """What --state says, else $WINDROW_STATE, unless $WINDROW_MASTER is set as well."""
    for index, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name == "--state":
            return value if equals else "".join(arguments[index + 1 : index + 2]) or None
    return os.environ.get("WINDROW_STATE") if not os.environ.get("WINDROW_MASTER") else None
