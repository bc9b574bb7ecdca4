"""Recipes of mini-batches as people see them."""

from __future__ import annotations
