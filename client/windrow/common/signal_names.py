"""Names of signals for messages."""

# Only cheap modules: this is on the way to the first run().
from __future__ import annotations

import signal


def signal_name(number: int) -> str:
    """The name, such as SIGSEGV; a number without a name stays a number."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
