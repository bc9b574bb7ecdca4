"""Bringing what mini-batches need from remote storage to local files, before a worker gets them.

A process of its own does it (``__main__``, ``transfers``), with the agent's credentials; the agent's side (``fetcher``)
says what and when, by the recipes of the leases it holds (``recipes``). Workers see local paths only.
"""

from __future__ import annotations
