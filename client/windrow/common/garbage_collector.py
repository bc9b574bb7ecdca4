"""Keeps Python from collecting garbage while a process starts.

Imports make tens of thousands of objects that live as long as the process. Each collection would walk all of them again
and free next to nothing.
"""

# Only cheap modules: this is on the way to the first run().
from __future__ import annotations

import gc


def pause() -> None:
    """Stop collecting until `resume`."""
    gc.disable()


def resume() -> None:
    """Collect again, but never walk the objects that exist now. May be called again."""
    gc.freeze()
    gc.enable()
