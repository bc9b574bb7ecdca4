"""Compares the allocations that the master has with those that an engine lists. Pure; one for each group.

Moments are in seconds of one clock.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from windrow.fleet.decision import BEGUN, Held
from windrow.fleet.provider import Seen, State

MISSING_S = 60.0
"""So long an allocation may be missing in an engine's lists before it is lost."""
LOST = "lost"


class Report(NamedTuple):
    """What became of an allocation, for the master. `state`: as in `State`, or LOST."""

    name: str
    state: str
    engine_id: str = ""
    reason: str = ""


class Outcome(NamedTuple):
    """What a list of an engine's leads to."""

    reports: tuple[Report, ...]
    """What the master is to be told."""
    cancel: tuple[Seen, ...]
    """Queued allocations that have ended for the master."""


class Reconciling:
    """What is known of one group's allocations from one list to the next."""

    def __init__(self) -> None:
        self._missing_since: dict[str, float] = {}
        self._offered: dict[str, int] = {}
        """Allocations that the master does not have, with the number of the master's answer before they were reported.
        """

    def listed(
        self,
        seen: Sequence[Seen],
        rows: Mapping[str, Held],
        submitting: Collection[str],
        answers: int,
        now: float,
    ) -> Outcome:
        """An engine has listed what it has. `rows`: what the master had when it answered last, with what was begun
        since then. `submitting`: what the engine is asked for now, or was while it made the list. `answers`: how often
        the master has answered.
        """
        reports, cancel = [], []
        listed = set()
        for one in seen:
            listed.add(one.name)
            self._missing_since.pop(one.name, None)
            row = rows.get(one.name)
            if row is not None:
                self._offered.pop(one.name, None)
                if (row.state, row.engine_id, row.reason) != (one.state.value, one.engine_id, one.reason):
                    reports.append(_report(one))
            elif one.name not in submitting and not one.state.has_ended:
                offered = self._offered.setdefault(one.name, answers)
                if answers <= offered + 1:
                    # It may be from before a backup that the master's state was restored from.
                    reports.append(_report(one))
                elif one.state is State.QUEUED:
                    cancel.append(one)
        for name in [name for name in self._offered if name not in listed]:
            del self._offered[name]
        reports += self._missing(listed, rows, submitting, now)
        return Outcome(tuple(reports), tuple(cancel))

    def _missing(
        self, listed: Collection[str], rows: Mapping[str, Held], submitting: Collection[str], now: float
    ) -> list[Report]:
        """Reports of what the engine does not know any more."""
        lost = []
        missing = {
            name: row for name, row in rows.items() if not (name in listed or name in submitting or row.is_alive)
        }
        for name, row in missing.items():
            if now - self._missing_since.setdefault(name, now) >= MISSING_S:
                asked = row.state != BEGUN
                why = "The engine no longer knows it." if asked else "The engine was not asked for it, or refused it."
                lost.append(Report(name, LOST, row.engine_id, why))
        for name in [name for name in self._missing_since if name not in missing]:
            del self._missing_since[name]
        return lost


def _report(seen: Seen) -> Report:
    return Report(seen.name, seen.state.value, seen.engine_id, seen.reason)
