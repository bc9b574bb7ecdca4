"""What is not here: says so to who imports it."""

from __future__ import annotations

raise ModuleNotFoundError(
    "windrow.ml has no sweep: steps that search hyperparameters are not carried out. Take these imports and the calls "
    "of .sweep() out, and give the step the values itself; or make a parallel step whose items are the values to try.",
    name=__name__,
)
