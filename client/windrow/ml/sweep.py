"""Stands for `azure.ai.ml.sweep`, which Windrow does not have: importing a name raises an error that says so."""

from __future__ import annotations

from windrow.ml.absent import refusing_all

__getattr__ = refusing_all(
    __name__,
    "steps that search hyperparameters are not supported. Remove these imports and the calls of .sweep(), and "
    "give the step the values itself; or make a parallel step whose items are the values to try.",
)
