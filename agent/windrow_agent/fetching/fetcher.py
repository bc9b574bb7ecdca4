"""Decides what is fetched when, within a budget of bytes and a deadline, and removes it afterwards.

States of a lease::

    WAITING ──room in the budget──► FETCHING ──answered──► FETCHED ──finished, given back──► (gone, its files too)
       └────────given back──────────────┴──failed, or too late: finished──► (gone)

Invariants:

1. The bytes of all FETCHING and FETCHED leases, and of files being removed, stay within the budget and within the free
   disk space. A single lease is bounded by the disk only.
2. A lease that has left the ledger, or is finished, is forgotten within a tick: its fetch is cancelled and its files
   are removed.
3. The death of a fetch process costs no lease a try: the next process is asked again. Only after several deaths in a
   row without any answer do the leases fail, as the node's fault.
4. A fetch ends within `task_overhead_timeout`: with files, a failure, or a timeout.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import math
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windrow.common.journal import say
from windrow.common.removal import discard_tree
from windrow.rpc.v1 import work_pb2 as work

from windrow_agent.fetch_process.client import FetchProcess, NotRunning
from windrow_agent.fetching.recipes import Fetch, read_recipe
from windrow_agent.leases.lease import CacheUse, Lease
from windrow_agent.outgoing import completions
from windrow_agent.steps.reach import Reach
from windrow_agent.steps.step import Step

if TYPE_CHECKING:
    from windrow_agent.fetching.data_cache import CacheCounts, CacheSettings

DISK_RESERVE_BYTES = 64 << 20
"""Disk space that fetching leaves free."""
AHEAD_MAX = 64
"""Most leases that a step wants beyond those of its workers, so that fetching is ahead of them."""
_WEIGHT = 0.2

_CAUSES = {
    "load_failed": work.CAUSE_LOAD_FAILED,
    "input_changed": work.CAUSE_INPUT_CHANGED,
    "node_fault": work.CAUSE_NODE_FAULT,
}

OnReady = Callable[[Step, Lease, bytes], None]
OnFailed = Callable[[Step, Lease, work.Completion], None]


@dataclass(slots=True, eq=False)
class _Held:
    """A lease with its fetch. `begun_ns`: when the fetch began, or 0. `asked`: the process is working on it."""

    lease: Lease
    step: Step
    folder: Path
    fetch: Fetch
    begun_ns: int = 0
    asked: bool = False
    fetched: bool = False


class NotFetched(Exception):
    """An input could not be fetched to this node; the text says why."""


class Fetcher:
    """`on_ready` gets the recipe for the worker, `on_failed` the completion of a lease whose data cannot be fetched.
    `reach`: what local files may be copied for a step.
    """

    def __init__(
        self,
        bytes_max: int,
        on_ready: OnReady,
        on_failed: OnFailed,
        reach: Callable[[Step], Reach] = Reach.of_datastores,
        cache: CacheSettings | None = None,
    ) -> None:
        """`cache`: of what was fetched; None: there is none."""
        self._reach = reach
        self._bytes_max = bytes_max
        self._on_ready = on_ready
        self._on_failed = on_failed
        self._held: dict[int, _Held] = {}
        self._bytes = 0
        self._process = FetchProcess(
            "The process that fetches from remote storage",
            self._answered,
            self._died,
            None if cache is None else cache.to_message(),
        )
        self.cache: CacheCounts | None = None
        """What the data cache has been good for; None: there is none."""
        if cache is not None:
            # Not at the top: most agents have none.
            from windrow_agent.fetching.data_cache import CacheCounts

            self.cache = CacheCounts(cache)
        self._looking: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()

    def add(self, lease: Lease, step: Step) -> None:
        """Fetches what a lease needs, as soon as there is room."""
        folder = step.fetched / f"{lease.lease_id:016x}"
        try:
            fetch = read_recipe(step.reader, lease.recipe, folder)
        except (ValueError, KeyError, TypeError) as error:
            self._fail(
                _Held(lease, step, folder, Fetch([], b"")),
                "node_fault",
                f"The recipe of a mini-batch cannot be understood: {error!r}",
            )
            return
        self._held[lease.lease_id] = _Held(lease, step, folder, fetch)
        if fetch.parts:
            self._start_waiting()
        else:
            self._ready(self._held[lease.lease_id])

    async def fetch_input(self, step: Step, name: str, address: str, *, writable: bool) -> Path:
        """Fetches a whole file or folder to this node; returns its path. Raises NotFetched."""
        folder = step.fetched / f"input-{name}"

        async def clear() -> None:
            await asyncio.to_thread(discard_tree, folder)

        try:
            request = {"folder": str(folder), "tree": address, "writable": writable, **self._of_step(step)}
            found = await self._process.ask(request, clear)
        except NotRunning as error:
            raise NotFetched(str(error)) from error
        if (use := self._cache_use(found)) is not None:
            step.cache_use = use.plus(step.cache_use or CacheUse())
        if "cause" in found:
            raise NotFetched(found["message"])
        return folder / str(found["place"])

    def _of_step(self, step: Step) -> dict[str, Any]:
        """What a request says of its step."""
        return {"user": step.user, "reach": self._reach(step)._asdict()}

    def _cache_use(self, answer: dict[str, Any]) -> CacheUse | None:
        """What a request had of the cache, by its answer."""
        told = answer.get("cache")
        return None if told is None or self.cache is None else self.cache.take(told)

    def start_cache(self) -> None:
        """Has the cache looked after from now on, before anything is fetched: it gives way when the disk gets full."""
        if self.cache is not None and not self.cache.is_known and self._looking is None:
            self._looking = asyncio.ensure_future(self._look(self.cache))

    async def _look(self, cache: CacheCounts) -> None:
        try:
            self._cache_use(await self._process.ask({"look": True}))
        except NotRunning as error:
            say(logging.WARNING, str(error))
            cache.is_known = True
        self._start_waiting()

    def ahead(self, step: Step, workers: int) -> int:
        """How many leases a step wants beyond those of its workers, so that none waits for storage. None until the
        first has run on this node, since another one might run them sooner.
        """
        fetch_s, run_s = step.fetch_s, step.pace.duration_s
        if fetch_s is None or not run_s:
            return 0
        return min(AHEAD_MAX, workers * (1 + math.ceil(fetch_s / run_s)))

    def look_after(self, held: Callable[[int], bool], now_ns: int) -> None:
        """Checks deadlines; called at every tick. `held`: whether the ledger still has a lease, unfinished."""
        for lease_id, one in list(self._held.items()):
            limit_s = one.step.limits.load_s
            if not held(lease_id):
                self._forget(one)
            elif one.begun_ns and not one.fetched and now_ns - one.begun_ns > limit_s * 1e9:
                self._fail(
                    one,
                    "timeout",
                    f"Fetching the mini-batch from its store took longer than {limit_s:g} s (--task_overhead_timeout)",
                )
        self._start_waiting()

    def close(self) -> None:
        """Ends the fetch process, as the agent ends."""
        if self._looking is not None:
            self._looking.cancel()
        self._held.clear()
        self._process.close()

    def _start_waiting(self) -> None:
        waiting = [one for one in self._held.values() if not one.begun_ns]
        if not waiting:
            return
        if self.cache is not None and not self.cache.is_known:
            # How much room it can make will be known in a moment.
            self.start_cache()
            return
        try:
            free = shutil.disk_usage(waiting[0].step.folder).free - DISK_RESERVE_BYTES
            if self.cache is not None:
                # It gives way, apart from what users of jobs have links to.
                free += max(0, self.cache.held_bytes - self._bytes)
        except OSError:
            # The fetch process will report what is wrong.
            free = self._bytes_max
        free -= sum(one.fetch.size for one in self._held.values() if one.begun_ns and not one.fetched)
        for one in waiting:
            size = one.fetch.size
            if self._bytes and (size > free or self._bytes + size > self._bytes_max):
                return
            if size > free:
                self._fail(one, "node_fault", _too_large(size, free))
                continue
            if size > self._bytes_max:
                say(logging.WARNING, "a mini-batch is larger than fetched_bytes_max; it is fetched alone", bytes=size)
            one.begun_ns = time.monotonic_ns()
            self._bytes += size
            free -= size
            self._ask(one)

    def _ask(self, one: _Held) -> None:
        one.asked = True
        try:
            self._process.send(
                {
                    "id": one.lease.lease_id,
                    "folder": str(one.folder),
                    "parts": one.fetch.parts,
                    "writable": bool(one.step.reader.get("copy")),
                    **self._of_step(one.step),
                }
            )
        except NotRunning as error:
            self._fail(one, "node_fault", str(error))

    def _answered(self, answer: dict[str, Any]) -> None:
        use = self._cache_use(answer)
        one = self._held.get(answer["id"])
        if one is None or one.fetched or not one.begun_ns:
            return
        if use is not None:
            # What its step's inputs had comes with its first lease.
            one.lease.cache_use = use.plus(one.lease.cache_use or CacheUse())
        if "cause" in answer:
            self._fail(one, answer["cause"], answer["message"])
            return
        took_s = (time.monotonic_ns() - one.begun_ns) / 1e9
        old = took_s if one.step.fetch_s is None else one.step.fetch_s
        one.step.fetch_s = old + _WEIGHT * (took_s - old)
        self._ready(one)

    def _ready(self, one: _Held) -> None:
        one.fetched = True
        one.begun_ns = one.begun_ns or time.monotonic_ns()
        self._on_ready(one.step, one.lease, one.fetch.local)

    def _died(self, given_up: NotRunning | None) -> None:
        """The process died: what it was working on is asked of the next one, into empty folders."""
        if self.cache is not None:
            self.cache.process_died()
        for one in [one for one in self._held.values() if one.asked and not one.fetched]:
            one.asked = False
            if given_up is not None:
                self._fail(one, "node_fault", str(given_up))
            else:
                self._clear(one).add_done_callback(functools.partial(self._ask_again, one))

    def _ask_again(self, one: _Held, _: object) -> None:
        if self._held.get(one.lease.lease_id) is one:
            self._ask(one)

    def _clear(self, one: _Held) -> asyncio.Future[None]:
        """Removes what was fetched, on another thread, since it may be large."""
        return self._loop.run_in_executor(None, discard_tree, one.folder)

    def _fail(self, one: _Held, cause: str, message: str) -> None:
        began = one.begun_ns or time.monotonic_ns()
        self._forget(one)
        code = work.CAUSE_TIMEOUT if cause == "timeout" else _CAUSES.get(cause, work.CAUSE_LOAD_FAILED)
        self._on_failed(one.step, one.lease, completions.not_fetched(one.lease, code, message, began))

    def _forget(self, one: _Held) -> None:
        if self._held.pop(one.lease.lease_id, None) is None or not one.begun_ns:
            return
        if one.fetch.parts:
            if not one.fetched:
                self._process.cancel(one.lease.lease_id)
            # What a cancelled fetch still writes is removed with the step's folder.
            self._clear(one).add_done_callback(lambda _: self._removed(one.fetch.size))

    def _removed(self, size: int) -> None:
        self._bytes -= size
        self._start_waiting()


def _too_large(size: int, free: int) -> str:
    return (
        f"The mini-batch needs {size:,} bytes on this node's disk, of which {max(0, free):,} are free apart from a "
        "reserve. Free some space for the agent's folder, or make mini_batch_size smaller."
    )
