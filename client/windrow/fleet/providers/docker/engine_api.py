"""Speaks to a Docker engine by its HTTP interface: images of Windrow have no docker command."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from windrow.errors import UsageError
from windrow.fleet.provider import Unreachable

LOCAL = "unix:///var/run/docker.sock"
ANSWER_S = 60.0
"""So long the engine may take to answer."""
_TLS_PORT, _PLAIN_PORT = 2376, 2375
_NOT_NOW = http.client.SERVICE_UNAVAILABLE


class EngineError(Exception):
    """The engine has answered that it does not do what it was asked for; its message is the engine's own."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        """Of HTTP."""


def check_address(address: str) -> None:
    """Raises UsageError if no engine can have that address."""
    parts = urlsplit(address)
    if parts.scheme == "unix" and parts.path.startswith("/"):
        return
    if parts.scheme == "tcp" and parts.hostname:
        return
    raise UsageError(
        f"{address} is no address of a Docker engine that a fleet can use; write unix:///PATH or tcp://HOST:PORT"
    )


class EngineApi:
    """One engine. Each request has a connection of its own."""

    def __init__(self, host: str = "") -> None:
        """`host`: its address; "": DOCKER_HOST, or the engine of this machine."""
        self._address = host or os.environ.get("DOCKER_HOST") or LOCAL

    def ask(self, method: str, path: str, query: Mapping[str, Any] | None = None, body: object = None) -> Any:
        """What the engine answers, read from JSON; None if it answers nothing. Raises EngineError, Unreachable."""
        answer = self.ask_bytes(method, path, query, body)
        if not answer:
            return None
        try:
            return json.loads(answer)
        except ValueError as error:
            raise Unreachable(f"What answers at {self._address} is no Docker engine: {answer[:100]!r}") from error

    def ask_bytes(self, method: str, path: str, query: Mapping[str, Any] | None = None, body: object = None) -> bytes:
        """What the engine answers. Raises EngineError, Unreachable."""
        asked = {
            name: value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
            for name, value in (query or {}).items()
        }
        target = quote(path) + (f"?{urlencode(asked)}" if asked else "")
        content = None if body is None else json.dumps(body).encode()
        try:
            with contextlib.closing(self._connection()) as connection:
                connection.request(method, target, content, {"Content-Type": "application/json"})
                response = connection.getresponse()
                answer = response.read()
        except (OSError, http.client.HTTPException, UsageError) as error:
            raise Unreachable(f"The Docker engine at {self._address} does not answer: {_words(error)}") from error
        if response.status >= http.client.BAD_REQUEST:
            message = _message(answer) or f"The Docker engine answered {response.status} {response.reason}."
            if response.status == _NOT_NOW:
                raise Unreachable(message)
            raise EngineError(response.status, message)
        return answer

    def _connection(self) -> http.client.HTTPConnection:
        check_address(self._address)
        parts = urlsplit(self._address)
        if parts.scheme == "unix":
            return _UnixConnection(parts.path)
        host = str(parts.hostname)
        if not os.environ.get("DOCKER_TLS_VERIFY"):
            return http.client.HTTPConnection(host, parts.port or _PLAIN_PORT, timeout=ANSWER_S)
        folder = Path(os.environ.get("DOCKER_CERT_PATH") or Path("~/.docker").expanduser())
        tls = ssl.create_default_context(cafile=str(folder / "ca.pem"))
        tls.load_cert_chain(folder / "cert.pem", folder / "key.pem")
        return http.client.HTTPSConnection(host, parts.port or _TLS_PORT, timeout=ANSWER_S, context=tls)


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over the socket of an engine on this machine."""

    def __init__(self, path: str) -> None:
        super().__init__("docker", timeout=ANSWER_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _message(answer: bytes) -> str:
    try:
        return str(json.loads(answer)["message"])
    except (ValueError, TypeError, KeyError):
        return answer.decode(errors="replace").strip()[:500]


def _words(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
