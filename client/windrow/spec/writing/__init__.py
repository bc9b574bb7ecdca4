"""Job files that are written from trees: for people, and to be kept with all that they name."""

from __future__ import annotations
