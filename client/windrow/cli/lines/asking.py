"""The first milliseconds of commands that only ask: over a state folder that nobody serves, the master that answers
begins to start before anything else is loaded."""

from __future__ import annotations

import os

from windrow.common.state_mark import STATE_MARK

COMMANDS = frozenset(
    (
        ("job", "list"), ("job", "show"), ("job", "explain"), ("job", "logs"), ("job", "report"), ("job", "rows"),
        ("mb", "list"), ("mb", "show"), ("node", "list"), ("data", "list"), ("model", "list"),
    )
)  # fmt: skip


def begin(arguments: list[str]) -> None:
    """Begin to start the master that a command line will need, if that is certain. What is wrong, the command itself
    reports later.
    """
    if tuple(arguments[:2]) not in COMMANDS or not _asks_here(arguments[2:]):
        return
    state = _state_of(arguments[2:])
    if state is None or not os.path.isfile(os.path.join(state, STATE_MARK)):  # noqa: PTH113, PTH118
        return
    from windrow.embedded import state_folder
    from windrow.errors import WindrowError

    try:
        if state == state_folder.DEFAULT and _has_context():
            return
        from windrow.embedded import early_session

        early_session.begin(state)
    except (WindrowError, OSError):
        return


def _asks_here(options: list[str]) -> bool:
    """Whether the command asks for no help and for no master elsewhere."""
    others = ("--help", "-h", "--master", "-m")
    given = any(word.partition("=")[0] in others or word.startswith("--ma") for word in options)
    return not given and not os.environ.get("WINDROW_MASTER") and "_WINDROW_COMPLETE" not in os.environ


def _state_of(options: list[str]) -> str | None:
    """The state folder that the command means; None if that is not certain."""
    from windrow.embedded import state_folder

    found = state_folder.default()
    for at, word in enumerate(options):
        name, equals, value = word.partition("=")
        if name == "--state":
            if equals:
                found = value
            elif at + 1 < len(options):
                found = options[at + 1]
            else:
                return None
        elif name.startswith("--st"):
            return None
    return found or None


def _has_context() -> bool:
    from windrow.rpc.contexts_file import contexts_file

    if not os.path.exists(contexts_file()):  # noqa: PTH110  pathlib costs milliseconds here
        return False
    from windrow.rpc.contexts import find_access

    return find_access(None, os.environ) is not None
