"""What workers have done, on its way to the master: results, large rows, and outputs that go to a store."""

from __future__ import annotations
