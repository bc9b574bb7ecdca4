"""When certificates expire, and warnings of it in the log.

The dates are read from the DER encoding: the standard library does not decode certificates that it does not trust, and
every agent would have to import a library for it.
"""

from __future__ import annotations

import binascii
import calendar
import logging
import math
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime

from windrow.common.journal import say

LOOK_EVERY_S = 3600.0
WARN_DAYS = 30
"""A warning is logged when fewer days than this are left."""
DAILY_DAYS = 7
"""A warning is logged daily when fewer days than this are left."""
RENEW = "Run `windrow setup` again where the master is; the master loads the new certificate automatically."
NEW_AUTHORITY = (
    "If `windrow setup` made it: move its authority/authority.pem away, run `windrow setup` again, and take the new "
    "ca.pem to all nodes and clients."
)

_DAY_S = 86_400
_BLOCK = re.compile(rb"-----BEGIN CERTIFICATE-----(.+?)-----END CERTIFICATE-----", re.DOTALL)
_UTC_TIME, _SEQUENCE, _VERSION = 0x17, 0x30, 0xA0


def good_until(pem: bytes) -> float | None:
    """When the first certificate in a text expires (seconds since 1970); None if none can be read."""
    ends: list[float] = []
    for block in _BLOCK.finditer(pem):
        try:
            ends.append(_not_after(binascii.a2b_base64(block[1])))
        except (ValueError, IndexError):
            continue
    return min(ends, default=None)


def days_left(ends: float, now_s: float) -> int:
    """Whole days from one moment to another (seconds since 1970)."""
    return int((ends - now_s) // _DAY_S)


def _not_after(der: bytes) -> float:
    """The end of a certificate's validity. Raises ValueError or IndexError for anything else."""
    _, to_be_signed, _ = _element(_element(der)[1])
    rest = to_be_signed
    tag, _, behind = _element(rest)
    if tag == _VERSION:
        rest = behind
    for _ in range(3):  # serial number, algorithm, issuer
        _, _, rest = _element(rest)
    tag, validity, _ = _element(rest)
    if tag != _SEQUENCE:
        raise ValueError("no validity where one belongs")
    tag, text, _ = _element(_element(validity)[2])
    form = "%y%m%d%H%M%SZ" if tag == _UTC_TIME else "%Y%m%d%H%M%SZ"
    return calendar.timegm(time.strptime(text.decode("ascii"), form))


def _element(data: bytes) -> tuple[int, bytes, bytes]:
    """Tag and content of the first element, and the bytes after it."""
    length, start = data[1], 2
    if length & 0x80:
        start += length & 0x7F
        length = int.from_bytes(data[2:start], "big")
    if start + length > len(data):
        raise ValueError("cut off")
    return data[0], data[start : start + length], data[start + length :]


class CertificateWatch:
    """Logs that certificates expire: once with fewer than 30 days left, daily with fewer than 7 and after the end."""

    def __init__(self, what: str, advice: str, read: Callable[[], bytes]) -> None:
        """`what` expires; `advice`: what to do. `read`: returns the certificates; unreadable ones are ignored."""
        self._what = what
        self._advice = advice
        self._read = read
        self._next_look_s = -math.inf
        self._told: int | None = None
        """The days left at the last warning (WARN_DAYS: at least DAILY_DAYS); None before the first warning."""
        self.good_until: float | None = None
        """When they expire (seconds since 1970), as of the last check; None if unknown."""

    def look(self, now_s: float | None = None) -> None:
        """Check the certificates; reads them once an hour. `now_s`: seconds since 1970, to check them at that time."""
        monotonic_s = time.monotonic()
        if now_s is None and monotonic_s < self._next_look_s:
            return
        now = time.time() if now_s is None else now_s
        self._next_look_s = monotonic_s + LOOK_EVERY_S
        try:
            ends = good_until(self._read())
        except OSError:
            return
        if ends is None:
            return
        self.good_until = ends
        until = f"{datetime.fromtimestamp(ends, UTC):%Y-%m-%d %H:%M} UTC"
        days = days_left(ends, now)
        if days >= WARN_DAYS:
            if self._told is not None:
                say(logging.INFO, f"{self._what} was renewed", good_until=until)
            self._told = None
            return
        stage = days if days < DAILY_DAYS else WARN_DAYS
        if stage == self._told:
            return
        self._told = stage
        if ends <= now:
            say(logging.ERROR, f"{self._what} has expired: connections fail. {self._advice}", ended=until)
        else:
            level = logging.WARNING if days else logging.ERROR
            say(level, f"{self._what} expires soon. {self._advice}", good_until=until, days_left=days)
