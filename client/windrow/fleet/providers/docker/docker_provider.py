"""The provider of agents from a Docker engine."""

from __future__ import annotations

import http.client
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from windrow.common.signal_names import signal_name
from windrow.fleet.provider import Refused, Request, Seen, State, Unreachable
from windrow.fleet.providers.docker.container import ALLOCATION, GROUP, PROJECT, SERVICE, like, of_settings
from windrow.fleet.providers.docker.engine_api import EngineApi, EngineError
from windrow.fleet.providers.docker.settings import DockerSettings

KEPT_S = 600.0
"""So long a container is kept after it was first seen to have ended; by then a fleet has told the master."""
LOG_LINES = 8
ID_LENGTH = 12
"""Of an id, so much is shown by the docker command."""
_SIGNALLED = 128
"""Above it, exit codes of containers tell signals."""
_SIGNALS = range(1, 65)


class _Ended(NamedTuple):
    """A container that has ended."""

    state: State
    reason: str
    first_seen_s: float


class DockerProvider:
    """Keeps the contract of `windrow.fleet.provider.Provider` with the containers of one engine.

    Whether a container is one of the group's allocations, its labels say. A container that was made and not started,
    because the fleet was killed in between or the engine fell silent, is started when the fleet next looks.
    """

    def __init__(self, settings: DockerSettings, prefix: str) -> None:
        self._settings = settings
        self._prefix = prefix
        self._engine = EngineApi(settings.host)
        self._own_project: str | None = None
        self._ended: dict[str, _Ended] = {}
        self._cancelled: set[str] = set()
        """Ids of those that were told to stop."""

    def submit(self, request: Request) -> str:
        """Make and start the container of an allocation, and return the beginning of its id."""
        try:
            body = self._body(request)
            made = self._engine.ask("POST", "/containers/create", {"name": request.name}, body)
        except EngineError as error:
            raise Refused(str(error)) from None
        number = str(made["Id"])
        try:
            self._engine.ask("POST", f"/containers/{number}/start")
        except EngineError as error:
            self._remove(number)
            raise Refused(str(error)) from None
        return number[:ID_LENGTH]

    def allocations(self) -> Sequence[Seen]:
        """The group's containers; those that have ended, for ten minutes."""
        try:
            return self._listed()
        except EngineError as error:
            raise Unreachable(f"The Docker engine does not list containers: {error}") from error

    def _listed(self) -> Sequence[Seen]:
        """The group's containers. Raises EngineError, Unreachable."""
        filters = {"label": self._labels()}
        found = []
        listed = self._engine.ask("GET", "/containers/json", {"all": "true", "filters": filters})
        for one in listed:
            if (seen := self._look(str(one["Id"]), str(one["Labels"][ALLOCATION]), str(one["State"]))) is not None:
                found.append(seen)
        there = {str(one["Id"]) for one in listed}
        self._ended = {number: ended for number, ended in self._ended.items() if number in there}
        self._cancelled &= there
        return found

    def cancel(self, seen: Seen, *, only_queued: bool) -> bool:
        """Tell a container to stop; its agent drains. The engine removes one that was never started in one step with
        looking whether it runs.
        """
        try:
            state = self._engine.ask("GET", f"/containers/{seen.engine_id}/json")
            number = str(state["Id"])
            if state["State"]["Status"] == "created":
                self._engine.ask("DELETE", f"/containers/{number}")
                return True
            if only_queued or not state["State"]["Running"]:
                return False
            self._engine.ask("POST", f"/containers/{number}/kill", {"signal": "SIGTERM"})
        except EngineError:
            return False
        self._cancelled.add(number)
        return True

    def why(self, seen: Seen) -> str:
        """How a container ended, and the last lines that its agent wrote."""
        path, query = f"/containers/{seen.engine_id}/logs", {"stdout": "1", "stderr": "1", "tail": str(LOG_LINES)}
        try:
            return "\n".join(filter(None, (seen.reason, _log_of(self._engine.log(path, query)))))
        except EngineError:
            return seen.reason

    def _body(self, request: Request) -> dict[str, Any]:
        if not self._settings.like_service:
            return of_settings(self._settings, request, self._prefix)
        return like(self._pattern(), self._settings, request, self._prefix)

    def _labels(self) -> list[str]:
        """By which containers of the group are found. Each Compose project has its own: their fleets may have the same
        name.
        """
        labels = [f"{GROUP}={self._prefix}"]
        if self._settings.like_service:
            try:
                labels.append(f"{PROJECT}={self._project()}")
            except (Refused, EngineError) as error:
                raise Unreachable(str(error)) from error
        return labels

    def _project(self) -> str:
        """The Compose project that this fleet is part of. Raises EngineError, Refused."""
        if self._own_project is None:
            # Docker names the host of a container by its id.
            own = self._inspected(socket.gethostname()) or {}
            self._own_project = (own.get("Config", {}).get("Labels") or {}).get(PROJECT)
        if not self._own_project:
            raise Refused(
                f"docker.like_service is {self._settings.like_service}, and this fleet does not run in a container of "
                "Docker Compose. Run it there, or set docker.image instead."
            )
        return self._own_project

    def _pattern(self) -> Mapping[str, Any]:
        """The container of the service that containers are made like. Raises EngineError, Refused."""
        service, project = self._settings.like_service, self._project()
        labels = [f"{PROJECT}={project}", f"{SERVICE}={service}"]
        found = self._engine.ask("GET", "/containers/json", {"all": "true", "filters": {"label": labels}})
        pattern = self._inspected(str(found[0]["Id"])) if found else None
        if pattern is None:
            raise Refused(
                f"The Compose project {project} has no container of the service {service}, which docker.like_service "
                "names. `docker compose up` with the profile of that service makes one."
            )
        return pattern

    def _inspected(self, name: str) -> dict[str, Any] | None:
        """What the engine knows of a container; None if there is none. Raises EngineError."""
        try:
            found: dict[str, Any] = self._engine.ask("GET", f"/containers/{name}/json")
        except EngineError as error:
            if error.status == http.client.NOT_FOUND:
                return None
            raise
        return found

    def _look(self, number: str, name: str, status: str) -> Seen | None:
        """An allocation; None if there is none any more."""
        engine_id = number[:ID_LENGTH]
        if status == "created":
            try:
                self._engine.ask("POST", f"/containers/{number}/start")
            except EngineError:
                self._remove(number)
                return None
            return Seen(name, engine_id, State.STARTED)
        if status not in ("exited", "dead", "removing"):
            return Seen(name, engine_id, State.STARTED)
        ended = self._ended.get(number) or self._learn_of_end(number)
        if ended is None:
            return None
        self._ended[number] = ended
        if time.monotonic() - ended.first_seen_s > KEPT_S:
            self._remove(number)
        return Seen(name, engine_id, ended.state, ended.reason)

    def _learn_of_end(self, number: str) -> _Ended | None:
        found = self._inspected(number)
        if found is None:
            return None
        state, reason = _outcome(found["State"])
        if number in self._cancelled:
            state = State.CANCELLED
        return _Ended(state, reason, time.monotonic())

    def _remove(self, number: str) -> None:
        """Remove a container that does not run, with its volumes that have no name."""
        try:
            self._engine.ask("DELETE", f"/containers/{number}", {"v": "true"})
        except EngineError:
            # Somebody else has removed it, or has started it.
            return


def _outcome(state: Mapping[str, Any]) -> tuple[State, str]:
    """How a container ended."""
    code, said = int(state["ExitCode"]), str(state.get("Error") or "")
    if state.get("OOMKilled"):
        return State.FAILED, "OOMKilled: it used more memory than its container may"
    if code == 0:
        return State.COMPLETED, said
    number = code - _SIGNALLED
    how = f"ended by {signal_name(number)}" if number in _SIGNALS else f"exit code {code}"
    return State.FAILED, ": ".join(filter(None, (how, said)))


def _log_of(frames: bytes) -> str:
    """The text of a log, which the engine sends in frames: a byte for the stream, three empty ones, and the length."""
    parts = []
    while len(frames) >= 8:
        (length,) = struct.unpack(">I", frames[4:8])
        parts.append(frames[8 : 8 + length])
        frames = frames[8 + length :]
    return b"".join(parts).decode(errors="replace").strip()
