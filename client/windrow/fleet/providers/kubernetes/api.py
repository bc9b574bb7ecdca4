"""Speaks to the API of a cluster: JSON over HTTP, with the credentials that `kubectl` would use.

The package `kubernetes` finds the credentials, renews them and sets up TLS. Its generated calls are not used: they
differ between its versions, and refuse answers of clusters that are newer than the package.
"""

from __future__ import annotations

import json
import os
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

from windrow.common.quantities import size
from windrow.errors import UsageError
from windrow.fleet.provider import Unreachable
from windrow.fleet.providers.kubernetes.settings import KubernetesSettings

PAGE = 500
"""Objects of a list that are asked for at once."""
ANSWER_BYTES_MAX = 32_000_000
"""Of one answer: a page of objects of 64 KB each, several times as long as pods are."""
LIST_BYTES_MAX = 256_000_000
"""Of all pages of a list."""
CONNECT_S = 10
WORDS_MAX = 1000
_PART = 1024**2
_POD_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_REDIRECTION, _CLIENT, _UNAUTHORIZED, _TIMEOUT, _GONE, _TOO_MANY, _SERVER = 300, 400, 401, 408, 410, 429, 500


class ApiError(Exception):
    """The API answered, and did not do what it was asked for; the message is the API's own."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        """A word of the API: AlreadyExists, NotFound, Forbidden, Conflict."""


class _Session(NamedTuple):
    """Credentials of one cluster, and connections to it."""

    configuration: Any
    pool: Any
    namespace: str


def require_package() -> None:
    """Raises UsageError if the package is not installed."""
    if find_spec("kubernetes") is None:
        raise UsageError(
            "The provider kubernetes needs a package that is not installed here (kubernetes). Install it with: pip "
            "install 'windrow[kubernetes]'"
        )


class Api:
    """The API of the cluster of one group. Every call may raise Unreachable."""

    def __init__(self, settings: KubernetesSettings) -> None:
        self._settings = settings
        self._session: _Session | None = None

    @property
    def namespace(self) -> str:
        """Where the group's Jobs are."""
        return self._settings.namespace or self._open().namespace

    def call(
        self, method: str, path: str, query: dict[str, str] | None = None, body: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """One call. Returns the object of the answer. Raises ApiError, Unreachable."""
        return self._call(method, path, query, body)[0]

    def list(self, path: str, selector: str) -> list[dict[str, Any]]:
        """All objects with such labels, page by page. Raises ApiError, Unreachable."""
        found: list[dict[str, Any]] = []
        query = {"labelSelector": selector, "limit": str(PAGE)}
        left = LIST_BYTES_MAX
        while True:
            answer, length = self._call("GET", path, query, None)
            left -= length
            if left < 0:
                raise Unreachable(_too_long(self._open().configuration.host, path, LIST_BYTES_MAX))
            found += answer.get("items") or []
            following = (answer.get("metadata") or {}).get("continue")
            if not following:
                return found
            query["continue"] = following

    def _call(
        self, method: str, path: str, query: dict[str, str] | None, body: dict[str, Any] | None
    ) -> tuple[dict[str, Any], int]:
        """The object of the answer, and how many bytes it had. Raises ApiError, Unreachable."""
        try:
            return self._call_once(method, path, query, body)
        except ApiError as error:
            if error.status != _UNAUTHORIZED:
                raise
        # A token of a kubeconfig may have run out: it is read anew, once.
        self._session = None
        return self._call_once(method, path, query, body)

    def _call_once(
        self, method: str, path: str, query: dict[str, str] | None, body: dict[str, Any] | None
    ) -> tuple[dict[str, Any], int]:
        import urllib3

        session = self._open()
        configuration = session.configuration
        url = configuration.host.rstrip("/") + path + (f"?{urlencode(query)}" if query else "")
        headers = {"Accept": "application/json", "User-Agent": "windrow-fleet"}
        try:
            for auth in configuration.auth_settings().values():
                if auth.get("in") == "header" and auth.get("value"):
                    headers[auth["key"]] = auth["value"]
        except Exception as error:
            # Whatever a plugin for credentials raises.
            raise Unreachable(f"The credentials of the cluster cannot be renewed: {error}") from error
        if body is not None:
            headers["Content-Type"] = "application/json"
        limit = urllib3.Timeout(connect=min(CONNECT_S, self._settings.timeout_s), read=self._settings.timeout_s)
        try:
            answer = session.pool.request(
                method,
                url,
                body=None if body is None else json.dumps(body).encode(),
                headers=headers,
                timeout=limit,
                retries=False,
                redirect=False,
                preload_content=False,
            )
            data = _content(answer)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise Unreachable(f"{configuration.host} does not answer: {_in_words(error)}") from error
        if len(data) > ANSWER_BYTES_MAX:
            raise Unreachable(_too_long(configuration.host, path, ANSWER_BYTES_MAX))
        return _understood(answer.status, data, configuration.host), len(data)

    def _open(self) -> _Session:
        if self._session is None:
            try:
                self._session = _opened(self._settings)
            except Exception as error:
                # Wrong files, plugins that are missing or fail: ConfigException, OSError, ValueError, KeyError.
                raise Unreachable(f"There are no credentials of a cluster that can be used: {error}") from error
        return self._session


def _opened(settings: KubernetesSettings) -> _Session:
    client, config = (import_module(f"kubernetes.{name}") for name in ("client", "config"))
    configuration = client.Configuration()
    namespace = ""
    if not settings.kubeconfig and not settings.context and "KUBERNETES_SERVICE_HOST" in os.environ:
        config.load_incluster_config(configuration)
        if _POD_NAMESPACE.exists():
            namespace = _POD_NAMESPACE.read_text().strip()
    else:
        file, context = settings.kubeconfig or None, settings.context or None
        config.load_kube_config(config_file=file, context=context, client_configuration=configuration)
        contexts, current = config.list_kube_config_contexts(config_file=file)
        wanted = settings.context or current["name"]
        found = next((one for one in contexts if one["name"] == wanted), current)
        namespace = found["context"].get("namespace") or ""
    return _Session(configuration, client.rest.RESTClientObject(configuration).pool_manager, namespace or "default")


def _content(answer: Any) -> bytes:
    """What an answer of urllib3 holds; of one that is too long, a little more than it may have. It is taken as it came:
    nobody has asked for a compressed one, which may be long beyond all bounds.
    """
    data = bytearray()
    try:
        while part := answer.read(min(_PART, ANSWER_BYTES_MAX + 1 - len(data)), decode_content=False):
            data += part
            if len(data) > ANSWER_BYTES_MAX:
                return bytes(data)
        answer.release_conn()
        return bytes(data)
    finally:
        # Where it has been given back, there is nothing to close.
        answer.close()


def _too_long(host: str, path: str, bytes_max: int) -> str:
    return (
        f"{host} does not answer as the API of Kubernetes does to a fleet: what it says of {path} is longer than "
        f"{size(bytes_max)}"
    )


def _understood(status: int, data: bytes, host: str) -> dict[str, Any]:
    """The object of an answer. Raises ApiError, Unreachable."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        found = None
    told = found if isinstance(found, dict) else {}
    if status < _REDIRECTION:
        if not told:
            raise Unreachable(f"{host} did not answer as the API of Kubernetes does: {_text(data)}")
        return told
    said = str(told.get("message") or f"HTTP status {status}: {_text(data)}".strip(": "))[:WORDS_MAX]
    if status < _CLIENT or status in (_TIMEOUT, _GONE, _TOO_MANY) or status >= _SERVER:
        raise Unreachable(f"{host} does not serve now: {said}")
    raise ApiError(status, str(told.get("reason") or ""), said)


def _text(data: bytes) -> str:
    return " ".join(data[: 4 * WORDS_MAX].decode(errors="replace").split())[:WORDS_MAX]


def _in_words(error: Exception) -> str:
    """What went wrong with a connection, without the names of its objects."""
    cause = getattr(error, "reason", None) or error
    inner = next((part for part in cause.args if isinstance(part, OSError)), None)
    if inner is not None:
        return inner.strerror or str(inner)
    return str(cause).rpartition("): ")[2][:WORDS_MAX]
