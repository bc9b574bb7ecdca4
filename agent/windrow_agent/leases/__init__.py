"""The leases that this node holds, and how many it wants ahead. Pure: no I/O, no clock."""

from __future__ import annotations
