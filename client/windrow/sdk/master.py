"""A master, as a plain frozen value."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from datetime import datetime


class Master(NamedTuple):
    """A master. `read_only_reason`: why it accepts no changes at the moment; empty if it does.
    `certificate_good_until`: when its certificate expires; None without TLS.
    """

    address: str
    incarnation: int
    windrow_version: str
    read_only_reason: str
    embedded: bool
    datastores: dict[str, str]
    certificate_good_until: datetime | None = None
