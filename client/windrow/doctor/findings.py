"""What a look at one thing came to."""

from __future__ import annotations

from typing import NamedTuple

OK, WARN, FAIL = "ok", "warn", "fail"


class Finding(NamedTuple):
    """`area` and `name` say what was looked at; `level` is OK, WARN (it works, or may not matter) or FAIL (a run would
    fail); `advice` is what to do about it, "" where there is nothing."""

    area: str
    name: str
    level: str
    seen: str
    advice: str = ""
