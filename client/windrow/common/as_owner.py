"""Run a command as the owner of a folder: `python -m windrow.common.as_owner FOLDER COMMAND [ARGUMENT...]`.

For the client's container. What it fetches into a folder of the host must belong to that folder's owner, who may be the
only one allowed to write there. The client token belongs to another user, so it is read before.

As root, it needs only the capabilities SETUID and SETGID. Any other user stays the same.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn

SECRETS = ("WINDROW_CA_FILE", "WINDROW_TOKEN_FILE")
"""Variables that name files; the owner of the folder may not be able to read these."""


def main() -> NoReturn:
    """Become the owner of the folder, and replace this process by the command."""
    _, folder, *command = sys.argv
    missing = [file for name in SECRETS if (file := os.environ.get(name)) and not os.path.lexists(file)]
    if missing:
        sys.exit(f"{missing[0]} does not exist: no cluster has been started here yet. Start one: docker compose up -d")
    if os.geteuid() == 0:
        for name in SECRETS:
            if file := os.environ.get(name):
                os.environ[name] = _readable(file)
        try:
            status = Path(folder).stat()
            os.setgroups([])
            os.setresgid(status.st_gid, status.st_gid, status.st_gid)
            os.setresuid(status.st_uid, status.st_uid, status.st_uid)
        except OSError as error:
            sys.exit(f"Cannot run as the owner of {folder}: {error.strerror}.")
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.exit(f"{command[0]} cannot be run: {error.strerror}.")


def _readable(file: str) -> str:
    """A path under which any user that this process becomes can read the file; the file's own if it cannot be read.

    Root without the right to override permissions reads a file as its owner.
    """
    try:
        os.seteuid(Path(file).stat().st_uid)
        content = Path(file).read_bytes()
    except OSError:
        return file  # the command says what is wrong with it
    finally:
        os.seteuid(0)
    copy = os.memfd_create(Path(file).name, 0)  # inherited: it lives as long as the command does
    os.write(copy, content)
    return f"/proc/self/fd/{copy}"


if __name__ == "__main__":
    main()
