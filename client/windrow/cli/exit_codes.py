"""What the `windrow` command ends with. Documented in `windrow --help`; scripts rely on these."""

from __future__ import annotations

DONE = 0
JOB_FAILED = 1
USAGE = 2
"""Bad options, a bad job file, a refused request."""
TOLERATED_FAILURES = 3
"""Of a step without a threshold, or under --strict; there, also of values that did not fit their column."""
CANCELLED = 4
UNREACHABLE = 5
TAKEN = 6
"""`windrow fleet run`: another program has the fleet, and would lose it if this one were started again."""
TIMED_OUT = 124
"""`windrow job wait --timeout` gave up; the number is that of timeout(1)."""
INTERRUPTED = 130
"""By Ctrl-C or a signal; the state is kept."""
