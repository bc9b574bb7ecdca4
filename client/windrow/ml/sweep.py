"""What is not here: says so to who asks for any of it."""

from __future__ import annotations


def __getattr__(name: str) -> object:
    """Raises, with what to do instead."""
    if name.startswith("__"):
        raise AttributeError(name)
    raise ImportError(
        f"windrow.ml.sweep has no {name}: steps that search hyperparameters are not carried out. Take these imports "
        "and the calls of .sweep() out, and give the step the values itself; or make a parallel step whose items are "
        "the values to try.",
        name=__name__,
    )
