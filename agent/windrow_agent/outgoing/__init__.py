"""What waits for the master: completions until they are acknowledged, everything else until it is sent."""

from __future__ import annotations
