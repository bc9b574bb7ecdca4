"""The environment of a step in the effective job's document. Format: docs/contracts.md, section 1."""

from __future__ import annotations

import re

from windrow.spec.effective.document_values import ValueReader
from windrow.spec.effective.job import CondaList, Environment

_PYTHON = re.compile(r"[0-9<>=!~,.*a-z]+")
_OPTION = re.compile(
    r"--(?:(?:index-url|extra-index-url|find-links|trusted-host|no-binary|only-binary)=[^\s\0]+|no-index|pre)"
)
_LINES_MAX = 5000


def is_option(text: str) -> bool:
    """Whether a text is an option of pip in the form of `Environment.options`."""
    return _OPTION.fullmatch(text) is not None


def environment_of(reader: ValueReader, value: object, key: str) -> Environment | None:
    """Reads the environment in a document; None if it notes a problem with `reader`."""

    def line(text: object, at: str) -> str:
        found = reader.text(text, at)
        if not found.strip() or found.startswith("-") or "\n" in found or "\r" in found:
            reader.problems.append(f"{at}: {found[:80]!r} is not a requirement")
        return found

    def option(text: object, at: str) -> str:
        found = reader.text(text, at)
        if not is_option(found):
            reader.problems.append(f"{at}: {found[:80]!r} is not an option of an environment")
        return found

    def one_line(text: object, at: str) -> str:
        found = reader.text(text, at)
        if not found.strip() or "\n" in found or "\r" in found:
            reader.problems.append(f"{at}: {found[:80]!r} is not one line of text")
        return found

    def conda(given: object, at: str) -> CondaList | None:
        lines = reader.list_of(one_line, _LINES_MAX)
        fields = reader.fields(given, at, {"specs": lines, "channels": lines, "pip": reader.list_of(line, _LINES_MAX)})
        return CondaList(**fields) if fields else None

    fields = reader.fields(
        value,
        key,
        {
            "python": reader.optional(
                lambda text, at: reader.matching(text, at, _PYTHON, "a version of Python, such as 3.10 or >=3.9")
            ),
            "requirements": reader.list_of(line, _LINES_MAX),
            "constraints": reader.list_of(line, _LINES_MAX),
            "options": reader.list_of(option, _LINES_MAX),
            "conda": reader.optional(conda),
        },
    )
    return Environment(**fields) if fields else None
