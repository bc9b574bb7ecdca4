"""The environment of a step: a conda or pip list, read as requirements for PyPI."""

from __future__ import annotations
