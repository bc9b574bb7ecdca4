"""The page of commands: every command, its arguments and options, from the parsers that read them."""

from __future__ import annotations

import argparse
import enum
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from markdown import escaped, head, joined, listed, sentence
from windrow.cli.lines.app import app
from windrow_master import config as master
from windrow_master.setup import __main__ as setup

TEXT = """\
Every command of `windrow`, with its arguments and options. `windrow COMMAND --help` shows the same. `$NAME` is the
environment variable that stands for an option that is not given.
"""
PARSERS = {"windrow master": master.command_line, "windrow setup": setup.command_line}
"""Commands whose options argparse reads, each with what makes the parser."""


def page() -> str:
    """The whole page."""
    lines = head("Commands", "the command line of `windrow`", TEXT)
    for path, command in walk("windrow", typer.main.get_command(app)):
        lines += section(path, command)
    return joined(lines)


def walk(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    """A command and all below it, by the words that call them."""
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        if not inner.hidden:
            yield from walk(f"{path} {name}", inner)


def options_of(command: Any) -> list[Any]:
    """The arguments and options of a command that people see."""
    return [one for one in command.params if not getattr(one, "hidden", False)]


def section(path: str, command: Any) -> list[str]:
    """The section of one command."""
    parser = PARSERS[path]() if path in PARSERS else None
    text = parser.description if parser else command.help
    lines = [f"## `{path}`", "", *paragraphs(text or command.short_help or ""), ""]
    inner = [name for name, one in getattr(command, "commands", {}).items() if not one.hidden]
    if inner:
        links = (f"[`{name}`](#{path.replace(' ', '-')}-{name})" for name in inner)
        lines += [f"Commands: {', '.join(links)}.", ""]
    options = list(from_argparse(parser)) if parser else [option_line(one) for one in options_of(command)]
    lines += [*options, ""] if options else []
    for example in re.findall(r"^Example: (.*)", (parser.epilog if parser else command.epilog) or "", re.M):
        lines += ["Example:", "", "```sh", *example.split(". Then: "), "```", ""]
    return lines


def paragraphs(text: str) -> list[str]:
    """A help text, each of its paragraphs on one line."""
    parts = [escaped(sentence(part)) for part in text.replace("\b", "").split("\n\n") if part.strip()]
    return "\n\n".join(parts).splitlines()


def option_line(option: Any) -> str:
    """An argument or option of typer's, as an entry of a list."""
    is_argument = option.param_type_name == "argument"
    value = "" if getattr(option, "is_flag", False) else option.metavar or value_name(option)
    name = f"`{value}`" if is_argument else f"`{', '.join(option.opts)}{f' {value}' if value else ''}`"
    given = shown_default(option.default)
    variable = f"`${option.envvar}`" if option.envvar else ""
    notes = ["required"] if option.required else []
    notes += [f"default: {given}"] if given else []
    notes += [variable] if variable else []
    return listed(name, notes, escaped(sentence(option.help or "")))


def value_name(option: Any) -> str:
    """What stands for the value of an option without a name for it: its choices, or its type."""
    descriptor = getattr(option, "type_descriptor", None)
    kind: Any = descriptor.annotation if descriptor is not None else getattr(option, "type", None)
    for one in (kind, type(option.default)):
        if isinstance(one, type) and issubclass(one, enum.Enum):
            return "|".join(str(choice.value) for choice in one)
    if choices := getattr(kind, "choices", None):
        return "|".join(str(getattr(choice, "value", choice)) for choice in choices)
    name = str(getattr(kind, "__name__", "") or getattr(kind, "name", "")).lower()
    return {"int": "N", "integer": "N", "integer range": "N", "float": "NUMBER", "path": "PATH"}.get(name, "TEXT")


def shown_default(value: Any) -> str:
    """A default worth showing."""
    if value is None or value is False or value == "" or value in ([], ()) or callable(value):
        return ""
    if isinstance(value, enum.Enum):
        value = value.value
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return f"`{value}`"


def from_argparse(parser: argparse.ArgumentParser) -> Iterator[str]:
    """The options of a parser of argparse."""
    for action in parser._actions:
        if action.help in (argparse.SUPPRESS, None) or isinstance(action, argparse._HelpAction):
            continue
        value = "" if action.nargs == 0 else action.metavar or ("PATH" if action.type is Path else action.dest.upper())
        notes = ["required"] if action.required else []
        given = "" if action.required else shown_default(action.default)
        notes += [f"default: {given}"] if given else []
        text = re.sub(r" ?\[(default: )?%\(default\)s\]", "", str(action.help))
        yield listed(
            f"`{', '.join(action.option_strings)}{f' {value}' if value else ''}`", notes, escaped(sentence(text))
        )
