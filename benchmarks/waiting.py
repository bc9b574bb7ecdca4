"""Waits for what a measurement needs to have happened."""

from __future__ import annotations

import time
from collections.abc import Callable

import windrow

DEADLINE_S = 120.0


def wait_until(what: str, condition: Callable[[], object]) -> None:
    """Wait for a condition. Raises RuntimeError if it does not hold within DEADLINE_S."""
    end = time.monotonic() + DEADLINE_S
    while not condition():
        if time.monotonic() > end:
            raise RuntimeError(f"it took longer than {DEADLINE_S:.0f} s until {what}")
        time.sleep(0.01)


def wait_succeeded(client: windrow.Client, job_id: str) -> None:
    """Wait for a job. Raises RuntimeError if it does not succeed, or takes longer than DEADLINE_S."""
    ended = client.wait(job_id, timeout_s=DEADLINE_S, check=False)
    if not ended.state.succeeded:
        raise RuntimeError(f"the job ended {ended.state}: {ended.message}")
