"""What one master takes at most. Each limit has a name and a number; what would pass it is refused, and told so.

`windrow master --limit NAME=NUMBER` sets one. `docs/reference/settings.md` is made from the fields.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass

LARGEST = 2**31 - 1
"""Of any limit that counts things: mini-batches have 32-bit numbers."""
LARGEST_BYTES = 2**62
OPTION = "--limit"


class BadLimit(Exception):
    """An option that sets no limit. The text says which limits there are."""


def _limit(default: int, meaning: str) -> int:
    field: int = dataclasses.field(default=default, metadata={"meaning": meaning})
    return field


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one master."""

    mini_batches_per_step: int = _limit(
        10_000_000, "mini-batches of one step. A step whose input is cut into more fails while it is divided"
    )
    mini_batches_per_job: int = _limit(20_000_000, "mini-batches of all steps of one job")
    ready_mini_batches: int = _limit(
        1_000_000,
        "mini-batches that are ready to run, of all steps. While so many wait, inputs are not divided further; a step "
        "of which few wait is divided on",
    )
    open_jobs: int = _limit(1_000, "jobs that have not ended. A further one is refused")
    uploads: int = _limit(256, "uploads of code and data at a time, of all clients")
    uploads_per_client: int = _limit(
        64, "the same of one client: of one token, or of one address where clients have none"
    )
    upload_bytes: int = _limit(
        256 << 30, "what these uploads have announced and not sent yet, of all clients. The disk must have room for it"
    )
    upload_bytes_per_client: int = _limit(64 << 30, "the same of one client")
    left_uploads: int = _limit(
        64,
        "uploads that broke off and may be continued. Beyond that, or if their room is needed, the oldest are removed",
    )
    row_uploads: int = _limit(512, "uploads of large rows at a time, of all nodes. A node that is refused tries again")
    streams: int = _limit(10_000, "open calls that stream, of all clients and nodes")
    streams_per_client: int = _limit(
        1_000, "the same of one client, without the one Work stream of each node; and of all health checks"
    )
    document_bytes: int = _limit(4 << 20, "size of one job document: the job file with all it includes, as submitted")


def read_limits(given: Iterable[str]) -> Limits:
    """The limits that options `NAME=NUMBER` set; all others have their defaults. Raises BadLimit."""
    names = [field.name for field in dataclasses.fields(Limits)]
    found: dict[str, int] = {}
    for item in given:
        name, _, number = item.partition("=")
        if name not in names:
            raise BadLimit(f"{OPTION} {item}: there is no limit of this name. There are: {', '.join(names)}")
        largest = LARGEST_BYTES if name.endswith("_bytes") else LARGEST
        try:
            found[name] = int(number)
        except ValueError:
            found[name] = 0
        if not 1 <= found[name] <= largest:
            raise BadLimit(f"{OPTION} {item}: write NAME=NUMBER, with a whole number from 1 to {largest}")
    return Limits(**found)


def how_to_raise(name: str, wanted: int | None = None) -> str:
    """What an operator does about a limit, as the end of a message."""
    number = "NUMBER" if wanted is None else str(wanted)
    return f"start the master with `windrow master {OPTION} {name}={number}`"
