"""What is not here: says so to who imports it."""

from __future__ import annotations

raise ModuleNotFoundError(
    "windrow.ml has no automl: steps that search models are not carried out. Train in a command or parallel step with "
    "a script of your own, and give steps that read the model a path.",
    name=__name__,
)
