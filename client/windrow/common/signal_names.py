"""What signals are called in messages."""

# Only cheap modules: this is on the way to the first run().
from __future__ import annotations

import signal


def signal_name(number: int) -> str:
    """As in SIGSEGV; numbers without a name stay numbers."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
