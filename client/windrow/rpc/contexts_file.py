"""Where the contexts of a user are. Apart from `contexts`, which takes 15 ms to load: most users have none."""

# Only cheap modules: commands that ask look here before they start their master.
from __future__ import annotations

import os


def contexts_file() -> str:
    """`$WINDROW_CONTEXTS`, else `windrow/contexts.json` in `$XDG_CONFIG_HOME` or `~/.config`."""
    named = os.environ.get("WINDROW_CONTEXTS")
    if named:
        return named
    config = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")  # noqa: PTH111  pathlib costs milliseconds
    return os.path.join(config, "windrow", "contexts.json")  # noqa: PTH118  the same
