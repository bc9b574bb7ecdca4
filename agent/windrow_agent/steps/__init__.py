"""A step as it lives on this node: its folder, its copies of the code, its logs."""

from __future__ import annotations
