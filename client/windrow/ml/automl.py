"""Stands for `azure.ai.ml.automl`, which Windrow does not have: importing a name raises an error that says so."""

from __future__ import annotations

from windrow.ml.absent import refusing_all

__getattr__ = refusing_all(
    __name__,
    "steps that search models are not supported. Train in a command or parallel step with a script of your "
    "own, and give steps that read the model a path.",
)
