"""Reads command lines that are plain and right, and loads only the command that they name.

typer takes longer to load than most commands take to answer. What is not plain (help, completion, an abbreviation, any
mistake) is left to `app`, which reads the same declarations and says what is wrong.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

from windrow.cli.lines.command_table import WINDROW
from windrow.cli.options.declared import Argument, Function, Group, Parameter, load, options_of


class NotPlain(Exception):
    """The command line is for the other reader."""


def read(arguments: Sequence[str], environment: Mapping[str, str]) -> tuple[Function, dict[str, Any]] | None:
    """The command that a line names, and the value of each of its parameters; None if the line is not plain."""
    entry: str | Group | None = WINDROW
    for at, word in enumerate(arguments):
        if not isinstance(entry, Group):
            break
        entry = entry.commands.get(word)
        if isinstance(entry, str):
            function = load(entry)
            try:
                return function, values_of(options_of(function), arguments[at + 1 :], environment)
            except NotPlain:
                return None
    return None


def values_of(
    parameters: Mapping[str, Parameter], words: Sequence[str], environment: Mapping[str, str]
) -> dict[str, Any]:
    """The value of each parameter. Raises NotPlain."""
    given: dict[str, list[str]] = {}
    placed: list[str] = []
    names = {name: key for key, one in parameters.items() for name in one.names}
    rest = iter(words)
    for word in rest:
        if word == "--":
            placed += rest
        elif word.startswith("-") and word != "-":
            name, equals, text = word.partition("=") if word.startswith("--") else (word, "", "")
            if name not in names or (equals and parameters[names[name]].is_flag):
                raise NotPlain
            key = names[name]
            if not parameters[key].is_flag and not equals:
                text = _next(rest)
            given.setdefault(key, []).append(text)
        else:
            placed.append(word)
    _place(parameters, placed, given)
    return {key: _value(one, given.get(key) or _from(environment, one)) for key, one in parameters.items()}


def _next(rest: Iterator[str]) -> str:
    text = next(rest, None)
    if text is None or (text.startswith("-") and text != "-"):
        raise NotPlain
    return text


def _place(parameters: Mapping[str, Parameter], placed: list[str], given: dict[str, list[str]]) -> None:
    """Deal the words that belong to no option to the arguments; one that takes many is the last."""
    arguments = [key for key, one in parameters.items() if isinstance(one.declared, Argument)]
    for at, key in enumerate(arguments):
        if parameters[key].is_many:
            if at != len(arguments) - 1:
                raise NotPlain
            given[key], placed = placed, []
        elif placed:
            given[key] = [placed.pop(0)]
    if placed:
        raise NotPlain


def _from(environment: Mapping[str, str], parameter: Parameter) -> list[str]:
    """What an environment variable says, which stands for an option that is not given."""
    variable = parameter.declared.envvar
    text = environment.get(variable, "") if variable else ""
    if not text:
        return []
    if parameter.is_flag:
        raise NotPlain
    return text.split() if parameter.is_many else [text]


def _value(parameter: Parameter, texts: list[str]) -> Any:
    if not texts:
        if parameter.is_required:
            raise NotPlain
        return parameter.default
    if parameter.is_flag:
        return True
    values = [_converted(parameter, text) for text in texts]
    return values if parameter.is_many else values[-1]


def _converted(parameter: Parameter, text: str) -> Any:
    kind, declared = parameter.kind, parameter.declared
    if kind is str:
        return text
    if kind is Path:
        if declared.readable and os.path.exists(text) and not os.access(text, os.R_OK):  # noqa: PTH110
            raise NotPlain
        return Path(text)
    if not text.isascii():
        raise NotPlain
    try:
        value = kind(text)
    except ValueError:
        raise NotPlain from None
    if not isinstance(value, Enum) and not _within(value, declared.min, declared.max):
        raise NotPlain
    return value


def _within(value: float, least: float | None, most: float | None) -> bool:
    return (least is None or value >= least) and (most is None or value <= most)
