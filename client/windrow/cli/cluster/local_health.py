"""`windrow health --folder DIR` and `--state DIR`: does the agent or master of a folder on this machine serve?

Container engines ask every few seconds, so this imports next to nothing. `health` handles all other command lines.
"""

from __future__ import annotations

import os
import sys

from windrow.common.health_file import Silent, is_serving

SERVES, SERVES_NOT, USAGE, NO_ANSWER = 0, 1, 2, 5
"""As in `windrow.cli.exit_codes`."""
MASTER_SERVES_NOT = "not serving: its disk is full, or its state is damaged; `windrow job list` says which"
KINDS = {
    "--folder": ("agent", "not serving: it is not connected to a master"),
    "--state": ("master", MASTER_SERVES_NOT),
}
"""By option: the role whose folder it is, and what to print if it does not serve."""


def parse(arguments: list[str]) -> tuple[str, str] | None:
    """The option and the folder of a plain command line; None for any other."""
    if len(arguments) == 1:
        option, _, folder = arguments[0].partition("=")
    elif len(arguments) == 2:
        option, folder = arguments
    else:
        return None
    return (option, folder) if option in KINDS and folder else None


def local_health(option: str, folder: str) -> int:
    """Print whether the process that uses a folder is serving; return the exit code."""
    role, serves_not = KINDS[option]
    try:
        _become_owner(folder)
        serving = is_serving(folder)
    except OSError as error:
        print(
            f"windrow: The folder {folder} of the {role} cannot be read: {error.strerror}. Check {option}, and whether "
            "this user may read that folder.",
            file=sys.stderr,
        )
        return USAGE
    except Silent as silent:
        print(f"windrow: The {role} does not answer: {silent}.", file=sys.stderr)
        return NO_ANSWER
    print("serving" if serving else serves_not)
    return SERVES if serving else SERVES_NOT


def _become_owner(folder: str) -> None:
    """Become the folder's owner: only the owner may enter the folder, and a health check may run as a root without
    root's rights. Raises OSError.
    """
    owner = os.stat(folder)  # noqa: PTH116  pathlib costs milliseconds here
    if os.geteuid() == 0 and owner.st_uid != 0:
        try:
            os.setgroups([owner.st_gid])
            os.setresgid(owner.st_gid, owner.st_gid, owner.st_gid)
            os.setresuid(owner.st_uid, owner.st_uid, owner.st_uid)
        except PermissionError:
            pass  # it may be able to look there all the same
