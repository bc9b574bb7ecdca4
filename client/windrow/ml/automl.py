"""What is not here: says so to who asks for any of it."""

from __future__ import annotations


def __getattr__(name: str) -> object:
    """Raises, with what to do instead."""
    if name.startswith("__"):
        raise AttributeError(name)
    raise ImportError(
        f"windrow.ml.automl has no {name}: steps that search models are not carried out. Train in a command or "
        "parallel step with a script of your own, and give steps that read the model a path.",
        name=__name__,
    )
