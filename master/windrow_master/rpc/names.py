"""Which names are allowed for jobs and nodes, which become folder names, and for projects."""

from __future__ import annotations

import re

NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,63}", re.ASCII)


def not_a_project(name: str) -> str:
    """Why a text cannot be the name of a project."""
    return f"{name[:80]!r} is not a valid name of a project: use at most 64 letters, digits, '_', '.' and '-'."
