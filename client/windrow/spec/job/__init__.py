"""The job file itself: pipeline, steps, inputs and outputs, read into the effective job."""

from __future__ import annotations
