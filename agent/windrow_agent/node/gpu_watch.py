"""The agent's GPUs, watched: what they are, what their workers use, whether they are still there.

A process of its own asks the driver (`gpu_driver`). If it hangs, as it does on a device that has fallen off the bus, or
dies, the agent goes on: it says so, and starts another one after a while. Nothing here is started on a machine without
a driver.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import select
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path

from windrow.common.device_packing import DEVICES_MAX
from windrow.common.journal import Condition, say
from windrow.rpc.v1 import node_pb2 as node

from windrow_agent.node import strays
from windrow_agent.node.gpu_driver import Reading, Readings
from windrow_agent.node.gpu_use import Held, UseOverTime, memory_share, uses
from windrow_agent.node.gpus import (
    GpuIndices,
    amd_is_here,
    in_first_namespace,
    nvidia_is_here,
    places_of,
)

FIRST_ANSWER_S = 20.0
"""A driver that has no device open yet takes seconds to open them."""
ANSWER_S = 15.0
"""A driver that takes longer counts as one that hangs."""
BUSY_S, QUIET_S = 2.0, 10.0
"""Seconds between looks: while workers have GPUs; otherwise."""
_AGAIN_S = 30.0
"""After the process has died, another one is started after this time."""
_LINE_BYTES_MAX = 1 << 22
_ANCESTORS_MAX = 64


class DriverSilent(Exception):
    """The process that asks the driver gives no answer; the text says why."""


class DriverProcess:
    """The process that asks the driver."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._unread = bytearray()
        self._owes = False
        """Whether it has been asked, and has not answered yet."""

    def start(self) -> None:
        """Starts it; it looks once by itself. Raises OSError."""
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "windrow_agent.node.gpu_driver"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            process_group=0,
        )
        strays.AWAITED.add(self._process.pid)
        strays.CHILDLESS.add(self._process.pid)
        self._unread.clear()
        self._owes = True

    @property
    def is_started(self) -> bool:
        """Whether there is one."""
        return self._process is not None

    def ask(self) -> None:
        """Asks for one look, unless one is under way. Raises DriverSilent."""
        assert self._process is not None and self._process.stdin is not None
        if self._owes:
            return
        try:
            self._process.stdin.write(b"\n")
        except OSError as error:
            raise DriverSilent(self._why_dead()) from error
        self._owes = True

    def wait(self, seconds: float) -> Readings:
        """The answer. Blocks. Raises DriverSilent: it then still owes one, or it is dead."""
        deadline = time.monotonic() + seconds
        while (readings := self._taken()) is None:
            left = max(0.0, deadline - time.monotonic())
            if not select.select([self._output()], [], [], left)[0]:
                raise DriverSilent(_silent_for(seconds))
            self._read()
        return readings

    async def answer(self, seconds: float) -> Readings:
        """The answer. Raises DriverSilent, as `wait` does."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while (readings := self._taken()) is None:
            there = asyncio.Event()
            fd = self._output()
            loop.add_reader(fd, there.set)
            waiting = asyncio.ensure_future(there.wait())
            try:
                done, _ = await asyncio.wait([waiting], timeout=max(0.0, deadline - loop.time()))
            finally:
                loop.remove_reader(fd)
                waiting.cancel()
            if not done:
                raise DriverSilent(_silent_for(seconds))
            self._read()
        return readings

    def _output(self) -> int:
        assert self._process is not None and self._process.stdout is not None
        return self._process.stdout.fileno()

    def _read(self) -> None:
        """Reads what is there. Raises DriverSilent at the end."""
        data = os.read(self._output(), 1 << 16)
        if not data or len(self._unread) > _LINE_BYTES_MAX:
            raise DriverSilent(self._why_dead())
        self._unread += data

    def _taken(self) -> Readings | None:
        """The answer, if it has arrived. Raises DriverSilent if it is none."""
        if b"\n" not in self._unread:
            return None
        line, _, rest = bytes(self._unread).partition(b"\n")
        self._unread[:] = rest
        self._owes = False
        try:
            return Readings.from_json(line)
        except (ValueError, KeyError, TypeError) as error:
            raise DriverSilent(f"the process that asks the driver of the GPUs answers nonsense: {error!r}") from error

    @property
    def is_dead(self) -> bool:
        """Whether it has ended."""
        return self._process is None or self._process.poll() is not None

    def _why_dead(self) -> str:
        assert self._process is not None
        try:
            code = self._process.wait(1.0)
        except subprocess.TimeoutExpired:
            code = 0
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return f"the process that asks the driver of the GPUs {how}"

    def close(self) -> None:
        """Ends it. One that hangs in the driver ends when that lets it go."""
        process, self._process = self._process, None
        if process is None:
            return
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        process.kill()
        try:
            process.wait(0.5)
        except subprocess.TimeoutExpired:
            return  # as a child that is awaited, it is nobody's stray
        strays.AWAITED.discard(process.pid)
        strays.CHILDLESS.discard(process.pid)


def _silent_for(seconds: float) -> str:
    return f"the driver of the GPUs has not answered for {seconds:.0f} s; see the kernel's log"


def look_once(seconds: float = FIRST_ANSWER_S) -> Readings:
    """What the GPUs of this machine are and do now, by a process that ends with this. Raises nothing."""
    if not nvidia_is_here() and not amd_is_here():
        return Readings()
    process = DriverProcess()
    try:
        process.start()
        return process.wait(seconds)
    except (DriverSilent, OSError) as error:
        return Readings(trouble=str(error))
    finally:
        process.close()


class GpuWatch:
    """Watches the GPUs of an agent, and what its workers do with them.

    `end`: called with the key of a worker that is to be ended since it uses far more memory than its share, and with
    the reason. `changed`: called when GPUs have gone or come back, with the workers that had those that have gone.
    """

    def __init__(
        self,
        gpus: GpuIndices,
        environment: Mapping[str, str],
        pids: Callable[[], Mapping[int, int]],
        mark: Callable[[int], str],
        end: Callable[[int, str], None],
        changed: Callable[[list[int]], None],
    ) -> None:
        """`pids`: by key of a worker, its process. `mark`: what the environment of its processes holds."""
        self._gpus = gpus
        self._environment = environment
        self._pids = pids
        self._mark = mark
        self._end = end
        self._changed = changed
        self._over_time = UseOverTime()
        self._readings: list[Reading | None] = [None] * len(gpus.devices)
        self._trouble = ""
        self.has_looked = False
        """Whether the driver has answered, or does not."""
        self._is_first_namespace = in_first_namespace()
        self._process = DriverProcess()
        self._silent = Condition(
            logging.WARNING, "the GPUs of this node cannot be measured", "the GPUs of this node are measured again"
        )

    async def run(self, begins: Callable[[], Awaitable[object]]) -> None:
        """Never returns. `begins`: waits until the first look is due."""
        await begins()
        if not nvidia_is_here() and not amd_is_here():
            self._trouble = "this machine has no driver that says what its GPUs do"
            self.has_looked = True
            await asyncio.Event().wait()
        try:
            while True:
                await self._look()
                self.has_looked = True
                await self._until_next()
        finally:
            self._process.close()

    async def _until_next(self) -> None:
        """Waits until the next look is due; the first worker that gets a GPU ends a long pause."""
        if self._gpus.held():
            await asyncio.sleep(BUSY_S)
            return
        self._gpus.taken.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._gpus.taken.wait(), QUIET_S)

    async def _look(self) -> None:
        """One look. After a death, it waits before the next one."""
        try:
            if not self._process.is_started:
                self._process.start()
            self._process.ask()
            readings = await self._process.answer(ANSWER_S)
        except (DriverSilent, OSError) as error:
            self._trouble = str(error)
            self._readings = [None] * len(self._gpus.devices)
            self._silent.goes_on(why=self._trouble)
            if self._process.is_dead:
                self._process.close()
                await asyncio.sleep(_AGAIN_S)
            return
        if readings.trouble and not readings.devices:
            self._trouble = readings.trouble
            self._silent.goes_on(why=self._trouble)
            self._readings = [None] * len(self._gpus.devices)
            return
        self._silent.is_over()
        self.note(readings, time.monotonic_ns())

    def note(self, readings: Readings, now_ns: int) -> None:
        """Takes in what the driver has said."""
        unnamed = [f"GPU {one.number}: {one.trouble}" for one in readings.devices if not one.device]
        self._trouble = readings.trouble or ("; ".join(unnamed) if not self._gpus.lost else "")
        found = places_of(self._gpus.devices, readings, self._environment)
        self._readings = [one or self._missing(place, readings) for place, one in enumerate(found)]
        self._note_lost()
        held = {key: Held(places, share) for key, (places, share) in self._gpus.held().items()}
        processes = self._processes(one for one in self._readings if one is not None)
        use = uses(held, processes, self._readings, sees_all=self._is_first_namespace)
        for key in self._over_time.note(use, held, self._readings, now_ns):
            self._end(key, self._beyond(held[key], use[key].memory_bytes or 0))

    def _missing(self, place: int, readings: Readings) -> Reading | None:
        """A device that the driver does not name any more, though it did; None if it never did."""
        before = self._readings[place]
        if before is None or not before.device:
            name = self._gpus.devices[place]
            if name.isdigit() or not readings.devices:
                return None
            before = Reading(name, place)
        # One that is lost has no name any more, but its number.
        unnamed = [one for one in readings.devices if not one.device and one.trouble]
        why = next((one.trouble for one in unnamed if one.number == before.number), "the driver no longer shows it")
        return Reading(before.device, before.number, before.model, before.memory_bytes, trouble=why)

    def _note_lost(self) -> None:
        lost = frozenset(place for place, one in enumerate(self._readings) if one is not None and one.trouble)
        before = self._gpus.lost
        if lost == before:
            return
        for place in sorted(lost - before):
            reading = self._readings[place]
            assert reading is not None
            say(logging.ERROR, "a GPU cannot be used", gpu=self._gpus.devices[place], why=reading.trouble)
        for place in sorted(before - lost):
            say(logging.INFO, "a GPU can be used again", gpu=self._gpus.devices[place])
        self._gpus.lost = lost
        held = self._gpus.held()
        self._changed(sorted(key for key, (places, _) in held.items() if lost.intersection(places) - before))

    def why_lost(self, key: int) -> str:
        """Why the GPU of a worker cannot be used."""
        places, _ = self._gpus.held().get(key, ((), 1.0))
        for place in places:
            reading = self._readings[place]
            if reading is not None and reading.trouble:
                return f"{self._name(place)} of this node cannot be used: {reading.trouble}"
        return "a GPU of this node cannot be used"

    def _processes(self, readings: Iterable[Reading]) -> dict[int, set[int]]:
        """By worker: those of the processes of which the driver tells that are its own."""
        pids = {pid: key for key, pid in self._pids().items()}
        found: dict[int, set[int]] = {}
        for pid in {use.pid for one in readings for use in one.processes}:
            key = self._owner(pid, pids)
            if key is not None and (self._is_first_namespace or _has_cuda(pid)):
                found.setdefault(key, set()).add(pid)
        return found

    def _owner(self, pid: int, pids: Mapping[int, int]) -> int | None:
        """The worker that a process descends from."""
        at = pid
        for _ in range(_ANCESTORS_MAX):
            if at in pids:
                return pids[at]
            if at <= 1 or at == os.getpid():
                break
            at = strays.parent_of(at)
        # A daemon of a script is a child of this process.
        marks = {self._mark(key): key for key in pids.values()}
        return next((marks[one] for one in strays.marks_of(pid) if one in marks), None)

    def _name(self, place: int) -> str:
        reading = self._readings[place]
        model = f"{reading.model}, " if reading is not None and reading.model else ""
        return f"GPU {place} ({model}{self._gpus.devices[place]})"

    def _beyond(self, held: Held, used_bytes: int) -> str:
        from windrow.common.quantities import size

        share = memory_share(held, self._readings) or 0
        return (
            f"The processes of the worker used {size(used_bytes)} of the memory of {self._name(held.places[0])}, and "
            f"their share is {size(share)} (gpus_per_worker {held.share:g}): others had too little, and the worker was "
            "ended. Give a worker a larger share (gpus_per_worker), make mini-batches smaller, or limit what the "
            "script's library takes"
        )

    # What is told.

    def statuses(self) -> list[node.GpuStatus]:
        """The GPUs, for a heartbeat."""
        found = []
        for place, device in enumerate(self._gpus.devices[:DEVICES_MAX]):
            reading = self._readings[place]
            status = node.GpuStatus(device=device[:_NAME_MAX])
            if reading is not None:
                status.model, status.memory_bytes = reading.model, reading.memory_bytes
                status.trouble = reading.trouble[:_TROUBLE_MAX]
                if reading.memory_used_bytes is not None:
                    status.memory_used_bytes = reading.memory_used_bytes
                if reading.percent is not None:
                    status.busy_percent = reading.percent
            found.append(status)
        return found

    @property
    def trouble(self) -> str:
        """Why GPUs cannot be seen or measured, in words; "" if they can, or if there are none."""
        return self._trouble[:_TROUBLE_MAX] if self._gpus.devices else ""

    def of_worker(self, key: int, now_ns: int, *, is_working: bool) -> node.WorkerGpu | None:
        """What a worker has of GPUs and does with it; None if it has none. `is_working`: it has a mini-batch."""
        held = self._gpus.held().get(key)
        if held is None:
            return None
        message = node.WorkerGpu(
            places=held[0], share=held[1], idle_ms=self._over_time.idle_ms(key, now_ns), is_working=is_working
        )
        watched = self._over_time.workers.get(key)
        if watched is not None:
            if watched.use.memory_bytes is not None:
                message.memory_bytes = watched.use.memory_bytes
            if watched.use.percent is not None:
                message.busy_percent = watched.use.percent
        return message

    def memory_of(self, place: int) -> int:
        """The memory of a device, in bytes; 0 if nobody has said."""
        reading = self._readings[place]
        return 0 if reading is None else reading.memory_bytes

    def idle_ms(self, key: int, now_ns: int) -> int:
        """For how long a worker has used next to nothing of its GPUs; 0 if it has none, or uses them."""
        return self._over_time.idle_ms(key, now_ns)

    def close(self) -> None:
        """Ends the process that asks the driver."""
        self._process.close()


_NAME_MAX = 96
_TROUBLE_MAX = 400


def _has_cuda(pid: int) -> bool:
    """Whether a process has loaded CUDA or ROCm. Drivers before CUDA 12 tell, in a container, the numbers that
    processes have outside of it (github.com/NVIDIA/nvidia-docker/issues/1483), and later ones do so for some calls
    (github.com/Project-HAMi/HAMi-core/issues/112): one of them may be by chance that of another process here.
    """
    try:
        maps = Path(f"/proc/{pid}/maps").read_bytes()
    except OSError:
        return False
    return b"libcuda.so" in maps or b"libhsa-runtime" in maps
