"""What mini-batches need from remote storage, brought to local files before a worker gets them."""

from __future__ import annotations
