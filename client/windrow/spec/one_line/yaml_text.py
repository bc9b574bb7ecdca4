"""Values as YAML, for a file that people read: plain where that is unmistakable, else in double quotes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

_PLAIN = re.compile(r"[A-Za-z/][\w./+-]*|\.{1,2}(/[\w./+-]*)?|\$\{\{[\w.]+\}\}|--[\w-]+( [\w./=+-]+)*", re.ASCII)
_OTHER = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})


def scalar(text: str) -> str:
    """A text."""
    if _PLAIN.fullmatch(text) and text.casefold() not in _OTHER:
        return text
    return json.dumps(text, ensure_ascii=False)


def flow(entries: Mapping[str, str | int]) -> str:
    """A mapping on one line."""
    held = (f"{key}: {_number(value) if isinstance(value, int) else in_flow(value)}" for key, value in entries.items())
    return "{" + ", ".join(held) + "}"


def _number(value: int) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def in_flow(text: str) -> str:
    """A text inside a mapping or list on one line, where braces have a meaning."""
    plain = scalar(text)
    return json.dumps(text, ensure_ascii=False) if "{" in plain and not plain.startswith('"') else plain
