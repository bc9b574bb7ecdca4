"""Which events are recorded that somebody can cause again and again: a node that registers without end must fill
neither the store nor the logs, nor must a client that changes what a job is worth.

Each node, and all nodes together, have an allowance; so have jobs. What passes it is counted, and the next event of
that node that is recorded says how many were left out before it. So the events of a node that comes and goes at a usual
pace are all there; of one that does so without end, the first ones are, and from then on one in each interval, the
newest.

Invariants:
1. Within any time T, at most `ONE_BURST + T / ONE_INTERVAL_S` events of a name are recorded, and at most
   `ALL_BURST + T / ALL_INTERVAL_S` of all names.
2. What is remembered of names is bounded, too (`NAMES_KEPT`): a name that is forgotten has a new allowance of its own,
   but not of all names.
"""

from __future__ import annotations

from windrow.common.quantities import counted

ONE_BURST = 20
ONE_INTERVAL_S = 60.0
ALL_BURST = 20_000
ALL_INTERVAL_S = 0.5
NAMES_KEPT = 20_000


class _Allowance:
    """How many events may be recorded: a number at once, and another one after each interval."""

    __slots__ = ("_at_s", "_interval_s", "_left", "_most", "left_out")

    def __init__(self, most: int, interval_s: float, now_s: float) -> None:
        self._left = self._most = most
        self._interval_s = interval_s
        self._at_s = now_s
        self.left_out = 0
        """Events since the last one that was recorded."""

    def has_one(self, now_s: float) -> bool:
        """Whether an event may be recorded now."""
        if due := int(max(0.0, now_s - self._at_s) / self._interval_s):
            self._left = min(self._most, self._left + due)
            self._at_s += due * self._interval_s
        return self._left > 0

    def take(self, now_s: float) -> None:
        """Records one."""
        if self._left == self._most:
            self._at_s = now_s
        self._left -= 1


class EventAllowances:
    """The allowances of all nodes of a master, or of all its jobs. It remembers nothing across masters."""

    def __init__(self, of: str = "this node") -> None:
        """`of`: whose events they are, in words."""
        self._of = of
        self._all: _Allowance | None = None
        self._names: dict[str, _Allowance] = {}
        """The one used last is the last."""

    def words(self, name: str, message: str, now_s: float) -> str | None:
        """The message of an event, with how many were left out before it; None if it is left out, too."""
        if self._all is None:
            self._all = _Allowance(ALL_BURST, ALL_INTERVAL_S, now_s)
        own = self._names.pop(name, None) or _Allowance(ONE_BURST, ONE_INTERVAL_S, now_s)
        self._names[name] = own
        if len(self._names) > NAMES_KEPT:
            del self._names[next(iter(self._names))]
        if not (own.has_one(now_s) and self._all.has_one(now_s)):
            own.left_out += 1
            return None
        own.take(now_s)
        self._all.take(now_s)
        left_out, own.left_out = own.left_out, 0
        if not left_out:
            return message
        return f"{message} (not recorded before it: {counted(left_out, 'event')} of {self._of})"
