"""What the documentation site needs beyond mkdocs: see `mkdocs.yml`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from state_diagrams import svg

ANY_PAGE = "/*"
"""Ends an entry of the navigation that stands for all pages of a folder."""


def on_config(config: Any) -> Any:
    """Put the pages of a folder in place of an entry such as `reference/*`."""
    config.nav = _expanded(config.nav, Path(config.docs_dir))
    return config


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Draw the diagrams in Mermaid: the library that does so elsewhere would be loaded from another host."""
    return re.sub(
        r"^```mermaid\n(.*?)^```\n", lambda found: svg(found[1]) + "\n", markdown, flags=re.MULTILINE | re.DOTALL
    )


def _expanded(entries: list[Any], folder: Path) -> list[Any]:
    found: list[Any] = []
    for entry in entries:
        if isinstance(entry, dict):
            found.append({title: _expanded_value(value, folder) for title, value in entry.items()})
        elif entry.endswith(ANY_PAGE):
            found += _pages_below(folder / entry.removesuffix(ANY_PAGE), folder)
        else:
            found.append(entry)
    return found


def _expanded_value(value: Any, folder: Path) -> Any:
    return _expanded(value, folder) if isinstance(value, list) else value


def _pages_below(place: Path, folder: Path) -> list[Any]:
    """The pages of a folder, `index.md` first, then its folders, each as a section."""
    pages = sorted(place.glob("*.md"), key=lambda page: (page.name != "index.md", page.name))
    sections = [sub for sub in sorted(place.iterdir()) if sub.is_dir() and any(sub.rglob("*.md"))]
    return [
        *(str(page.relative_to(folder)) for page in pages),
        *({sub.name.replace("-", " ").capitalize(): _pages_below(sub, folder)} for sub in sections),
    ]
