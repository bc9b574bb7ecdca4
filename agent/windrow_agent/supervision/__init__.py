"""The workers of all steps: how many each step gets, their start, their leases, their deadlines and their ends."""

from __future__ import annotations
