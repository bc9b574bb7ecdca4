"""The whole page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from importlib import resources
from typing import Any

import windrow
from windrow.common.quantities import ahead, counted
from windrow.job_page import distributions, tables, timeline
from windrow.job_page.drawing import LEFT, PLOT, WIDTH, line, rect, share, size, span, svg, text, time_axis
from windrow.job_page.metrics import ShownMetric, ShownTag, metrics_table, tags_table
from windrow.job_page.verdict import parts_of, starts_of, verdict

_STATES = {
    "completed": "good",
    "completed_with_failures": "bad",
    "failed": "bad",
    "cancelled": "warn",
    "paused": "bad",
    "running": "busy",
}
_FAILED_ONLY_STEP = ("failed", "cancelled")
_DONE = ("completed", "skipped")


def job_page(
    report: dict[str, Any],
    metrics: Sequence[ShownMetric] = (),
    tags: Sequence[ShownTag] = (),
    *,
    options: str = "",
) -> str:
    """The page as HTML. `report`, `metrics`, `tags`: what the methods of `Client` give; `options`: what commands need
    to reach the same master, beginning with a space."""
    job, steps = report["job"], report["steps"]
    several = len(steps) > 1
    name = job["display_name"] or job["job_id"]
    body = [_header(job, steps), _verdict(report)]
    if several:
        body.append(f"<section><h2>Steps</h2>{_steps(job, steps)}</section>")
    if of_job := [metric for metric in metrics if not metric.step]:
        body.append(f"<section><h2>Metrics of the job</h2>{metrics_table(of_job)}</section>")
    if tags_of_job := [tag for tag in tags if not tag.step]:
        body.append(f"<section><h2>Tags of the job</h2>{tags_table(tags_of_job)}</section>")
    for number, step in enumerate(steps):
        of_step = [metric for metric in metrics if metric.step == step["name"]]
        tags_of_step = [tag for tag in tags if tag.step == step["name"]]
        body.append(_step(job, step, number, of_step, tags_of_step, several=several, options=options))
    style = resources.files("windrow.job_page").joinpath("page.css").read_text(encoding="utf-8")
    script = resources.files("windrow.job_page").joinpath("page.js").read_text(encoding="utf-8")
    made = datetime.fromtimestamp(job["now_s"], UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")
    now = (
        "" if job["end_s"] is not None else " The job had not ended: run `windrow job report` again for newer figures."
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{escape(name)}: {_in_words(job['state'])}</title><style>{style}</style></head><body><main>"
        + "".join(body)
        + f"<footer><p>As of {made}, by Windrow {escape(windrow.__version__)}.{now}</p></footer></main>"
        f"<script>{script}</script></body></html>\n"
    )


def _header(job: dict[str, Any], steps: list[dict[str, Any]]) -> str:
    name = job["display_name"] or job["job_id"]
    kind = _STATES.get(job["state"], "")
    begun = datetime.fromtimestamp(job["create_s"], UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    named = f"<code>{escape(job['job_id'])}</code> &middot; " if name != job["job_id"] else ""
    experiment = f" &middot; {escape(job['experiment_name'])}" if job["experiment_name"] else ""
    by = f" by {escape(job['submitter'])} for {escape(job['project'])}" if job.get("submitter") else ""
    ahead = _ahead(job)
    message = f'<p class="message">{escape(job["message"])}</p>' if job["message"] else ""
    return (
        f'<header><div class="title"><h1>{escape(name)}</h1><span class="state {kind}">{_in_words(job["state"])}</span>'
        '<button type="button" id="theme" title="Light or dark" aria-label="Light or dark">&#9681;</button></div>'
        f'<p class="quiet">{named}submitted {begun}{by}{experiment}{ahead}</p>'
        f"{message}{_key_figures(job, steps)}</header>"
    )


def _ahead(job: dict[str, Any]) -> str:
    """Its place in line, and when it is likely to start and to end; empty if nobody knew."""
    found = job.get("forecast") or {}
    told = [f"number {found['place']} in line"] if found.get("place") else []
    likely = [f"to {what} {ahead(found[at])}" for at, what in (("begin_s", "start"), ("end_s", "end")) if found.get(at)]
    told += [f"likely {' and '.join(likely)}"] if likely else []
    return "".join(f" &middot; {one}" for one in told)


def _verdict(report: dict[str, Any]) -> str:
    """What took the time, in words, and what would make it faster."""
    found = verdict(report)
    if not found.sentences:
        return ""
    said = "".join(f"<p>{escape(sentence)}</p>" for sentence in found.sentences)
    if found.suggestions:
        items = "".join(
            f'<li>{escape(one.text)} <span class="gain">Saves up to {100 * one.gain:.0f} %.</span></li>'
            for one in found.suggestions
        )
        said += f"<h3>What would make it faster</h3><ol>{items}</ol>"
    return f'<section class="verdict">{said}</section>'


def _key_figures(job: dict[str, Any], steps: list[dict[str, Any]]) -> str:
    reused = sum(1 for step in steps if step["reused_from"])
    skipped = sum(1 for step in steps if step["state"] == "skipped")
    whole = len(steps)
    steps = [step for step in steps if not step["reused_from"] and step["state"] != "skipped"]
    parallel = [step for step in steps if not step["is_command"]]
    batches, items = _sum(parallel, "mini_batches"), _sum(parallel, "items")
    spent = _spent(steps)
    known = all(step["planned"] or step["state"] in (*_DONE, *_FAILED_ONLY_STEP) for step in steps)
    more = "" if known else "+"
    peak = max((step["figures"]["memory_kib"]["largest"] for step in steps if step["figures"]), default=0)
    retries = sum(step["retries"] for step in steps)
    figures = [
        ("took" if job["end_s"] is not None else "so far", span(job["at_work_s"]), ""),
    ]
    if parallel and (batches["total"] or known):
        done = batches["succeeded"] + batches["failed"]
        figures.append(("mini-batches", f"{done:,}", f"done of {batches['total']:,}{more}{_taken_over(batches)}"))
    if len(parallel) < len(steps):
        commands = _sum([step for step in steps if step["is_command"]], "mini_batches")
        figures.append(("commands", f"{commands['succeeded']:,}", f"done of {len(steps) - len(parallel):,}"))
    if reused:
        figures.append(("steps reused", f"{reused:,}", f"of {whole:,}"))
    if skipped:
        figures.append(("steps skipped", f"{skipped:,}", f"of {whole:,}"))
    if items["total"]:
        figures.append(("items ok", f"{items['ok']:,}", f"of {items['total']:,}{more}"))
    elif batches["failed"]:
        # Without input (--rank_mini_batch_count) there are no items.
        figures.append(("mini-batches failed", f"{batches['failed']:,}", share(batches["failed"], batches["total"])))
    if items["failed"]:
        figures.append(("items failed", f"{items['failed']:,}", share(items["failed"], items["total"])))
    if spent["total"]:
        figures.append(("useful time", share(spent["useful"], spent["total"]), f"of {span(spent['total'] / 1e6)}"))
    if retries:
        figures.append(("retries", f"{retries:,}", ""))
    working = _working_s(job, steps)
    if working > 0 and (ran := items["ok"] - items["taken_over"]):
        figures.append(("throughput", _rate(ran / working), "items per second"))
    elif working > 0 and batches["succeeded"] and not items["total"]:
        figures.append(("throughput", _rate(batches["succeeded"] / working), "mini-batches per second"))
    if peak:
        figures.append(("peak memory", size(peak * 1024), "of a worker"))
    measured = sum(gpus.get("measured", 0) for gpus in _gpus_of(steps))
    if measured:
        busy = sum(gpus["busy_percent"] for gpus in _gpus_of(steps)) / measured
        figures.append(("GPUs busy", f"{busy:.0f} %", "of the time that workers held them"))
    if peak_gpu := max((gpus.get("peak_bytes", 0) for gpus in _gpus_of(steps)), default=0):
        figures.append(("peak GPU memory", size(peak_gpu), "of a worker"))
    caches = _sum([step for step in steps if step.get("data_cache")], "data_cache")
    if asked := caches["hits"] + caches["misses"]:
        note = f"of {counted(asked, 'read')} from storage: the nodes had {size(caches['bytes_saved'])}"
        figures.append(("data cache hits", f"{100 * caches['hits'] / asked:.0f} %", note))
    return (
        '<dl class="figures">'
        + "".join(
            f'<div><dt>{name}</dt><dd>{value}</dd><dd class="quiet">{note}</dd></div>' for name, value, note in figures
        )
        + "</dl>"
    )


def _gpus_of(steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What is known of GPUs, of the steps that had some."""
    return [step["gpus"] for step in steps if step.get("gpus")]


def _working_s(job: dict[str, Any], steps: list[dict[str, Any]]) -> float:
    """Seconds from the first mini-batch of any step to the end of the last one."""
    begins = [step["start_s"] for step in steps if step["figures"]]
    ends = [step["figures"]["last_end_us"] / 1e6 for step in steps if step["figures"]]
    return max(ends) - min(begins) if begins else 0.0


def _rate(per_s: float) -> str:
    return f"{per_s:,.0f}" if per_s >= 100 else f"{per_s:.3g}"


def _sum(steps: list[dict[str, Any]], group: str) -> dict[str, int]:
    sums: Counter[str] = Counter()
    for step in steps:
        sums.update(step[group])
    return sums


def _spent(steps: list[dict[str, Any]]) -> dict[str, int]:
    parts = parts_of(step for step in steps if step["figures"])
    return {"total": sum(parts.values()), "useful": parts["run"] + parts["other"]}


def _steps(job: dict[str, Any], steps: list[dict[str, Any]]) -> str:
    """When each step ran."""
    begin = job["create_s"]
    end = max(job["end_s"] if job["end_s"] is not None else job["now_s"], begin + 1e-3)
    row, top = 26, 6
    bottom = top + row * len(steps)
    left = 190 - LEFT
    parts = []
    inner = PLOT - left
    for number, step in enumerate(steps):
        y = top + row * number
        name = step["name"] if len(step["name"]) <= 26 else step["name"][:25] + "…"
        parts.append(text(0, y + 15, name, "label strong"))
        if step["start_s"] is None:
            parts.append(text(LEFT + left, y + 15, _state_of(step), "label"))
            continue
        stop = step["end_s"] if step["end_s"] is not None else end
        x = LEFT + left + inner * (step["start_s"] - begin) / (end - begin)
        wide = inner * (stop - step["start_s"]) / (end - begin)
        kind = {"failed": "retried", "cancelled": "lost", "running": "running"}.get(step["state"], "useful")
        parts.append(rect(x, y + 3, max(wide, 2), row - 9, kind, f"{step['name']}: {span(stop - step['start_s'])}"))
        label = span(stop - step["start_s"])
        if x + wide + 8 + 7 * len(label) < WIDTH:
            parts.append(text(x + wide + 8, y + 15, label))
        else:
            parts.append(text(x + wide - 8, y + 15, label, "on", anchor="end"))
    frame = time_axis(end - begin, top, bottom, left=LEFT + left)
    return svg(
        bottom + 22, [*frame, *parts, line(LEFT + left, bottom, WIDTH - 12, bottom, "axis")], "When each step ran"
    )


def _step(
    job: dict[str, Any],
    step: dict[str, Any],
    number: int,
    metrics: Sequence[ShownMetric],
    tags: Sequence[ShownTag],
    *,
    several: bool,
    options: str,
) -> str:
    figures = step["figures"]

    def command(words: str) -> str:
        return f"windrow {words.replace('{job}', job['job_id'])}{options}"

    def name_of(mini_batch: int) -> str:
        return f"{step['name']}/{mini_batch}" if several else str(mini_batch)

    title = f'<h2 id="step{number}">Step {escape(step["name"])} <span class="state {_STATES.get(step["state"], "")}">'
    title += f"{_state_of(step)}</span></h2>"
    if step["message"] and step["message"] != job["message"]:
        title += f'<p class="message">{escape(step["message"])}</p>'
    if step["reused_from"]:
        return f"<section>{title}</section>"
    if several and not step["is_command"]:
        title += _counts(step)
    if step["why"] and not step["mini_batches"]["leased"]:
        title += f'<p class="message">{escape(step["why"])}</p>'
    if figures is None:
        waits = '<p class="quiet">No mini-batch has started yet.</p>'
        return f"<section>{title}{waits}{_failed(step, name_of, command)}</section>"
    ran = figures["worker_us"]["total"] > 0
    parts = [
        title,
        f"<h3>Metrics</h3>{metrics_table(metrics)}" if metrics else "",
        f"<h3>Tags</h3>{tags_table(tags)}" if tags else "",
        "<h3>Where the workers' time went</h3>",
        timeline.worker_seconds(figures, starts_of(step), ended=step["end_s"] is not None),
        _when(figures) if ran else "",
        _failed(step, name_of, command, always=True),
        _how_much(figures) if ran else "",
        "<h3>The slowest attempts</h3>" if figures["slowest"] else "",
        tables.slowest(step, name_of, command),
        "<h3>Nodes and workers</h3>" if figures["nodes"] else "",
        tables.nodes(figures),
        tables.gpu_workers(step),
    ]
    return f"<section>{''.join(parts)}</section>"


def _when(figures: dict[str, Any]) -> str:
    over_time, by_worker = timeline.over_time(figures), timeline.by_worker(figures)
    return f"<h3>Over time</h3>{over_time}<h3>By worker</h3>{by_worker}"


def _how_much(figures: dict[str, Any]) -> str:
    durations, memory = distributions.durations(figures), distributions.memory(figures)
    return f"<h3>How long attempts took</h3>{durations}<h3>Memory</h3>{memory}"


def _failed(step: dict[str, Any], name_of: Any, command: Any, *, always: bool = False) -> str:
    if not step["failures"] and not always:
        return ""
    return f"<h3>What failed</h3>{tables.failures(step, name_of, command)}"


def _counts(step: dict[str, Any]) -> str:
    batches, items = step["mini_batches"], step["items"]
    told = [
        f"{batches['succeeded'] + batches['failed']:,} of {counted(batches['total'], 'mini-batch')} done"
        f"{_taken_over(batches)}"
    ]
    told += [f"{counted(items[name], 'item')} {name}" for name in ("ok", "failed", "cancelled") if items[name]]
    if step["retries"]:
        told.append(counted(step["retries"], "retry"))
    return f'<p class="quiet">{", ".join(told)}.</p>'


def _state_of(step: dict[str, Any]) -> str:
    return "reused" if step["reused_from"] else _in_words(step["state"])


def _taken_over(counts: dict[str, int]) -> str:
    return f", {counts['taken_over']:,} taken over" if counts["taken_over"] else ""


def _in_words(state: str) -> str:
    return state.replace("_", " ")
