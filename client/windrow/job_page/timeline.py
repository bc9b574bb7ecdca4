"""Who did what when: worker-seconds in one bar, over time, and worker by worker."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from html import escape
from typing import Any

from windrow.job_page.drawing import (
    KIND_NAMES,
    KINDS,
    LEFT,
    PLOT,
    WIDTH,
    area,
    count_axis,
    legend,
    line,
    rect,
    share,
    short,
    span,
    svg,
    text,
    time_axis,
)

LEVELS = "0123456789abcdefghijklmnopqrstuvwxyz"
LABELLED_ROWS = 32
"""So many workers have a row with a name; more have thin ones, named by node."""
ROW, THIN_ROW = 18, 5

MEANING = {
    "useful": "on attempts whose result counts",
    "retried": "on attempts that failed by the mini-batch's own doing (an exception, a timeout, a crash, …), whether "
    "it was tried again or given up",
    "lost": "on attempts that were cut short or thrown away by nobody's fault: a node lost or drained, a job cancelled",
    "running": "on attempts that have not ended yet",
    "idle": "on none: waiting for work, for data, or for the last ones to end",
}


def present(seconds: dict[str, int]) -> list[str]:
    """The kinds of worker time to tell of: `running` only where something runs."""
    return [kind for kind in KINDS if kind != "running" or seconds["running"]]


def worker_seconds(figures: dict[str, Any]) -> str:
    """The bar, and what each part of it means."""
    spent = figures["worker_us"]
    total = spent["total"]
    if not total:
        return '<p class="quiet">No worker has had a mini-batch yet.</p>'
    x, parts = 0.0, []
    for kind in present(spent):
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
        for kind in present(spent)
    )
    notes = []
    if figures["untimed_attempts"]:
        count = figures["untimed_attempts"]
        what = "1 attempt" if count == 1 else f"{count:,} attempts"
        notes.append(
            f"{what} ended without a word from a worker (with a lost node, say): how long nobody knows, so that time "
            "counts as idle, or not at all."
        )
    if figures["workers_merged"]:
        notes.append("There were so many workers that those beyond 20,000 are never counted as idle.")
    note = "".join(f'<p class="quiet">{escape(one)}</p>' for one in notes)
    return (
        svg(
            34,
            parts,
            "Worker-seconds: " + ", ".join(f"{KIND_NAMES[k]} {share(spent[k], total)}" for k in present(spent)),
        )
        + '<table class="meaning"><tbody>'
        + rows
        + f'</tbody><tfoot><tr><th scope="row">together</th><td class="n">{span(total / 1e6)}</td><td class="n">100 %'
        "</td><td>from the beginning of each worker's first mini-batch to the end of the step's last one, or to the "
        "worker's own end; starting Python and init() come before that</td></tr></tfoot></table>" + note
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
    parts = [text(0, 14, "workers", "caption"), *count_axis(most, top, bottom), *time_axis(seconds, top, bottom)]
    base = [0.0] * bins
    for kind in present(figures["worker_us"]):
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
    most = max([*done, 1e-9])
    what = "items a second" if items else "mini-batches a second"
    parts += [text(0, top - 8, what, "caption"), *count_axis(most, top, bottom), *time_axis(seconds, top, bottom)]
    for number, value in enumerate(done):
        if value:
            tip = f"{short(value)} {what} from {span(number * wide_s)} to {span((number + 1) * wide_s)}"
            tall = height * value / most
            parts.append(rect(LEFT + PLOT * number / bins, bottom - tall, PLOT / bins + 0.05, tall, "rate", tip))
    parts.append(line(LEFT, bottom, LEFT + PLOT, bottom, "axis"))
    named = [(kind, KIND_NAMES[kind]) for kind in present(figures["worker_us"])]
    return legend([*named, ("rate", what)]) + svg(
        bottom + 22, parts, f"Workers at work, and {what}, over {span(seconds)}"
    )


def by_worker(figures: dict[str, Any]) -> str:
    """A row for each worker."""
    workers = figures["workers"]
    if not workers:
        return ""
    thin = len(workers) > LABELLED_ROWS
    row = THIN_ROW if thin else ROW
    seconds = figures["bins"] * figures["bin_us"] / 1e6
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for worker in workers:
        groups[worker["node"]].append(worker)
    many_nodes = len(groups) > LABELLED_ROWS
    top = y = 6.0
    parts: list[str] = []
    paths: dict[str, list[str]] = defaultdict(list)
    labelled_until = 0.0
    incarnations: dict[str, list[str]] = defaultdict(list)
    for node, members in groups.items():
        begin = y
        for worker in members:
            starts = incarnations[node]
            if worker["incarnation"] not in starts:
                starts.append(worker["incarnation"])
            parts.append(_row(figures, worker, y, row, thin=thin))
            _cells(paths, figures, worker, y, row, thin=thin)
            if not thin:
                name = f"{worker['process_number']:03d}" + (f" ({len(starts)})" if len(starts) > 1 else "")
                parts.append(text(LEFT - 8, y + 13, name, "label mono", anchor="end"))
            y += row
        if thin or len(groups) > 1:
            tall = y - begin
            if thin and begin >= labelled_until:
                parts.append(text(LEFT - 8, begin + max(9, tall / 2 + 3), _shortened(node), "label", anchor="end"))
                labelled_until = begin + 13 if many_nodes else begin + max(13, tall / 2 + 10)
            elif not thin:
                parts.append(text(0, begin + 13, _shortened(node), "label"))
            y += 0 if many_nodes else 4
            parts.append(line(LEFT, y - (0 if many_nodes else 2), LEFT + PLOT, y - (0 if many_nodes else 2), "grid"))
    drawn = [f'<path class="{kind}" d="{"".join(cells)}"/>' for kind, cells in paths.items()]
    frame = time_axis(seconds, top, y)
    left_out = ""
    if figures["workers_left_out"]:
        left_out = (
            f'<p class="quiet">The first {len(workers):,} workers are drawn; {figures["workers_left_out"]:,} more '
            "count in all other figures.</p>"
        )
    named = [(kind, KIND_NAMES[kind]) for kind in present(figures["worker_us"])]
    return (
        legend(named)
        + svg(y + 24, [*frame, *drawn, *parts], f"What each of {len(workers):,} workers did when")
        + left_out
    )


def _row(figures: dict[str, Any], worker: dict[str, Any], y: float, row: float, *, thin: bool) -> str:
    """An empty box over a worker's time, that tells of it."""
    whole = figures["bins"] * figures["bin_us"]
    begin = max(0.0, (worker["begin_us"] - figures["begin_us"]) / whole)
    end = min(1.0, (worker["end_us"] - figures["begin_us"]) / whole)
    spent = worker["worker_us"]
    told = ", ".join(f"{KIND_NAMES[kind]} {span(spent[kind] / 1e6)}" for kind in KINDS if spent[kind])
    tip = f"{worker['node']} process{worker['process_number']:03d}: {worker['attempts']:,} attempts; {told}"
    return rect(LEFT + PLOT * begin, y, PLOT * max(0.0, end - begin), row - (1 if thin else 3), "hover", tip)


def _cells(
    paths: dict[str, list[str]], figures: dict[str, Any], worker: dict[str, Any], y: float, row: float, *, thin: bool
) -> None:
    """Adds a worker's boxes to the paths of their kinds: idle below, the others by how much of a bin they fill."""
    bins, tall = figures["bins"], row - (1 if thin else 3)
    whole = bins * figures["bin_us"]
    begin = max(0.0, (worker["begin_us"] - figures["begin_us"]) / whole)
    end = min(1.0, (worker["end_us"] - figures["begin_us"]) / whole)
    paths["idle"].append(_box(LEFT + PLOT * begin, y, PLOT * max(0.0, end - begin), tall))
    wide = PLOT / bins
    shares: dict[str, Sequence[float]] = {
        kind: [LEVELS.index(level) / 35 for level in cells] for kind, cells in worker["cells"].items()
    }
    for kind, runs in _runs(shares, bins, thin=thin).items():
        for first, behind, low, high in runs:
            paths[kind].append(
                _box(LEFT + wide * first, y + tall * (1 - high), wide * (behind - first), tall * (high - low))
            )


def _runs(
    shares: dict[str, Sequence[float]], bins: int, *, thin: bool
) -> dict[str, list[tuple[int, int, float, float]]]:
    """Boxes (first bin, behind the last, from, to) by kind; neighbours that are alike are one box."""
    found: dict[str, list[tuple[int, int, float, float]]] = defaultdict(list)
    for number in range(bins):
        here = {kind: values[number] for kind, values in shares.items() if values[number]}
        if not here:
            continue
        if thin:
            # Too small for parts: trouble shows where it is a good part of the time, else what there is most of.
            bad = [kind for kind in ("lost", "retried") if here.get(kind, 0.0) >= 0.2 * sum(here.values())]
            kind = bad[0] if bad else max(here, key=lambda one: here[one])
            boxes = [(kind, 0.0, 1.0 if sum(here.values()) >= 0.15 else 0.4)]
        else:
            boxes, low = [], 0.0
            for kind in ("useful", "running", "retried", "lost"):
                if kind in here:
                    high = min(1.0, low + max(here[kind], 0.12))
                    boxes.append((kind, low, high))
                    low = high
        for kind, low, high in boxes:
            earlier = found[kind]
            if earlier and earlier[-1][1] == number and earlier[-1][2:] == (low, high):
                earlier[-1] = (earlier[-1][0], number + 1, low, high)
            else:
                earlier.append((number, number + 1, low, high))
    return found


def _box(x: float, y: float, wide: float, tall: float) -> str:
    return f"M{x:.1f} {y:.1f}h{max(wide, 0.4):.2f}v{tall:.1f}h-{max(wide, 0.4):.2f}z"


def _shortened(name: str) -> str:
    return name if len(name) <= 13 else name[:5] + "…" + name[-7:]
