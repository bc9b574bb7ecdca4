"""How an attempt ended, on the page."""

from __future__ import annotations

from html import escape

from windrow.common.status_words import status_words


def status_cell(status: str) -> str:
    """The words as HTML; hovering shows the code."""
    return f'<span title="{escape(status)}">{escape(status_words(status))}</span>'
