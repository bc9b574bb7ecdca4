"""The external scaler that KEDA asks how many agents a ScaledJob is to have. It asks the master, and keeps nothing.

An answer that it has not got is an error and never "none": then KEDA starts nothing, and says that the trigger fails.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import grpc

from windrow.common.journal import Condition, Repeated, say
from windrow.errors import MasterUnreachable, RequestRefused, UsageError, WindrowError
from windrow.fleet import scaled_job
from windrow.fleet.scaled_job import BadTrigger, Wanted
from windrow.rpc.address import stays_here
from windrow.rpc.connection import Connection
from windrow.rpc.keda import external_scaler_pb2 as keda
from windrow.rpc.keda import external_scaler_pb2_grpc
from windrow.rpc.server_tls import server_credentials
from windrow.rpc.v1 import fleet_service_pb2 as pb
from windrow.rpc.v1 import fleet_service_pb2_grpc, job_service_pb2, job_service_pb2_grpc, node_pb2

METRIC = "agents"
LOOK_S = 1.0
"""What the master has said so lately is not asked again."""
STREAM_S = 2.0
"""Streams look so often whether agents are wanted."""
CALL_TIMEOUT_S = 10.0
STREAMS_MAX = 100
CALLS_AT_ONCE = 16
MESSAGE_BYTES_MAX = 256 << 10
LINES_MAX = 30
"""So many lines a minute are logged of what callers have sent."""
STOP_S = 2.0
_OPTIONS = [
    # Two scalers at one address would take turns.
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
]


class _Look(NamedTuple):
    """What the master has said."""

    answer: pb.SyncFleetResponse
    nodes: tuple[node_pb2.Node, ...]


class _Master:
    """The master, asked by one thread at a time and not more often than it is of use."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._fleets: Any = fleet_service_pb2_grpc.FleetServiceStub(connection.channel)
        self._jobs: Any = job_service_pb2_grpc.JobServiceStub(connection.channel)
        self._lock = threading.Lock()
        self._looked_s = -LOOK_S
        self._last: _Look | WindrowError | None = None
        self._away = Condition(
            logging.WARNING, "the master does not say what is wanted; KEDA gets errors", "the master answers again"
        )

    def look(self) -> _Look:
        """What is wanted, and which nodes there are. Raises WindrowError, also one that has just been raised."""
        with self._lock:
            if self._last is None or time.monotonic() - self._looked_s >= LOOK_S:
                try:
                    self._last = self._ask()
                    self._away.is_over()
                except WindrowError as error:
                    self._last = error
                    self._away.goes_on(why=str(error))
                self._looked_s = time.monotonic()
            last = self._last
        if isinstance(last, WindrowError):
            raise last
        return last

    def _ask(self) -> _Look:
        # Of no fleet: then all agents that serve are told of.
        request = pb.SyncFleetRequest(look_only=True)
        answer = self._connection.call(self._fleets.SyncFleet, request, timeout_s=CALL_TIMEOUT_S)
        pages = self._connection.pages(self._jobs.ListNodes, job_service_pb2.ListNodesRequest(page_size=1000))
        return _Look(answer, tuple(node for page in pages for node in page.nodes))


class ExternalScaler(external_scaler_pb2_grpc.ExternalScalerServicer):
    """Answers KEDA."""

    def __init__(self, master: _Master, stopped: threading.Event) -> None:
        self._master = master
        self._stopped = stopped
        self._streams = threading.BoundedSemaphore(STREAMS_MAX)
        self._logging = threading.Lock()
        self._refused, self._unmet = Repeated(in_all=LINES_MAX), Repeated(in_all=LINES_MAX)

    def IsActive(self, request: keda.ScaledObjectRef, context: grpc.ServicerContext) -> keda.IsActiveResponse:
        """Whether agents are wanted."""
        return keda.IsActiveResponse(result=self._wanted(request, context).agents > 0)

    def StreamIsActive(
        self, request: keda.ScaledObjectRef, context: grpc.ServicerContext
    ) -> Iterator[keda.IsActiveResponse]:
        """Whether agents are wanted, and each change of that."""
        if not self._streams.acquire(blocking=False):
            context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"{STREAMS_MAX} streams are open, and this scaler serves no more. Use the trigger external instead of "
                "external-push.",
            )
        try:
            ended = threading.Event()
            if not context.add_callback(ended.set):
                return
            before = None
            while not (ended.is_set() or self._stopped.is_set()):
                now = self._wanted(request, context).agents > 0
                if now != before:
                    yield keda.IsActiveResponse(result=now)
                    before = now
                ended.wait(STREAM_S)
        finally:
            self._streams.release()

    def GetMetricSpec(self, request: keda.ScaledObjectRef, context: grpc.ServicerContext) -> keda.GetMetricSpecResponse:
        """One metric, and one agent for each of it."""
        self._read(request, context)
        return keda.GetMetricSpecResponse(
            metricSpecs=[keda.MetricSpec(metricName=METRIC, targetSize=1, targetSizeFloat=1.0)]
        )

    def GetMetrics(self, request: keda.GetMetricsRequest, context: grpc.ServicerContext) -> keda.GetMetricsResponse:
        """How many agents are wanted."""
        if request.metricName != METRIC:
            context.abort(
                grpc.StatusCode.INVALID_ARGUMENT,
                f'Windrow\'s scaler has no metric "{request.metricName[:64]}". Its one metric is "{METRIC}".',
            )
        agents = self._wanted(request.scaledObjectRef, context).agents
        return keda.GetMetricsResponse(
            metricValues=[keda.MetricValue(metricName=METRIC, metricValue=agents, metricValueFloat=float(agents))]
        )

    def _wanted(self, scaled: keda.ScaledObjectRef, context: grpc.ServicerContext) -> Wanted:
        """Ends the call where there is no answer."""
        job = self._read(scaled, context)
        try:
            look = self._master.look()
        except MasterUnreachable as error:
            self._abort(context, grpc.StatusCode.UNAVAILABLE, str(error))
        except RequestRefused as error:
            self._abort(context, grpc.StatusCode.FAILED_PRECONDITION, str(error))
        except WindrowError as error:
            self._abort(context, grpc.StatusCode.UNAVAILABLE, str(error))
        found = scaled_job.wanted(job, look.answer, look.nodes)
        for reason in found.reasons:
            with self._logging:
                self._unmet.say(
                    (job.label, reason), logging.INFO, "agents would not serve", scaled_job=job.label, reason=reason
                )
        return found

    def _read(self, scaled: keda.ScaledObjectRef, context: grpc.ServicerContext) -> scaled_job.ScaledJob:
        try:
            return scaled_job.read(scaled.namespace, scaled.name, scaled.scalerMetadata)
        except BadTrigger as error:
            with self._logging:
                self._refused.say(str(error), logging.WARNING, "KEDA was refused", reason=str(error))
            self._abort(context, grpc.StatusCode.INVALID_ARGUMENT, str(error))

    def _abort(self, context: grpc.ServicerContext, code: grpc.StatusCode, why: str) -> NoReturn:
        context.abort(code, why)
        raise AssertionError("a call that was aborted goes on")


def check_guards(listen: str, tls_file: Path | None, *, insecure: bool) -> None:
    """Raises UsageError: the address is none, or other machines could reach it, and nobody has said that they may."""
    host, colon, port = listen.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise UsageError(f'"{listen}" is not an address to listen at. Write HOST:PORT, such as 0.0.0.0:6000.')
    if tls_file is None and not insecure and not stays_here(listen):
        raise UsageError(
            f"--listen {listen}: other machines can reach this address, and --tls-file is missing. Anyone on the way "
            "could tell KEDA to start agents. Make a certificate with `windrow setup`, or listen on this machine only "
            "(127.0.0.1). In a network where everybody is trusted, add --insecure."
        )


class ScalerProgram:
    """The program that serves KEDA."""

    def __init__(self, connection: Connection, listen: str, tls_file: Path | None) -> None:
        """Raises OSError if the address or the TLS file cannot be used."""
        self._stopped = threading.Event()
        self._pool = ThreadPoolExecutor(STREAMS_MAX + CALLS_AT_ONCE, thread_name_prefix="scaler")
        self._server = grpc.server(self._pool, options=_OPTIONS)
        self._master = _Master(connection)
        external_scaler_pb2_grpc.add_ExternalScalerServicer_to_server(
            ExternalScaler(self._master, self._stopped), self._server
        )
        credentials = None if tls_file is None else server_credentials(tls_file)
        try:
            if credentials is None:
                port = self._server.add_insecure_port(listen)
            else:
                port = self._server.add_secure_port(listen, credentials)
        except RuntimeError as error:
            raise OSError(
                f"The address {listen} cannot be used: another process may be listening there, or this one may lack "
                "permission. Choose another with --listen."
            ) from error
        self._address = f"{listen.rpartition(':')[0]}:{port}"

    def stop(self) -> None:
        """End soon."""
        self._stopped.set()

    def run(self) -> int:
        """Serve until `stop`. Returns the exit code. Raises WindrowError if the master refuses the scaler at first."""
        try:
            self._master.look()
        except MasterUnreachable:
            pass  # it is logged; KEDA hears the same until the master is there
        except WindrowError:
            self._pool.shutdown()
            raise
        self._server.start()
        say(logging.INFO, "scaler serves", address=self._address)
        self._stopped.wait()
        self._server.stop(STOP_S).wait()
        self._pool.shutdown()
        say(logging.INFO, "scaler ends; agents stay as they are")
        return 0
