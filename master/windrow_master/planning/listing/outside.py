"""The error for what an input may not name."""

from __future__ import annotations

import os

from windrow_master.planning.errors import PlanningError, shown
from windrow_master.roots import Roots


def outside(path: bytes, roots: Roots) -> PlanningError:
    """The error for a path that points outside the datastores."""
    try:
        real = os.path.realpath(path)
    except OSError:
        real = path  # a link of it has vanished meanwhile
    where = "is" if real == path else f"leads to {shown(real)}, which is"
    return PlanningError(
        f"{shown(path)} of the input {where} outside the datastores of this master ({roots}). Put the data into one of "
        "them, or start the master with --datastore NAME=PATH for the folder that contains it."
    )
