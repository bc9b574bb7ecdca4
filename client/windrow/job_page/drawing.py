"""SVG, axes and numbers in words, for all charts of the page."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from windrow.common.quantities import duration

WIDTH: Final = 1080
LEFT: Final = 96
RIGHT: Final = 12
PLOT: Final = WIDTH - LEFT - RIGHT

KINDS: Final = ("useful", "retried", "lost", "running", "idle")
START_KINDS: Final = ("prepare", "start", "init")
"""What a worker's time goes into before its first mini-batch."""
KIND_NAMES: Final = {
    "prepare": "prepare",
    "start": "start",
    "init": "init()",
    "useful": "useful",
    "retried": "retried",
    "lost": "lost",
    "running": "running now",
    "idle": "idle",
}

_TIME_STEPS: Final = (
    1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5,
    10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400,
)  # fmt: skip


def shown_kinds(seconds: dict[str, int]) -> list[str]:
    """The kinds of worker time to show; `running` only if something runs."""
    return [kind for kind in KINDS if kind != "running" or seconds["running"]]


def svg(height: float, content: Iterable[str], label: str, *, width: int = WIDTH, squeezed: bool = False) -> str:
    """A drawing as wide as its place. `label`: describes it for screen readers. `squeezed`: on a narrow screen, it is
    drawn narrower and without text instead of scrolled, since a bar that is only partly visible would show wrong
    shares.
    """
    fit = 'class="squeezed" preserveAspectRatio="none"' if squeezed else 'preserveAspectRatio="xMidYMid meet"'
    return (
        f'<svg viewBox="0 0 {width} {height:g}" role="img" aria-label="{escape(label)}" {fit}>{"".join(content)}</svg>'
    )


def rect(x: float, y: float, width: float, height: float, kind: str, title: str = "", *, radius: float = 0) -> str:
    """A box in the colour of a kind (a class of the style sheet)."""
    tip = f"<title>{escape(title)}</title>" if title else ""
    rounded = f' rx="{radius:g}"' if radius else ""
    return (
        f'<rect class="{kind}" x="{x:.2f}" y="{y:.2f}" width="{max(width, 0):.2f}" height="{max(height, 0):.2f}"'
        f"{rounded}>{tip}</rect>"
    )


def text(x: float, y: float, words: str, kind: str = "label", *, anchor: str = "start") -> str:
    """Text at a point; `y` is its base line."""
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, kind: str = "grid") -> str:
    """A straight line."""
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def area(points: Sequence[tuple[float, float]], base: Sequence[tuple[float, float]], kind: str, title: str) -> str:
    """The area between two lines over the same range of x."""
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in [*points, *reversed(base)])
    return f'<polygon class="{kind}" points="{path}"><title>{escape(title)}</title></polygon>'


def time_axis(seconds: float, top: float, bottom: float, *, left: float = LEFT) -> list[str]:
    """Vertical lines and labels of a range of time that begins with 0, at `left`."""
    step = next((one for one in _TIME_STEPS if seconds / one <= 9), math.ceil(seconds / 9 / 86400) * 86400)
    found = []
    for number in range(int(seconds / step) + 1):
        x = left + (WIDTH - RIGHT - left) * number * step / seconds
        anchor = "end" if x > WIDTH - 40 else "middle" if number else "start"
        found += [line(x, top, x, bottom), text(x, bottom + 15, clock(number * step, step), anchor=anchor)]
    return found


def count_axis(most: float, top: float, bottom: float, *, whole: bool = False) -> list[str]:
    """Horizontal lines and labels of a range of numbers that begins with 0. `whole`: at whole numbers only."""
    found = []
    step = max(1.0, nice_step(most)) if whole else nice_step(most)
    number = 0
    while number * step <= most * 1.0001:
        y = bottom - (bottom - top) * number * step / most
        found += [line(LEFT, y, LEFT + PLOT, y), text(LEFT - 8, y + 4, short(number * step), anchor="end")]
        number += 1
    return found


def nice_step(most: float) -> float:
    """A step that divides a range into at most four parts."""
    raw = most / 4
    power = 10.0 ** math.floor(math.log10(raw)) if raw > 0 else 1.0
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * 0.999)


def clock(seconds: float, step: float) -> str:
    """A moment on a time axis whose marks are `step` apart."""
    if seconds == 0:
        return "0"
    if step < 1:
        return span(seconds)
    if step < 60 and seconds < 60:
        return f"{seconds:g} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if step >= 86400:
        return f"{days} d"
    if days:
        return f"{days} d {hours} h" if hours else f"{days} d"
    if hours:
        return f"{hours} h {minutes:02d}" if minutes else f"{hours} h"
    return f"{minutes}:{rest:02d}" if rest else f"{minutes} min"


def span(seconds: float) -> str:
    """A duration: `12 µs`, `3.4 ms`, `0.42 s`, `3 min 5 s`, `2 h 10 min`."""
    if seconds == 0:
        return "0 s"
    if seconds < 0.0009995:
        return f"{seconds * 1e6:.3g} µs"
    if seconds < 0.9995:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 59.95:
        return f"{seconds:.3g} s"
    return duration(seconds)


def size(count: float) -> str:
    """Bytes: `512 B`, `4.2 MB`."""
    for unit in ("B", "KB", "MB", "GB"):
        if count < 999.5:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def short(number: float) -> str:
    """A count in few letters: `950`, `12k`, `1.5M`."""
    for unit, factor in (("M", 1e6), ("k", 1e3)):
        if number >= factor * 0.9995:
            return f"{number / factor:.3g}{unit}"
    return f"{number:.3g}"


def share(part: float, whole: float) -> str:
    """A share in percent; a share above nothing is never shown as 0 %."""
    if not whole or not part:
        return "0 %"
    percent = 100 * part / whole
    if percent < 0.1:
        return "< 0.1 %"
    if percent > 99.9 and part < whole:
        return "> 99.9 %"
    return f"{percent:.1f} %" if percent < 99.95 else "100 %"


def legend(kinds: Iterable[tuple[str, str]]) -> str:
    """The colour and name of each kind, given as (class, name)."""
    return (
        '<p class="legend">'
        + "".join(f'<span><i class="swatch {kind}"></i>{escape(name)}</span>' for kind, name in kinds)
        + "</p>"
    )
