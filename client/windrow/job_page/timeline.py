"""What workers did when: worker-seconds in one bar, over time, and by worker."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from html import escape
from typing import Any

from windrow.common.quantities import counted
from windrow.job_page.drawing import (
    KIND_NAMES,
    KINDS,
    LEFT,
    PLOT,
    START_KINDS,
    WIDTH,
    area,
    count_axis,
    legend,
    line,
    rect,
    share,
    short,
    shown_kinds,
    span,
    svg,
    text,
    time_axis,
)

LEVELS = "0123456789abcdefghijklmnopqrstuvwxyz"
LABELLED_ROWS = 32
"""Up to this many rows are labelled by worker; more rows are thin, and labelled by node."""
ROW, THIN_ROW = 18, 5

MEANING = {
    "prepare": "before workers could start: their nodes fetched the code and built the environment",
    "start": "on starting Python and importing the script",
    "init": "in init()",
    "useful": "on attempts whose result counts",
    "retried": "on attempts that failed because of the mini-batch itself (an exception, a timeout, a crash, …), "
    "whether it was retried or given up",
    "lost": "on attempts cut short or discarded through no fault of the mini-batch: a node lost or drained, a job "
    "cancelled",
    "running": "on attempts that have not ended yet",
    "idle": "on no attempt: waiting for work, for data, or for the last attempts to end",
}


def worker_seconds(figures: dict[str, Any], starts: dict[str, int], *, ended: bool) -> str:
    """The bar, and what each part of it means. `starts`: how the workers came to be ready (`verdict.starts_of`).
    `ended`: the job has ended, so the figures are final.
    """
    before = {kind: starts[f"{kind}_us"] for kind in START_KINDS if starts[f"{kind}_us"]}
    spent = {**before, **figures["worker_us"]}
    total = spent["total"] + sum(before.values())
    kinds = [*before, *shown_kinds(spent)]
    if not spent["total"]:
        never = "No worker ran a mini-batch." if ended else "No worker has started a mini-batch yet."
        return f'<p class="quiet">{never}</p>'
    x, parts = 0.0, []
    for kind in kinds:
        wide = WIDTH * spent[kind] / total
        if not wide:
            continue
        tip = f"{KIND_NAMES[kind]}: {span(spent[kind] / 1e6)}, {share(spent[kind], total)}"
        parts.append(rect(x, 0, wide, 34, kind, tip))
        if wide > 90:
            parts.append(text(x + 10, 22, f"{KIND_NAMES[kind]} {share(spent[kind], total)}", f"on {kind}-text"))
        x += wide
    rows = "".join(
        f'<tr><th scope="row"><i class="swatch {kind}"></i>{KIND_NAMES[kind]}</th>'
        f'<td class="n">{span(spent[kind] / 1e6)}</td><td class="n">{share(spent[kind], total)}</td>'
        f"<td>{escape(MEANING[kind])}</td></tr>"
        for kind in kinds
    )
    notes = []
    if figures["untimed_attempts"]:
        count = figures["untimed_attempts"]
        notes.append(
            f"{counted(count, 'attempt')} ended without a report from a worker: the node was lost, or data was still "
            "being fetched. The time spent there is unknown; it counts as idle, or not at all."
        )
    if figures["workers_merged"]:
        notes.append("Of workers beyond the first 20,000, idle time is not counted.")
    note = "".join(f'<p class="quiet">{escape(one)}</p>' for one in notes)
    return (
        svg(
            34,
            parts,
            "Worker-seconds: " + ", ".join(f"{KIND_NAMES[kind]} {share(spent[kind], total)}" for kind in kinds),
            squeezed=True,
        )
        + '<table class="meaning"><tbody>'
        + rows
        + f'</tbody><tfoot><tr><th scope="row">total</th><td class="n">{span(total / 1e6)}</td><td class="n">100 %'
        "</td><td>until the end of the step's last mini-batch, or until the worker ended</td></tr></tfoot></table>"
        + note
    )


def over_time(figures: dict[str, Any]) -> str:
    """Workers at work, and throughput, over the same axis of time."""
    bins, wide_s = figures["bins"], figures["bin_us"] / 1e6
    series, height, gap = figures["over_time"], 130, 46
    seconds = bins * wide_s
    xs = [LEFT + PLOT * (number + 0.5) / bins for number in range(bins)]
    xs[0], xs[-1] = LEFT, LEFT + PLOT
    alive = [value / figures["bin_us"] for value in series["alive"]]
    busy = {kind: [value / figures["bin_us"] for value in series[kind]] for kind in KINDS[:-1]}
    stacked = [sum(busy[kind][number] for kind in busy) for number in range(bins)]
    most = max(1.0, *alive, *stacked)
    top, bottom = 22.0, 22.0 + height
    parts = [
        text(0, 14, "workers", "caption"),
        *count_axis(most, top, bottom, whole=True),
        *time_axis(seconds, top, bottom),
    ]
    base = [0.0] * bins
    for kind in shown_kinds(figures["worker_us"]):
        if kind == "idle":
            upper = [max(low, high) for low, high in zip(base, alive, strict=True)]
        else:
            upper = [low + more for low, more in zip(base, busy[kind], strict=True)]
        if upper != base:
            points = [(x, bottom - height * value / most) for x, value in zip(xs, upper, strict=True)]
            under = [(x, bottom - height * value / most) for x, value in zip(xs, base, strict=True)]
            parts.append(area(points, under, kind, KIND_NAMES[kind]))
        base = upper
    parts.append(line(LEFT, bottom, LEFT + PLOT, bottom, "axis"))
    top, bottom = bottom + gap, bottom + gap + height
    items = any(series["items"])
    done = [value / wide_s for value in series["items" if items else "mini_batches"]]
    most = max(done, default=0.0) or 1.0
    what = "items per second" if items else "mini-batches per second"
    parts += [text(0, top - 8, what, "caption"), *count_axis(most, top, bottom), *time_axis(seconds, top, bottom)]
    for number, value in enumerate(done):
        if value:
            tip = f"{short(value)} {what} from {span(number * wide_s)} to {span((number + 1) * wide_s)}"
            tall = height * value / most
            parts.append(rect(LEFT + PLOT * number / bins, bottom - tall, PLOT / bins + 0.05, tall, "rate", tip))
    parts.append(line(LEFT, bottom, LEFT + PLOT, bottom, "axis"))
    named = [(kind, KIND_NAMES[kind]) for kind in shown_kinds(figures["worker_us"])]
    return legend([*named, ("rate", what)]) + svg(
        bottom + 22, parts, f"Workers at work, and {what}, over {span(seconds)}"
    )


def by_worker(figures: dict[str, Any]) -> str:
    """A row for each worker that a node had at a time."""
    lanes = figures["lanes"]
    if not lanes:
        return ""
    thin = len(lanes) > LABELLED_ROWS
    row = THIN_ROW if thin else ROW
    seconds = figures["bins"] * figures["bin_us"] / 1e6
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for lane in lanes:
        groups[lane["node"]].append(lane)
    gap = 0 if len(groups) > LABELLED_ROWS else 5
    top = y = 6.0
    parts: list[str] = []
    paths: dict[str, list[str]] = defaultdict(list)
    labelled_until = 0.0
    for node, members in groups.items():
        begin = y
        for lane in members:
            parts.append(_hover(lane, y, row, figures))
            _cells(paths, lane, figures["bins"], y, row, thin=thin)
            if not thin:
                parts.append(text(LEFT - 8, y + 13, _lane_name(lane), "label mono", anchor="end"))
            y += row
        if thin:
            label = (begin + y) / 2 + 3
            if label - 10 >= labelled_until:
                parts.append(text(LEFT - 8, label, _shortened(node), anchor="end"))
                labelled_until = label + 3
        elif len(groups) > 1:
            parts.append(text(0, begin + 13, _shortened(node, 7)))
        if gap:
            parts.append(line(LEFT, y + gap / 2 - 0.5, LEFT + PLOT, y + gap / 2 - 0.5))
            y += gap
    drawn = [f'<path class="{kind}" d="{"".join(boxes)}"/>' for kind, boxes in paths.items()]
    notes = []
    if any(lane["workers"] > 1 for lane in lanes):
        notes.append("A worker that replaces one that ended continues its row (+1, +2, …).")
    if figures["workers_not_drawn"]:
        count = figures["workers_not_drawn"]
        notes.append(
            f"Only the first {len(lanes):,} rows are drawn; all other figures include {counted(count, 'more worker')}."
        )
    note = f'<p class="quiet">{" ".join(notes)}</p>' if notes else ""
    named = [(kind, KIND_NAMES[kind]) for kind in shown_kinds(figures["worker_us"])]
    drawing = svg(
        y + 24,
        [*time_axis(seconds, top, y), *drawn, *parts],
        f"Timeline of the workers, in {counted(len(lanes), 'row')}",
    )
    return legend(named) + drawing + note


def _lane_name(lane: dict[str, Any]) -> str:
    more = f" +{lane['workers'] - 1}" if lane["workers"] > 1 else ""
    return f"{lane['first_process']:03d}{more}"


def _hover(lane: dict[str, Any], y: float, row: float, figures: dict[str, Any]) -> str:
    """An empty box over a row, with a tooltip that describes the row."""
    wide_s = figures["bin_us"] / 1e6
    spent = {kind: sum(map(LEVELS.index, lane["cells"].get(kind, ""))) / 35 * wide_s for kind in KINDS}
    told = ", ".join(f"{KIND_NAMES[kind]} about {span(spent[kind])}" for kind in KINDS if spent[kind])
    names = f"process{lane['first_process']:03d}"
    if lane["workers"] > 1:
        names += f" to process{lane['last_process']:03d}, {lane['workers']:,} in turn"
    return rect(LEFT, y, PLOT, row, "hover", f"{lane['node']} {names}: {told}")


def _cells(paths: dict[str, list[str]], lane: dict[str, Any], bins: int, y: float, row: float, *, thin: bool) -> None:
    """Add a row's boxes to the path of each kind. A box fills its bin from below, by its share."""
    tall, wide = row - (1 if thin else 3), PLOT / bins
    shares: dict[str, Sequence[float]] = {
        kind: [LEVELS.index(level) / 35 for level in cells] for kind, cells in lane["cells"].items()
    }
    for kind, runs in _runs(shares, bins, thin=thin).items():
        for first, behind, low, high in runs:
            paths[kind].append(
                _box(LEFT + wide * first, y + tall * (1 - high), wide * (behind - first), tall * (high - low))
            )


def _runs(
    shares: dict[str, Sequence[float]], bins: int, *, thin: bool
) -> dict[str, list[tuple[int, int, float, float]]]:
    """Boxes (first bin, end bin, from, to) by kind; equal neighbours become one box."""
    found: dict[str, list[tuple[int, int, float, float]]] = defaultdict(list)
    for number in range(bins):
        here = {kind: values[number] for kind, values in shares.items() if values[number]}
        if not here:
            continue
        busy = {kind: value for kind, value in here.items() if kind != "idle"}
        if thin:
            # Too small for parts: show trouble if it is a good part of the time, else the largest part.
            bad = [kind for kind in ("lost", "retried") if busy.get(kind, 0.0) >= 0.2 * sum(busy.values())]
            kind = bad[0] if busy and bad and busy[bad[0]] else max(here, key=lambda one: here[one])
            boxes = [(kind, 0.0, 1.0)]
        else:
            boxes, low = [], 0.0
            for kind in ("useful", "running", "retried", "lost"):
                if kind in busy:
                    high = min(1.0, low + max(busy[kind], 0.12))
                    boxes.append((kind, low, high))
                    low = high
            if "idle" in here and low < 1.0:
                boxes.append(("idle", low, min(1.0, low + max(here["idle"], 0.05))))
        for kind, low, high in boxes:
            earlier = found[kind]
            if earlier and earlier[-1][1] == number and earlier[-1][2:] == (low, high):
                earlier[-1] = (earlier[-1][0], number + 1, low, high)
            else:
                earlier.append((number, number + 1, low, high))
    return found


def _box(x: float, y: float, wide: float, tall: float) -> str:
    return f"M{x:.1f} {y:.1f}h{max(wide, 0.4):.2f}v{tall:.1f}h-{max(wide, 0.4):.2f}z"


def _shortened(name: str, most: int = 13) -> str:
    """A node's name, shortened in the middle to fit: names often differ only in their end."""
    return name if len(name) <= most else name[: most // 3] + "…" + name[-(most - most // 3 - 1) :]
