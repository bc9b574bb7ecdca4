"""What scripts write into outputs that lie in a store: a local folder for each worker, and the way from there."""

from __future__ import annotations
