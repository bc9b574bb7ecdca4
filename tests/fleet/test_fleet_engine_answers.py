"""What answers where an engine belongs may be broken or hostile: it takes little of a fleet's memory, and is told."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from windrow.fleet.provider import Seen, State, Unreachable
from windrow.fleet.providers.docker import engine_api
from windrow.fleet.providers.docker.docker_provider import DockerProvider
from windrow.fleet.providers.docker.settings import DockerSettings
from windrow.fleet.providers.kubernetes import KubernetesProvider
from windrow.fleet.providers.kubernetes import api as kubernetes_api
from windrow.fleet.providers.kubernetes.settings import KubernetesSettings

PART = b'{"items": [], "pad": "' + b"x" * 99_978
SENT_MAX = 150_000_000
"""So much is sent to whoever takes it: above all bounds of one answer."""
DEEP = b"[" * 1_000_000


class Impostor:
    """Answers each call in the same way, and counts what was taken of its answers."""

    def __init__(self, port_of: ThreadingHTTPServer) -> None:
        self.port = port_of.server_address[1]
        self.answer: Callable[[BaseHTTPRequestHandler], None] = lambda handler: None
        self.sent = 0

    def sends(self, content: bytes, code: int = 200, **headers: str) -> None:
        """It answers with this. `headers`: further ones, or others."""

        def answer(handler: BaseHTTPRequestHandler) -> None:
            handler.send_response(code)
            for name, value in {"Content_Length": str(len(content)), **headers}.items():
                handler.send_header(name.replace("_", "-"), value)
            handler.end_headers()
            self._write(handler, content)

        self.answer = answer

    def sends_without_end(self, code: int = 200, *, in_chunks: bool = False) -> None:
        """It answers until nobody reads it any more."""

        def answer(handler: BaseHTTPRequestHandler) -> None:
            handler.send_response(code)
            framed = b"%x\r\n%s\r\n" % (len(PART), PART) if in_chunks else PART
            if in_chunks:
                handler.send_header("Transfer-Encoding", "chunked")
            else:
                handler.send_header("Content-Length", str(1 << 50))
            handler.end_headers()
            while self.sent < SENT_MAX:
                self._write(handler, framed)

        self.answer = answer

    def _write(self, handler: BaseHTTPRequestHandler, content: bytes) -> None:
        self.sent += handler.wfile.write(content)


@pytest.fixture
def impostor() -> Iterator[Impostor]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *words: Any) -> None:
            """Nothing is logged."""

        def end_headers(self) -> None:
            # Whoever is not told asks again on a connection that is about to close, and gets no answer.
            self.send_header("Connection", "close")
            super().end_headers()

        def do_GET(self) -> None:
            made.answer(self)

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: Any, client_address: Any) -> None:
            """Whoever has read enough goes away."""

    with Server(("127.0.0.1", 0), Handler) as server:
        made = Impostor(server)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        yield made
        server.shutdown()


@pytest.fixture
def docker(impostor: Impostor, monkeypatch: pytest.MonkeyPatch) -> DockerProvider:
    monkeypatch.delenv("DOCKER_TLS_VERIFY", raising=False)
    return DockerProvider(DockerSettings(image="agent", host=f"tcp://127.0.0.1:{impostor.port}"), "site-local-")


@pytest.fixture
def kubernetes(impostor: Impostor, tmp_path: Path) -> KubernetesProvider:
    cluster = {"name": "test", "cluster": {"server": f"http://127.0.0.1:{impostor.port}"}}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [cluster],
        "users": [{"name": "fleet", "user": {"token": "any"}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "fleet"}}],
        "current-context": "test",
    }
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(content))
    return KubernetesProvider(KubernetesSettings("agent", kubeconfig=str(tmp_path / "kubeconfig")), "site-local-")


@pytest.mark.parametrize("code", [200, 404])
@pytest.mark.parametrize("in_chunks", [False, True])
def test_a_docker_engine_that_answers_without_end_is_told_and_not_read(
    impostor: Impostor, docker: DockerProvider, code: int, *, in_chunks: bool
) -> None:
    impostor.sends_without_end(code, in_chunks=in_chunks)
    with pytest.raises(Unreachable, match=r"GET /containers/json is longer than 16\.0 MB"):
        docker.allocations()
    assert impostor.sent < SENT_MAX


def test_of_a_log_without_end_the_beginning_is_told(impostor: Impostor, docker: DockerProvider) -> None:
    impostor.sends_without_end()
    seen = Seen("site-local-x1", "0a1b2c3d4e5f", State.FAILED, "exit code 1")
    assert docker.why(seen).startswith("exit code 1\n")
    assert len(docker.why(seen)) <= engine_api.LOG_BYTES_MAX + 100
    assert impostor.sent < SENT_MAX


@pytest.mark.parametrize(
    ("code", "content", "length", "told"),
    [
        (200, DEEP, len(DEEP), "is no Docker engine"),
        (200, b"[]", 5, "does not answer: IncompleteRead"),
        (500, b'{"message": "the daemon is not well"}', 37, "does not list containers: the daemon is not well"),
    ],
)
def test_an_answer_that_no_docker_engine_gives_is_told(
    impostor: Impostor, docker: DockerProvider, code: int, content: bytes, length: int, told: str
) -> None:
    impostor.sends(content, code, Content_Length=str(length))
    with pytest.raises(Unreachable, match=told):
        docker.allocations()


@pytest.mark.parametrize("code", [200, 404])
@pytest.mark.parametrize("in_chunks", [False, True])
def test_an_api_of_kubernetes_that_answers_without_end_is_told_and_not_read(
    impostor: Impostor, kubernetes: KubernetesProvider, code: int, *, in_chunks: bool
) -> None:
    impostor.sends_without_end(code, in_chunks=in_chunks)
    with pytest.raises(Unreachable, match=r"/namespaces/default/\w+ is longer than 32\.0 MB"):
        kubernetes.allocations()
    assert impostor.sent < SENT_MAX


def test_a_list_of_kubernetes_whose_pages_have_no_end_is_told(
    impostor: Impostor, kubernetes: KubernetesProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubernetes_api, "LIST_BYTES_MAX", 1_000_000)
    page = {"kind": "JobList", "metadata": {"continue": "more"}, "items": [{"pad": "x" * 100_000}]}
    impostor.sends(json.dumps(page).encode())
    with pytest.raises(Unreachable, match=r"is longer than 1\.0 MB"):
        kubernetes.allocations()


@pytest.mark.parametrize("content", [DEEP, gzip.compress(b'{"items": []}')], ids=["deep", "compressed"])
def test_an_answer_that_no_api_of_kubernetes_gives_is_told(
    impostor: Impostor, kubernetes: KubernetesProvider, content: bytes
) -> None:
    impostor.sends(content, Content_Encoding="gzip")
    with pytest.raises(Unreachable, match="did not answer as the API of Kubernetes does"):
        kubernetes.allocations()
