"""How long an exception asks to wait before the next try, as services say it.

The exception, or one that led to it, has a `retry_after`: seconds as a number or text, a timedelta, or a date as in
HTTP's header of that name (RFC 9110, section 10.2.3). Libraries for HTTP keep that header in `headers`, or in the
`headers` of their `response`.
"""

from __future__ import annotations

import math

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

MAX_S = 3600.0
"""Nobody waits longer."""

_LINKS_MAX = 20


def seconds_of(error: Optional[BaseException]) -> float:
    """The seconds that an exception asks for; 0.0 if it asks for none. Never raises."""
    seen = 0
    while error is not None and seen < _LINKS_MAX:
        try:
            found = _seconds(_asked(error))
        except Exception:  # a property of the script's own exception
            found = 0.0
        if found > 0:
            return min(found, MAX_S)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        seen += 1
    return 0.0


def _asked(error: BaseException) -> Any:
    asked = getattr(error, "retry_after", None)
    if asked is not None:
        return asked
    for holder in (error, getattr(error, "response", None)):
        headers = getattr(holder, "headers", None)
        if headers is not None and hasattr(headers, "get"):
            # Most libraries ignore the case of names; a plain dict does not.
            asked = headers.get("Retry-After") or headers.get("retry-after")
            if asked is not None:
                return asked
    return None


def _seconds(asked: Any) -> float:
    """The seconds of a number, a text, a timedelta or a date; 0.0 if it is none of these, or over."""
    if asked is None or isinstance(asked, bool):
        return 0.0
    if hasattr(asked, "total_seconds"):
        found = float(asked.total_seconds())
    elif isinstance(asked, (int, float)):
        found = float(asked)
    else:
        text = asked.decode("latin-1") if isinstance(asked, bytes) else str(asked)
        try:
            found = float(text)
        except ValueError:
            found = _until(text)
    return found if math.isfinite(found) and found > 0 else 0.0


def _until(text: str) -> float:
    from datetime import datetime, timezone
    from email.utils import parsedate_to_datetime

    try:
        moment = parsedate_to_datetime(text)
    except (TypeError, ValueError, IndexError):
        return 0.0
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    return (moment - datetime.now(timezone.utc)).total_seconds()
