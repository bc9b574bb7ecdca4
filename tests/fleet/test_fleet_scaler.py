"""A scaler that KEDA asks, as a process, and a master that serves. The caller is a gRPC client with KEDA's protocol."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import grpc
import pytest
from embedded_run import wait_until
from fleet_of_processes import FleetOfProcesses
from keda_caller import KedaCaller, served_at, start_scaler
from served_tls import SecureMaster, windrow_of
from windrow.fleet.scaler import STREAMS_MAX
from windrow.rpc.keda import external_scaler_pb2 as keda
from windrow_command import WINDROW

THREE_NODES = (
    *("--set", "jobs.score.resources.instance_count=3", "--set", "jobs.score.resources.min_nodes=3"),
    *("--set", "jobs.score.environment_variables.PAUSE=0.01"),
)
OWN = ("--label", "scaled-job=ml/agents")


def test_the_names_and_numbers_on_the_wire_are_kedas() -> None:
    service = keda.DESCRIPTOR.services_by_name["ExternalScaler"]
    assert service.full_name == "externalscaler.ExternalScaler"
    calls = {one.name: (one.input_type.name, one.output_type.name, one.server_streaming) for one in service.methods}
    assert calls == {
        "IsActive": ("ScaledObjectRef", "IsActiveResponse", False),
        "StreamIsActive": ("ScaledObjectRef", "IsActiveResponse", True),
        "GetMetricSpec": ("ScaledObjectRef", "GetMetricSpecResponse", False),
        "GetMetrics": ("GetMetricsRequest", "GetMetricsResponse", False),
    }
    # By hand, as KEDA's own clients write and read them.
    asked = b"\n\x11\n\x01a\x12\x02ml\x1a\x08\n\x01k\x12\x03val\x12\x01m"
    request = keda.GetMetricsRequest.FromString(asked)
    scaled = request.scaledObjectRef
    assert (scaled.name, scaled.namespace, dict(scaled.scalerMetadata)) == ("a", "ml", {"k": "val"})
    assert request.metricName == "m"
    value = keda.MetricValue(metricName="m", metricValue=2, metricValueFloat=2.0)
    answer = keda.GetMetricsResponse(metricValues=[value])
    assert answer.SerializeToString() == b"\n\x0e\n\x01m\x10\x02\x19\x00\x00\x00\x00\x00\x00\x00@"
    spec = keda.MetricSpec(metricName="m", targetSize=1, targetSizeFloat=1.0)
    assert spec.SerializeToString() == b"\n\x01m\x10\x01\x19\x00\x00\x00\x00\x00\x00\xf0?"
    assert keda.IsActiveResponse(result=True).SerializeToString() == b"\x08\x01"


def test_the_number_is_that_of_all_agents_wanted_less_those_of_others(site: FleetOfProcesses) -> None:
    caller = KedaCaller(start_scaler(site))
    assert caller.spec() == ("agents", 1.0)
    assert (caller.replicas(), caller.is_active()) == (0, False)
    site.create("nightly", *THREE_NODES)
    wait_until(lambda: caller.replicas() == 3, "three agents are wanted, since there are none")
    # One that somebody has started by hand is one less to start.
    site.start_agent("by-hand")
    wait_until(lambda: caller.replicas() == 2, "two are wanted beside that of another")
    # Another ScaledJob is told of what is missing beside them.
    other = KedaCaller(served_at(site.said("scaler")), "more-agents")
    site.start_agent("agents-1", *OWN)
    wait_until(lambda: other.replicas() == 1, "the scaler has seen the agent")
    # KEDA knows of its own Job: the number stays, and one more is to be started.
    assert caller.replicas() == 2, "two are wanted, one of which is there"
    site.start_agent("agents-2", *OWN)
    site.check_done("nightly")
    wait_until(lambda: caller.replicas() == 0 and not other.is_active(), "nobody is wanted")


def test_only_agents_that_could_serve_are_wanted(site: FleetOfProcesses) -> None:
    address = start_scaler(site)
    site.create("nightly", "--set", "jobs.score.compute=gpu")
    fits, elsewhere = KedaCaller(address, pool="gpu"), KedaCaller(address, pool="cpu")
    wait_until(lambda: fits.replicas() == 1, "an agent of the pool is wanted")
    assert elsewhere.replicas() == 0
    assert KedaCaller(address).replicas() == 1  # an agent of no pool serves all


def test_an_agent_that_is_cordoned_is_stood_in_for(site: FleetOfProcesses) -> None:
    caller = KedaCaller(start_scaler(site))
    site.start_agent("agents-1", *OWN)
    assert site.run("node", "cordon", "agents-1").returncode == 0
    site.create("nightly")
    wait_until(lambda: caller.replicas() == 2, "its Job counts for KEDA, and it does nothing")


def test_without_a_master_there_is_an_error_and_no_number(site: FleetOfProcesses) -> None:
    caller = KedaCaller(start_scaler(site))
    site.create("nightly")
    wait_until(lambda: caller.replicas() == 1, "an agent is wanted")
    master = site.processes["master"]
    master.send_signal(signal.SIGKILL)
    master.wait()

    def refused() -> bool:
        try:
            caller.replicas()
        except grpc.RpcError:
            return True
        return False

    wait_until(refused, "what it had heard is too old")
    code, words = caller.refusal()
    assert code == grpc.StatusCode.UNAVAILABLE
    assert f"No master answers at {site.address}" in words
    with pytest.raises(grpc.RpcError) as inactive:
        caller.is_active()
    assert inactive.value.code() == grpc.StatusCode.UNAVAILABLE
    with pytest.raises(grpc.RpcError) as stream:
        next(caller.stream())
    assert stream.value.code() == grpc.StatusCode.UNAVAILABLE
    site.start_master()
    wait_until(lambda: not refused() and caller.replicas() == 1, "the master answers again")
    assert "the master answers again" in site.said("scaler")


def test_wrong_metadata_and_metrics_are_refused_with_what_is_right(site: FleetOfProcesses) -> None:
    address = start_scaler(site)
    code, words = KedaCaller(address, slot="2").refusal()
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert 'does not know "slot" in the metadata of the trigger of ml/agents. Did you mean "slots"?' in words
    code, words = KedaCaller(address, slots="many").refusal()
    assert code == grpc.StatusCode.INVALID_ARGUMENT and 'slots is "many"' in words
    code, words = KedaCaller(address).refusal("queueLength")
    assert code == grpc.StatusCode.INVALID_ARGUMENT and 'Its one metric is "agents"' in words
    wait_until(lambda: "KEDA was refused" in site.said("scaler"), "its log says so, too")


def test_a_stream_tells_at_once_and_at_each_change(site: FleetOfProcesses) -> None:
    caller = KedaCaller(start_scaler(site))
    answers = caller.stream()
    assert next(answers) is False
    site.create("nightly")
    assert next(answers) is True
    site.start_agent("by-hand")
    site.check_done("nightly")
    assert next(answers) is False
    # A scaler that ends, ends its streams.
    scaler = site.processes["scaler"]
    scaler.send_signal(signal.SIGTERM)
    with pytest.raises((StopIteration, grpc.RpcError)):
        next(answers)
    assert scaler.wait(60) == 0


def test_streams_are_bounded_and_their_places_are_given_back(site: FleetOfProcesses) -> None:
    address = start_scaler(site)
    caller = KedaCaller(address)
    streams = [caller.stream() for _ in range(STREAMS_MAX)]
    assert [next(stream) for stream in streams] == [False] * STREAMS_MAX
    other = KedaCaller(address)
    with pytest.raises(grpc.RpcError) as refused:
        next(other.stream())
    assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert other.replicas() == 0  # calls have threads of their own
    caller.close()

    def answered() -> bool:
        try:
            return next(other.stream()) is False
        except grpc.RpcError:
            return False

    wait_until(answered, "there is room for streams again")


@pytest.mark.parametrize(
    ("listen", "words"),
    [
        ("0.0.0.0:0", "--tls-file is missing"),
        ("[::]:0", "--tls-file is missing"),
        ("6000", "is not an address to listen at"),
        ("127.0.0.1:70000", "is not an address to listen at"),
        (":6000", "is not an address to listen at"),
    ],
)
def test_other_machines_are_not_served_without_tls_unless_somebody_says_so(
    site: FleetOfProcesses, listen: str, words: str
) -> None:
    refused = site.run("fleet", "scaler", "--listen", listen)
    assert refused.returncode == 2 and words in refused.stderr


def test_a_file_that_is_no_certificate_is_named(site: FleetOfProcesses) -> None:
    file = site.folder / "tls.pem"
    refused = site.run("fleet", "scaler", "--tls-file", str(file))
    assert refused.returncode == 2 and "tls.pem" in refused.stderr
    file.write_text("nothing")
    refused = site.run("fleet", "scaler", "--tls-file", str(file))
    assert refused.returncode == 2 and "must contain one key and its certificate" in refused.stderr


def test_an_address_that_is_taken_is_named(site: FleetOfProcesses) -> None:
    refused = site.run("fleet", "scaler", "--listen", site.address)
    assert refused.returncode == 2 and f"The address {site.address} cannot be used" in refused.stderr


def test_over_tls_with_the_token_of_an_operator_and_none_of_a_viewer(tmp_path: Path) -> None:
    with SecureMaster(tmp_path).serving() as master:
        environment = {
            **os.environ,
            "WINDROW_MASTER": master.address.replace("127.0.0.1", "localhost"),
            "WINDROW_CA_FILE": str(master.keys / "client" / "ca.pem"),
            "WINDROW_TOKEN_FILE": str(tmp_path / "token"),
        }
        tls_file = master.keys / "master" / "tls.pem"
        command = [WINDROW, "fleet", "scaler", "--listen", "0.0.0.0:0", "--tls-file", str(tls_file)]

        def give(role: str) -> None:
            made = windrow_of(master, "token", "create", role, "--role", role, token=master.token("client-token"))
            assert made.returncode == 0, made.stderr
            (tmp_path / "token").write_text(made.stdout.strip())
            (tmp_path / "token").chmod(0o600)

        give("view")
        refused = subprocess.run(
            command, check=False, env=environment, capture_output=True, text=True, timeout=120, cwd=tmp_path
        )
        assert refused.returncode == 2 and "operate" in refused.stderr
        give("operate")
        log = tmp_path / "log"
        with log.open("wb") as written:
            scaler = subprocess.Popen(command, env=environment, stdout=written, stderr=written, cwd=tmp_path)
        try:
            address = wait_until(lambda: served_at(log.read_text()), "the scaler serves")
            port = address.rpartition(":")[2]
            trusting = KedaCaller(f"localhost:{port}", ca_file=master.keys / "client" / "ca.pem")
            assert trusting.replicas() == 0
            code, _ = KedaCaller(f"localhost:{port}").refusal()
            assert code == grpc.StatusCode.UNAVAILABLE
        finally:
            scaler.terminate()
            assert scaler.wait(60) == 0
