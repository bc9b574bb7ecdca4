"""Failures, slowest mini-batches, nodes and workers, as tables and cards."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import Any

from windrow.common import failure_list
from windrow.common.failure_kinds import SHORT_RETURN, FailureKind, headline
from windrow.common.quantities import counted
from windrow.common.status_words import DONE
from windrow.job_page.drawing import KIND_NAMES, share, shown_kinds, size, span
from windrow.job_page.status_cell import status_cell

Commands = Callable[[str], str]
"""Completes a command such as `mb show JOB 17` with the options that reach the same master."""


def failures(step: dict[str, Any], name_of: Callable[[int], str], command: Commands) -> str:
    """A card for each kind: how often, the first failure, and commands that show more. Kinds that recovered stand
    behind, in one line each.
    """
    kinds = [FailureKind(**failure) for failure in step["failures"]]
    if not kinds:
        return '<p class="quiet">No attempt has failed.</p>'
    settled = step["state"] == "completed"
    cards = [_card(step, kind, name_of, command, settled=settled) for kind in kinds if kind.is_permanent]
    recovered = "".join(
        f"<li>{escape(headline(kind, settled=settled, is_command=step['is_command']))}</li>"
        for kind in kinds
        if not kind.is_permanent
    )
    return (f'<div class="cards">{"".join(cards)}</div>' if cards else "") + (
        f'<ul class="quiet recovered">{recovered}</ul>' if recovered else ""
    )


def _card(
    step: dict[str, Any], kind: FailureKind, name_of: Callable[[int], str], command: Commands, *, settled: bool
) -> str:
    where = kind.node_id
    if where and kind.process_number is not None and kind.cause not in ("node_lost", "node_killer"):
        where += f" process{kind.process_number:03d}"
    detail = kind.detail.strip()
    trace = f"<details><summary>traceback</summary><pre>{escape(detail)}</pre></details>" if detail else ""
    # A start belongs to no mini-batch: its details are in the logs.
    of_start = kind.mini_batch_index < 0
    if of_start:
        commands = [command(f"job logs {{job}} --failed --step {step['name']}")]
    elif kind.cause == SHORT_RETURN:
        commands = [command(f"job logs {{job}} {step['name']}/{failure_list.FILE_NAME}")]
    else:
        first = name_of(kind.mini_batch_index)
        commands = [command(f"mb list {{job}} --cause {kind.cause} --step {step['name']}")]
        pdb = "" if step["is_command"] else " --pdb"
        commands += [command(f"mb show {{job}} {first}"), command(f"mb replay {{job}} {first}{pdb}")]
    begun = [] if of_start or step["is_command"] else [f"mini-batch {kind.mini_batch_index}"]
    place = escape(", ".join(filter(None, (*begun, where))))
    status = status_cell(kind.status) if kind.status else ""
    about = " &middot; ".join(filter(None, (status, escape(kind.error_category), f"first: {place}" if place else "")))
    cause = "short return" if kind.cause == SHORT_RETURN else kind.error or kind.cause
    return (
        f'<article class="card"><h4><span class="cause">{escape(cause)}</span> '
        f"{escape(headline(kind, settled=settled, is_command=step['is_command']))}</h4>"
        f'<p class="quiet">{about}</p>'
        f"<p>{escape(kind.message)}</p>{trace}"
        f'<pre class="commands">{escape(chr(10).join(commands))}</pre></article>'
    )


def slowest(step: dict[str, Any], name_of: Callable[[int], str], command: Commands) -> str:
    """The longest attempts, with bars."""
    rows = step["figures"]["slowest"]
    if not rows:
        return ""
    longest = max(row["elapsed_us"] for row in rows) or 1
    body = "".join(
        f'<tr><th scope="row" class="n">{row["mini_batch"]}</th>'
        f'<td class="n">{span(row["elapsed_us"] / 1e6)}</td><td class="bar">{_bar(row, longest)}</td>'
        f'<td class="n">{span(row["run_us"] / 1e6)}</td><td class="n">{row["items"]:,}</td>'
        f'<td class="n">{size(row["peak_rss_kib"] * 1024)}</td><td>{status_cell(row["status"])}</td>'
        f"<td>{escape(row['node'])} process{row['process_number']:03d}</td></tr>"
        for row in rows
    )
    example = command(f"mb show {{job}} {name_of(rows[0]['mini_batch'])}")
    return (
        '<div class="wide"><table><thead><tr><th class="n">mini-batch</th><th class="n">took</th><th class="bar"></th>'
        '<th class="n">in run()</th><th class="n">items</th><th class="n">memory</th><th>ended</th><th>worker</th>'
        f'</tr></thead><tbody>{body}</tbody></table></div><pre class="commands">{escape(example)}</pre>'
    )


def _bar(row: dict[str, Any], longest: int) -> str:
    kind = "useful" if row["status"] == DONE else "retried"
    run, rest = 100 * row["run_us"] / longest, 100 * max(0, row["elapsed_us"] - row["run_us"]) / longest
    return (
        '<svg viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect class="{kind}" width="{run:.2f}" height="8"/>'
        f'<rect class="rate" x="{run:.2f}" width="{rest:.2f}" height="8"/></svg>'
    )


def nodes(figures: dict[str, Any]) -> str:
    """A row for each node; the rows of its workers are folded away."""
    kinds = shown_kinds(figures["worker_us"])
    if not figures["nodes"]:
        return ""
    by_node = _table(
        [("node", ""), ("workers", "n")],
        kinds,
        [([node["node"], f"{node['workers']:,}"], node) for node in figures["nodes"]],
    )
    by_worker = _table(
        [("node", ""), ("worker", "")],
        kinds,
        [([worker["node"], f"process{worker['process_number']:03d}"], worker) for worker in figures["workers"]],
    )
    by_node += _not_listed(figures.get("nodes_left_out", 0), "more node")
    more = _not_listed(figures["workers_left_out"], "more worker")
    count = len(figures["workers"])
    return (
        by_node + f"<details><summary>by worker ({count:,})</summary>{by_worker}{more}</details>"
        if count > 1
        else by_node
    )


def gpu_workers(step: dict[str, Any]) -> str:
    """The workers that hold GPUs, while the step is at work."""
    rows = step["gpus"]["workers"] if step.get("gpus") else []
    if not rows:
        return ""
    body = "".join(
        f'<tr><th scope="row">{escape(row["node"])}</th><td>process{row["process_number"]:03d}</td>'
        f"<td>{escape(_gpu_name(row))}</td>"
        f'<td class="n" data-n="{row["memory_bytes"] or 0}">{_known(row["memory_bytes"], size)}</td>'
        f'<td class="n" data-n="{row["busy_percent"] or 0}">{_known(row["busy_percent"], "{:.0f} %".format)}</td>'
        f'<td class="n" data-n="{row["idle_s"]}">{span(row["idle_s"]) if row["idle_s"] >= 1 else ""}</td></tr>'
        for row in rows
    )
    return (
        '<h3>GPUs now</h3><div class="wide"><table class="sortable"><thead><tr><th>node</th><th>worker</th><th>GPU</th>'
        '<th class="n">memory</th><th class="n">busy</th><th class="n">below 5 % for</th></tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _gpu_name(row: dict[str, Any]) -> str:
    """Which GPUs a worker has: `0, 1: NVIDIA L4`, `50 % of 0: NVIDIA L4`."""
    places = ", ".join(map(str, row["places"]))
    part = f"{100 * row['share']:.0f} % of " if row["share"] < 1 else ""
    models = ", ".join(filter(None, row["models"]))
    return f"{part}{places}{f': {models}' if models else ''}"


def _known(value: float | None, form: Callable[[Any], str]) -> str:
    return "" if value is None else form(value)


def _not_listed(count: int, noun: str) -> str:
    """A line for what a table leaves out; empty if it leaves out nothing."""
    return f'<p class="quiet">{counted(count, noun)} not listed.</p>' if count else ""


def _table(first: list[tuple[str, str]], kinds: list[str], rows: list[tuple[list[str], dict[str, Any]]]) -> str:
    head = "".join(f'<th class="{kind}">{name}</th>' for name, kind in first)
    head += '<th class="n">attempts</th><th class="n">succeeded</th><th class="n">items</th>'
    head += "".join(f'<th class="n"><i class="swatch {kind}"></i>{KIND_NAMES[kind]}</th>' for kind in kinds)
    head += '<th class="n">useful share</th><th class="n">peak memory</th>'
    body = []
    for names, told in rows:
        spent = told["worker_us"]
        cells = "".join(
            f'<th scope="row" class="{kind}">{escape(name)}</th>' for name, (_, kind) in zip(names, first, strict=True)
        )
        cells += f'<td class="n">{told["attempts"]:,}</td><td class="n">{told["succeeded"]:,}</td>'
        cells += f'<td class="n">{told["items"]:,}</td>'
        cells += "".join(f'<td class="n" data-n="{spent[kind]}">{span(spent[kind] / 1e6)}</td>' for kind in kinds)
        cells += f'<td class="n">{share(spent["useful"], spent["total"])}</td>'
        cells += f'<td class="n" data-n="{told["peak_rss_kib"]}">{size(told["peak_rss_kib"] * 1024)}</td>'
        body.append(f"<tr>{cells}</tr>")
    return (
        f'<div class="wide"><table class="sortable"><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )
