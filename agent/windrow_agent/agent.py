"""The life of the agent's process: it starts, serves, drains and ends.

States::

    SERVING ──SIGTERM, or the master says so──► DRAINING ──all delivered or released, or grace over──► ENDED (exit 0)
                                                  └──────── a second SIGTERM or SIGINT ─────────────► ENDED at once

Invariants:

1. No worker outlives the agent: the agent kills them when it ends, and the kernel kills them if the agent is killed.
2. A draining agent takes nothing new. It hands back at once what has not started; what runs has `drain_grace_s`.
3. While draining, the agent keeps its Work stream until everything is acknowledged or released, within the grace
   period. The master may have handed out leases before it heard of the drain, so the agent waits for its answer.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
from windrow.common.health_file import HealthFile
from windrow.common.journal import Condition, say
from windrow.common.removal import discard_tree
from windrow.rpc import errors
from windrow.rpc.v1 import agent_service_pb2 as rpc
from windrow.rpc.v1 import artifact_service_pb2

from windrow_agent.config import DATA_CACHE, AgentConfig
from windrow_agent.control.controller import BUSY_S, Controller
from windrow_agent.link import Link, LinkLost
from windrow_agent.node import kernel, resources
from windrow_agent.node.gpus import GpuIndices, find_gpus
from windrow_agent.node.identity import Identity
from windrow_agent.node.strays import mark_of
from windrow_agent.outgoing.outbox import Outbox
from windrow_agent.outgoing.queue import OutgoingQueue
from windrow_agent.results.row_uploads import RowUploads
from windrow_agent.session.departure import Departure
from windrow_agent.session.log_pushes import LogPushes
from windrow_agent.session.session import Session
from windrow_agent.steps.code_cache import CodeCache, CodeUnavailable
from windrow_agent.steps.resource_monitor import ResourceMonitor
from windrow_agent.supervision.worker_config import boot_path
from windrow_agent.supervision.workforce import NodeFacts, Workforce

if TYPE_CHECKING:
    from windrow_agent.environments.builders import Builders
    from windrow_agent.environments.provider import Environments
    from windrow_agent.fetching.data_cache import CacheSettings
    from windrow_agent.node.gpu_watch import GpuWatch
    from windrow_agent.sandbox.job_users import JobUsers

_SETTLE_S = 0.01
_LONGEST_PAUSE_S = 60.0
LEFT_USERS_S = 60.0
COLLECT_EVERY_S = 6 * 3600.0
_LAST_LOGS_S = 2.0
_LOOK_S = 0.5
"""How often an agent that leaves by itself looks whether it is busy."""


class Agent:
    """One agent process. `slots`: workers at a time; `open_files`: the soft limit of open files that workers get."""

    def __init__(self, config: AgentConfig, identity: Identity, slots: int, open_files: int) -> None:
        self.config = config
        self.identity = identity
        folder = config.folder
        self._retired_steps = _set_aside(folder, keeps_cache=config.data_cache_bytes_max > 0)
        self.gpus = find_gpus(os.environ)
        if config.gpu_count is not None:
            devices = self.gpus.devices
            devices = devices[: config.gpu_count] if devices else tuple(map(str, range(config.gpu_count)))
            self.gpus = GpuIndices(devices, self.gpus.variable, self.gpus.trouble)
        self.outbox = Outbox(folder, memory_max=config.memory_rows_bytes_max, held_max=config.held_rows_bytes_max)
        self.outgoing = OutgoingQueue(self.outbox)
        memory = config.memory_bytes or resources.memory_bytes()
        node = NodeFacts(config.node_id, identity.node_incarnation, slots, boot_path(), open_files, memory)
        self.workforce = Workforce(config, node, self.gpus, os.environ)
        self.code = CodeCache(folder / "code", self._download)
        self.uploads = RowUploads(self._link, self.outgoing.complete)
        builds = config.environments == "build" and config.python is None
        self.controller = Controller(
            self.workforce,
            self.outgoing,
            folder,
            self.code.unpack,
            self.uploads,
            self._link,
            config.fetched_bytes_max,
            self._make_environments if builds else None,
            self._cache_settings(),
        )
        self._departure = Departure(
            config.lifetime_s, config.exit_idle_s, config.drain_grace_s, started_s=time.monotonic()
        )
        self.session = Session(
            config,
            identity,
            self._departure,
            resources.offered(slots, self.gpus.count, memory),
            self.controller,
            self.outgoing,
            self._admitted,
            self.drain,
        )
        if self.gpus.devices:
            self.workforce.gpu_watch = self._make_gpu_watch()
        self.logs = LogPushes(self.controller, self.outgoing.metrics_first, self.session.link)
        if config.served:
            self.session.health = HealthFile(folder)
        self._drain = asyncio.Event()
        self._now = asyncio.Event()
        self._removing: threading.Thread | None = None
        self._tidying: asyncio.Task[None] | None = None

    async def run(self) -> int:
        """Serves until the agent is asked to leave; returns the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled, number)
        kernel.become_subreaper()
        tasks = [
            asyncio.create_task(self.session.run()),
            asyncio.create_task(self._tick()),
            asyncio.create_task(self.logs.run()),
            asyncio.create_task(self._collect_environments()),
            asyncio.create_task(self._depart()),
            asyncio.create_task(
                ResourceMonitor(self.controller.steps.values, self.config.folder, self.controller.at_work.wait).run()
            ),
        ]
        if (watch := self.workforce.gpu_watch) is not None:
            tasks.append(asyncio.create_task(watch.run(self._until_worth_a_look)))
        if self.config.preemption_check:
            tasks.append(asyncio.create_task(self._watch_preemption()))
        ending = asyncio.create_task(self._until_drained())
        at_once = asyncio.create_task(self._now.wait())
        try:
            done, _ = await asyncio.wait([*tasks, ending, at_once], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                if task in tasks:
                    # None of these ends by itself: this raises the exception that ended it.
                    await task
            return 0
        finally:
            for task in (*tasks, ending, at_once):
                task.cancel()
            if self._tidying is not None:
                self._tidying.cancel()
            self.uploads.cancel()
            await asyncio.gather(*tasks, ending, at_once, return_exceptions=True)
            self.controller.kill_all()
            self.workforce.close()
            self.outbox.close()
            if self.session.health is not None:
                self.session.health.remove()
            say(logging.INFO, "agent ended")

    def drain(self, why: str = "") -> None:
        """Takes nothing new, finishes or hands back what is held, then ends the agent."""
        if self._drain.is_set():
            return
        say(logging.INFO, "draining", grace_s=self.config.drain_grace_s, **({"why": why} if why else {}))
        self._drain.set()
        self.controller.drain()

    def _signalled(self, number: int) -> None:
        if self._drain.is_set():
            say(
                logging.WARNING,
                f"{signal.Signals(number).name} again: ending at once; mini-batches in progress will run again",
            )
            self._now.set()
        else:
            self.drain()

    async def _depart(self) -> None:
        """Drains once the agent is to leave by itself. Never returns."""
        departure = self._departure
        while departure.is_planned and not self._drain.is_set():
            if why := departure.why(time.monotonic(), busy=self._is_busy()):
                self.drain(why)
            else:
                await asyncio.sleep(min(_LOOK_S, departure.due_s(time.monotonic())))
        await asyncio.Event().wait()

    async def _watch_preemption(self) -> None:
        """Drains once this machine is about to be taken away. Never returns."""
        # Not at the top: few agents have such a command.
        from windrow_agent.session import preemption

        await preemption.watch(
            self.config.preemption_check, lambda why: self.drain(f"this machine is about to be taken away: {why}")
        )

    def _is_busy(self) -> bool:
        """Whether there is something to do here: a lease, a result to deliver, a step or a worker to be made ready."""
        return not self._is_delivered() or self.controller.is_busy

    async def _until_drained(self) -> None:
        await self._drain.wait()
        deadline = time.monotonic() + self.config.drain_grace_s
        while not self._idle():
            if time.monotonic() > deadline:
                break
            await asyncio.sleep(_SETTLE_S)
        if self.controller.workers_alive:
            self.controller.abandon()
        # Released leases and the last log lines still have to reach the master: wait a moment, if there is one.
        deadline = time.monotonic() + _LAST_LOGS_S
        while self.session.connected and time.monotonic() < deadline:
            if self._idle() and self.outgoing.empty:
                try:
                    await asyncio.wait_for(self.logs.push_all(), _LAST_LOGS_S)
                except (grpc.aio.AioRpcError, LinkLost, OSError, TimeoutError):
                    pass
                break
            await asyncio.sleep(_SETTLE_S)

    def _is_delivered(self) -> bool:
        """Whether the master has all results, and stores have all files of scripts."""
        return not (
            len(self.outbox)
            or len(self.outgoing.metrics_first)
            or len(self.outgoing.files_first)
            or len(self.outgoing.claimed_faults)
            or self.uploads.pending
            or self.controller.saving
        )

    def _idle(self) -> bool:
        return (
            not self.controller.workers_alive
            and self._is_delivered()
            and not self.controller.ledger.unfinished
            # Without a master only results are worth waiting for: the rest it learns when this node stays silent.
            and ((self.outgoing.empty and self.session.drain_heard) or not self.session.connected)
        )

    async def _tick(self) -> None:
        lost = False
        tick_fails = Condition(
            logging.ERROR, "workers are not being supervised; please report this", "workers are supervised again"
        )
        loop = asyncio.get_running_loop()
        stirred = asyncio.Event()

        def stir() -> None:
            # While leases are held, the next tick is near enough.
            if due_s - loop.time() > BUSY_S:
                stirred.set()

        self.controller.stirred = stir
        while True:
            due_s = loop.time() + min(self.controller.plan_tick(), self._until_given_up())
            stirred.clear()
            if await _is_set_within(stirred, due_s - loop.time()):
                continue
            try:
                self.controller.tick()
                tick_fails.is_over()
            except Exception:
                # Supervision must continue, whatever a single worker causes.
                tick_fails.goes_on(why=traceback.format_exc())
            silent_s = time.monotonic() - self.session.last_contact
            if self.config.on_master_lost == "stop" and silent_s > self.session.silence_max_s:
                if not lost:
                    say(
                        logging.WARNING,
                        "no master for the lifetime of a lease: stopping the workers",
                        silent_s=round(silent_s, 1),
                    )
                    self.controller.abandon()
                lost = True
            else:
                lost = False
            if self.config.give_up_after_s is not None and silent_s > self.config.give_up_after_s:
                say(logging.ERROR, f"no master was reachable for {silent_s:.0f} s: the agent ends")
                self._now.set()

    def _until_given_up(self) -> float:
        """Seconds until this agent ends because no master is there."""
        after_s = self.config.give_up_after_s
        if after_s is None:
            return _LONGEST_PAUSE_S
        # A little later, so that the moment has passed.
        return max(0.01, min(_LONGEST_PAUSE_S, self.session.last_contact + after_s - time.monotonic() + 0.01))

    def _cache_settings(self) -> CacheSettings | None:
        config = self.config
        if not config.data_cache_bytes_max:
            return None
        # Not at the top: most agents have none.
        from windrow_agent.fetching.data_cache import CacheSettings

        return CacheSettings(config.folder / DATA_CACHE, config.data_cache_bytes_max, keep=self.workforce.closes_folder)

    def _admitted(self, response: rpc.RegisterResponse) -> None:
        self.workforce.inline_rows_bytes_max = response.inline_rows_bytes_max or self.workforce.inline_rows_bytes_max
        if self._retired_steps is not None:
            # Not earlier: deleting an earlier agent's files must not delay the start.
            self._removing = threading.Thread(target=discard_tree, args=(self._retired_steps,), daemon=True)
            self._removing.start()
            self._retired_steps = None
        self.controller.start_cache()
        if self.workforce.users is not None and self._tidying is None:
            self._tidying = asyncio.create_task(self._tidy_users(self.workforce.users))

    async def _tidy_users(self, users: JobUsers) -> None:
        """Frees the users of jobs that an earlier agent had here, once its files are gone. A job that still runs is
        offered soon, and keeps its user.
        """
        await asyncio.sleep(LEFT_USERS_S)
        if self._removing is not None:
            await asyncio.to_thread(self._removing.join)
        await asyncio.to_thread(users.tidy)

    async def _collect_environments(self) -> None:
        """Removes environments that nobody uses, and builds that broke off, now and then. Agents of one run end before
        the first time; a build looks too."""
        while True:
            await asyncio.sleep(COLLECT_EVERY_S)
            from windrow_agent.environments.cache import Cache, user_cache

            own = self.config.folder / "environments"
            for folder in (self.config.environments_folder or user_cache(os.environ), own):
                if folder is not None:
                    for digest in await asyncio.to_thread(Cache(folder).prune):
                        say(logging.INFO, "environment removed", digest=digest)

    def _make_gpu_watch(self) -> GpuWatch:
        # Not at the top: most machines have no GPU.
        from windrow_agent.node.gpu_watch import GpuWatch

        return GpuWatch(
            self.gpus,
            os.environ,
            lambda: {worker.key: worker.pid for worker in self.workforce.workers.values()},
            lambda key: mark_of(self.identity.node_incarnation, key),
            self.controller.end_beyond_share,
            self._note_gpus,
        )

    async def _until_worth_a_look(self) -> None:
        """Waits until the driver of the GPUs is to be asked: a service shows its GPUs also before it has work; for a
        run, that must not delay its start.
        """
        if not self.config.served:
            await self.controller.at_work.wait()

    def _note_gpus(self, keys: list[int]) -> None:
        """GPUs have gone or come back."""
        self.session.note_gpu_count(self.gpus.count)
        self.controller.note_gpus(keys)

    def _make_environments(self) -> Environments:
        """Makes the object that provides environments, when the first step asks for one; most steps ask for none."""
        from windrow_agent.environments.provider import Environments, folder_of

        config = self.config
        users = self.workforce.users
        environment: Mapping[str, str] = os.environ
        builders: Builders | None = None
        if config.sandbox != "off" or users is not None:
            from windrow_agent.sandbox.builders import BuilderSandbox, variables_of_builders

            if users is not None:
                environment = variables_of_builders(os.environ)
            builders = BuilderSandbox(config, environment, None if users is None else users.builder)

        def folder() -> Path:
            return folder_of(
                config.environments_folder,
                config.folder,
                environment,
                follows_links=builders is None or not builders.has_own_home,
            )

        return Environments(
            folder, config.python, environment, config.folder, builders=builders, groups=self.workforce.groups
        )

    def _link(self) -> asyncio.Future[Link]:
        """The current connection. (The session is created after the objects that use it.)"""
        return self.session.link()

    async def _download(self, digest: str, partial: Path) -> None:
        """Downloads the rest of an archive. After a break it resumes, for as long as the master may come back."""
        waits = Condition(logging.WARNING, "code is not downloaded yet", "code is downloaded", from_times=3)
        while True:
            link = await self.session.link()
            try:
                with partial.open("ab") as file:  # chunks of at most 1 MiB
                    request = artifact_service_pb2.DownloadArtifactRequest(digest=digest, offset=file.tell())
                    async with link.guard():
                        async for response in link.artifacts.DownloadArtifact(request, metadata=link.metadata):
                            file.write(response.chunk)
                waits.is_over(digest=digest)
                return
            except LinkLost as lost:
                waits.goes_on(digest=digest, why=str(lost))
            except grpc.aio.AioRpcError as error:
                failure = errors.read_failure(error)
                if failure.reason == errors.ARTIFACT_MISSING:
                    raise CodeUnavailable(
                        f"The master has no code archive {digest}. Submit the job again to upload it"
                    ) from error
                if failure.reason == errors.DIGEST_MISMATCH:
                    raise CodeUnavailable(failure.message) from error
                waits.goes_on(digest=digest, why=f"{failure.code.name}: {failure.message}")
            await asyncio.sleep(0.2)


async def _is_set_within(event: asyncio.Event, seconds: float) -> bool:
    """Waits for an event, at most `seconds`."""
    try:
        await asyncio.wait_for(event.wait(), max(0.0, seconds))
    except TimeoutError:
        return False
    return True


def _set_aside(folder: Path, *, keeps_cache: bool) -> Path | None:
    """Moves the steps and staged rows of an earlier agent out of the way, to be deleted later; also its data cache, if
    this one has none.
    """
    retired = folder / f"retired-{time.time_ns()}"
    names = ("steps", "staged") if keeps_cache else ("steps", "staged", DATA_CACHE)
    found = [folder / name for name in names if (folder / name).exists()]
    found += folder.glob("retired-*")
    if not found:
        return None
    retired.mkdir()
    for path in found:
        path.rename(retired / path.name)
    return retired
