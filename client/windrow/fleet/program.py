"""The program of a fleet: asks the master what is wanted, decides, asks engines, tells the master what became of it.

It may be killed at any moment. What it asks an engine for is written in the master's store before, and carries a name
by which the next program finds it.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import math
import os
import secrets
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from windrow.common.journal import Condition, say
from windrow.errors import MasterUnreachable, RequestRefused, WindrowError
from windrow.fleet import memory as memories
from windrow.fleet import names
from windrow.fleet.agent_command import request_of
from windrow.fleet.decision import Circumstances, Decision, Held, decide, pause_words
from windrow.fleet.engine_thread import (
    EngineThread,
    Event,
    Listed,
    ListFailed,
    NeverAsked,
    SubmissionFailed,
    Submitted,
)
from windrow.fleet.memory import Memory
from windrow.fleet.messages import (
    demand_of,
    group_message,
    held_of,
    others_of,
    report_message,
    spent_today,
    with_bounds,
)
from windrow.fleet.provider import Provider, Seen, State
from windrow.fleet.providers import registry
from windrow.fleet.reconciling import Reconciling, Report
from windrow.fleet.settings import FleetSettings, GroupSettings
from windrow.rpc import errors
from windrow.rpc.connection import Connection
from windrow.rpc.v1 import fleet_service_pb2 as pb
from windrow.rpc.v1 import fleet_service_pb2_grpc
from windrow.sdk.job import moment_of

SYNC_S = 0.5
FIRST_LIST_S = 0.2
"""So soon after the start the first lists may be there."""
CALL_TIMEOUT_S = 10.0
IN_TOUCH_S = 5.0
"""What the master said so lately is how it is."""
AWAY_S = 30.0
"""After so long without the master, agents get their time to join anew."""
COST_S = 60.0
"""What the agents of the day have cost is found out so often."""
ENDED_MAX = 10_000
"""So many ended allocations count for what the day has cost."""
REPORTS_AT_ONCE = 500
END_S = 10.0
"""So long the end waits for submissions that are under way."""
_TRANSIENT = {errors.STORAGE_FULL, errors.BACKUP_RUNS, errors.INTERNAL, errors.STATE_DAMAGED}
_ENDED_UNJOINED = {State.FAILED.value, State.COMPLETED.value, State.EXPIRED.value}


class FleetTaken(RequestRefused):
    """Another program has the fleet. To start this one again would only take it back."""

    exit_code = 6


class _Group:
    """What the program knows of one group."""

    def __init__(self, settings: GroupSettings, fleet: str) -> None:
        self.settings = settings
        self.prefix = names.prefix_of(fleet, settings.name)
        provider: Provider = registry.load(settings.provider).make(settings.engine, self.prefix)
        self.engine = EngineThread(settings.name, provider)
        self.reconciling = Reconciling()
        self.memory = Memory()
        self.silent = "it has not been asked yet"
        """Why the engine does not answer; "" if it does."""
        self.submitting: set[str] = set()
        """What was given to the engine, and is not in a list that began after that."""
        self.decision: Decision | None = None
        self.silence = Condition(logging.WARNING, "the engine does not answer", "the engine answers again")
        self.retry = 0.0, datetime.now(UTC)
        """The end of a pause, by this process's clock and by that of the machine."""
        self.told = ""
        """The reason that was logged last."""


class FleetProgram:
    """The program of one fleet."""

    def __init__(self, settings: FleetSettings, connection: Connection, master: str) -> None:
        """`master`: the address at which agents reach the master, unless the file names one."""
        self._settings = settings
        self._connection = connection
        self._master = master
        self._stub: Any = fleet_service_pb2_grpc.FleetServiceStub(connection.channel)
        self._incarnation = secrets.token_hex(16)
        self._program = f"{socket.gethostname()}, process {os.getpid()}"
        self._groups = {group.name: _Group(group, settings.name) for group in settings.groups}
        self._known: dict[str, Held] = {}
        self._reports: dict[str, tuple[str, Report]] = {}
        """By allocation, with its group: not known to be heard by the master."""
        self._unjoined_since: dict[str, float] = {}
        self._gone: set[str] = set()
        """Agents that were counted as never joined."""
        self._foreign: list[str] = []
        self._answers = 0
        self._answered_s = time.monotonic()
        self._revision: int | None = None
        self._spent: dict[str, float] = {}
        self._spent_s: float | None = None
        self._stop = threading.Event()
        self._away = Condition(
            logging.WARNING, "no master answers; nothing is submitted until it does", "the master answers again"
        )
        self._refused = Condition(logging.WARNING, "the master takes no more allocations", "the master takes more")

    def stop(self) -> None:
        """End soon. Agents stay as they are."""
        self._stop.set()

    def run(self) -> int:
        """Serve until `stop`. Returns the exit code. Raises FleetTaken, and WindrowError if the master refuses it."""
        say(logging.INFO, "fleet starts", fleet=self._settings.name, groups=list(self._groups), program=self._program)
        self._remember()
        try:
            while not self._stop.is_set():
                began_s = time.monotonic()
                self._take_events()
                answer = self._sync()
                if answer is not None and self._answers == 1:
                    # Only now: what engines list is compared with what the master has.
                    for group in self._groups.values():
                        group.engine.start()
                    self._stop.wait(FIRST_LIST_S)
                    continue
                if answer is not None:
                    self._act(answer)
                self._stop.wait(max(0.05, SYNC_S - (time.monotonic() - began_s)))
        finally:
            self._end()
        say(logging.INFO, "fleet ends; its agents stay as they are", fleet=self._settings.name)
        return 0

    def _end(self) -> None:
        """Have what is under way end, and tell the master of it."""
        for group in self._groups.values():
            group.engine.stop()
        ends_s = time.monotonic() + END_S
        for group in self._groups.values():
            group.engine.join(max(0.0, ends_s - time.monotonic()))
        self._take_events()
        if self._reports and self._stop.is_set():
            with contextlib.suppress(WindrowError):
                self._sync()

    def _remember(self) -> None:
        """Take over what the program before has remembered of failures: how the master has its groups."""
        try:
            request = pb.GetFleetRequest(name=self._settings.name, ended_max=1)
            fleet = self._connection.call(self._stub.GetFleet, request, timeout_s=CALL_TIMEOUT_S).fleet
        except WindrowError:
            return
        for told in fleet.groups:
            retry, status = moment_of(told.status, "retry_time"), told.status
            if told.name in self._groups:
                left_s = -math.inf if retry is None else (retry - datetime.now(UTC)).total_seconds()
                self._groups[told.name].memory = Memory(
                    failed=status.failed,
                    unjoined=status.unjoined,
                    pauses=status.pauses,
                    paused_until=time.monotonic() + min(left_s, memories.PAUSE_MAX_S),
                    why=status.failure,
                )

    # What engines say.

    def _take_events(self) -> None:
        for group in self._groups.values():
            for event in group.engine.events():
                self._take(group, event)

    def _take(self, group: _Group, event: Event) -> None:
        now = time.monotonic()
        match event:
            case Submitted(name, engine_id):
                say(
                    logging.INFO,
                    "allocation submitted",
                    group=group.settings.name,
                    allocation=name,
                    engine_id=engine_id,
                )
                group.memory = memories.submitted(group.memory)
                self._report(group, Report(name, State.QUEUED.value, engine_id))
            case SubmissionFailed(name, why, refused):
                say(logging.WARNING, "a submission failed", group=group.settings.name, allocation=name, why=why)
                group.memory = memories.submission_failed(group.memory, now, why)
                if refused:
                    self._report(group, Report(name, State.FAILED.value, "", why))
            case NeverAsked(name, why):
                self._report(group, Report(name, State.CANCELLED.value, "", why))
            case ListFailed(why):
                group.silent = why
                group.silence.goes_on(group=group.settings.name, why=why)
            case Listed(seen, settled):
                group.silent = ""
                group.silence.is_over(group=group.settings.name)
                group.submitting -= settled
                self._reconcile(group, seen, now)

    def _reconcile(self, group: _Group, seen: Sequence[Seen], now: float) -> None:
        rows = {name: one for name, one in self._known.items() if one.group == group.settings.name}
        outcome = group.reconciling.listed(seen, rows, group.submitting, self._answers, now)
        for report in outcome.reports:
            self._report(group, report)
            self._judge(group, report, now)
        for one in outcome.cancel:
            say(logging.INFO, "cancelling what has ended for the master", allocation=one.name, engine_id=one.engine_id)
            group.engine.cancel(one)

    def _report(self, group: _Group, report: Report) -> None:
        """Note what the master is to hear."""
        self._reports[report.name] = (group.settings.name, report)

    def _judge(self, group: _Group, report: Report, now: float) -> None:
        """Count an agent that has ended and never joined, unless it may have joined without this program's knowing."""
        known = self._known.get(report.name)
        in_touch = now - self._answered_s < IN_TOUCH_S
        if in_touch and known is not None and not known.has_joined and report.state in _ENDED_UNJOINED:
            self._never_joined(group, report.name, report.reason or f"It ended ({report.state}) before it joined.")

    def _never_joined(self, group: _Group, name: str, why: str) -> None:
        if name in self._gone:
            return
        self._gone.add(name)
        say(logging.WARNING, "an agent never joined", group=group.settings.name, allocation=name, why=why)
        group.memory = memories.never_joined(group.memory, time.monotonic(), why)

    # What the master says.

    def _sync(self) -> pb.SyncFleetResponse | None:
        """Tell the master how the fleet stands, and hear what is wanted; None: it does not answer. Raises WindrowError
        if it refuses.
        """
        sent = dict(itertools.islice(self._reports.items(), REPORTS_AT_ONCE))
        request = pb.SyncFleetRequest(
            fleet=self._settings.name,
            program_incarnation=self._incarnation,
            program=self._program,
            groups=[self._told(group) for group in self._groups.values()],
            reports=[report_message(group, report) for group, report in sent.values()],
        )
        answer = self._call(self._stub.SyncFleet, request)
        if answer is None:
            return None
        for name, one in sent.items():
            if self._reports.get(name) == one:
                del self._reports[name]
        return self._heard(answer)

    def _heard(self, answer: pb.SyncFleetResponse) -> pb.SyncFleetResponse:
        now = time.monotonic()
        if now - self._answered_s > AWAY_S:
            self._unjoined_since.clear()
        self._answered_s = now
        self._answers += 1
        before = self._known
        self._known = {one.name: held_of(one) for one in answer.allocations if one.group in self._groups}
        foreign = sorted({one.group for one in answer.allocations} - self._groups.keys())
        if foreign != self._foreign:
            self._foreign = foreign
            if foreign:
                say(logging.WARNING, "allocations of groups that the file does not have are left alone", groups=foreign)
        for name, one in self._known.items():
            group = self._groups[one.group]
            if one.has_joined and name in before and not before[name].has_joined:
                say(logging.INFO, "an agent joined", group=one.group, allocation=name)
                group.memory = memories.joined(group.memory)
            if one.is_started and not one.has_joined:
                self._unjoined_since.setdefault(name, now)
            else:
                self._unjoined_since.pop(name, None)
        gone = self._unjoined_since.keys() - self._known.keys()
        for name in gone:
            del self._unjoined_since[name]
        self._gone &= self._known.keys()
        if self._revision is not None and answer.fleet.revision != self._revision:
            say(logging.INFO, "someone has changed the fleet", revision=answer.fleet.revision)
            for group in self._groups.values():
                group.memory = memories.resumed(group.memory)
        self._revision = answer.fleet.revision
        return answer

    def _call(self, method: Any, request: Any) -> Any:
        """Call the master; None if it does not answer, or cannot serve at the moment. Raises WindrowError."""
        try:
            answer = self._connection.call(method, request, timeout_s=CALL_TIMEOUT_S)
        except MasterUnreachable as error:
            self._away.goes_on(why=str(error))
            return None
        except WindrowError as error:
            if error.reason == errors.FLEET_TAKEN:
                raise FleetTaken(
                    f"Another program has taken over the fleet {self._settings.name}, so this one ends; agents stay as "
                    f"they are. {error}",
                    reason=error.reason,
                ) from error
            if error.reason not in _TRANSIENT:
                raise
            self._away.goes_on(why=str(error))
            return None
        self._away.is_over()
        return answer

    def _told(self, group: _Group) -> pb.FleetGroup:
        """A group with its status."""
        message = group_message(group.settings)
        decision, now = group.decision, time.monotonic()
        if decision is not None:
            message.status.wanted = decision.wanted
            message.status.reason = decision.reason
        memory = group.memory
        message.status.failed, message.status.unjoined = memory.failed, memory.unjoined
        message.status.pauses, message.status.failure = memory.pauses, memory.why
        if memory.is_paused(now):
            until = memory.paused_until
            if decision is None or decision.memory.paused_until != until:
                # The pause is from before this program, or has begun since it decided: nobody is to see it unexplained.
                message.status.reason = pause_words(memory)
            if group.retry[0] != until:
                # Once, so that the master does not hear another moment each second.
                group.retry = until, datetime.now(UTC) + timedelta(seconds=until - now)
            message.status.retry_time.FromDatetime(group.retry[1])
        return message

    # What is done.

    def _act(self, answer: pb.SyncFleetResponse) -> None:
        now = time.monotonic()
        for name, since in self._unjoined_since.items():
            one = self._known[name]._replace(unjoined_since=since)
            if one.is_overdue(now):
                words = f"It was started {round(now - since)} s ago and has not joined."
                self._never_joined(self._groups[one.group], name, words)
        groups = with_bounds(self._settings, answer.fleet)
        decisions = decide(
            groups,
            [demand_of(one) for one in answer.demands],
            [one._replace(unjoined_since=self._unjoined_since.get(name)) for name, one in self._known.items()],
            others_of(answer),
            {name: group.memory for name, group in self._groups.items()},
            now,
            Circumstances(
                answer.fleet.paused_by if answer.fleet.paused else None,
                self._costs(groups),
                {name: group.silent for name, group in self._groups.items() if group.silent},
            ),
        )
        for bounded in groups:
            group, decision = self._groups[bounded.name], decisions[bounded.name]
            group.decision, group.memory = decision, decision.memory
            if decision.reason != group.told:
                group.told = decision.reason
                if decision.reason:
                    say(logging.INFO, "why there are not more agents", group=bounded.name, reason=decision.reason)
            for name in decision.cancel:
                group.engine.cancel(Seen(name, self._known[name].engine_id, State.QUEUED))
        self._begin(decisions)

    def _begin(self, decisions: Mapping[str, Decision]) -> None:
        """Write allocations, then ask engines for them."""
        new: dict[str, str] = {}
        for name, decision in decisions.items():
            prefix = self._groups[name].prefix
            new |= {names.new_name(prefix, stays=True): name for _ in range(decision.begin_staying)}
            new |= {names.new_name(prefix, stays=False): name for _ in range(decision.begin)}
        if not new or self._stop.is_set():
            return
        request = pb.BeginAllocationsRequest(
            fleet=self._settings.name,
            program_incarnation=self._incarnation,
            allocations=[pb.Allocation(name=name, group=group) for name, group in new.items()],
        )
        try:
            if self._call(self._stub.BeginAllocations, request) is None:
                return
            self._refused.is_over()
        except RequestRefused as error:
            if error.reason == errors.TOO_MANY_ALLOCATIONS:
                self._refused.goes_on(why=str(error))
            elif error.reason != errors.FLEET_PAUSED:
                raise
            return
        now = time.monotonic()
        for name, of_group in new.items():
            group = self._groups[of_group]
            group.memory = memories.begun(group.memory, now, 1)
            group.submitting.add(name)
            self._known[name] = Held(name, of_group)
            group.engine.submit(request_of(group.settings, name, self._master, stays=names.stays(name)))

    def _costs(self, groups: Sequence[GroupSettings]) -> dict[str, float]:
        """What agents of the day have cost, of groups that have a budget."""
        now = time.monotonic()
        priced = [group for group in groups if group.price_per_hour and group.budget_per_day < float("inf")]
        if priced and (self._spent_s is None or now - self._spent_s >= COST_S):
            request = pb.GetFleetRequest(name=self._settings.name, ended_max=ENDED_MAX)
            answer = self._call(self._stub.GetFleet, request)
            if answer is not None:
                self._spent = {group.name: spent_today(group.name, group.price_per_hour, answer) for group in priced}
                self._spent_s = now
        return self._spent
