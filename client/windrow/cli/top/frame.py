"""What `windrow top` shows of one look. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rich.text import Text

from windrow.cli.display.live_frame import sums_of
from windrow.cli.node import why_not_ready
from windrow.cli.tables import COLOURS
from windrow.cli.top import View
from windrow.cli.top.columns import Bar, Below, Cell, Column, Row, laid_out
from windrow.cli.top.looks import Look, ShownJob
from windrow.common.quantities import brief_duration, counted, duration, rate, size
from windrow.sdk.job import ItemCounts, Job, MiniBatchCounts, Step
from windrow.sdk.node import Node, Worker
from windrow.sdk.waiting import waits_line, waits_of

KEYS = "j n w  switch view   ↑ ↓  scroll   q  quit"
PHASES = {
    "init": "init()",
    "running": "run()",
    "returning": "writing rows",
    "stopping": "shutdown()",
    "building": "building environment",
}
"""Phases whose name is not what people say."""
PHASE_COLOURS = {"running": "green", "init": "yellow", "starting": "yellow", "building": "yellow", "idle": "dim"}


class Frame(NamedTuple):
    """Lines to draw, and how far they may be scrolled."""

    lines: list[Text]
    offset_max: int


def frame(look: Look, view: View, width: int, height: int | None, offset: int = 0) -> Frame:
    """The screen for a view. `height`: of the terminal in lines; None for as many as there are. `offset`: so many rows
    are scrolled away.
    """
    columns, rows, empty = {View.JOBS: _jobs, View.NODES: _nodes, View.WORKERS: _workers}[view](look)
    head = [*_header(look, view, width), Text("")]
    if not rows:
        return Frame([*head, _within(Text(empty), width)][:height], 0)
    heading, *table = laid_out(columns, rows, width)
    head.append(heading)
    if height is None:
        return Frame([*head, *table], 0)
    room = max(1, height - len(head))
    if len(table) <= room:
        return Frame([*head, *table][:height], 0)
    room = max(1, room - 1)
    offset_max = len(table) - room
    offset = min(offset, offset_max)
    left = offset_max - offset
    told = f"{offset:,} above, {left:,} below" if offset else f"{left:,} more below"
    more = _within(Text(told, style="dim"), width)
    return Frame([*head, *table[offset : offset + room], more][:height], offset_max)


def _header(look: Look, view: View, width: int) -> Iterator[Text]:
    jobs = [shown.job for shown in look.jobs]
    at_work = sum(not job.state.ended for job in jobs)
    workers = [worker for node in look.nodes for worker in node.processes if worker.phase != "building"]
    busy = sum(worker.is_busy for worker in workers)
    about = look.only or f"{counted(at_work, 'job')} at work"
    fleet = f"{counted(len(look.nodes), 'node')}, {busy}/{counted(len(workers), 'worker')} busy"
    clock = look.at.astimezone().strftime("%H:%M:%S")
    yield _within(Text(f"windrow top  {look.place}  {about}, {fleet}  {clock}", style="bold"), width)
    tabs = Text()
    for number, name in enumerate(View, 1):
        tabs.append(f" {number} {name.value} ", "reverse" if name is view else "")
        tabs.append(" ")
    tabs.append(KEYS if width >= len(tabs) + len(KEYS) else "q  quit", "dim")
    yield _within(tabs, width)
    if look.only and look.jobs:
        shown = look.jobs[0]
        yield _within(Text(_told_of(shown), style=COLOURS.get(shown.job.state.value, "")), width)
    if look.note:
        yield _within(Text(look.note, style="yellow"), width)
    elif look.runs_nothing and at_work:
        told = "No process runs the unfinished jobs: continue one with the `windrow run` command that started it."
        yield _within(Text(told, style="yellow"), width)


def _told_of(shown: ShownJob) -> str:
    job = shown.job
    parts = [
        job.state.value,
        duration(shown.elapsed_s),
        "" if shown.left_s is None else f"{duration(shown.left_s)} to go",
        "" if shown.items_per_s is None else rate(shown.items_per_s, "items"),
        f"{counted(len(job.steps), 'step')}: {sums_of(job.steps)}" if len(job.steps) > 1 else "",
    ]
    return ", ".join(filter(None, parts))


def _within(line: Text, width: int) -> Text:
    line.no_wrap = True
    line.truncate(width, overflow="ellipsis")
    return line


# Jobs, or the steps of one.

_JOB_COLUMNS = (
    Column("JOB", cut_to=26, keep=10),
    Column("", is_bar=True),
    Column("DONE", right=True, keep=8),
    Column("ITEMS", right=True, keep=5),
    Column("FAILED", right=True, keep=7),
    Column("RATE", right=True, keep=1),
    Column("TIME", right=True, keep=4),
    Column("TO GO", right=True, keep=6),
    Column("STATE", cut_to=10),
)
_STEP_COLUMNS = (
    Column("STEP", cut_to=20, keep=10),
    Column("", is_bar=True),
    Column("DONE", right=True, keep=8),
    Column("ITEMS", right=True, keep=6),
    Column("FAILED", right=True, keep=7),
    Column("MINI-BATCHES", right=True, keep=4),
    Column("LEASED", right=True, keep=3),
    Column("RETRIES", right=True, keep=2),
    Column("STATE", cut_to=10),
)


def _jobs(look: Look) -> tuple[Sequence[Column], list[Row | Below], str]:
    if look.only and look.jobs:
        return _STEP_COLUMNS, list(_step_rows(look.jobs[0])), ""
    rows = [row for shown in look.jobs for row in _job_rows(shown)]
    return _JOB_COLUMNS, rows, "There is no job yet."


def _job_rows(shown: ShownJob) -> Iterator[Row | Below]:
    job = shown.job
    work = job.parallel
    style = COLOURS.get(job.state.value, "")
    yield (
        Cell(job.job_id, "" if job.state.ended else "bold"),
        _bar(job.mini_batches, style),
        Cell(_percent(job.mini_batches)),
        Cell(_items(work.items, more=any(not step.planned and not step.has_ended for step in work.steps))),
        Cell(f"{job.items.failed:,}" if job.items.failed else "", "red"),
        Cell("" if shown.items_per_s is None else rate(shown.items_per_s, "items").replace(" items", "")),
        Cell(brief_duration(shown.elapsed_s)),
        Cell("" if shown.left_s is None else brief_duration(shown.left_s)),
        Cell(job.state.value, style),
    )
    if job.state.ended:
        return
    if len(job.steps) > 1:
        yield Below(f"{counted(len(job.steps), 'step')}: {sums_of(job.steps)}")
    if waits := waits_line(job, shown.reasons):
        yield Below(waits, "cyan")


def _step_rows(shown: ShownJob) -> Iterator[Row | Below]:
    job = shown.job
    waits = {reason.step: reason for reason in waits_of(job, shown.reasons)}
    # Those at work first, so that they are on the screen of a pipeline of hundreds.
    for step in sorted(job.steps, key=_standing):
        yield _step_row(step)
        if step.name in waits:
            yield Below(waits[step.name].brief, "cyan")
        elif step.message and not step.has_ended:
            yield Below(step.message)


def _standing(step: Step) -> int:
    return {"running": 0, "concatenating": 0, "failed": 1, "waiting": 2}.get(step.state, 3)


def _step_row(step: Step) -> Row:
    batches, style = step.mini_batches, COLOURS.get(step.state, "")
    more = "" if step.planned else "+"
    return (
        Cell(step.name, "bold" if step.state == "running" else ""),
        _bar(batches, style),
        Cell(_percent(batches)),
        Cell("command" if step.is_command else _items(step.items, more=not step.planned)),
        Cell(f"{step.items.failed:,}" if step.items.failed else "", "red"),
        Cell(f"{batches.done:,}/{batches.total:,}{more}"),
        Cell(f"{batches.leased:,}" if batches.leased else ""),
        Cell(f"{step.retries:,}" if step.retries else ""),
        Cell(step.shown_state, style),
    )


def _bar(batches: MiniBatchCounts, style: str) -> Bar:
    total = max(1, batches.total)
    return Bar(batches.succeeded / total, batches.failed / total, style or "cyan")


def _percent(batches: MiniBatchCounts) -> str:
    return f"{100 * batches.done // batches.total}%" if batches.total else ""


def _items(items: ItemCounts, *, more: bool) -> str:
    return f"{items.done:,}/{items.total:,}{'+' if more else ''}" if items.total else ""


# Nodes.

_NODE_COLUMNS = (
    Column("NODE", cut_to=16, keep=10),
    Column("STATE", cut_to=10),
    Column("BUSY", right=True, keep=8),
    Column("SLOTS", right=True, keep=7),
    Column("CPU", right=True, keep=7),
    Column("", is_bar=True, keep=1),
    Column("MEMORY", right=True, keep=6),
    Column("DISK FREE", right=True, keep=3),
    Column("LEASES", right=True, keep=2),
    Column("HEARD", right=True, keep=4),
)


def _nodes(look: Look) -> tuple[Sequence[Column], list[Row | Below], str]:
    rows = [row for node in look.nodes for row in _node_rows(node)]
    return _NODE_COLUMNS, rows, "No node is connected."


def _node_rows(node: Node) -> Iterator[Row | Below]:
    state = f"{node.state},cordoned" if node.cordoned else node.state
    used, cpu = node.memory_used_bytes, node.cpu_percent
    yield (
        Cell(node.node_id),
        Cell(state, COLOURS.get(state, "")),
        Cell(str(sum(worker.is_busy for worker in node.processes))),
        Cell(str(node.slots)),
        Cell("-" if cpu is None else f"{cpu:.0f}% of {node.cpu_count}"),
        Bar((cpu or 0.0) / 100),
        Cell("-" if used is None else f"{size(used)} of {size(node.memory_bytes)}"),
        Cell("-" if not node.disk_free_bytes else size(node.disk_free_bytes)),
        Cell(f"{node.leases:,}"),
        Cell("-" if node.silent_s is None else f"{brief_duration(node.silent_s)} ago"),
    )
    if why := why_not_ready(node):
        yield Below(why, "yellow")


# Workers.

_WORKER_COLUMNS = (
    Column("NODE", cut_to=12, keep=8),
    Column("WORKER", keep=7),
    Column("PHASE", keep=9),
    Column("FOR", right=True, keep=9),
    Column("MINI-BATCH", right=True, keep=8),
    Column("STEP", cut_to=12, keep=6),
    Column("JOB", cut_to=12, keep=3),
    Column("MEMORY", right=True, keep=4),
)


def _workers(look: Look) -> tuple[Sequence[Column], list[Row | Below], str]:
    steps = {step.step_id: (shown.job, step) for shown in look.jobs for step in shown.job.steps}
    found = [
        (node, worker) for node in look.nodes for worker in node.processes if not look.only or worker.step_id in steps
    ]
    # Those at work longest first: the stragglers. Idle ones last.
    found.sort(key=lambda pair: (pair[1].phase == "idle", -pair[1].for_s))
    unknown = (None, None)
    rows: list[Row | Below] = [_worker_row(node, worker, *steps.get(worker.step_id, unknown)) for node, worker in found]
    return _WORKER_COLUMNS, rows, "No worker runs: workers start with the first mini-batch, and end with their step."


def _worker_row(node: Node, worker: Worker, job: Job | None, step: Step | None) -> Row:
    return (
        Cell(node.node_id),
        Cell("" if worker.phase == "building" else f"process{worker.process_number:03d}"),
        Cell(PHASES.get(worker.phase, worker.phase), PHASE_COLOURS.get(worker.phase, "")),
        Cell(duration(worker.for_s)),
        Cell("" if worker.mini_batch_index is None else f"{worker.mini_batch_index:,}"),
        Cell("" if step is None else step.name),
        Cell("" if job is None else job.job_id),
        Cell(size(worker.rss_bytes) if worker.rss_bytes else ""),
    )
