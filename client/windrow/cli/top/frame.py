"""The screen of one moment, as lines that fit it. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from windrow.cli.messages import visible
from windrow.cli.tables import COLOURS, shortened
from windrow.cli.top.moment import UNENDED, JobFigures, Moment
from windrow.common.quantities import brief_duration, counted, duration, rate, size
from windrow.common.worker_phases import PHASE_WORDS
from windrow.sdk.job import Job, Step
from windrow.sdk.node import Node, Worker

VIEWS = ("jobs", "nodes", "workers")
NAME_MIN = 14
BAR_MIN, BAR_MAX = 6, 30
GAP = 2
"""Columns between two cells."""
WIDE = 110
"""From this width on, there are more columns."""
LINES_BESIDE = 6
"""Lines that are not rows: title, screens, headings, gaps, and what was left out."""
EXPENDABLE = (">MB", ">MEMORY", ">FOR", ">GPU MEMORY", ">GPU")
"""Columns of workers that are left out where there is no room, the first ones first."""
COLOURED_PHASES = {"running": "green", "init": "yellow", "starting": "yellow", "loading": "cyan", "returning": "cyan"}
PERCENT_HIGH = 90
IDLE_SHOWN_S = 60.0
NO_RUN = "No run is live. A run on this machine brings its own node, which ends with it."


def frame(moment: Moment, view: str, width: int, height: int) -> RenderableType:
    """Return what fills a screen of this size. `view`: one of VIEWS."""
    lines = max(1, height - LINES_BESIDE)
    table, left, nothing = {"jobs": _jobs, "nodes": _nodes, "workers": _workers}[view](moment, width, lines)
    parts: list[RenderableType] = [_head(moment, width), _tabs(view, moment, width), Text("")]
    parts.append(Text(nothing, style="dim") if nothing else table)
    if left:
        parts.append(Text(f"… and {left:,} more", style="dim"))
    return Group(*parts)


def _head(moment: Moment, width: int) -> Text:
    at_work = sum(job.state in UNENDED for job in moment.jobs)
    ready = sum(node.state == "ready" for node in moment.nodes)
    workers = sum(node.workers or 0 for node in moment.nodes)
    told = f"{counted(at_work, 'job')} at work, {counted(ready, 'node')} ready, {counted(workers, 'worker')}"
    if moment.runs_nothing:
        told = f"no run is live; {counted(at_work, 'job')} interrupted" if at_work else "no run is live"
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append("windrow top  ", style="bold")
    text.append(f"{moment.title}  {told}"[: max(0, width - 13)])
    if moment.trouble:
        text = Text(visible(moment.trouble)[:width], style="bold red", no_wrap=True)
    return text


def _tabs(view: str, moment: Moment, width: int) -> Text:
    counts = {"jobs": len(moment.jobs), "nodes": len(moment.nodes), "workers": len(moment.workers)}
    text = Text(no_wrap=True, overflow="ellipsis")
    for name in VIEWS:
        text.append(f" {name[0]} {name} {counts[name]:,} ", style="reverse" if name == view else "")
        text.append(" ")
    keys = "q ends"
    text.append(keys.rjust(max(0, width - text.cell_len)), style="dim")
    return text


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", expand=False)
    for column in columns:
        is_right = column.startswith(">")
        table.add_column(column.lstrip(">"), justify="right" if is_right else "left", no_wrap=True)
    return table


# Jobs


def _jobs(moment: Moment, width: int, lines: int) -> tuple[Table, int, str]:
    wide = width >= WIDE
    rows = [row for job in moment.jobs for row in _rows_of(job)]
    shown = rows[:lines]
    cells = [_cells(moment, job, step, wide=wide) for job, step in shown]
    headings = ["STATE", ">DONE", ">RATE", ">TO GO", ">FAILED", *[">AGE"] * wide]
    if moment.runs_nothing or not any(job.state in UNENDED for job, _ in shown):
        # The rate and the time to go of what does not run: nothing, for which names need not be cut.
        headings, cells = headings[:2] + headings[4:], [row[:2] + row[4:] for row in cells]
    # Names and bars share what the other columns leave: a name that is cut cannot be copied.
    left = width - _natural(headings, cells) - 2 * GAP
    longest = max((len(job.job_id) if step is None else len(step.name) + 2 for job, step in shown), default=0)
    name = max(NAME_MIN, min(longest, left - BAR_MIN))
    bar = min(BAR_MAX, max(BAR_MIN, left - name))
    table = _table("JOB", headings[0], "PROGRESS", *headings[1:])
    for (job, step), (state, *others) in zip(shown, cells, strict=True):
        table.add_row(
            Text(shortened(job.job_id, name) if step is None else f"  {shortened(step.name, name - 2)}"),
            Text(state, style=COLOURS.get(state, "")),
            _bar(step if step is not None else job, bar),
            *others,
        )
    return table, len(rows) - len(shown), "" if rows else _no_jobs(moment)


def _no_jobs(moment: Moment) -> str:
    command = "windrow run script.py INPUT -o rows.csv" if moment.runs_nothing else "windrow job create job.yml"
    return f"There are no jobs yet: {command}"


def _cells(moment: Moment, job: Job, step: Step | None, *, wide: bool) -> list[str]:
    """What a row says beside name and bar."""
    told: Job | Step = job if step is None else step
    figures = moment.figures.get(job.job_id)
    pace = figures if figures is not None and step is None else JobFigures(None, None, None)
    if moment.runs_nothing:
        pace = pace._replace(items_per_s=None, remaining_s=None)
    return [
        "interrupted" if moment.runs_nothing and told.state in ("queued", "running") else _state(told),
        _done(told),
        rate(pace.items_per_s, "items") if pace.items_per_s else "",
        duration(pace.remaining_s) if pace.remaining_s is not None else "",
        f"{told.items.failed:,}" if told.items.failed else "",
        *[brief_duration(pace.age_s) if pace.age_s is not None else ""] * wide,
    ]


def _natural(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    """The width of columns with these headings and cells, and the gaps between them."""
    bare = [heading.lstrip(">") for heading in headings]
    widths = [max(len(cell) for cell in column) for column in zip(bare, *rows, strict=True)]
    return sum(widths) + GAP * (len(widths) - 1)


def _rows_of(job: Job) -> list[tuple[Job, Step | None]]:
    """A row for the job, and one for each of its steps that are at work if it has several."""
    rows: list[tuple[Job, Step | None]] = [(job, None)]
    if len(job.steps) > 1 and job.state in UNENDED:
        rows += [(job, step) for step in job.steps if step.state in ("running", "concatenating", "failed")]
    return rows


def _state(told: Job | Step) -> str:
    state = str(told.state.value if isinstance(told, Job) else told.state)
    return "with failures" if state == "completed_with_failures" else state


def _bar(told: Job | Step, width: int) -> ProgressBar:
    batches = told.mini_batches
    style = COLOURS.get(_state(told), "cyan")
    return ProgressBar(
        total=batches.total or 1, completed=batches.done, width=width, complete_style=style, finished_style=style
    )


def _done(told: Job | Step) -> str:
    batches = told.mini_batches
    return f"{100 * batches.done // batches.total} %" if batches.total else ""


# Nodes


def _nodes(moment: Moment, width: int, lines: int) -> tuple[Table, int, str]:
    wide = width >= WIDE
    with_gpus = any(node.gpu_count or node.gpus for node in moment.nodes)
    table = _table(
        *("NODE", "STATE", ">WORKERS", ">LEASES", ">CPU", ">MEMORY"),
        *[">OF"] * wide,
        *[">GPUS", ">BUSY"] * with_gpus,
        ">DISK FREE",
        *[">HEARD"] * wide,
    )
    shown = moment.nodes[:lines]
    for node in shown:
        state = f"{node.state},cordoned" if node.cordoned else node.state
        table.add_row(
            Text(shortened(node.node_id, max(NAME_MIN, width - 62 - 15 * with_gpus))),
            Text(state, style=COLOURS.get(state, "yellow")),
            f"{node.workers}/{node.slots}" if node.workers is not None else f"?/{node.slots}",
            f"{node.leases:,}",
            _percent(node.cpu_percent),
            "" if node.memory_used_bytes is None else size(node.memory_used_bytes),
            *[size(node.memory_bytes) if node.memory_bytes else ""] * wide,
            *[_gpu_count(node), _percent(_gpu_busy(node))][: 2 * with_gpus],
            "" if node.disk_free_bytes is None else size(node.disk_free_bytes),
            *["" if node.silent_s is None else f"{node.silent_s:.0f} s ago"] * wide,
        )
    nothing = NO_RUN if moment.runs_nothing else "No node is connected. Start one: windrow agent --master ADDRESS"
    return table, len(moment.nodes) - len(shown), "" if moment.nodes else nothing


def _gpu_count(node: Node) -> Text:
    """Its GPUs that can be used; of how many, if some cannot."""
    lost = sum(bool(gpu.trouble) for gpu in node.gpus)
    if not lost:
        return Text(str(node.gpu_count or ""))
    return Text(f"{len(node.gpus) - lost}/{len(node.gpus)}", style="red")


def _gpu_busy(node: Node) -> float | None:
    """How busy its GPUs are, on average; None if nobody knows."""
    known = [gpu.busy_percent for gpu in node.gpus if gpu.busy_percent is not None]
    return sum(known) / len(known) if known else None


def _percent(value: float | None) -> Text:
    if value is None:
        return Text("")
    return Text(f"{value:.0f} %", style="yellow" if value >= PERCENT_HIGH else "")


# Workers


def _workers(moment: Moment, width: int, lines: int) -> tuple[Table, int, str]:
    wide = width >= WIDE
    with_gpus = any(worker.gpu is not None for _, worker, _, _ in moment.workers)
    headings: Sequence[str] = (
        "NODE",
        ">WORKER",
        "DOES",
        ">FOR",
        ">MB",
        ">MEMORY",
        *[">GPU", ">GPU MEMORY", ">BUSY"] * with_gpus,
    )
    shown = moment.workers[:lines]
    cells: Sequence[Sequence[str]] = [
        (
            shortened(node.node_id, NAME_MIN * (2 if wide else 1)),
            f"{worker.process_number:03d}",
            "starting" if worker.phase == "starting" else PHASE_WORDS.get(worker.phase, worker.phase),
            brief_duration(worker.phase_s + (node.silent_s or 0.0)),
            "" if worker.mini_batch_index is None else str(worker.mini_batch_index),
            size(worker.rss_bytes) if worker.rss_bytes else "",
            *_gpu_cells(worker)[: 3 * with_gpus],
        )
        for node, worker, _, _ in shown
    ]
    headings, cells = _narrowed(headings, cells, width - NAME_MIN - GAP)
    name = max(NAME_MIN, width - _natural(headings, cells) - GAP)
    table = _table(*headings[:2], "JOB:STEP", *headings[2:])
    for (_, worker, job_id, step), (node_id, number, does, *others) in zip(shown, cells, strict=True):
        table.add_row(
            Text(node_id),
            number,
            Text(shortened(f"{job_id}:{step}" if job_id else "", name)),
            Text(does, style=COLOURED_PHASES.get(worker.phase, "dim")),
            *others,
        )
    nothing = NO_RUN if moment.runs_nothing else _no_workers(moment.nodes)
    return table, len(moment.workers) - len(shown), "" if moment.workers else nothing


def _narrowed(
    headings: Sequence[str], rows: Sequence[Sequence[str]], width: int
) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    """The columns that fit, without those of EXPENDABLE that do not: cells cut to a letter or two say nothing."""
    for heading in EXPENDABLE:
        if _natural(headings, rows) <= width:
            break
        if heading in headings:
            at = headings.index(heading)
            headings = [*headings[:at], *headings[at + 1 :]]
            rows = [[*row[:at], *row[at + 1 :]] for row in rows]
    return headings, rows


def _gpu_cells(worker: Worker) -> tuple[str, str, str]:
    """Which GPUs it has, what it uses of their memory, and how busy it keeps them."""
    gpu = worker.gpu
    if gpu is None:
        return "", "", ""
    places = ",".join(map(str, gpu.places))
    busy = "" if gpu.busy_percent is None else f"{gpu.busy_percent:.0f} %"
    return (
        f"{gpu.share:.2g} of {places}" if gpu.share < 1 else places,
        "" if gpu.memory_bytes is None else size(gpu.memory_bytes),
        f"idle {brief_duration(gpu.idle_s)}" if gpu.idle_s >= IDLE_SHOWN_S else busy,
    )


def _no_workers(nodes: Sequence[Node]) -> str:
    return "No workers: nodes start them when a job has work for them." if nodes else "No node is connected."
