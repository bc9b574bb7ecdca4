"""The tests of this folder wait for downloads and builds, so in a whole run they begin first, beside the others."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: HERE not in item.path.parents)
