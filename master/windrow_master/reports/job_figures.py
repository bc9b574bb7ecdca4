"""The figures of one step for a job report: gathered from its attempts, page by page, in bounded memory.

Worker-seconds. A worker's time runs from the start of its first mini-batch to the end of the step's last one, or to
the end of its own last attempt if the worker has ended by then. A worker has ended if its last attempt ended in a way
that ends the process, if its node was lost or came back with a new incarnation, or if a later process of the node
started after it: no agent starts another process while one waits. While the step runs, a worker has also ended if its
node does not have it any more: it has made room for other jobs. Every moment of a worker's time is one of:

- useful: on an attempt whose result counts;
- retried: on an attempt that failed because of the mini-batch itself, whether it was retried or given up;
- lost: on an attempt cut short or discarded through no fault of the mini-batch (a lost or drained node, a cancelled
  job, lost rows);
- running: on an attempt that has not ended;
- idle: on no attempt.

useful + retried + lost + running + idle = total, in whole µs.

Lanes. The chart has one lane for each worker that a node has at a time: a worker that starts after another has ended
continues its lane.
"""

from __future__ import annotations

import heapq
import math
from array import array
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from windrow_master.core.causes import TRAITS
from windrow_master.core.log_bins import Distribution
from windrow_master.core.states import AttemptState, Cause
from windrow_master.core.statuses import process_of, status_of
from windrow_master.reports.worker_time import BINS, KINDS, LOST, RETRIED, RUNNING, USEFUL, WorkerTime
from windrow_master.store.records import AttemptFigures

WorkerKey: TypeAlias = tuple[str, str, int]
"""The node of a worker, the incarnation of its agent, and the number of its process."""

ROWS_MAX: Final = 256
"""At most this many lanes, and rows by worker, for a step."""
NODES_MAX: Final = 1000
"""At most this many rows by node, for a step."""
WORKERS_MAX: Final = 20_000
"""Workers beyond this many (of scripts that kill their process each time) are merged by node, without idle time."""
SLOWEST: Final = 15
LEVELS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"

_LOSES_TIME = frozenset(cause for cause, traits in TRAITS.items() if traits.loses_time)
_NODE_IS_GONE = frozenset((Cause.NODE_LOST, Cause.NODE_KILLER))
_SUCCEEDED, _ABANDONED, _RUNNING = map(int, (AttemptState.SUCCEEDED, AttemptState.ABANDONED, AttemptState.RUNNING))
_ENDS_PROCESS = frozenset(cause for cause, traits in TRAITS.items() if traits.ends_process)


class RunningAttempt(NamedTuple):
    """An attempt that is running, as its node's last heartbeat reported it. `since_us`: µs since 1970."""

    mini_batch: int
    node_id: str
    node_incarnation: str
    process_number: int
    since_us: int


class StepFigures:
    """Add all pages, then what runs now, then take the document. `begin_us`, `end_us`: the range of time drawn.
    `live`: the workers that nodes have now; None if that is not known, or the step has ended.
    """

    def __init__(self, begin_us: int, end_us: int, live: Collection[WorkerKey] | None = None) -> None:
        self._live = live
        self._begin_us = begin_us
        self._bin_us = max(1, -(-(end_us - begin_us) // BINS))
        self._range_end_us = begin_us + self._bin_us * BINS
        self._workers: dict[WorkerKey, WorkerTime] = {}
        self._overflow: dict[str, WorkerTime] = {}
        """By node: workers beyond WORKERS_MAX."""
        self._spent = tuple(array("d", bytes(8 * BINS)) for _ in KINDS)
        self._mini_batches_by_end = array("q", bytes(8 * BINS))
        self._items_by_end = array("q", bytes(8 * BINS))
        self._counts = [0, 0, 0, 0]
        self._durations: dict[str, tuple[Distribution, Distribution, Distribution]] = {}
        self._memory = Distribution()
        self._slowest: list[tuple[int, int, int, AttemptFigures]] = []
        self._last_end_us = begin_us
        self._lost_incarnations: set[str] = set()
        self._newest: dict[str, tuple[int, str]] = {}
        """By node: when its newest incarnation was heard of last, and which that is."""
        self._untimed = 0
        self._cpu_us = 0
        self._statuses: dict[tuple[int, int, int], str] = {}

    def add(self, page: Sequence[AttemptFigures]) -> None:
        """Attempts of the step; each once."""
        for row in page:
            if row.state != _RUNNING:
                self._add(row)

    def _add(self, row: AttemptFigures) -> None:
        cause, elapsed = row.cause, row.elapsed_us
        kind = USEFUL
        if row.state != _SUCCEEDED:
            kind = LOST if row.state == _ABANDONED or cause in _LOSES_TIME else RETRIED
            if cause in _NODE_IS_GONE:
                self._lost_incarnations.add(row.node_incarnation)
        self._counts[kind] += 1
        process = process_of(row.phase, row.process_number)
        if process is None or (not elapsed and not row.peak_rss_kib):
            # No worker reported it: its data was still being fetched, or it was taken back, or lost with its node, and
            # nobody knows which worker had it, and since when.
            self._untimed += 1
            return
        begin, end = row.start_unix_us, row.start_unix_us + elapsed
        worker = self._worker(row.node_id, row.node_incarnation, process, begin)
        self._spend(worker, kind, begin, end)
        worker.attempts += 1
        worker.items += row.item_count if kind == USEFUL else 0
        worker.succeeded += kind == USEFUL
        if end >= worker.end_us:
            worker.end_us = end
            worker.dead = cause in _ENDS_PROCESS
        if row.peak_rss_kib:
            self._memory.add(row.peak_rss_kib)
            if row.peak_rss_kib > worker.peak_rss_kib:
                worker.peak_rss_kib = row.peak_rss_kib
        self._cpu_us += row.cpu_us
        if kind == USEFUL:
            at = self._bin(end)
            self._mini_batches_by_end[at] += 1
            self._items_by_end[at] += row.item_count
        self._measure(row)

    def _measure(self, row: AttemptFigures) -> None:
        key = (row.state, row.cause, row.phase)
        status = self._statuses.get(key)
        if status is None:
            status = self._statuses[key] = status_of(*key)
        durations = self._durations.get(status)
        if durations is None:
            durations = self._durations[status] = (Distribution(), Distribution(), Distribution())
        run, elapsed = min(row.run_us, row.elapsed_us), row.elapsed_us
        durations[0].add(run)
        durations[1].add(elapsed - run)
        durations[2].add(elapsed)
        slowest = self._slowest
        if len(slowest) < SLOWEST:
            heapq.heappush(slowest, (elapsed, -row.mini_batch, row.lease_id, row))
        elif elapsed > slowest[0][0]:
            heapq.heapreplace(slowest, (elapsed, -row.mini_batch, row.lease_id, row))

    def add_running(self, running: Iterable[RunningAttempt], now_us: int) -> None:
        """Attempts that are running now."""
        for one in running:
            begin = min(one.since_us, now_us)
            worker = self._worker(one.node_id, one.node_incarnation, one.process_number, begin)
            self._spend(worker, RUNNING, begin, now_us)
            self._counts[RUNNING] += 1
            worker.end_us = max(worker.end_us, now_us)
            worker.dead = False

    def _worker(self, node_id: str, incarnation: str, process: int, begin: int) -> WorkerTime:
        newest = self._newest.get(node_id)
        if newest is None or begin >= newest[0]:
            self._newest[node_id] = (begin, incarnation)
        key = (node_id, incarnation, process)
        worker = self._workers.get(key)
        if worker is None:
            if len(self._workers) >= WORKERS_MAX:
                worker = self._overflow.get(node_id)
                if worker is None:
                    worker = self._overflow[node_id] = WorkerTime((node_id, "", -1), begin, drawn=False)
                return worker
            worker = self._workers[key] = WorkerTime(key, begin, drawn=True)
        if begin < worker.begin_us:
            worker.begin_us = begin
        return worker

    def _spend(self, worker: WorkerTime, kind: int, begin: int, end: int) -> None:
        worker.spent_us[kind] += end - begin
        if end > self._last_end_us:
            self._last_end_us = end
        places = (self._spent[kind],) if worker.cells is None else (self._spent[kind], worker.cells_of(kind))
        first, last = self._bin(begin), self._bin(end)
        if first == last:
            for place in places:
                place[first] += end - begin
            return
        at = max(begin, self._begin_us)
        for number in range(first, last + 1):
            edge = min(end, self._begin_us + (number + 1) * self._bin_us)
            for place in places:
                place[number] += max(0, edge - at)
            at = max(at, edge)

    def _bin(self, moment_us: int) -> int:
        number = (moment_us - self._begin_us) // self._bin_us
        if number < 0:
            return 0
        return number if number < BINS else BINS - 1

    # The document.

    def document(self, rows_max: int = ROWS_MAX) -> dict[str, Any]:
        """Return the figures as JSON (docs/contracts.md, section 6), with at most `rows_max` lanes and rows by
        worker.
        """
        workers = sorted(self._workers.values(), key=lambda worker: worker.key)
        self._mark_gone(workers)
        lanes = self._lanes(workers)
        total = idle = 0
        alive = array("d", bytes(8 * BINS))
        seconds = [0, 0, 0, 0]
        for worker in workers:
            span = self._span_of(worker)
            total += span
            idle += span - sum(worker.spent_us)
            for kind, spent in enumerate(worker.spent_us):
                seconds[kind] += spent
            self._mark_alive(alive, worker)
        for worker in self._overflow.values():
            total += sum(worker.spent_us)
            for kind, spent in enumerate(worker.spent_us):
                seconds[kind] += spent
        nodes = self._nodes(workers)
        return {
            "begin_us": self._begin_us,
            "bin_us": self._bin_us,
            "bins": BINS,
            "last_end_us": self._last_end_us,
            "worker_us": {"total": total, **dict(zip(KINDS, seconds, strict=True)), "idle": idle},
            "attempts": dict(zip(KINDS, self._counts, strict=True)),
            "untimed_attempts": self._untimed,
            "cpu_us": self._cpu_us,
            "over_time": {
                **{name: [round(value) for value in self._spent[kind]] for kind, name in enumerate(KINDS)},
                "alive": [round(value) for value in alive],
                "mini_batches": self._mini_batches_by_end.tolist(),
                "items": self._items_by_end.tolist(),
            },
            "durations": {
                status: {"run": run.document(), "load": load.document(), "whole": whole.document()}
                for status, (run, load, whole) in sorted(self._durations.items())
            },
            "memory_kib": self._memory.document(),
            "slowest": [_slow(row) for _, _, _, row in sorted(self._slowest, reverse=True)],
            "nodes": nodes[:NODES_MAX],
            "nodes_left_out": max(0, len(nodes) - NODES_MAX),
            "workers": [{**self._told(worker), "process_number": worker.key[2]} for worker in workers[:rows_max]],
            "workers_left_out": max(0, len(workers) - rows_max),
            "lanes": [self._lane(lane) for lane in lanes[:rows_max]],
            "workers_not_drawn": sum(len(lane) for lane in lanes[rows_max:]),
            "workers_merged": bool(self._overflow),
        }

    def _mark_gone(self, workers: Sequence[WorkerTime]) -> None:
        """`workers`: by node, incarnation and number."""
        latest, of = 0, ("", "")
        for worker in reversed(workers):
            node_id, incarnation, _ = worker.key
            if (node_id, incarnation) != of:
                latest, of = 0, (node_id, incarnation)
            worker.gone = latest >= worker.end_us
            latest = max(latest, worker.begin_us)

    def _lanes(self, workers: Sequence[WorkerTime]) -> list[list[WorkerTime]]:
        """The lanes, by node: workers that share one follow each other."""
        found: list[list[WorkerTime]] = []
        by_node: dict[str, list[WorkerTime]] = {}
        for worker in workers:
            by_node.setdefault(worker.key[0], []).append(worker)
        for members in by_node.values():
            # The lanes of this node, by when they become free.
            ends: list[tuple[int, int]] = []
            for worker in sorted(members, key=lambda one: (one.begin_us, one.key)):
                if ends and ends[0][0] <= worker.begin_us:
                    _, number = heapq.heappop(ends)
                else:
                    number = len(found)
                    found.append([])
                found[number].append(worker)
                heapq.heappush(ends, (self._end_of(worker), number))
        return found

    def _end_of(self, worker: WorkerTime) -> int:
        """When the worker's time ends, as the module's docstring defines it."""
        _, incarnation, _ = worker.key
        gone = incarnation in self._lost_incarnations or self._newest[worker.key[0]][1] != incarnation
        gone = gone or (self._live is not None and worker.key not in self._live)
        return worker.end_us if worker.dead or worker.gone or gone else max(worker.end_us, self._last_end_us)

    def _span_of(self, worker: WorkerTime) -> int:
        """The worker's time. Never less than its attempts took, even if its node's clock was set back."""
        return max(self._end_of(worker) - worker.begin_us, sum(worker.spent_us))

    def _mark_alive(self, alive: array[float], worker: WorkerTime) -> None:
        begin, end = max(worker.begin_us, self._begin_us), min(self._end_of(worker), self._range_end_us)
        for number in range(self._bin(begin), self._bin(end) + 1):
            low = self._begin_us + number * self._bin_us
            alive[number] += max(0, min(end, low + self._bin_us) - max(begin, low))

    def _lane(self, lane: Sequence[WorkerTime]) -> dict[str, Any]:
        alive = array("d", bytes(8 * BINS))
        kinds = [array("d", bytes(8 * BINS)) for _ in KINDS]
        for worker in lane:
            self._mark_alive(alive, worker)
            for kind, cells in enumerate(worker.cells or ()):
                for number, value in enumerate(cells or ()):
                    kinds[kind][number] += value
        idle = [max(0.0, there - sum(spent)) for there, *spent in zip(alive, *kinds, strict=True)]
        return {
            "node": lane[0].key[0],
            "workers": len(lane),
            "first_process": lane[0].key[2],
            "last_process": lane[-1].key[2],
            "cells": {
                name: "".join(LEVELS[min(35, math.ceil(35 * value / self._bin_us))] for value in values)
                for name, values in (*zip(KINDS, kinds, strict=True), ("idle", idle))
                # What rounding leaves is nothing to draw.
                if max(values) > self._bin_us / 1000
            },
        }

    def _told(self, worker: WorkerTime) -> dict[str, Any]:
        span = self._span_of(worker)
        return {
            "node": worker.key[0],
            "incarnation": worker.key[1],
            "attempts": worker.attempts,
            "succeeded": worker.succeeded,
            "items": worker.items,
            "peak_rss_kib": worker.peak_rss_kib,
            "worker_us": {
                "total": span,
                **dict(zip(KINDS, worker.spent_us, strict=True)),
                "idle": span - sum(worker.spent_us),
            },
        }

    def _nodes(self, workers: Sequence[WorkerTime]) -> list[dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        rows = [(self._told(worker), 1) for worker in workers]
        for worker in self._overflow.values():
            spent = sum(worker.spent_us)
            told = self._told(worker) if spent else None
            if told is not None:
                told["worker_us"] |= {"total": spent, "idle": 0}
                rows.append((told, 0))
        for told, count in rows:
            node = found.get(told["node"])
            if node is None:
                found[told["node"]] = {**told, "workers": count, "worker_us": dict(told["worker_us"])}
                del found[told["node"]]["incarnation"]
                continue
            node["workers"] += count
            for name in ("attempts", "succeeded", "items"):
                node[name] += told[name]
            node["peak_rss_kib"] = max(node["peak_rss_kib"], told["peak_rss_kib"])
            for name, value in told["worker_us"].items():
                node["worker_us"][name] += value
        return sorted(found.values(), key=lambda node: node["node"])


def _slow(row: AttemptFigures) -> dict[str, Any]:
    return {
        "mini_batch": row.mini_batch,
        "node": row.node_id,
        "process_number": row.process_number,
        "status": status_of(row.state, row.cause, row.phase),
        "elapsed_us": row.elapsed_us,
        "run_us": row.run_us,
        "items": row.item_count,
        "peak_rss_kib": row.peak_rss_kib,
    }
