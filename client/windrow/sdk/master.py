"""What a master is, as it tells its clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from datetime import datetime


class Master(NamedTuple):
    """What a master is. `read_only_reason` is "" unless it accepts no changes at the moment; `certificate_good_until`:
    when the certificate that it shows expires, None without TLS."""

    address: str
    incarnation: int
    windrow_version: str
    read_only_reason: str
    embedded: bool
    datastores: dict[str, str]
    certificate_good_until: datetime | None = None
