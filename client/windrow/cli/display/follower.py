"""Follows a job to its end and shows it, for `windrow run` and `windrow job stream`.

States of the job and the nodes, and messages of the supervisor, come from other threads through one queue, so that
the main thread can always draw and react to Ctrl-C.
"""

from __future__ import annotations

import queue
import sys
import threading
import time
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple

from windrow.cli.display import Display
from windrow.cli.messages import YELLOW, coloured
from windrow.errors import WindrowError
from windrow.sdk.job import Job, JobState, StepReason, no_work
from windrow.sdk.node import Node

if TYPE_CHECKING:
    from windrow.sdk.client import Client

TICK_S = 0.2
FLEET_FIRST_S = 0.5
"""The first look at the fleet: short jobs need none."""
FLEET_INTERVAL_S = 1.0
FLEET_REST = 20
"""The fleet is looked at again after this many times as long as the last look took: the state of a job of hundreds of
steps takes the master long to explain."""
FLEET_INTERVAL_MAX_S = 10.0


def fleet_interval_s(took_s: float) -> float:
    """Return the pause before the next look at the fleet, after one that took `took_s` seconds."""
    return min(max(FLEET_INTERVAL_S, FLEET_REST * took_s), FLEET_INTERVAL_MAX_S)


class _Fleet(NamedTuple):
    nodes: list[Node]
    reasons: list[StepReason]


class _Builds:
    """Which environments are being built, to explain a wait of minutes."""

    def __init__(self) -> None:
        self._told: dict[tuple[str, int], float] = {}

    def news(self, nodes: Sequence[Node], job: Job | None) -> list[str]:
        """Return a message for each build for this job's steps that has begun or ended since the last call."""
        names = {step.step_id: step.name for step in job.steps} if job is not None else {}
        now = {
            (node.node_id, step_id): seconds
            for node in nodes
            for step_id, seconds in node.builds.items()
            if step_id in names
        }
        begun = [key for key in now if key not in self._told]
        over = [key for key in self._told if key not in now]
        messages = [
            f"Building the environment of step {names[step_id]} on node {node_id}" for node_id, step_id in begun
        ]
        messages += [
            f"Building the environment of step {names[step_id]} on node {node_id} ended after about "
            f"{self._told[node_id, step_id]:.0f} s"
            for node_id, step_id in over
            if step_id in names
        ]
        self._told = now
        return messages


class _End:
    """The stream of the job has ended."""


Event = Job | _Fleet | str | Exception | _End


class Follower:
    """Follows one job on one connection. Close it before the connection."""

    def __init__(self, client: Client, job_id: str, *, after_seq: int, warned: Collection[str] = ()) -> None:
        self.events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._client = client
        self._job_id = job_id
        self._after_seq = after_seq
        self._closing = threading.Event()
        self.warned = set(warned)
        """The job's warnings and notes that the user has seen."""
        self.last: Job | None = None
        """The state that was shown last."""
        threading.Thread(target=self._watch_job, name="watch-job", daemon=True).start()
        threading.Thread(target=self._watch_fleet, name="watch-fleet", daemon=True).start()

    def tell(self, message: str) -> None:
        """Queue a notice for the display. Any thread may call it."""
        self.events.put(message)

    def close(self) -> None:
        """Stop the threads."""
        self._closing.set()

    def run(self, display: Display, failure: Callable[[], WindrowError | None]) -> Job:
        """Show everything until the job has ended or is paused; return its last state.

        `failure` is called at each tick, and may return an error that ends the following. Raises that, or what the
        connection raised.
        """
        told: dict[str, str] = {}
        while True:
            try:
                event = self.events.get(timeout=TICK_S)
            except queue.Empty:
                error = failure()
                if error is not None:
                    raise error from None
                display.tick()
                continue
            if isinstance(event, Job):
                self.last = event
                display.show(event)
                self._tell_of(display, event)
                if event.state.ended or event.state is JobState.PAUSED:
                    return event
                for step in event.steps:
                    # The message of an unfinished step says why it waits.
                    is_summed_up = step.reused_from or step.state == "skipped"
                    if step.message and not is_summed_up and told.get(step.name) != step.message:
                        told[step.name] = step.message
                        display.notice(f"{step.name}: {step.message}")
            elif isinstance(event, _Fleet):
                display.show_fleet(event.nodes, event.reasons)
            elif isinstance(event, str):
                display.notice(event)
            elif isinstance(event, Exception):
                raise event
            elif self.last is not None:
                return self.last

    def _tell_of(self, display: Display, job: Job) -> None:
        """Show new warnings and notes of the job, from its planner and about its tables."""
        warning = coloured("warning:", YELLOW, sys.stderr)
        for head, text in [(warning, text) for text in job.warnings] + [("note:", text) for text in job.notes]:
            if text not in self.warned:
                self.warned.add(text)
                display.notice(f"{head} {text}")

    def _watch_job(self) -> None:
        try:
            for job in self._client.progress(self._job_id, after_seq=self._after_seq):
                self.events.put(job)
                if self._closing.is_set():
                    return
            self.events.put(_End())
        except Exception as error:  # the main thread reports it, whatever it is
            self.events.put(error)

    def _as_typed(self, waits: str) -> str:
        # Not at the top: most runs wait for nothing.
        from windrow.cli.display.typed_words import typed

        return typed(waits, self._client.document(self._job_id))

    def _watch_fleet(self) -> None:
        """Watch what the stream of a job does not carry: nodes, whether any takes work, whether the disk is full."""
        reason = waits = told = ""
        builds = _Builds()
        wait_s = FLEET_FIRST_S
        while not self._closing.wait(wait_s):
            begun_s = time.monotonic()
            try:
                now = self._client.master().read_only_reason
                # The file that found no room may change meanwhile: report the condition once.
                if bool(now) != bool(reason):
                    self.tell(f"The master accepts no changes: {now}" if now else "The master accepts changes again.")
                reason = now
                reasons = self._client.explain(self._job_id)
                before, waits = waits, no_work(reasons)
                # Twice in a row, so that an agent that is just starting does not cause an alarm.
                if waits in ("", before) and waits != told:
                    told = waits
                    self.tell(self._as_typed(waits) if waits else "A node takes work again.")
                nodes = list(self._client.list_nodes())
                for message in builds.news(nodes, self.last):
                    self.tell(message)
                self.events.put(_Fleet(nodes, reasons))
            except Exception:  # the stream of the job reports what is wrong
                return
            wait_s = fleet_interval_s(time.monotonic() - begun_s)
