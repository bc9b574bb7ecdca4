"""What worker time was spent on, by project, user, job, pool and day."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from windrow.errors import UsageError

if TYPE_CHECKING:
    from windrow.rpc.connection import Connection
    from windrow.rpc.v1 import queue_service_pb2 as pb

KEYS = ("project", "user", "job", "pool", "day")
"""By these, usage is added up."""
KINDS = ("useful", "retried", "lost", "preempted", "cancelled", "init", "idle")
"""What worker time is spent on: `Usage` has the seconds of each."""
SINCE_DAYS = 7
_SPENT = ("useful_s", "retried_s", "lost_s", "preempted_s", "cancelled_s", "init_s")
_EPOCH = date(1970, 1, 1)


class Usage(NamedTuple):
    """Worker time, in seconds. A key by which it is not added up is None.

    Example:
        with windrow.Client("gpu1") as client:
            for usage in client.queues.usage(["project"]):
                print(usage.project, usage.total_s / 3600)
    """

    project: str | None = None
    user: str | None = None
    """The name of the token that submitted the job; empty if the master asked for none."""
    job: str | None = None
    pool: str | None = None
    """Names of pools, with commas between; empty for nodes that are in none."""
    day: date | None = None
    """UTC."""
    useful_s: float = 0.0
    """On attempts that succeeded."""
    retried_s: float = 0.0
    """On attempts that failed."""
    lost_s: float = 0.0
    """On attempts that were lost with their node."""
    preempted_s: float = 0.0
    """On attempts that were taken back, or that another one superseded."""
    cancelled_s: float = 0.0
    """On attempts that ran when their job was cancelled, or failed."""
    init_s: float = 0.0
    """On the start of workers: Python, the script's imports, and `init()`."""
    lived_s: float = 0.0
    """What workers lived in all, as far as nodes have reported it."""

    @property
    def idle_s(self) -> float:
        """What workers lived beyond all that, in seconds."""
        return max(0.0, self.lived_s - self._spent_s())

    @property
    def total_s(self) -> float:
        """All of it, in seconds."""
        return max(self.lived_s, self._spent_s())

    def keys(self, by: Iterable[str]) -> tuple[Any, ...]:
        """The values of these keys."""
        return tuple(getattr(self, key) for key in by)

    def seconds(self) -> dict[str, float]:
        """The seconds of each of KINDS, and `total`."""
        return {kind: getattr(self, f"{kind}_s") for kind in (*KINDS, "total")}

    def plus(self, other: Usage) -> Usage:
        """The sums of both, under the keys of the first."""
        return self._replace(**{name: getattr(self, name) + getattr(other, name) for name in (*_SPENT, "lived_s")})

    def _spent_s(self) -> float:
        spent: float = sum(getattr(self, name) for name in _SPENT)
        return spent

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types: the keys by which it is added up, and the seconds of each kind."""
        keys = {key: getattr(self, key) for key in KEYS if getattr(self, key) is not None}
        if self.day is not None:
            keys["day"] = self.day.isoformat()
        return keys | {f"{kind}_s": round(seconds, 6) for kind, seconds in self.seconds().items()}


def priced(
    usages: Iterable[Usage], by: Sequence[str], prices: Mapping[str, float], default: float
) -> list[tuple[Usage, float]]:
    """Usage by pool and other keys, added up by these keys, each with what it costs.

    `prices`: by pool, of an hour of one worker. Of a node in several pools, the highest counts; of one in none that has
    a price, `default`.
    """
    found: dict[tuple[Any, ...], tuple[Usage, float]] = {}
    for usage in usages:
        of_pools = [prices[pool] for pool in (usage.pool or "").split(",") if pool in prices]
        cost = usage.total_s / 3600 * max(of_pools, default=default)
        mine = usage if "pool" in by else usage._replace(pool=None)
        before = found.get(mine.keys(by))
        found[mine.keys(by)] = (mine, cost) if before is None else (before[0].plus(mine), before[1] + cost)
    return list(found.values())


def usage_of(
    connection: Connection,
    stub: Any,
    by: Iterable[str],
    since: date | None,
    until: date | None,
    project: str,
) -> list[Usage]:
    """Ask a master; see `Queues.usage`."""
    from windrow.rpc.v1 import queue_service_pb2 as pb

    by = list(dict.fromkeys(by))
    if unknown := [key for key in by if key not in KEYS]:
        raise UsageError(f"Usage is not added up by {unknown[0]!r}. Choose from: {', '.join(KEYS)}.")
    last = datetime.now(UTC).date() if until is None else _day(until)
    first = last - timedelta(days=SINCE_DAYS) if since is None else _day(since)
    request = pb.GetUsageRequest(
        by=[pb.UsageKey.Value(f"USAGE_KEY_{key.upper()}") for key in by],
        first_day=max(0, (first - _EPOCH).days),
        last_day=max(0, (last - _EPOCH).days),
        project=project,
    )
    return [_usage(message, by) for message in connection.call(stub.GetUsage, request).usage]


def _day(moment: date) -> date:
    """The day (UTC) of a moment; a day is one already."""
    return moment.astimezone(UTC).date() if isinstance(moment, datetime) else moment


def _usage(message: pb.Usage, by: Sequence[str]) -> Usage:
    keys: dict[str, Any] = {
        "project": message.project,
        "user": message.user,
        "job": message.job_id,
        "pool": message.pool,
        "day": _EPOCH + timedelta(days=message.day),
    }
    return Usage(
        **{key: keys[key] for key in by},
        useful_s=message.useful_us / 1e6,
        retried_s=message.retried_us / 1e6,
        lost_s=message.lost_us / 1e6,
        preempted_s=message.preempted_us / 1e6,
        cancelled_s=message.cancelled_us / 1e6,
        init_s=message.started_us / 1e6,
        lived_s=message.lived_us / 1e6,
    )
