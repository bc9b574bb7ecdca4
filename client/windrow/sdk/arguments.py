"""What the calls of Python are given: a wrong argument is told by its name, before anything starts."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from windrow.errors import UsageError
from windrow.spec.settings.fields import INT_MAX, Field, parse_value, worker_needs
from windrow.spec.settings.pace import DURATION_ALLOWED, parse_duration, parse_rate

COUNT = Field("int", 1, INT_MAX)


def whole(name: str, value: Any, field: Field = COUNT) -> int:
    """A whole number in the range of a field. Raises UsageError."""
    try:
        number = _whole(value)
        parse_value(field, number)
        return number
    except (TypeError, ValueError):
        raise UsageError(f"{name}={value!r}: it must be {field.allowed}.") from None


def check_size(name: str, value: Any) -> None:
    """Raise UsageError unless the value is the size of a mini-batch."""
    field = Field("size")
    try:
        if parse_value(field, value if isinstance(value, str) else _whole(value)) == 0:
            raise ValueError
    except (TypeError, ValueError):
        raise UsageError(f"{name}={value!r}: it must be {field.allowed}, and at least 1.") from None


def worker_needs_of(given: Mapping[str, Any]) -> dict[str, str]:
    """What a worker takes of its node, by setting, as text; None is left out. Raises UsageError."""
    found = {}
    for name, value in given.items():
        if value is None:
            continue
        field = worker_needs()[name]
        try:
            if isinstance(value, bool) or not isinstance(value, (int, float, str)):
                raise ValueError
            parse_value(field, value)
        except ValueError:
            raise UsageError(f"{name}={value!r}: it must be {field.allowed}.") from None
        found[name] = str(value)
    return found


def duration(name: str, value: Any) -> str:
    """A duration as text; numbers are seconds. Raises UsageError."""
    text = value if isinstance(value, str) else ""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        text = f"{value:.6f}".rstrip("0").rstrip(".") + "s"
    try:
        parse_duration(text)
    except ValueError:
        raise UsageError(f"{name}={value!r}: it must be a number of seconds up to 60, or {DURATION_ALLOWED}.") from None
    return text


def rate_of_items(name: str, value: Any) -> str:
    """A rate as text, which counts items also where it does not say so. Raises UsageError."""
    text = value if isinstance(value, str) else ""
    text = text if "item" in text else text.replace("/", " items/", 1)
    try:
        parse_rate(text)
    except ValueError:
        raise UsageError(
            f'{name}={value!r}: it must be a number of items per s, min or h, such as "20/s" or "5000/h"; from one a '
            "day to a million a second."
        ) from None
    return text


def check_path(name: str, value: Any) -> None:
    """Raise UsageError unless the value is a path, as text or as `os.PathLike`."""
    if not isinstance(value, (str, os.PathLike)) or not isinstance(os.fspath(value), str):
        raise UsageError(f"{name}={value!r}: it must be a path, as text or as pathlib.Path.")
    if not os.fspath(value):
        raise UsageError(f"{name} is empty; it must be a path.")


def check_choice(name: str, value: Any, choices: Sequence[str]) -> None:
    """Raise UsageError unless the value is one of the choices."""
    if value not in choices:
        raise UsageError(f"{name}={value!r}: it must be one of {', '.join(map(repr, choices))}.")


def check_callable(name: str, value: Any) -> None:
    """Raise UsageError unless the value can be called."""
    if not callable(value):
        raise UsageError(f"{name}={value!r}: it must be a function.")


def check_texts(name: str, value: Any) -> None:
    """Raise UsageError unless the value is a list of texts. A single text is one, letter by letter."""
    if isinstance(value, str):
        raise UsageError(f"{name}={value!r}: it must be a list of texts: {name}=[{value!r}].")
    if not isinstance(value, Iterable) or not all(isinstance(one, str) for one in value):
        raise UsageError(f"{name}={value!r}: it must be a list of texts.")


def check_mapping(name: str, value: Any) -> None:
    """Raise UsageError unless the value is a dict."""
    if not isinstance(value, Mapping):
        raise UsageError(f"{name}={value!r}: it must be a dict.")


def _whole(value: Any) -> int:
    """Raises TypeError."""
    if isinstance(value, bool):
        raise TypeError
    return operator.index(value)
