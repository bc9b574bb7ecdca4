"""Which names are allowed for jobs and nodes: they become folder names."""

from __future__ import annotations

import re

NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,63}", re.ASCII)
