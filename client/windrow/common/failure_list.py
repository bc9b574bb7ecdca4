"""Where the failed items of a step are listed, as its message says: the master writes it, the client reads it."""

from __future__ import annotations

import os
import re

FILE_NAME = "failed_items.csv"
_SAID = re.compile(r"What failed is listed in (.+)\.$", re.DOTALL)


def named_for(output: str | os.PathLike[str]) -> str:
    """The name of the list of an output, if that of another output has the plain name in their folder."""
    return f"{os.fspath(output).rpartition('/')[2]}.{FILE_NAME}"


def listed_in(path: str | os.PathLike[str]) -> str:
    """The sentence that ends the message of a step with failures."""
    return f"What failed is listed in {os.fspath(path)}."


def place_in(message: str) -> str | None:
    """The list that a step's message names, if it names one."""
    found = _SAID.search(message)
    return found[1] if found else None
