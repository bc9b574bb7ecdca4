"""A scaler as a process, and what KEDA asks it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
from cluster_commands import ServedCluster
from embedded_run import wait_until
from windrow.rpc.keda import external_scaler_pb2 as keda
from windrow.rpc.keda import external_scaler_pb2_grpc

CALL_S = 60.0
METADATA = {"scalerAddress": "windrow-scaler.ml:6000", "slots": "2"}


class KedaCaller:
    """Asks for one ScaledJob as KEDA does: by GetMetricSpec, then by GetMetrics and IsActive."""

    def __init__(
        self,
        address: str,
        name: str = "agents",
        ca_file: Path | None = None,
        namespace: str = "ml",
        **metadata: str,
    ) -> None:
        if ca_file is None:
            self._channel = grpc.insecure_channel(address)
        else:
            self._channel = grpc.secure_channel(address, grpc.ssl_channel_credentials(ca_file.read_bytes()))
        self._stub: Any = external_scaler_pb2_grpc.ExternalScalerStub(self._channel)
        self.scaled = keda.ScaledObjectRef(name=name, namespace=namespace, scalerMetadata=METADATA | metadata)

    def spec(self) -> tuple[str, float]:
        """The name of the metric, and how much of it is for one replica."""
        (spec,) = self._stub.GetMetricSpec(self.scaled, timeout=CALL_S).metricSpecs
        assert spec.targetSize == spec.targetSizeFloat
        return spec.metricName, spec.targetSizeFloat

    def replicas(self, metric: str = "") -> int:
        """How many Jobs the ScaledJob is to have, by what KEDA makes of the answers."""
        name, each = self.spec()
        request = keda.GetMetricsRequest(scaledObjectRef=self.scaled, metricName=metric or name)
        (value,) = self._stub.GetMetrics(request, timeout=CALL_S).metricValues
        assert value.metricName == name and value.metricValue == value.metricValueFloat
        return int(value.metricValueFloat / each) if self.is_active() else 0

    def is_active(self) -> bool:
        """Whether any are wanted."""
        return bool(self._stub.IsActive(self.scaled, timeout=CALL_S).result)

    def stream(self) -> Iterator[bool]:
        """Each answer of a stream."""
        for answer in self._stub.StreamIsActive(self.scaled, timeout=CALL_S * 2):
            yield answer.result

    def refusal(self, metric: str = "") -> tuple[grpc.StatusCode, str]:
        """Why there is no answer."""
        try:
            answered = self.replicas(metric)
        except grpc.RpcError as error:
            return error.code(), error.details()
        raise AssertionError(f"the scaler answered: {answered}")

    def close(self) -> None:
        """End its streams."""
        self._channel.close()


def start_scaler(cluster: ServedCluster, *options: str) -> str:
    """Start the scaler of a cluster as `scaler`; returns the address that it serves."""
    cluster.start("scaler", "fleet", "scaler", "--listen", "127.0.0.1:0", *options)
    return wait_until(lambda: served_at(cluster.said("scaler")), "the scaler serves")


def served_at(log: str) -> str:
    """Where a scaler serves, by its log; "": it does not yet."""
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    return next((line["address"] for line in lines if line.get("event") == "scaler serves"), "")
