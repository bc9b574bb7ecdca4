"""Page tokens: numbers that an earlier answer has given, and that come back from whoever likes."""

from __future__ import annotations

import grpc
from windrow.rpc import errors

from windrow_master.rpc.refusals import Context

LARGEST = 2**63 - 1
"""What a store takes as a number."""


async def numbers_of(token: str, context: Context, most: int = 1) -> tuple[int, ...]:
    """The numbers of a page token, at most `most`, with points between them; none for an empty one. Ends the call
    where it is none that this master gives.
    """
    parts = token.split(".", most) if token else []
    # Not int() first: thousands of digits cost it a second, and there are other digits than 0 to 9.
    if all(part.isascii() and part.isdecimal() and len(part) < 20 for part in parts) and len(parts) <= most:
        numbers = tuple(map(int, parts))
        if all(number <= LARGEST for number in numbers):
            return numbers
    return await errors.abort(
        context,
        grpc.StatusCode.INVALID_ARGUMENT,
        errors.PAGE_TOKEN_INVALID,
        f"{token[:80]!r} is not a page token. Start with an empty one.",
    )
