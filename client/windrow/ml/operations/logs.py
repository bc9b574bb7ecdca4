"""Logs of a job, downloaded to this machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from windrow.sdk.client import Client


def fetch_log(client: Client, job_id: str, path: str, target: Path) -> None:
    """Download the current content of a log atomically; makes missing folders. Raises NotFound, OSError."""
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f"{target.name}.{os.getpid()}.partial")
    with partial.open("wb") as file:
        for chunk in client.read_log(job_id, path):
            file.write(chunk)
    partial.replace(target)
