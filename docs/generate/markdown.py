"""Pieces of Markdown that all generated pages share."""

from __future__ import annotations


def head(title: str, source: str, text: str) -> list[str]:
    """The lines above everything. `source`: what the page is made from."""
    return [f"# {title}", "", f"<!-- Made from {source} by `make docs`. Do not edit. -->", "", *text.splitlines(), ""]


def sentence(text: str) -> str:
    """A text on one line that ends like a sentence."""
    text = " ".join(text.split())
    return text if not text or text.endswith((".", "?", "!", "…", ":")) else f"{text}."


def escaped(text: str) -> str:
    """A text in which `<` begins no HTML, but for code between backticks."""
    parts = text.split("`")
    parts[::2] = [part.replace("<", "\\<") for part in parts[::2]]
    return "`".join(parts)


def listed(name: str, notes: list[str], text: str) -> str:
    """One entry of a list: a name, notes in brackets, and a text."""
    noted = f" ({'; '.join(note for note in notes if note)})" if any(notes) else ""
    return f"- {name}{noted}{f': {text}' if text else ''}"


def joined(lines: list[str]) -> str:
    """A page of these lines."""
    return "\n".join(lines).rstrip("\n") + "\n"
