"""What the master says, carried out: steps taken, prepared and ended, leases taken, the node's state reported."""

from __future__ import annotations
