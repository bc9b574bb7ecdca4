"""Starts the planner process of a step, and submits its groups to the core one by one. A step without input needs no
process."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import struct
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

from windrow.common.journal import Repeated, log, say

from windrow_master.core.commands import AwaitPlanner, FailStep, PlanGroup, TakenOver
from windrow_master.core.ids import StepId
from windrow_master.core.records import PLAN_RECORD, RANK
from windrow_master.crash_points import reach
from windrow_master.files.errors import StateDamaged
from windrow_master.planning.no_input import groups_without_input
from windrow_master.shell.errors import CommandFailed
from windrow_master.shell.planner_processes import start_planner
from windrow_master.store.errors import DatabaseDamaged

MESSAGE_HEAD = struct.Struct("<II")
EARLIER = struct.Struct("<q")
"""The number of a mini-batch of the earlier job, or -1 for none."""
STARTS_MAX = 4
"""The number of consecutive planners without progress after which the step fails."""
STDERR_TAIL = 4096
ENDS_S = 1.0
"""How long a planner may take to end that nobody needs any more, before it is killed."""
LOOKS_AGAIN_S = 0.1
"""While enough mini-batches are ready, so often the driver looks whether that is still so."""


class Turn(Protocol):
    """Limits how many planners run at once, as `project_turns.ProjectTurn` does."""

    nice: int
    """How nice the planner of this turn is to other processes."""

    def locked(self) -> bool:
        """Whether it has to be waited for."""

    async def __aenter__(self) -> None: ...

    async def __aexit__(self, *how: Any) -> None: ...


class GroupRecords(NamedTuple):
    """The bytes after the message of a group (docs/contracts.md, section 3): PLAN_RECORDs, RANKs and EARLIERs. Each
    kind has one record for each mini-batch, or none at all.
    """

    planned: bytes
    ranks: bytes
    earlier: bytes

    @classmethod
    def of(cls, message: dict[str, Any], records: bytes) -> GroupRecords:
        """Split the bytes after a message into its three kinds of records."""
        ranks = message["count"] * PLAN_RECORD.size
        earlier = ranks + message["count"] * RANK.size * bool(message.get("ranked"))
        return cls(records[:ranks], records[ranks:earlier], records[earlier:])


def canonical(value: Any) -> bytes:
    """The canonical JSON in which checkpoints are stored and compared."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


class PlanningDriver:
    """Plans one step. A planner that dies is started again from the stored checkpoint."""

    def __init__(
        self,
        step_id: StepId,
        request: dict[str, Any],
        checkpoint: Callable[[], bytes | None],
        submit: Callable[[Any], Awaitable[Any]],
        turn: Turn,
        earlier: Callable[[Sequence[tuple[int, int]]], tuple[TakenOver, ...]] | None = None,
        header: bytes | None = None,
        has_room: Callable[[bool], bool] = lambda paused: True,
        start_process: Callable[[], Awaitable[Process]] = start_planner,
    ) -> None:
        """`request`: as in docs/contracts.md, section 3, without its checkpoint. `checkpoint()` returns the stored one.

        `turn`: held while a planner runs.
        `earlier`: turns pairs of a new mini-batch and the equal one of an earlier job into outcomes (`shell.earlier`);
        it runs in a thread. `header`: that of the earlier job's rows.
        `has_room(paused)`: whether the step may have more mini-batches now (`core.plans.must_wait`).
        `start_process`: raises OSError (`PlannerProcesses.start`).
        """
        self._step_id = step_id
        self._request = request
        self._checkpoint = checkpoint
        self._submit = submit
        self._turn = turn
        self._earlier = earlier
        self._header = header
        self._has_room = has_room
        self._start_process = start_process
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start planning, in a task."""
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Stop planning, and end the planner process if one runs."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        try:
            if self._request["inputs"]:
                while not await self._plan_while_room():
                    await self._room()
            else:
                await self._plan_without_input()
        except CommandFailed:
            return  # the error was reported where it was raised, and the job is paused
        except DatabaseDamaged:
            return  # the store has reported it, and the master ends
        except StateDamaged as error:
            await self._submit(FailStep(self._step_id, f"The input could not be divided: {error}"))
        except Exception as error:
            # A bug. Without this, the step would wait for its mini-batches forever.
            log.exception("planning failed: please report this", extra={"fields": {"step": self._step_id}})
            await self._submit(
                FailStep(self._step_id, f"The input could not be divided: {error!r}. Please report this.")
            )

    async def _plan_without_input(self) -> None:
        stored = self._checkpoint()
        count = self._request["rank_mini_batch_count"]
        for message, records in groups_without_input(count, json.loads(stored) if stored else None):
            if not self._has_room(False):
                await self._room()
            if await self._take(message, records):
                return

    async def _room(self) -> None:
        """Wait until there is room for more mini-batches. Nothing is kept meanwhile: neither a process nor a turn."""
        say(logging.INFO, "dividing pauses: enough mini-batches are ready", step=self._step_id)
        while not self._has_room(True):  # noqa: ASYNC110  # nobody tells
            await asyncio.sleep(LOOKS_AGAIN_S)
        say(logging.INFO, "dividing goes on", step=self._step_id)

    async def _plan_while_room(self) -> bool:
        """Plan as long as there is room; return whether the step has ended its planning, in whatever way."""
        if waits := self._turn.locked():
            await self._submit(AwaitPlanner(self._step_id, waits=True))
        async with self._turn:
            if waits:
                await self._submit(AwaitPlanner(self._step_id, waits=False))
            return await self._plan()

    async def _plan(self) -> bool:
        """Run planners until planning is done, or until STARTS_MAX in a row got no further; False as soon as there is
        no room for more mini-batches."""
        tail, in_vain, code = "", 0, 0
        while in_vain < STARTS_MAX:
            before = self._checkpoint()
            try:
                ended, tail, code = await self._plan_once()
            except OSError as error:
                ended, tail, code = False, str(error), 0
            if ended:
                return True
            if not self._has_room(False):
                return False
            in_vain = in_vain + 1 if self._checkpoint() == before else 0
            say(
                logging.WARNING,
                "the planner ended before it was done; it starts again",
                step=self._step_id,
                exit_code=code,
                stderr=tail,
            )
        await self._submit(
            FailStep(
                self._step_id,
                f"The planner process, which divides the input, ended {STARTS_MAX} times without progress. "
                f"{how_it_died(code)}Its last output: {tail.strip()[-1000:] or '(none)'}",
            )
        )
        return True

    async def _plan_once(self) -> tuple[bool, str, int]:
        """Run one planner process until it ends or there is no room for more mini-batches; return whether planning is
        done, the tail of the process's stderr, and its exit code.

        Raises OSError if it cannot be started.
        """
        process = await self._start_process()
        with suppress(OSError):  # it has ended
            os.setpriority(os.PRIO_PROCESS, process.pid, os.getpriority(os.PRIO_PROCESS, 0) + self._turn.nice)
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        stderr = asyncio.create_task(_read_tail(process.stderr, self._step_id))
        patience_s = 0.0
        try:
            stored = self._checkpoint()
            request = {**self._request, "checkpoint": json.loads(stored) if stored else None}
            process.stdin.write(json.dumps(request).encode() + b"\n")
            ended = await self._take_groups(process.stdout)
            # Where its stdout has ended, it is about to end by itself, and says how.
            patience_s = 0.0 if ended else ENDS_S
        finally:
            process.stdin.close()
            gone = asyncio.ensure_future(process.wait())
            try:
                # Not by asyncio.timeout, which before Python 3.11.4 does not work in a task that is being cancelled.
                await asyncio.wait([gone], timeout=patience_s)
            finally:
                if process.returncode is None:
                    process.kill()
            code, tail = await gone, await stderr
        return ended, tail, code

    async def _take_groups(self, stdout: asyncio.StreamReader) -> bool:
        while True:
            try:
                json_length, records_length = MESSAGE_HEAD.unpack(await stdout.readexactly(MESSAGE_HEAD.size))
                message = json.loads(await stdout.readexactly(json_length))
                records = await stdout.readexactly(records_length)
            except asyncio.IncompleteReadError:
                return False
            if await self._take(message, records):
                return True
            if not self._has_room(False):
                return False

    async def _take(self, message: dict[str, Any], records: bytes) -> bool:
        """Submit one message of the planner; return whether it was the last one."""
        if message["type"] == "error":
            await self._submit(FailStep(self._step_id, message["message"], message["category"]))
            return True
        reach("planning.checkpoint_received")
        start, end = message["from"], message["to"]
        group = GroupRecords.of(message, records)
        first = 0 if start is None else start["mini_batches"]
        taken_over = await self._outcomes(first, group.earlier)
        accepted = await self._submit(
            PlanGroup(
                self._step_id,
                start=None if start is None else canonical(start),
                end=canonical(end),
                first_mini_batch=first,
                records=group.planned,
                done=bool(end["done"]),
                reader=canonical(message["reader"]) if message.get("reader") is not None else None,
                warnings=tuple(message.get("warnings", ())),
                notes=tuple(message.get("notes", ())),
                misfits=message.get("misfits", 0),
                ranks=group.ranks,
                taken=taken_over,
                header=self._header if taken_over else None,
            )
        )
        return not accepted or bool(end["done"])

    async def _outcomes(self, first: int, earlier: bytes) -> tuple[TakenOver, ...]:
        """The outcomes of the mini-batches of a group that are taken over. `first`: the index of its first one."""
        if not earlier or self._earlier is None:
            return ()
        found = enumerate((before for (before,) in EARLIER.iter_unpack(earlier)), first)
        pairs = [(mini_batch, before) for mini_batch, before in found if before >= 0]
        return await asyncio.to_thread(self._earlier, pairs)


def how_it_died(code: int) -> str:
    """What a planner's exit code says of its end, as a sentence with a blank behind; "" if that is nothing."""
    if code >= 0:
        return ""
    from windrow.common.signal_names import signal_name

    said = f"It was ended by {signal_name(-code)}. "
    if -code == signal.SIGKILL:
        said += (
            "The kernel does that when memory runs out (the log of the kernel says so): give the master's machine or "
            "container more memory, or divide less at once. With a master's limit planner_memory_bytes below what "
            "there is, the message names the file that takes so much. "
        )
    return said


async def _read_tail(stream: asyncio.StreamReader, step_id: StepId) -> str:
    """Read to the end and return the last few KiB. What the planner writes meanwhile, such as "the disk is full", goes
    to the log."""
    tail, repeated = b"", Repeated()
    while chunk := await stream.read(4096):
        tail = (tail + chunk)[-STDERR_TAIL:]
        text = chunk.decode(errors="replace").strip()
        repeated.say(step_id, logging.WARNING, "the planner says", step=step_id, message=text[-1000:])
    return tail.decode(errors="replace")
