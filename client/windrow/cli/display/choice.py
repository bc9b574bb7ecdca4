"""Chooses the display of a run."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from windrow.cli.messages import is_colourful

if TYPE_CHECKING:
    from windrow.cli.display import Display


def make_display(output: str, *, quiet: bool) -> Display:
    """The display for the output form and the terminal."""
    if output == "json":
        from windrow.cli.display.jsonlines import JsonDisplay

        return JsonDisplay()
    if not quiet and is_colourful(sys.stderr):
        from windrow.cli.display.live import LiveDisplay

        return LiveDisplay()
    from windrow.cli.display.plain import PlainDisplay

    return PlainDisplay(quiet=quiet)
