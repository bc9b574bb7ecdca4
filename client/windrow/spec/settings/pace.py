"""How fast a step may go, as it is written: durations and rates.

Both need a unit: `--rate_limit 20` is more likely to be an argument of the script itself.
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple

DELAY_S_MAX = 60.0
RATE_PER_S_MIN = 1 / 86_400
RATE_PER_S_MAX = 1e6

DURATION_ALLOWED = "a time from 0s to 60s with its unit, such as 500ms, 1s or 0.5min"
RATE_ALLOWED = (
    "a number of calls of run() per s, min or h, such as 20/s or 5000/h; or of items, such as 20 items/s; from one a "
    "day to a million a second"
)

_UNITS_S = {"ms": 0.001, "s": 1.0, "min": 60.0}
_PERIODS_S = {"s": 1.0, "min": 60.0, "h": 3600.0}
_DURATION = re.compile(r"(\d{1,6}(?:\.\d{1,6})?) ?(ms|s|min)", re.ASCII)
_RATE = re.compile(r"(\d{1,9}(?:\.\d{1,6})?) ?(items)? ?/ ?(s|min|h)", re.ASCII)


class Rate(NamedTuple):
    """A rate limit: calls of `run()` a second on all nodes together, or items given to them."""

    per_s: float
    counts_items: bool = False


def parse_duration(text: str) -> float:
    """The seconds of a duration such as `1s`. Raises ValueError, saying what is allowed."""
    found = _DURATION.fullmatch(text.strip())
    if found is None or (seconds := float(found[1]) * _UNITS_S[found[2]]) > DELAY_S_MAX:
        raise ValueError(f"it must be {DURATION_ALLOWED}")
    return seconds


def parse_rate(text: str) -> Rate:
    """A rate such as `20/s` or `20 items/s`. Raises ValueError, saying what is allowed."""
    found = _RATE.fullmatch(text.strip())
    if found is None or not RATE_PER_S_MIN <= (per_s := float(found[1]) / _PERIODS_S[found[3]]) <= RATE_PER_S_MAX:
        raise ValueError(f"it must be {RATE_ALLOWED}")
    return Rate(per_s, bool(found[2]))


def rate_words(per_s: float, *, counts_items: bool = False) -> str:
    """`20 calls of run() per second`, `30 items per minute`."""
    periods = (("second", 1.0), ("minute", 60.0), ("hour", 3600.0), ("day", 86_400.0))
    name, period_s = next((one for one in periods if per_s * one[1] >= 1 - 1e-9), periods[-1])
    count = per_s * period_s
    whole = round(count)
    number = f"{whole:,}" if math.isclose(count, whole, rel_tol=1e-6) else f"{count:,.3g}"
    one = "item" if counts_items else "call"
    what = one if number == "1" else f"{one}s"
    return f"{number} {what}{'' if counts_items else ' of run()'} per {name}"
