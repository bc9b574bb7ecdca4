"""Command lines of roles that start without typer, with the look of its help."""

# Only cheap modules: this is on the way to the first run().
from __future__ import annotations

import argparse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


class _Formatter(argparse.HelpFormatter):
    def add_usage(
        self,
        usage: str | None,
        actions: Iterable[argparse.Action],
        groups: Iterable[argparse._MutuallyExclusiveGroup],
        prefix: str | None = None,
    ) -> None:
        super().add_usage(usage, actions, groups, "Usage: " if prefix is None else prefix)


class CommandLine(argparse.ArgumentParser):
    """The options of one command."""

    def __init__(self, prog: str, *, description: str, epilog: str) -> None:
        super().__init__(prog=prog, description=description, epilog=epilog, formatter_class=_Formatter, add_help=False)
        self._optionals.title = "Options"
        self.add_argument("-h", "--help", action="help", help="Show this message and exit.")
