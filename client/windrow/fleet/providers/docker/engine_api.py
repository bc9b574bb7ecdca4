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

from windrow.common.quantities import size
from windrow.errors import UsageError
from windrow.fleet.provider import Unreachable

LOCAL = "unix:///var/run/docker.sock"
ANSWER_S = 60.0
"""So long the engine may take to answer."""
ANSWER_BYTES_MAX = 16_000_000
"""No answer that is to be understood is longer: a list of 10,000 containers is about as long."""
LOG_BYTES_MAX = 1_000_000
_TLS_PORT, _PLAIN_PORT = 2376, 2375
_WORDS_MAX = 500
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
        status, answer = self._ask(method, path, query, body, ANSWER_BYTES_MAX)
        if len(answer) > ANSWER_BYTES_MAX:
            raise Unreachable(
                f"What answers at {self._address} is no Docker engine that a fleet can use: its answer to {method} "
                f"{path} is longer than {size(ANSWER_BYTES_MAX)}"
            )
        _need_done(status, answer)
        if not answer:
            return None
        try:
            return json.loads(answer)
        except (ValueError, RecursionError) as error:
            raise Unreachable(f"What answers at {self._address} is no Docker engine: {answer[:100]!r}") from error

    def log(self, path: str, query: Mapping[str, Any]) -> bytes:
        """The beginning of what the engine answers, as it is. Raises EngineError, Unreachable."""
        status, answer = self._ask("GET", path, query, None, LOG_BYTES_MAX)
        _need_done(status, answer)
        return answer[:LOG_BYTES_MAX]

    def _ask(
        self, method: str, path: str, query: Mapping[str, Any] | None, body: object, bytes_max: int
    ) -> tuple[int, bytes]:
        """The status and what the engine answers; of a longer answer than `bytes_max`, one byte more than that. Raises
        Unreachable.
        """
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
                answer = response.read(bytes_max + 1)
                if response.length and len(answer) <= bytes_max:
                    raise http.client.IncompleteRead(answer, response.length)
        except (OSError, http.client.HTTPException, UsageError) as error:
            raise Unreachable(f"The Docker engine at {self._address} does not answer: {_words(error)}") from error
        return response.status, answer

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


def _need_done(status: int, answer: bytes) -> None:
    """Raises EngineError, Unreachable if the engine has not done what it was asked for."""
    if status >= http.client.BAD_REQUEST:
        message = _message(answer) or f"The Docker engine answered with HTTP status {status}."
        if status == _NOT_NOW:
            raise Unreachable(message)
        raise EngineError(status, message)


def _message(answer: bytes) -> str:
    try:
        return str(json.loads(answer)["message"])[:_WORDS_MAX]
    except (ValueError, TypeError, KeyError, RecursionError):
        return answer[: 4 * _WORDS_MAX].decode(errors="replace").strip()[:_WORDS_MAX]


def _words(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
