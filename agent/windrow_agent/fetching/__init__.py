"""Fetches what mini-batches need from remote storage to local files, before a worker gets them."""

from __future__ import annotations
