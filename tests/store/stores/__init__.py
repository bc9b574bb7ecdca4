"""The stores that the conformance suite runs over: each a package here that has HARNESSES."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from store_harness import StoreHarness


def all_harnesses() -> dict[str, Callable[[Path], StoreHarness]]:
    """What makes a harness over a fresh state in a folder, by name: those of every package in this one."""
    return {
        name: make
        for package in iter_modules(__path__)
        for name, make in import_module(f"{__name__}.{package.name}").HARNESSES.items()
    }
