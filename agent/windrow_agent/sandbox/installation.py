"""Whether scripts can change the code of Windrow, or what its interpreter loads: `auto` leaves open what its user can
write, and the next worker, or agent, would run that before it is confined.
"""

from __future__ import annotations

import importlib.util
import os
import site
import sys
from pathlib import Path

_PACKAGES = ("windrow", "windrow_agent", "windrow_worker")


def changeable_code() -> str:
    """The first folder of it that this user can write; "" if there is none."""
    return next((folder for folder in _folders() if os.access(folder, os.W_OK)), "")


def _folders() -> list[str]:
    found = [
        str(place)
        for name in _PACKAGES
        if (spec := importlib.util.find_spec(name)) is not None
        for place in spec.submodule_search_locations or ()
    ]
    found += [entry for entry in sys.path if entry]
    found += [str(Path(sys.executable).parent), str(Path(os.path.realpath(sys.executable)).parent)]
    if site.ENABLE_USER_SITE:
        # It need not be there yet: then whoever can write above it can make it.
        user = Path(site.getusersitepackages())
        found.append(str(next((place for place in (user, *user.parents) if place.is_dir()), user)))
    return list(dict.fromkeys(os.path.realpath(place) for place in found if Path(place).is_dir()))
