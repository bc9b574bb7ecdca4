"""Draws a state diagram in Mermaid's notation as SVG, for pages that load no library.

States stand in a row, in the order in which they are named. Edges to the right are arcs above it, others arcs below.
"""

from __future__ import annotations

import re
from html import escape

WIDTH, HEIGHT, BESIDE = 128, 34, 18
STEP = 30
"""How much higher an arc is for each state that it passes."""
PORT = 26
"""Arcs leave a state right of its middle, and arrive left of it; those below the other way round."""
START = "[*]"


def svg(mermaid: str) -> str:
    """The picture, in the colours of the page."""
    edges = re.findall(r"^\s*(\S+) --> (\S+)$", mermaid, re.MULTILINE)
    states = list(dict.fromkeys(name for edge in edges for name in edge))
    at = {name: number for number, name in enumerate(states)}
    above = max((at[b] - at[a] for a, b in edges), default=0) * STEP + 12
    below = max((at[a] - at[b] for a, b in edges), default=0) * STEP + 12
    width, height = len(states) * (WIDTH + BESIDE), above + HEIGHT + max(below, 12)
    told = ", ".join(f"{a} to {b}" for a, b in edges if a != START)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        f'style="max-width: 100%; height: auto" width="{width}">',
        f"<title>{escape(told)}</title>",
        '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 10 5 0 10z" fill="currentColor"/></marker></defs>',
        *(_state(name, at[name] * (WIDTH + BESIDE), above) for name in states),
        *(_edge(at[a], at[b], above) for a, b in edges),
        "</svg>",
    ]
    return "\n".join(lines)


def _state(name: str, x: int, y: int) -> str:
    if name == START:
        return f'<circle cx="{x + WIDTH // 2}" cy="{y + HEIGHT // 2}" r="7" fill="currentColor"/>'
    lines = [name] if len(name) < 16 else [name[: name.index("_", 8) + 1], name[name.index("_", 8) + 1 :]]
    first = y + HEIGHT // 2 + (4 if len(lines) == 1 else -2)
    text = "".join(
        f'<text x="{x + WIDTH // 2}" y="{first + 13 * number}" text-anchor="middle" font-size="12" '
        f'fill="currentColor">{escape(line)}</text>'
        for number, line in enumerate(lines)
    )
    box = f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="6" fill="none" stroke="currentColor"/>'
    return box + text


def _edge(before: int, after: int, row: int) -> str:
    """An arc between two states, by their numbers."""
    right = after > before
    port = PORT if right else -PORT
    first, last = (number * (WIDTH + BESIDE) + WIDTH // 2 for number in (before, after))
    first, last = first + port, last - port
    edge = row if right else row + HEIGHT
    far = edge + (-1 if right else 1) * abs(after - before) * STEP * 4 // 3
    if before == 0:
        first -= port
    way = f"M{first} {edge} C{first} {far} {last} {far} {last} {edge}"
    return f'<path d="{way}" fill="none" stroke="currentColor" opacity="0.6" marker-end="url(#tip)"/>'
