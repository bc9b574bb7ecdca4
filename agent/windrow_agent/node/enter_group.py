"""`python -I -S enter_group.py <entrances> <command> <argument>...`: enters a control group, and becomes the command.
`entrances`: files to write into, joined by colons.
"""

from __future__ import annotations

import os
import sys

CANNOT_ENTER = 197
"""The exit code where it could not."""

if __name__ == "__main__":
    for path in sys.argv[1].split(os.pathsep):
        try:
            with open(path, "w") as entrance:
                entrance.write("0")
        except OSError as error:
            sys.stderr.write(f"error: it cannot enter its control group: {error}\n")
            sys.stderr.flush()
            os._exit(CANNOT_ENTER)
    try:
        os.execvp(sys.argv[2], sys.argv[2:])
    except OSError as error:
        sys.exit(f"error: {sys.argv[2]} cannot be started: {error.strerror}")
