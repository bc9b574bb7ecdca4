"""Stands for the package of Azure ML's runtime, where that is not installed (reference 3.5)."""

from __future__ import annotations
