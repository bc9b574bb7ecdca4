"""A fixture that starts real workers and lets none outlive its test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from worker_driver import Worker


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Worker]]:
    """`start(script, **settings)` starts a worker; see worker_driver.Worker."""
    with ExitStack() as stack:
        count = 0

        def begin(script: str | None = None, **settings: Any) -> Worker:
            nonlocal count
            count += 1
            folder = settings.pop("folder", None) or tmp_path / f"worker{count}"
            folder.mkdir(exist_ok=True)
            return stack.enter_context(Worker(folder, script, **settings))

        yield begin
