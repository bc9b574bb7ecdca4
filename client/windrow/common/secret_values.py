"""Values that are secrets as their names say: they stay out of what is shown or handed on."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

LEFT_OUT = "left-out"
"""What stands in place of a secret value."""
CHARACTERS_MIN = 4
"""Shorter values are not looked for in messages: they would be found everywhere."""
_SECRET = re.compile(
    r"(?i)(secret|passw|token|credential|(api|access|account)[-_]?key|connection[-_]?str|\bsas\b|_key$)"
)
_ANYWHERE = re.compile(r"(?i)secret|passw|token|credential|key|connection|sas")
"""A text in which this is not found names no secret."""


def secret_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Those environment variables that are secrets, by name."""
    return {name: value for name, value in sorted(variables.items()) if _SECRET.search(name)}


def without_secrets(arguments: Iterable[str]) -> tuple[list[str], dict[str, str]]:
    """Arguments with `LEFT_OUT` in place of the values of options that are secrets; and these values, by option."""
    told, found = list(arguments), {}
    for at, word in enumerate(told):
        option, equals, value = word.partition("=")
        if not option.startswith("-") or not _SECRET.search(option):
            continue
        if equals:
            told[at] = f"{option}={LEFT_OUT}"
            found[option] = value
        elif at + 1 < len(told) and not told[at + 1].startswith("-"):
            found[option] = told[at + 1]
            told[at + 1] = LEFT_OUT
    return told, found


def redacted(text: str, secrets: Iterable[str]) -> str:
    """A text without the values of secrets: a message or traceback may quote them."""
    for value in sorted(secrets, key=len, reverse=True):
        if len(value) >= CHARACTERS_MIN:
            text = text.replace(value, LEFT_OUT)
    return text


@lru_cache(maxsize=16)
def shown_document(document: bytes) -> bytes:
    """A job's document (docs/contracts.md, section 1) without the values of secrets; what is no document stays."""
    if not _ANYWHERE.search(document.decode(errors="replace")):
        return document
    try:
        job = json.loads(document)
        changed = False
        for step in job["steps"]:
            variables = secret_variables(step["environment_variables"])
            step["environment_variables"].update(dict.fromkeys(variables, LEFT_OUT))
            step["arguments"], found = without_secrets(step["arguments"])
            changed |= bool(variables or found)
    except (ValueError, LookupError, TypeError, AttributeError):
        return document
    return json.dumps(job).encode() if changed else document
