"""The master process: puts all parts together, starts them, and ends them in order."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from functools import cache
from typing import TYPE_CHECKING, Any

import grpc
from windrow.common import garbage_collector
from windrow.common.health_file import TOLD_EVERY_S, HealthFile
from windrow.common.journal import say
from windrow.rpc import session_key
from windrow.rpc.server_tls import server_credentials
from windrow.rpc.v1 import (
    artifact_service_pb2_grpc,
    asset_service_pb2_grpc,
    job_service_pb2_grpc,
)

from windrow_master.assets import Assets
from windrow_master.config import MasterConfig
from windrow_master.files.artifacts import ArtifactFolder
from windrow_master.files.errors import StateDamaged
from windrow_master.jobs import Jobs
from windrow_master.kept_folders import MODELS, PARTITIONS, UPLOADS, KeptFolders
from windrow_master.output_places import OutputPlaces
from windrow_master.roots import Roots
from windrow_master.rpc.artifact_service import ArtifactService
from windrow_master.rpc.asset_service import AssetService
from windrow_master.rpc.damaged_state import DamagedStateHandler, DamageInterceptor
from windrow_master.rpc.job_service import JobService
from windrow_master.rpc.node_views import NodeViews
from windrow_master.rpc.session_guard import SessionGuard
from windrow_master.rpc.usage_call import UsageCall
from windrow_master.run_values import RunValues
from windrow_master.shell.reporting import Reporter
from windrow_master.shell.standby import Standby
from windrow_master.state_folder.opening import StateFolder
from windrow_master.store.errors import DatabaseDamaged
from windrow_master.uploaded_data import UploadedData
from windrow_master.watchers import Watchers

if TYPE_CHECKING:
    from windrow.rpc.certificates import CertificateWatch

    from windrow_master.retention.keeper import Keeper
    from windrow_master.rpc.agent_service import AgentService
    from windrow_master.shell.engine import Engine
    from windrow_master.store.protocol import Store

MESSAGE_BYTES_HARD_MAX = 64 << 20
STOP_GRACE_S = 2.0
EXIT_DAMAGED = 3
"""The state is damaged: a restart does not help. windrow.embedded.supervisor knows it."""
EVERYWHERE = ("", "0.0.0.0", "[::]")
"""Hosts to listen on that are not hosts to connect to."""

SERVER_OPTIONS = [
    ("grpc.max_receive_message_length", MESSAGE_BYTES_HARD_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_HARD_MAX),
    # Both ends must agree on pings, else the connection is closed with "too_many_pings".
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
    # Where scripts leave no processor free, pings that were sent in time arrive in one heap. A few are no attack.
    ("grpc.http2.max_ping_strikes", 20),
    ("grpc.so_reuseport", 0),
]


class MasterService:
    """One master over one state folder."""

    def __init__(self, config: MasterConfig) -> None:
        self._config = config
        self._stop = asyncio.Event()
        self._fatal: BaseException | None = None
        self._bound = ""
        """The address that was bound, with the port that the system chose."""

    async def run(self) -> int:
        """Serve until asked to stop; return the exit code."""
        try:
            folder = StateFolder.open(self._config.state)
            try:
                exit_code = await self._serve(folder)
            finally:
                folder.close()
            if isinstance(self._fatal, StateDamaged):
                raise self._fatal
        except StateDamaged as damage:
            if damage is not self._fatal:
                self._tell_damage(damage)
            if not self._config.embedded:
                await self._stand_still(damage)
            exit_code = EXIT_DAMAGED
        say(logging.INFO, "master ended", exit_code=exit_code)
        return exit_code

    async def _serve(self, folder: StateFolder) -> int:
        config, files, store = self._config, folder.files, folder.store
        planners = None
        if config.embedded and config.takes_agents:
            # Whoever has started this master waits to submit.
            from windrow_master.shell.planner_processes import PlannerProcesses

            planners = PlannerProcesses()
            await planners.have_one_at_hand()
        # Before the state is read: files that cannot be used end the start.
        config.join_token(), config.client_token()
        loop = asyncio.get_running_loop()

        def die_soon(damage: DatabaseDamaged) -> None:
            loop.call_soon_threadsafe(self._die, damage)

        store.on_damage(die_soon)
        snapshot = store.load()
        places, default = config.places, config.datastores.get("default")
        datastores = Roots(places.places.values())
        # What the steps of a job read may also be an output of another one.
        readable = None if config.embedded else Roots([*places.places.values(), config.outputs])
        jobs, watchers = Jobs(store.reader()), Watchers()
        artifacts = ArtifactFolder(files.artifacts)
        assets = Assets(store.reader(), store.record_asset, places, readable, artifacts, config.limits)
        shared = [] if default is None else [default / UPLOADS, default / PARTITIONS]
        kept = KeptFolders([(default or config.outputs) / MODELS, *shared])
        outputs = OutputPlaces(config.outputs, places.places.values(), readable, kept)
        reporter = Reporter(store.reader(), store.incarnation, files, embedded=config.embedded)
        data = UploadedData(artifacts, default, files.uploads)

        @cache
        def engine() -> Engine:
            from windrow_master.shell.engine import Engine

            return Engine(
                config,
                folder,
                snapshot,
                jobs=jobs,
                artifacts=artifacts,
                assets=assets,
                data=data,
                outputs=outputs,
                kept=kept,
                readable=readable,
                watchers=watchers,
                reporter=reporter,
                planners=planners,
                on_fatal=self._die,
            )

        standby = Standby(lambda: engine().start())
        left = any(True for _ in files.removed_found())
        # A master that only answers questions makes the engine when a client changes something.
        wanted = config.takes_agents or left or bool(snapshot.jobs or snapshot.nodes)
        if wanted:
            engine()
        if left:
            from windrow_master.shell.keeping import resume_removals

            resume_removals(store, files, engine().sorted_rows)

        @cache
        def keeper() -> Keeper:
            # Short runs delete nothing.
            from windrow_master.shell.keeping import make_keeper

            standby.changes()
            made = engine()
            return make_keeper(config, store, files, artifacts, made.sorted_rows, made.writer, reporter, made.retries)

        def is_code_for(node_id: str, digest: str) -> bool:
            return standby.state is not None and engine().open_jobs.is_code_for(node_id, digest)

        uploads = ArtifactService(artifacts, data, datastores, is_code_for, config.limits)
        certificates = self._certificates()
        named: list[str] = []
        run_values = RunValues(store.reader())
        nodes = NodeViews(standby)
        guards: list[grpc.aio.ServerInterceptor[Any, Any]] = [DamageInterceptor()]
        agents = _agents(config, store, engine(), assets, run_values, nodes, named) if config.takes_agents else None
        identity = None
        if not config.embedded and agents is not None:
            from windrow_master.rpc.identity import Identity

            identity = await Identity.open(config, store, agents.node_of)
            guards = [*identity.guards, *guards, identity.recorder]
            agents.admission = identity.tokens.admit
        elif key := session_key.make(config.listen):
            guards = [SessionGuard(key), *guards]
        server = grpc.aio.server(options=SERVER_OPTIONS, interceptors=guards)
        address = self._bind(server)
        # A host that means "here" on every machine would lead agents astray: they keep to the address they know.
        if address.rpartition(":")[0] not in EVERYWHERE:
            named.append(address)
        if agents is not None:
            from windrow.rpc.v1 import agent_service_pb2_grpc

            agent_service_pb2_grpc.add_AgentServiceServicer_to_server(agents, server)
        artifact_service_pb2_grpc.add_ArtifactServiceServicer_to_server(uploads, server)
        asset_service_pb2_grpc.add_AssetServiceServicer_to_server(AssetService(assets), server)
        job_service_pb2_grpc.add_JobServiceServicer_to_server(
            JobService(
                standby,
                jobs,
                watchers,
                nodes,
                files,
                outputs,
                incarnation=store.incarnation,
                embedded=config.embedded,
                datastores=places.places,
                run_values=run_values,
                keeper=keeper,
                reporter=reporter,
                certificates=certificates,
            ),
            server,
        )
        if identity is not None:
            identity.add_to(server)
            from windrow.rpc.v1.fleet_service_pb2_grpc import add_FleetServiceServicer_to_server
            from windrow.rpc.v1.queue_service_pb2_grpc import add_QueueServiceServicer_to_server

            from windrow_master.rpc.fleet_service import FleetService
            from windrow_master.rpc.queue_service import QueueService

            add_FleetServiceServicer_to_server(FleetService(standby, identity.note_taken), server)
            add_QueueServiceServicer_to_server(QueueService(standby, store.reader()), server)
        else:
            server.add_generic_rpc_handlers((UsageCall(standby, store),))
        self._add_standard_services(server, standby)
        if wanted:
            standby.changes()
        health = None if config.embedded else HealthFile(files.folder)
        # What was imported and loaded stays: a collection that walks it each time holds up every answer.
        garbage_collector.resume()
        await server.start()
        uploads.start()
        if not config.embedded:
            engine().carrier.clear_up(store.reader())
        say(logging.INFO, "master serves", address=address, incarnation=store.incarnation, pid=os.getpid())
        print(json.dumps({"ready": True, "address": address, "incarnation": store.incarnation}), flush=True)
        if identity is not None:
            identity.start()
        telling = asyncio.create_task(_tell_health(health, standby, certificates)) if health is not None else None
        self._handle_signals()
        reporter.start(standby.unfinished)
        keeping = None if config.embedded else _start_keeping(keeper(), config)
        if left:
            keeper().clear_beside()
        await self._stop.wait()
        say(logging.INFO, "master stops")
        if telling is not None and health is not None:
            telling.cancel()
            health.remove()
        if keeping is not None:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
        if keeper.cache_info().currsize:
            await keeper().close()
        await server.stop(STOP_GRACE_S)
        if identity is not None:
            await identity.close()
        await uploads.close()
        if planners is not None:
            await planners.close()
        made = engine() if engine.cache_info().currsize else None
        if made is not None:
            await made.end_work()
        await reporter.close()
        if made is not None:
            await made.close(drains=self._fatal is None)
        return 1 if self._fatal else 0

    def _bind(self, server: grpc.aio.Server) -> str:
        """Bind the listening address. Raises OSError if the address is in use, or the TLS file cannot be used."""
        listen = self._bound or self._config.listen
        try:
            if self._config.tls_file is not None:
                port = server.add_secure_port(listen, server_credentials(self._config.tls_file))
            else:
                port = server.add_insecure_port(listen)
        except RuntimeError as error:
            raise OSError(
                f"The address {listen} cannot be used: another process may be listening there, or this one may "
                "lack permission. Choose another with --listen."
            ) from error
        if listen.startswith("unix:"):
            return listen
        host = listen.rpartition(":")[0]
        self._bound = f"{host}:{port}"
        return self._bound

    def _add_standard_services(self, server: grpc.aio.Server, standby: Standby) -> None:
        """Add health and reflection, unless only our own processes can ask for them."""
        if self._config.embedded:
            return
        from grpc_health.v1 import health_pb2, health_pb2_grpc
        from grpc_reflection.v1alpha import reflection
        from windrow.rpc.health import Health
        from windrow.rpc.v1 import (
            agent_service_pb2,
            artifact_service_pb2,
            asset_service_pb2,
            fleet_service_pb2,
            job_service_pb2,
            queue_service_pb2,
            token_service_pb2,
        )

        names = [
            module.DESCRIPTOR.services_by_name[name].full_name
            for module, name in (
                (job_service_pb2, "JobService"),
                (artifact_service_pb2, "ArtifactService"),
                (asset_service_pb2, "AssetService"),
                (agent_service_pb2, "AgentService"),
                (queue_service_pb2, "QueueService"),
                (fleet_service_pb2, "FleetService"),
                (token_service_pb2, "TokenService"),
            )
        ]
        # A master whose disk is full answers questions, and takes nothing.
        health_pb2_grpc.add_HealthServicer_to_server(Health(names, lambda: not standby.refusal), server)
        health_name = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
        reflection.enable_server_reflection([*names, health_name, reflection.SERVICE_NAME], server)

    def _certificates(self) -> CertificateWatch | None:
        tls_file = self._config.tls_file
        if tls_file is None:
            return None
        from windrow.rpc.certificates import RENEW, CertificateWatch

        return CertificateWatch("the certificate of this master", RENEW, tls_file.read_bytes)

    def _handle_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)

    async def _stand_still(self, damage: StateDamaged) -> None:
        """Answer every call with the reason of the damage, until asked to end: see `rpc.damaged_state`."""
        from grpc_health.v1 import health_pb2_grpc
        from windrow.rpc.health import Health

        from windrow_master.rpc.identity import Identity

        config = self._config
        self._stop = asyncio.Event()
        identity = await Identity.open(config, None, lambda credential: "")
        server = grpc.aio.server(options=SERVER_OPTIONS, interceptors=identity.guards)
        address = self._bind(server)
        health_pb2_grpc.add_HealthServicer_to_server(Health([], lambda: False), server)
        server.add_generic_rpc_handlers((DamagedStateHandler(damage),))
        self._handle_signals()
        await server.start()
        health = HealthFile(config.state)
        health.tell(serving=False)
        say(logging.ERROR, "the master serves nothing, and answers every call with the reason", address=address)
        print(json.dumps({"ready": False, "address": address, "damage": str(damage)}), flush=True)
        await self._stop.wait()
        health.remove()
        await server.stop(STOP_GRACE_S)

    def _tell_damage(self, damage: StateDamaged) -> None:
        say(logging.ERROR, "the state is damaged", where=damage.where, what=damage.what, message=str(damage))
        print(f"windrow master: {damage}", file=sys.stderr, flush=True)

    def _die(self, error: BaseException) -> None:
        """End at once, because nothing may be acknowledged from now on. The next incarnation finds out what is on the
        disk.
        """
        if self._fatal is not None:
            return
        self._fatal = error
        self._stop.set()
        if isinstance(error, StateDamaged):
            self._tell_damage(error)
            return
        say(logging.ERROR, "the state can no longer be used; the master ends, start it again", error=repr(error))
        print(
            f"windrow master: the state in {self._config.state} can no longer be used: {error}. The master "
            "ends. The next start continues from what is on the disk; unacknowledged work runs again.",
            file=sys.stderr,
            flush=True,
        )


def _agents(
    config: MasterConfig,
    store: Store,
    engine: Engine,
    assets: Assets,
    run_values: RunValues,
    nodes: NodeViews,
    named: list[str],
) -> AgentService:
    """The service of the agents. `named`: the addresses of this master, which are told to them."""
    from windrow_master.reports.worker_logs import WorkerLogs
    from windrow_master.rpc.agent_service import AgentService
    from windrow_master.script_files import ScriptFiles

    default = config.datastores.get("default")
    return AgentService(
        engine.writer,
        engine.carrier,
        WorkerLogs(engine.carrier.logs_of, config.job_logs_max),
        ScriptFiles(default or config.outputs, assets, config.places, config.limits),
        run_values,
        nodes,
        named,
        embedded=config.embedded,
        attempts_with=store.reader().attempts_with,
        limits=config.limits,
    )


def _start_keeping(keeper: Keeper, config: MasterConfig) -> asyncio.Task[None]:
    from windrow_master.retention.choosing import Rule

    return asyncio.create_task(keeper.keep(Rule(*config.retained)))


async def _tell_health(health: HealthFile, standby: Standby, certificates: CertificateWatch | None) -> None:
    """Report the health from the event loop: a loop that hangs reports nothing."""
    while True:
        # A master whose disk is full answers questions, and takes nothing.
        health.tell(serving=not standby.refusal)
        if certificates is not None:
            certificates.look()
        await asyncio.sleep(TOLD_EVERY_S)
