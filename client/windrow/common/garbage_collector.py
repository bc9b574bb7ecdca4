"""No garbage collection while a process starts.

Importing makes tens of thousands of objects that live as long as the process. Each collection would walk all of them
again and free next to nothing.
"""

# Only cheap modules: this is on the way to the first run().
from __future__ import annotations

import gc


def pause() -> None:
    """Collect nothing until `resume`."""
    gc.disable()


def resume() -> None:
    """Collect again, but never walk what is there already. Repeatable."""
    gc.freeze()
    gc.enable()
