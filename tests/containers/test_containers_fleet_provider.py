"""The provider of a Docker engine keeps the contract of providers, with containers of a real engine."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from container_cluster import wait_until
from container_engine import docker
from windrow.fleet import provider_kit
from windrow.fleet.provider import AgentCommand, Refused, Request, Seen, Shape, State, Unreachable
from windrow.fleet.providers.docker import docker_provider
from windrow.fleet.providers.docker.container import GROUP
from windrow.fleet.providers.docker.docker_provider import DockerProvider
from windrow.fleet.providers.docker.settings import DockerSettings

IMAGE = "windrow-agent"
SETTINGS = DockerSettings(image=IMAGE, network="none")
STAYS, LEAVES = ("sleep", "3600"), ("true",)


class Group:
    """A group of its own, with its provider."""

    def __init__(self, settings: DockerSettings = SETTINGS) -> None:
        self.prefix = f"test-{secrets.token_hex(4)}-"
        self.provider = DockerProvider(settings, self.prefix)

    def request(self, *words: str, memory_bytes: int = 0, **environment: str) -> Request:
        shape, agent = Shape(1, memory_bytes), AgentCommand(words, environment)
        return Request(f"{self.prefix}x{secrets.token_hex(4)}", shape, None, agent)

    def make(self, request: Request) -> str:
        """Make a container, and be killed before it is started."""
        body = self.provider._body(request)
        return str(self.provider._engine.ask("POST", "/containers/create", {"name": request.name}, body)["Id"])

    def only(self) -> Seen:
        (seen,) = self.provider.allocations()
        return seen

    def ended(self) -> Seen:
        wait_until(lambda: self.only().state.has_ended, "its end is seen")
        return self.only()

    def containers(self) -> list[str]:
        return docker("ps", "-aq", "--filter", f"label={GROUP}={self.prefix}").split()


@pytest.fixture
def group(images: None) -> Iterator[Group]:
    made = Group()
    yield made
    for container in made.containers():
        docker("rm", "-f", "-v", container)


@pytest.fixture
def engine(images: None) -> Iterator[provider_kit.Engine]:
    prefixes: list[str] = []

    def make(prefix: str) -> DockerProvider:
        prefixes.append(prefix)
        return DockerProvider(SETTINGS, prefix)

    yield provider_kit.Engine(make=make, wait_s=120)
    for prefix in prefixes:
        for container in docker("ps", "-aq", "--filter", f"label={GROUP}={prefix}").split():
            docker("rm", "-f", "-v", container, check=False)


@pytest.mark.parametrize("check", provider_kit.CHECKS, ids=lambda check: check.__name__)
def test_docker_keeps_the_contract_of_providers(
    engine: provider_kit.Engine, check: Callable[[provider_kit.Engine], None]
) -> None:
    check(engine)


def test_a_container_has_the_name_the_variables_and_the_limits_and_no_privileges(group: Group) -> None:
    request = group.request("sh", "-c", "echo $WHO; exec sleep 3600", memory_bytes=300_000_000, WHO="it's me")
    engine_id = group.provider.submit(request)
    wait_until(lambda: group.provider.why(group.only()) == "it's me", "its variables have come")
    shown = "{{.Name}} {{.HostConfig.Memory}} {{.HostConfig.CapDrop}} {{.HostConfig.RestartPolicy.Name}}"
    found = docker("inspect", "-f", f"{shown} {{{{.Config.StopTimeout}}}}", engine_id).strip()
    assert found == f"/{request.name} 300000000 [ALL] no 45"


def test_a_container_that_takes_too_much_memory_says_so(group: Group) -> None:
    take = "import time\nheld = []\nwhile True: held.append(bytearray(10_000_000))"
    group.provider.submit(group.request("python", "-c", take, memory_bytes=100_000_000))
    seen = group.ended()
    assert seen.state is State.FAILED
    assert seen.reason.startswith("OOMKilled")


def test_a_killed_container_says_by_which_signal_and_what_it_wrote_last(group: Group) -> None:
    engine_id = group.provider.submit(group.request("sh", "-c", "echo began; exec sleep 3600"))
    wait_until(lambda: "began" in group.provider.why(group.only()), "it runs")
    docker("kill", engine_id)
    seen = group.ended()
    assert (seen.state, seen.reason) == (State.FAILED, "ended by SIGKILL")
    assert group.provider.why(seen) == "ended by SIGKILL\nbegan"


def test_a_program_that_is_not_there_is_told(group: Group) -> None:
    group.provider.submit(group.request("no-such-program-here"))
    seen = group.ended()
    assert (seen.state, seen.reason) == (State.FAILED, "exit code 127")
    assert "no-such-program-here" in group.provider.why(seen)


def test_a_removed_container_is_not_there_any_more(group: Group) -> None:
    docker("rm", "-f", group.provider.submit(group.request(*STAYS)))
    assert group.provider.allocations() == []


def test_what_was_made_and_not_started_is_started_when_the_fleet_next_looks(group: Group) -> None:
    request = group.request(*STAYS)
    made = group.make(request)
    seen = group.only()
    assert (seen.name, seen.engine_id, seen.state) == (request.name, made[:12], State.STARTED)
    assert docker("inspect", "-f", "{{.State.Status}}", made).strip() == "running"


def test_a_container_that_never_started_is_removed_when_it_is_cancelled(group: Group) -> None:
    request = group.request(*STAYS)
    made = group.make(request)
    assert group.provider.cancel(Seen(request.name, made, State.QUEUED), only_queued=True)
    assert group.containers() == []


def test_ended_containers_are_removed_once_the_fleet_has_had_time_to_tell(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    group.provider.submit(group.request(*LEAVES))
    assert group.ended().state is State.COMPLETED
    assert len(group.containers()) == 1, "it is still there: the master may not have heard of its end"
    monkeypatch.setattr(docker_provider, "KEPT_S", -1.0)
    group.provider.allocations()
    assert group.containers() == []
    assert group.provider.allocations() == []


@pytest.mark.parametrize(
    ("settings", "words", "told"),
    [
        (DockerSettings(image="no-such-image-here"), STAYS, "No such image: no-such-image-here"),
        (DockerSettings(image=IMAGE, network="no-such-network"), STAYS, "no-such-network"),
        (DockerSettings(like_service="agent"), STAYS, "does not run in a container of Docker Compose"),
    ],
)
def test_what_the_engine_does_not_take_is_refused_in_its_words_and_leaves_nothing(
    images: None, settings: DockerSettings, words: tuple[str, ...], told: str
) -> None:
    group = Group(settings)
    with pytest.raises(Refused, match=told):
        group.provider.submit(group.request(*words))
    assert group.containers() == []


def test_an_engine_that_is_away_is_no_engine_without_containers(tmp_path: Path) -> None:
    away = Group(DockerSettings(image=IMAGE, host=f"unix://{tmp_path}/away.sock"))
    with pytest.raises(Unreachable, match=r"away\.sock does not answer: No such file or directory"):
        away.provider.allocations()
    with pytest.raises(Unreachable):
        away.provider.submit(away.request(*STAYS))


class _NoEngine(BaseHTTPRequestHandler):
    """Another server than an engine."""

    def do_GET(self) -> None:
        self.send_response(503 if "json" in self.path else 200)
        self.end_headers()
        self.wfile.write(b"<html>")

    def log_message(self, format: str, *arguments: object) -> None:
        pass


def test_an_engine_that_cannot_answer_now_is_unreachable() -> None:
    with HTTPServer(("127.0.0.1", 0), _NoEngine) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        other = Group(DockerSettings(image=IMAGE, host=f"tcp://127.0.0.1:{server.server_port}"))
        with pytest.raises(Unreachable, match="<html>"):
            other.provider.allocations()
        server.shutdown()
