"""Every `--help` has one look."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from windrow.cli.lines.app import app

ROLES = {"master": "windrow_master", "setup": "windrow_master.setup"}
"""Commands with help of their own."""
SENTENCES = re.compile(r"(?:[A-Z$`]|(?:json|build|host:port)\b).*[.\]]", re.DOTALL)
"""Begins with a capital letter, or with what is typed; ends with a full stop, or with what holds by default."""


def commands(command: Any, path: str = "windrow") -> Iterator[tuple[str, Any]]:
    yield path, command
    for name, one in getattr(command, "commands", {}).items():
        yield from commands(one, f"{path} {name}")


ALL = dict(commands(typer.main.get_command(app)))


@pytest.mark.parametrize("path", [path for path in ALL if path.rpartition(" ")[2] not in ROLES])
def test_help_of_a_command(path: str) -> None:
    command = ALL[path]
    shown = command.get_short_help_str(62)
    # It stands in the list of the group above; `windrow` itself in none.
    assert path == "windrow" or re.fullmatch(r"[A-Z].*[^.]\.", shown), shown
    assert (command.epilog or "").startswith(("Example: windrow", "Example: docker")), command.epilog
    for parameter in command.params:
        text = getattr(parameter, "help", None)
        if text is not None and parameter.name not in ("install_completion", "show_completion"):
            assert SENTENCES.fullmatch(text), (parameter.name, text)


@pytest.mark.parametrize("module", ROLES.values())
def test_help_of_a_role(module: str) -> None:
    done = subprocess.run([sys.executable, "-m", module, "--help"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Usage: windrow ")
    assert "\nOptions:\n  -h, --help" in done.stdout and "Show this message and exit." in done.stdout
    assert "\nExample: windrow " in done.stdout
    for text in re.findall(r"^  -.*?(?=^  -|^$)", done.stdout, re.DOTALL | re.MULTILINE):
        words = " ".join(text.split()).partition(" ")[2]
        assert words.endswith((".", "]")), text
