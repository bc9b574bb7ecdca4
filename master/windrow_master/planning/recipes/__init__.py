"""Recipes of mini-batches in a form for people."""

from __future__ import annotations
