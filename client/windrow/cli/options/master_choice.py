"""Which master a command means, and the options by which a later command finds it again."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

from windrow.embedded import state_folder
from windrow.errors import UsageError


def choose_master(master: str | None, state: Path | None) -> tuple[str | None, Path | None]:
    """One of the two, if both are given: one may come from the environment, and a typed option overrides it."""
    if master and state is not None:
        typed = [name for name in ("--master", "--state") if any(f"{a}=".startswith(f"{name}=") for a in sys.argv)]
        if len(typed) == 2:
            raise UsageError("--master and --state are mutually exclusive: give the one where the job is.")
        if typed == ["--master"]:
            state = None
        else:
            master = None
    return master, state


def master_options(master: str | None, state: Path | None) -> str:
    """The options by which a later command of this user finds the same master, with a leading space."""
    master, state = choose_master(master, state)
    if state is not None:
        named = os.environ.get("WINDROW_STATE")
        found = str(state) == (named or ("" if _elsewhere() else state_folder.DEFAULT))
        return "" if found else f" --state {shlex.quote(str(state))}"
    if master and master != os.environ.get("WINDROW_MASTER"):
        return f" --master {shlex.quote(master)}"
    return ""


def _elsewhere() -> bool:
    """Whether a command without options goes to a master, not to the runs in this folder."""
    from windrow.rpc.contexts import find_access

    try:
        return find_access(None, os.environ) is not None
    except UsageError:
        return True
