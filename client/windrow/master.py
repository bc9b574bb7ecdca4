"""What a master is, as it tells its clients."""

from __future__ import annotations

from typing import NamedTuple


class Master(NamedTuple):
    """What a master is. `read_only_reason` is "" unless it accepts no changes at the moment."""

    address: str
    incarnation: int
    windrow_version: str
    read_only_reason: str
    embedded: bool
    datastores: dict[str, str]
