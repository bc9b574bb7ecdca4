"""Findings of checks."""

from __future__ import annotations

from typing import NamedTuple

OK, WARN, FAIL = "ok", "warn", "fail"


class Finding(NamedTuple):
    """One finding. `area`, `name`: what was checked. `level`: OK, WARN (it works, or may not matter) or FAIL (a run
    would fail). `advice`: what to do about it, if anything."""

    area: str
    name: str
    level: str
    seen: str
    advice: str = ""
