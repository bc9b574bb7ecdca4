"""Where the process that fetches may read local files that it copies for a step."""

from __future__ import annotations

import os
from typing import NamedTuple

from windrow_agent.steps.step import Step


class Reach(NamedTuple):
    """Folders and files, without links. A file is copied if it is in `places`, the step's own inputs; or in `within`
    (None: anywhere) and not in `closed`. What counts is where it is, wherever links lead.
    """

    places: list[str]
    within: list[str] | None
    closed: list[str]

    @classmethod
    def of_datastores(cls, step: Step) -> Reach:
        """All that is in the datastores of the master, if the step names them. Links on the way to these are the
        operator's; others may be a script's."""
        found = [os.path.realpath(os.fsdecode(place)) for place in step.spec.datastores]
        return cls([], found or None, [])
