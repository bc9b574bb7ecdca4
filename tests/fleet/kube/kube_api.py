"""A cluster of Kubernetes for tests: an HTTP server with the part of the API that a fleet uses.

It stands in for an API server, and every object that it takes or gives is valid by the published schemas. Behind it,
`kube_engine` runs the Jobs' pods as processes of this machine.
"""

from __future__ import annotations

import json
import ssl
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

import yaml
from kube_schemas import problem_of

Object = dict[str, Any]
TOKEN = "the-token-of-a-fleet"
KINDS = {
    "jobs": ("Job", "batch/v1", "batch"),
    "pods": ("Pod", "v1", ""),
    "events": ("Event", "v1", ""),
    "secrets": ("Secret", "v1", ""),
}
ALL_RIGHTS = frozenset((verb, resource) for resource in KINDS for verb in ("create", "get", "list", "delete", "update"))
PAGE_MOST = 3
"""Lists come in small pages, so that every test reads several."""


class ApiRefusal(Exception):
    """An answer that is a Status object."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code, self.reason = code, reason


class Fault(NamedTuple):
    """What the API does instead of answering. `after`: it does first what it was asked for."""

    code: int = 0
    """0: the connection is closed without an answer."""
    after: bool = False


def now() -> str:
    """The time as objects hold it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class ObjectStore:
    """The objects of one namespace, by resource and name. Callers hold `lock`."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self.lock = threading.RLock()
        self.objects: dict[str, dict[str, Object]] = {resource: {} for resource in KINDS}
        self.created: list[tuple[str, str]] = []
        """Resource and name of all that was ever created."""
        self._version = 1000

    def create(self, resource: str, made: Object) -> Object:
        """Store a new object. Raises ApiRefusal if it is invalid or there."""
        kind, api_version, group = KINDS[resource]
        meta = made.setdefault("metadata", {})
        made.setdefault("kind", kind)
        made.setdefault("apiVersion", api_version)
        if problem := problem_of(made):
            raise ApiRefusal(422, "Invalid", problem)
        name = meta["name"]
        if name in self.objects[resource]:
            whole = f"{resource}.{group}" if group else resource
            raise ApiRefusal(409, "AlreadyExists", f'{whole} "{name}" already exists')
        meta |= {"namespace": self.namespace, "uid": str(uuid.uuid4()), "creationTimestamp": now()}
        self.objects[resource][name] = made
        self.created.append((resource, name))
        self.changed(made)
        return made

    def replace(self, resource: str, name: str, made: Object) -> Object:
        """Store another version of an object. Raises ApiRefusal if it is invalid, or not made from the last one."""
        if problem := problem_of(made):
            raise ApiRefusal(422, "Invalid", problem)
        before = self.objects[resource].get(name)
        if before is None:
            raise ApiRefusal(404, "NotFound", f'{resource} "{name}" not found')
        if made["metadata"].get("resourceVersion") not in (None, before["metadata"]["resourceVersion"]):
            said = "the object has been modified; please apply your changes to the latest version and try again"
            raise ApiRefusal(409, "Conflict", f'Operation cannot be fulfilled on {resource} "{name}": {said}')
        self.objects[resource][name] = made
        self.changed(made)
        return made

    def changed(self, one: Object) -> None:
        """Note a change of an object; it is valid by the schemas."""
        self._version += 1
        one["metadata"]["resourceVersion"] = str(self._version)
        assert not problem_of(one), problem_of(one)

    def remove(self, resource: str, one: Object) -> None:
        """Remove an object for good."""
        self.objects[resource].pop(one["metadata"]["name"], None)

    def delete(self, resource: str, name: str, options: Object) -> Object:
        """Begin to delete an object, as DELETE does. Raises ApiRefusal."""
        group = KINDS[resource][2]
        whole = f"{resource}.{group}" if group else resource
        one = self.objects[resource].get(name)
        if one is None:
            raise ApiRefusal(404, "NotFound", f'{whole} "{name}" not found')
        meta, wanted = one["metadata"], options.get("preconditions") or {}
        for key in ("uid", "resourceVersion"):
            if key in wanted and wanted[key] != meta[key]:
                said = f"Precondition failed: {key} in precondition: {wanted[key]}, in object meta: {meta[key]}"
                raise ApiRefusal(409, "Conflict", f'Operation cannot be fulfilled on {whole} "{name}": {said}')
        if options.get("propagationPolicy") == "Foreground" and resource == "jobs":
            meta.setdefault("finalizers", []).append("foregroundDeletion")
        if meta.get("finalizers") or (resource == "pods" and one["spec"].get("nodeName")):
            if "deletionTimestamp" not in meta:
                grace = one["spec"].get("terminationGracePeriodSeconds", 30) if resource == "pods" else 0
                meta |= {"deletionTimestamp": now(), "deletionGracePeriodSeconds": grace}
                self.changed(one)
        else:
            self.remove(resource, one)
        return one

    def selected(self, resource: str, labels: str, fields: str) -> list[Object]:
        """Objects by selectors of equality."""
        found = []
        for one in sorted(self.objects[resource].values(), key=lambda each: each["metadata"]["name"]):
            has = one["metadata"].get("labels") or {}
            wanted = [each.partition("=") for each in filter(None, labels.split(","))]
            if all(has.get(key) == value for key, _, value in wanted) and _has_fields(one, fields):
                found.append(one)
        return found


def _has_fields(one: Object, fields: str) -> bool:
    for path, _, value in (each.partition("=") for each in filter(None, fields.split(","))):
        here: Any = one
        for part in path.split("."):
            here = (here or {}).get(part)
        if here != value:
            return False
    return True


class KubeApi:
    """The API server of one namespace, on a port of this machine."""

    def __init__(
        self, folder: Path, namespace: str = "agents", tls_file: Path | None = None, ca_file: Path | None = None
    ) -> None:
        """`tls_file`: key and certificate, to serve over TLS; `ca_file` vouches for it."""
        self._tls_file, self.ca_file = tls_file, ca_file
        self.store = ObjectStore(namespace)
        self.folder = folder
        self.rights: frozenset[tuple[str, str]] = ALL_RIGHTS
        self.token = TOKEN
        self.jobs_quota: int | None = None
        self.faults: list[Fault] = []
        """What the next calls meet."""
        self.used: set[tuple[str, str]] = set()
        """Rights that calls needed, and had."""
        self.refused: set[tuple[str, str]] = set()
        """Rights that calls needed, and had not."""
        self.before_delete: Callable[[str, str], None] = lambda resource, name: None
        """Runs before an object is deleted; a test does there what comes in between."""
        self._server: ThreadingHTTPServer | None = None
        self.port = 0
        self.start()

    def start(self) -> None:
        """Serve, on the same port as before."""
        api = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *words: Any) -> None:
                """Nothing is logged."""

            def _serve(self) -> None:
                size = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(size)) if size else {}
                fault = api.faults.pop(0) if api.faults else None
                code, answer = 0, {}
                if fault is None or fault.after:
                    code, answer = api.answer(self.command, self.path, self.headers.get("Authorization", ""), body)
                if fault is not None:
                    if not fault.code:
                        self.close_connection = True
                        return
                    code, answer = fault.code, status(fault.code, "", "the API is not well")
                data = json.dumps(answer).encode()
                self.send_response(code)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PUT = do_DELETE = _serve

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            allow_reuse_address = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                """A client that no longer waits for its answer is no error."""
                if not isinstance(sys.exc_info()[1], OSError):
                    super().handle_error(request, client_address)

        self._server = Server(("127.0.0.1", self.port), Handler)
        if self._tls_file is not None:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(self._tls_file)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def stop(self) -> None:
        """Serve no more; pods go on."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    @property
    def server(self) -> str:
        """The address."""
        return f"http://127.0.0.1:{self.port}" if self._tls_file is None else f"https://localhost:{self.port}"

    @property
    def kubeconfig(self) -> Path:
        """A file with the address, the namespace and the token."""
        path = self.folder / "kubeconfig"
        cluster: Object = {"name": "test", "cluster": {"server": self.server}}
        if self.ca_file is not None:
            cluster["cluster"]["certificate-authority"] = str(self.ca_file)
        context = {"cluster": "test", "user": "fleet", "namespace": self.store.namespace}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [cluster],
            "users": [{"name": "fleet", "user": {"token": self.token}}],
            "contexts": [{"name": "test", "context": context}],
            "current-context": "test",
        }
        path.write_text(yaml.safe_dump(content))
        return path

    def answer(self, method: str, target: str, authorization: str, body: Object) -> tuple[int, Object]:
        """The answer to a call: HTTP status and object."""
        try:
            if authorization.lower() != f"bearer {self.token}":
                raise ApiRefusal(401, "Unauthorized", "Unauthorized")
            with self.store.lock:
                return (201 if method == "POST" else 200), self._answer(method, target, body)
        except ApiRefusal as refusal:
            return refusal.code, status(refusal.code, refusal.reason, str(refusal))

    def _answer(self, method: str, target: str, body: Object) -> Object:
        split = urlsplit(target)
        resource, name = self._parsed(split.path)
        verb = {"POST": "create", "DELETE": "delete", "PUT": "update", "GET": "get" if name else "list"}[method]
        has_right = (verb, resource) in self.rights
        (self.used if has_right else self.refused).add((verb, resource))
        if not has_right:
            group = KINDS[resource][2]
            whole = f'{resource}.{group} "{name}"' if name and group else resource
            raise ApiRefusal(
                403,
                "Forbidden",
                f'{whole} is forbidden: User "system:serviceaccount:{self.store.namespace}:fleet" cannot {verb} '
                f'resource "{resource}" in API group "{group}" in the namespace "{self.store.namespace}"',
            )
        query = dict(parse_qsl(split.query))
        match verb:
            case "list":
                return self._list(resource, query)
            case "get":
                one = self.store.objects[resource].get(name)
                if one is None:
                    raise ApiRefusal(404, "NotFound", f'{resource} "{name}" not found')
                return one
            case "create":
                return self._create(resource, body)
            case "update":
                return self.store.replace(resource, name, body)
        self.before_delete(resource, name)
        if body and (problem := problem_of(body)):
            raise ApiRefusal(400, "BadRequest", problem)
        return self.store.delete(resource, name, body)

    def _parsed(self, path: str) -> tuple[str, str]:
        parts = path.strip("/").split("/")
        prefix = 3 if parts[0] == "apis" else 2
        if len(parts) < prefix + 3 or parts[prefix] != "namespaces" or parts[prefix + 2] not in KINDS:
            raise ApiRefusal(404, "NotFound", "the server could not find the requested resource")
        if parts[prefix + 1] != self.store.namespace:
            raise ApiRefusal(404, "NotFound", f'namespaces "{parts[prefix + 1]}" not found')
        resource = parts[prefix + 2]
        if "/".join(parts[1:prefix]) != KINDS[resource][1]:
            raise ApiRefusal(404, "NotFound", "the server could not find the requested resource")
        return resource, parts[prefix + 3] if len(parts) > prefix + 3 else ""

    def _list(self, resource: str, query: dict[str, str]) -> Object:
        kind, api_version, _ = KINDS[resource]
        found = self.store.selected(resource, query.get("labelSelector", ""), query.get("fieldSelector", ""))
        after = query.get("continue", "")
        left = [one for one in found if one["metadata"]["name"] > after]
        page = left[: min(PAGE_MOST, int(query.get("limit", PAGE_MOST)))]
        more = {"continue": page[-1]["metadata"]["name"]} if len(page) < len(left) else {}
        listed = {"kind": f"{kind}List", "apiVersion": api_version, "metadata": {"resourceVersion": "1", **more}}
        return {**listed, "items": page}

    def _create(self, resource: str, body: Object) -> Object:
        if resource == "jobs" and self.jobs_quota is not None and len(self.store.objects["jobs"]) >= self.jobs_quota:
            used = f"used: count/jobs.batch={self.jobs_quota}, limited: count/jobs.batch={self.jobs_quota}"
            said = f"exceeded quota: agents, requested: count/jobs.batch=1, {used}"
            raise ApiRefusal(403, "Forbidden", f'jobs.batch "{body["metadata"]["name"]}" is forbidden: {said}')
        if body.get("kind") == "Job":
            body.setdefault("status", {})
            # The webhook of Kueue.
            if "kueue.x-k8s.io/queue-name" in (body["metadata"].get("labels") or {}):
                body["spec"]["suspend"] = True
        return self.store.create(resource, body)


def status(code: int, reason: str, message: str) -> Object:
    """A Status object of a failure."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    }


@contextmanager
def kube_api(folder: Path, **options: Any) -> Iterator[KubeApi]:
    """A server for one test."""
    api = KubeApi(folder, **options)
    try:
        yield api
    finally:
        api.stop()
