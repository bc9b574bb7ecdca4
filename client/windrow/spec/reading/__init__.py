"""YAML as trees with places, and how mappings are read by the tables of their keys."""

from __future__ import annotations
