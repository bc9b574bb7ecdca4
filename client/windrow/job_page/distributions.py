"""How durations and memory are distributed over attempts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

from windrow.common.status_words import DONE, status_words
from windrow.job_page.drawing import legend, line, rect, short, size, span, svg, text
from windrow.job_page.status_cell import status_cell

PANEL: Final = 348
PANEL_LEFT: Final = 4
TALL: Final = 120
_TIME_MARKS: Final = (
    1, 10, 100, 1e3, 1e4, 1e5, 1e6, 1e7, 6e7, 6e8, 3.6e9, 3.6e10, 8.64e10, 8.64e11,
)  # fmt: skip
"""In µs: decades up to ten seconds, then minutes, hours and days."""
_SIZE_MARKS: Final = tuple(10.0**power for power in range(10))
"""In KB."""

Bins = Sequence[Sequence[float]]


def durations(figures: dict[str, Any]) -> str:
    """Three panels (run, load, whole) over one axis, coloured by status, and their quantiles."""
    by_status = figures["durations"]
    if not by_status:
        return '<p class="quiet">No attempt has ended yet.</p>'
    statuses = sorted(by_status, key=lambda status: (status != DONE, -by_status[status]["whole"]["count"]))
    colours = {status: _colour(number, status) for number, status in enumerate(statuses)}
    panels = []
    for measure, name in (
        ("run", "run()"),
        ("load", "loading, and writing results"),
        ("whole", "whole attempt"),
    ):
        bins = {status: by_status[status][measure]["bins"] for status in statuses}
        panels.append(
            f"<figure><figcaption>{name}</figcaption>{_histogram(bins, colours, _time_words, _TIME_MARKS)}</figure>"
        )
    rows = "".join(
        f'<tr><th scope="row"><i class="swatch {colours[status]}"></i>{status_cell(status)}</th>'
        f'<td class="n">{by_status[status]["whole"]["count"]:,}</td>'
        + "".join(
            f'<td class="n">{span(by_status[status][measure][name] / 1e6)}</td>'
            for measure in ("run", "whole")
            for name in ("p50", "p90", "p99", "largest")
        )
        + "</tr>"
        for status in statuses
    )
    head = (
        '<thead><tr><th rowspan="2">ended</th><th rowspan="2" class="n">attempts</th>'
        '<th colspan="4" class="over">run()</th><th colspan="4" class="over">whole attempt</th></tr><tr>'
        + '<th class="n">median</th><th class="n">90 %</th><th class="n">99 %</th><th class="n">longest</th>' * 2
        + "</tr></thead>"
    )
    return (
        legend([(colours[status], status_words(status)) for status in statuses])
        + f'<div class="panels">{"".join(panels)}</div>'
        + f'<div class="wide"><table>{head}<tbody>{rows}</tbody></table></div>'
    )


def memory(figures: dict[str, Any]) -> str:
    """One panel, and its quantiles."""
    told = figures["memory_kib"]
    if not told["count"]:
        return '<p class="quiet">No worker has reported its memory yet.</p>'
    words = ", ".join(
        f"{name} {size(told[key] * 1024)}"
        for name, key in (("median", "p50"), ("90 %", "p90"), ("99 %", "p99"), ("largest", "largest"))
    )
    bins = [[first * 1.024, behind * 1.024, count] for first, behind, count in told["bins"]]
    histogram = _histogram({"attempts": bins}, {"attempts": "rate"}, lambda kb: size(kb * 1000), _SIZE_MARKS)
    return (
        f'<div class="panels"><figure><figcaption>peak memory of the worker process when an attempt ended</figcaption>'
        f'{histogram}</figure><p class="aside">{words}.<br><span class="quiet">A process keeps its peak: after '
        "one large mini-batch, all later attempts of its worker show it, too.</span></p></div>"
    )


def _time_words(microseconds: float) -> str:
    return span(microseconds / 1e6)


def _histogram(
    bins: dict[str, Bins], colours: dict[str, str], words: Callable[[float], str], marks: Sequence[float]
) -> str:
    """Bars over a logarithmic axis. Their height is the number of values for each doubling."""
    edges = [edge for one in bins.values() for first, behind, _ in one for edge in (max(first, 0.5), max(behind, 0.5))]
    low, high = math.log10(min(edges)), math.log10(max(edges))
    if high - low < 1:
        # Not so near that a single bar fills it all.
        middle = (low + high) / 2
        low, high = middle - 0.5, middle + 0.5
    inner = PANEL - 2 * PANEL_LEFT

    def x_of(value: float) -> float:
        return PANEL_LEFT + inner * (math.log10(max(value, 0.5)) - low) / (high - low)

    stacked: dict[tuple[float, float], list[tuple[str, float]]] = {}
    for name, one in bins.items():
        for first, behind, count in one:
            stacked.setdefault((first, behind), []).append((name, count))
    heights = {place: sum(count for _, count in parts) / _doublings(*place) for place, parts in stacked.items()}
    most = max(heights.values())
    parts = _log_axis(low, high, x_of, words, marks)
    for (first, behind), counts in sorted(stacked.items()):
        y = float(TALL)
        for name, count in counts:
            tall = (TALL - 8) * count / _doublings(first, behind) / most
            tip = f"{name}: {short(count)} of {words(first)} to {words(behind)}"
            wide = x_of(behind) - x_of(first)
            y -= max(tall, 1.2)
            parts.append(rect(x_of(first), y, max(wide - 0.6, 0.8), max(tall, 1.2), colours[name], tip))
    parts.append(line(PANEL_LEFT, TALL, PANEL - PANEL_LEFT, TALL, "axis"))
    total = sum(count for one in bins.values() for _, _, count in one)
    return svg(TALL + 20, parts, f"Distribution of {total:,} values", width=PANEL)


def _doublings(first: float, behind: float) -> float:
    return math.log2(max(behind, 1) / max(first, 0.5))


def _log_axis(
    low: float, high: float, x_of: Callable[[float], float], words: Callable[[float], str], marks: Sequence[float]
) -> list[str]:
    inside = [mark for mark in marks if low - 1e-9 <= math.log10(mark) <= high + 1e-9]
    if len(inside) < 3:
        between = sorted({factor * mark for mark in marks for factor in (0.2, 0.5, 1, 2, 5)})
        inside = [mark for mark in between if low - 1e-9 <= math.log10(mark) <= high + 1e-9]
    found: list[str] = []
    free_from = -1.0
    for mark in inside:
        x, label = x_of(mark), words(mark)
        half = 3.6 * len(label)
        found.append(line(x, 4, x, TALL))
        if x - half < 0:
            anchor, begin, end = "start", x, x + 2 * half
        elif x + half > PANEL:
            anchor, begin, end = "end", x - 2 * half, x
        else:
            anchor, begin, end = "middle", x - half, x + half
        if begin >= free_from:
            found.append(text(x, TALL + 15, label, anchor=anchor))
            free_from = end + 10
    return found


def _colour(number: int, status: str) -> str:
    if status == DONE:
        return "useful"
    return f"bad{min(number, 6)}"
