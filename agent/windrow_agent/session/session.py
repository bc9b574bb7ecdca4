"""The session with a master: register, keep the Work stream open, send heartbeats; start again whenever that breaks.

States::

    SEEKING ──registered──► ADMITTED ──hello written──► WORKING
       ▲                        │                          │
       └──── any failure ───────┴──────────────────────────┘   (jittered wait of at most 5 s, without end)

Invariants:

1. The first message of each stream is the hello; it lists every lease held or finished-unacknowledged.
2. Each new stream sends all unacknowledged completions again.
3. A master answers Register only after that is durable, so it owns its state; a replaced master does not answer. A
   lower incarnation than before means that the state was restored from a backup. The agent drops the steps that this
   state does not know (`RegisterResponse.foreign_step_ids`) before it sends anything else.
4. After every break the agent registers again: a restarted master, another address and an unknown node are one case.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
from google.protobuf.duration_pb2 import Duration
from windrow.common.health_file import HealthFile
from windrow.common.journal import Condition, say
from windrow.rpc import errors
from windrow.rpc.tls import tls_fault
from windrow.rpc.v1 import agent_service_pb2 as rpc
from windrow.rpc.v1 import node_pb2 as node

from windrow_agent.config import AgentConfig
from windrow_agent.control.controller import Controller
from windrow_agent.link import Link, WorkCall, socket_missing
from windrow_agent.node.identity import Identity
from windrow_agent.node.resources import UsageMeter
from windrow_agent.outgoing.queue import OutgoingQueue
from windrow_agent.session.departure import Departure
from windrow_agent.session.heartbeats import LinkStalled, beat

if TYPE_CHECKING:
    from windrow.rpc.certificates import CertificateWatch

FLUSH_S = 0.002
"""Under load, completions gather this long before the next message."""

GATHER_S = 0.25
"""They gather at most this long while the workers have enough to do."""

TLS_MISSING = ". If that master uses TLS, give its certificate authority: --ca-file FILE"

_WAIT_MAX_S = 5.0
_DISK_FULL_BYTES = 4 << 20
_SOCKET_POLL_S = 0.005
_REGISTER_TIMEOUT_S = 10.0
_MESSAGES_BYTES_DEFAULT = 1 << 20


_REFUSALS = (errors.JOIN_TOKEN_INVALID, errors.NODE_INVALID)
"""A new try does not help. But a node that was admitted before keeps trying: its master may be changing its tokens."""


class NotAdmitted(Exception):
    """The master refuses this node; the text says why."""


class SessionLost(Exception):
    """The session has to start again; the text says why."""


class Session:
    """Talks to whichever master is reachable. `last_contact`: when it was last heard, in monotonic seconds.

    Not the client's `Session`, which is a state folder of `windrow run` in use.
    """

    def __init__(
        self,
        config: AgentConfig,
        identity: Identity,
        departure: Departure,
        resources: node.NodeResources,
        controller: Controller,
        outgoing: OutgoingQueue,
        on_admitted: Callable[[rpc.RegisterResponse], None],
        on_drain: Callable[[], None],
    ) -> None:
        self.last_contact = time.monotonic()
        self.connected = False
        self.drain_heard = False
        """The master has confirmed the drain on this stream: it hands out nothing more."""
        self.lease_ttl_s = 10.0
        self.health: HealthFile | None = None
        """Shows others on this machine that a master knows this node; written with each heartbeat."""
        self._config = config
        self._identity = identity
        self._departure = departure
        self._resources = resources
        self._gpu_count: int | None = None
        """How many GPUs can be used, if that has changed since this agent began."""
        self._controller = controller
        self._outgoing = outgoing
        self._on_admitted = on_admitted
        self._on_drain = on_drain
        self._addresses = list(config.master_addresses)
        self._address = 0
        self._master_incarnation = 0
        self._message_bytes = _MESSAGES_BYTES_DEFAULT
        self._heartbeat_s = self._idle_heartbeat_s = self._next_heartbeat_s = 1.0
        self._work_came = asyncio.Event()
        """Set when a message from the master has been handled."""
        self._wake = asyncio.Event()
        self._link: asyncio.Future[Link] = asyncio.get_running_loop().create_future()
        self._usage = UsageMeter(config.folder)
        self._failures = 0
        self._begun = 0.0
        self._short_sessions = 0
        """Sessions in a row that broke soon after they began, the current one included."""
        self._told = ""
        self._unanswered = Condition(
            logging.WARNING, "heartbeats are not answered in time", "heartbeats are answered again"
        )
        self._disk_full = Condition(
            logging.ERROR,
            "the disk of this node is full: mini-batches fail here, and run on other nodes",
            "the disk of this node has free space again",
        )
        self._certificates: CertificateWatch | None = None
        outgoing.wake = self._wake.set

    def note_gpu_count(self, count: int) -> None:
        """Notes how many GPUs can be used now; the next heartbeat tells the master."""
        self._resources.gpu_count = self._gpu_count = count

    def link(self) -> asyncio.Future[Link]:
        """The current connection, admitted; waits while there is none."""
        return asyncio.shield(self._link)

    @property
    def _next_address(self) -> str:
        return self._addresses[self._address % len(self._addresses)]

    async def run(self) -> None:
        """Never returns. Raises NotAdmitted."""
        while True:
            link: Link | None = None
            try:
                link = await self._register()
                await self._serve(link)
            except SessionLost as lost:
                self._say_lost(str(lost))
            except grpc.aio.AioRpcError as error:
                failure = errors.read_failure(error)
                is_final = failure.reason in _REFUSALS and not self._master_incarnation
                if is_final or failure.reason == errors.ALLOCATION_ENDED:
                    raise NotAdmitted(failure.message) from error
                reason = f" ({failure.reason})" if failure.reason else ""
                fault = tls_fault(failure.message, self._next_address)
                hint = "" if self._config.tls_ca_file or "Socket closed" not in failure.message else TLS_MISSING
                self._say_lost(fault or f"{failure.code.name}{reason}: {failure.message}{hint}")
            except OSError as error:
                self._say_lost(str(error))
            finally:
                self.connected = False
                self._tell_health()
                if self._link.done():
                    self._link = asyncio.get_running_loop().create_future()
                if link is not None:
                    await link.close()
            await self._pause()

    # Register.

    async def _register(self) -> Link:
        address = self._next_address
        if socket_missing(address):
            raise SessionLost(f"the socket {address} does not exist")
        if not self._config.may_use(address):
            raise SessionLost(f"the master names its address {address}, which only --ca-file or --insecure may use")
        link = Link(address, self._config.tls_ca_file)
        try:
            admits = link.key or self._config.join_token
            token = (("authorization", f"Bearer {admits}"),) if admits else ()
            # Agents of runs on this machine are known by the key beside their socket, and make no secret.
            proof = (*token, ("windrow-secret", self._identity.secret)) if self._config.served else token
            response = await link.agent.Register(self._registration(), metadata=proof, timeout=_REGISTER_TIMEOUT_S)
        except BaseException:
            await link.close()
            raise
        if response.master_incarnation < self._master_incarnation:
            say(
                logging.WARNING,
                "the master's state is older than before: it was restored from a backup, or this is another master",
                address=address,
                master_incarnation=response.master_incarnation,
                seen=self._master_incarnation,
            )
            self._controller.status.repeat_failures()
        self._controller.forget(response.foreign_step_ids)
        link.credential = response.node_credential
        link.takes_rows_files = response.takes_rows_files
        self._master_incarnation = response.master_incarnation
        if response.message_bytes_max:
            self._message_bytes = response.message_bytes_max
        interval = response.heartbeat_interval.seconds + response.heartbeat_interval.nanos / 1e9
        self._heartbeat_s = min(1.0, interval) if interval > 0 else 1.0
        idle = response.idle_heartbeat_interval.seconds + response.idle_heartbeat_interval.nanos / 1e9
        self._idle_heartbeat_s = max(self._heartbeat_s, idle)
        ttl = response.lease_ttl.seconds + response.lease_ttl.nanos / 1e9
        self.lease_ttl_s = ttl if ttl > 0 else self.lease_ttl_s
        # The address in use stays first; configured addresses are kept even if the master does not name them.
        known = dict.fromkeys([address, *response.master_addresses, *self._config.master_addresses])
        self._addresses, self._address = list(known), 0
        self.last_contact = self._begun = time.monotonic()
        self._short_sessions += 1
        say(logging.INFO, "registered", address=address, master_incarnation=response.master_incarnation)
        self._on_admitted(response)
        return link

    def _registration(self) -> rpc.RegisterRequest:
        return rpc.RegisterRequest(
            node_id=self._config.node_id,
            node_incarnation=self._identity.node_incarnation,
            replaced_incarnation=self._identity.replaced_incarnation,
            resources=self._resources,
            labels=self._config.labels,
            windrow_version=_version(),
            held_steps=self._controller.held_steps(),
            lifetime=self._lifetime(),
            allocation=self._config.allocation,
        )

    def _lifetime(self) -> Duration | None:
        left_s = self._departure.left_s(time.monotonic())
        if left_s is None:
            return None
        lifetime = Duration()
        lifetime.FromMilliseconds(int(left_s * 1000))
        return lifetime

    # Work.

    async def _serve(self, link: Link) -> None:
        call = link.open_work()
        self.drain_heard = False
        self._outgoing.begin_stream()
        hello = self._controller.status.hello(self._config.node_id, self._identity.node_incarnation)
        tasks = [
            asyncio.create_task(self._write(link, call, hello)),
            asyncio.create_task(self._read(call)),
            asyncio.create_task(self._heartbeats(link)),
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                await task
        finally:
            self._controller.lose_master()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            call.cancel()

    async def _write(self, link: Link, call: WorkCall, hello: rpc.WorkHello) -> None:
        try:
            await call.write(rpc.WorkRequest(hello=hello).SerializeToString())
            self.connected = True
            self._tell_health()
            self._link.set_result(link)
            self._controller.status.send_capacities()
            wake = self._wake
            outgoing = self._outgoing
            while True:
                wake.clear()
                sent = 0
                while not outgoing.empty:
                    message = outgoing.take(self._message_bytes)
                    if message:
                        await call.write(message)
                        sent += len(message)
                gathering_ends = time.monotonic() + GATHER_S
                if sent > 512:
                    # Under load, let completions gather. A single one is sent at once.
                    await asyncio.sleep(FLUSH_S)
                await wake.wait()
                await self._gather(gathering_ends)
        except asyncio.InvalidStateError as error:
            # The call has ended; the reader task reports why.
            await asyncio.sleep(1.0)
            raise SessionLost("the Work stream has ended") from error

    async def _gather(self, deadline: float) -> None:
        """Lets completions gather while the workers have enough to do.

        A message with one completion costs the master and its disk as much as one with many. Nobody waits for it: the
        workers have work, and the last completions of a job are sent at once, since nothing is left to do then.
        """
        wake = self._wake
        while self._outgoing.completions_only and self._controller.status.has_plenty:
            left = deadline - time.monotonic()
            if left <= 0:
                return
            wake.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(wake.wait(), left)

    async def _read(self, call: WorkCall) -> None:
        while True:
            response = await call.read()
            if Link.ended(response):
                break
            assert isinstance(response, rpc.WorkResponse)
            self._heard()
            try:
                self._controller.take(response)
                self._work_came.set()
            except Exception:
                # No message may end the agent. A new stream brings both sides to the same view of what is held.
                logging.getLogger("windrow.agent").exception("a message from the master could not be carried out")
                raise SessionLost("a message from the master could not be carried out; see the log") from None
            if response.drain:
                self.drain_heard = True
                self._on_drain()
        code = await call.code()
        if code is grpc.StatusCode.OK:
            raise SessionLost("the master has ended the Work stream")
        raise SessionLost(f"the Work stream broke: {code.name}: {await call.details()}")

    def _tell_health(self) -> None:
        if self.health is not None:
            self.health.tell(serving=self.connected)

    def _heard(self) -> None:
        """Notes that the master was heard: its failures are over, except for sessions that broke soon after they began.
        If every new session breaks at its first message, the pauses between them must grow.
        """
        self.last_contact = time.monotonic()
        if self.last_contact - self._begun > _WAIT_MAX_S:
            self._short_sessions = 1
        self._failures = self._short_sessions - 1

    # Heartbeats.

    async def _heartbeats(self, link: Link) -> None:
        # Register was the first sign of life; psutil is imported after the first workers have started.
        self._next_heartbeat_s = self._heartbeat_s
        while True:
            await self._until_heartbeat()
            ledger = self._controller.ledger
            self._next_heartbeat_s = self._idle_heartbeat_s if self._controller.idle else self._heartbeat_s
            request = rpc.HeartbeatRequest(
                node_id=self._config.node_id,
                node_incarnation=self._identity.node_incarnation,
                usage=self._usage.measure(),
                workers=self._controller.status.worker_statuses(),
                lease_count=ledger.count,
                lease_digest=ledger.digest,
                protection=self._controller.protection,
                gpu_count=self._gpu_count,
            )
            if (watch := self._controller.gpu_watch) is not None:
                request.usage.gpus.extend(watch.statuses())
            request.usage.gpu_trouble = self._controller.gpu_trouble
            if (cache := self._controller.data_cache) is not None:
                request.usage.data_cache.CopyFrom(cache.status())
            self._tell_trouble(request.usage.disk_free_bytes)
            if self._certificates is not None and self._certificates.good_until is not None:
                request.ca_good_until.FromSeconds(int(self._certificates.good_until))
            request.next_heartbeat.FromMilliseconds(int(self._next_heartbeat_s * 1000))
            try:
                response = await beat(
                    link, request, lambda: Link(link.address, self._config.tls_ca_file, link.credential)
                )
            except LinkStalled as stalled:
                raise SessionLost("the connection has stalled, and a new one works") from stalled
            except grpc.aio.AioRpcError as error:
                failure = errors.read_failure(error)
                if failure.reason in (errors.NODE_UNKNOWN, errors.CREDENTIAL_INVALID):
                    raise SessionLost(f"the master no longer knows this node ({failure.reason})") from error
                silent_s = time.monotonic() - self.last_contact
                if silent_s > self.silence_max_s:
                    raise SessionLost(f"the master has been silent for {silent_s:.1f} s") from error
                self._unanswered.goes_on(why=f"{failure.code.name}: {failure.message}")
                continue
            self._unanswered.is_over()
            self._heard()
            self._tell_health()
            if response.master_incarnation < self._master_incarnation:
                raise SessionLost("the master has been replaced by a later one")
            if response.awaited:
                self._departure.stay(time.monotonic())
            if response.reopen_work:
                raise SessionLost("the master and this node disagree about the leases held; both list them again")

    def _tell_trouble(self, disk_free_bytes: int) -> None:
        """Logs what the owner of this node has to know."""
        if disk_free_bytes < _DISK_FULL_BYTES:
            self._disk_full.goes_on(folder=str(self._config.folder), free_bytes=disk_free_bytes)
        elif disk_free_bytes > 2 * _DISK_FULL_BYTES:
            self._disk_full.is_over(folder=str(self._config.folder), free_bytes=disk_free_bytes)
        ca_file = self._config.tls_ca_file
        if ca_file is not None:
            if self._certificates is None:
                from windrow.rpc.certificates import NEW_AUTHORITY, CertificateWatch

                what = "the authority by which this node knows the master"
                self._certificates = CertificateWatch(what, NEW_AUTHORITY, ca_file.read_bytes)
            self._certificates.look()

    async def _until_heartbeat(self) -> None:
        """Waits until the next heartbeat is due; a long pause ends when work arrives."""
        if self._next_heartbeat_s <= self._heartbeat_s:
            await asyncio.sleep(self._heartbeat_s)
            return
        self._work_came.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._work_came.wait(), self._next_heartbeat_s)

    @property
    def silence_max_s(self) -> float:
        """If the master is silent for longer, the leases have ended."""
        return self.lease_ttl_s + self._next_heartbeat_s - self._heartbeat_s

    # Between sessions.

    def _say_lost(self, why: str) -> None:
        self._failures += 1
        self._address += 1
        # The same trouble is a warning only once. A cold start waits for its master without a warning.
        level = logging.WARNING if why != self._told and self._failures > 2 else logging.INFO
        if level == logging.WARNING:
            self._told = why
        say(level, f"no session with a master: {why}. Trying again", failures=self._failures)

    async def _pause(self) -> None:
        longest = min(_WAIT_MAX_S, 0.02 * 2 ** min(self._failures, 9))
        deadline = time.monotonic() + longest * random.uniform(0.5, 1.0)
        address = self._next_address
        if socket_missing(address):
            # A master on this machine is starting: continue as soon as its socket appears.
            while time.monotonic() < deadline and socket_missing(address):  # noqa: ASYNC110  # nothing announces a file
                await asyncio.sleep(_SOCKET_POLL_S)
        else:
            await asyncio.sleep(max(0.0, deadline - time.monotonic()))


def _version() -> str:
    """Version of the installed distribution, from the name of its metadata folder: importlib.metadata would cost 10
    ms.
    """
    for folder in map(Path, sys.path):
        for found in folder.glob("windrow-*.dist-info"):
            return found.name.removeprefix("windrow-").removesuffix(".dist-info")
    return "0"
