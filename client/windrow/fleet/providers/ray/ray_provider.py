"""The provider of agents in a Ray cluster."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from windrow.common.quantities import size
from windrow.common.signal_names import signal_name
from windrow.fleet.provider import Refused, Request, Seen, State, Unreachable
from windrow.fleet.providers.ray.settings import RaySettings

CONNECT_S = 60.0
"""So long it may take to connect with the cluster."""
ANSWER_S = 30.0
KEPT_S = 3600.0
"""So long the store keeps an allocation after it was first seen to have ended, or to have no actor."""
_RAY_SIDE = Path(__file__).with_name("ray_side.py")
_WORDS_MAX = 500
_SIZES = ("memory", "object_store_memory")
"""Resources of Ray's that are counted in bytes."""


class RayProvider:
    """Keeps the contract of `windrow.fleet.provider.Provider` with detached actors, which live on when the program of
    the fleet, and so its job in Ray, has ended.
    """

    def __init__(self, settings: RaySettings, prefix: str) -> None:
        self._settings = settings
        self._prefix = prefix
        self._side = _Side(settings)
        self._ended_since: dict[str, float] = {}

    def submit(self, request: Request) -> str:
        """Make the actor of an allocation; Ray starts it where there is room. Returns its name."""
        self._side.call(
            "submit",
            name=request.name,
            arguments=list(request.agent.arguments),
            environment=dict(request.agent.environment),
            **_taken(self._settings, request),
        )
        return request.name

    def allocations(self) -> Sequence[Seen]:
        """The group's actors, and for an hour those whose agents have ended."""
        found = []
        for told in self._side.call("list_all", prefix=self._prefix):
            seen = _seen(told)
            # Without an actor, its submission was cut off, or goes on in the process of a program that was killed.
            if (seen is None or seen.state.has_ended) and self._is_old(told["name"]):
                self._side.call("forget", name=told["name"])
                del self._ended_since[told["name"]]
            elif seen is not None:
                found.append(seen)
        return found

    def cancel(self, seen: Seen, *, only_queued: bool) -> bool:
        """End an actor that has not started its agent, or ask the agent to drain. The cluster's store decides which of
        both came first.
        """
        return bool(self._side.call("cancel", name=seen.name, only_queued=only_queued))

    def why(self, seen: Seen) -> str:
        """What is free in the cluster, or how an agent ended and what it wrote last."""
        if seen.state is State.QUEUED:
            free = self._side.call("free")
            shown = _counts({name: count for name, count in free.items() if ":" not in name})
            return f"{seen.reason} Free in all its nodes together: {shown or 'nothing'}"
        told = next((one for one in self._side.call("list_all", prefix=seen.name) if one["name"] == seen.name), None)
        log = json.loads(told["ended"])["log"] if told is not None and told["ended"] else []
        return "\n".join(filter(None, (seen.reason, *log)))

    def _is_old(self, name: str) -> bool:
        return time.monotonic() - self._ended_since.setdefault(name, time.monotonic()) > KEPT_S


def _seen(told: dict[str, Any]) -> Seen | None:
    """An allocation, of what the store has; None: its actor has not come to be."""
    name, fate = told["name"], told["fate"]
    if told["ended"]:
        code = int(json.loads(told["ended"])["code"])
        how = f"was ended by {signal_name(-code)}" if code < 0 else f"ended with exit code {code}"
        reason = f"Its process {how}." if code else ""
        if told["stopped"]:
            return Seen(name, name, State.CANCELLED, reason)
        return Seen(name, name, State.FAILED if code else State.COMPLETED, reason)
    if fate == "cancelled":
        return Seen(name, name, State.CANCELLED)
    if told["lives"]:
        return Seen(name, name, State.STARTED) if fate else Seen(name, name, State.QUEUED, _awaited(told["asked"]))
    if not fate:
        return None
    if not told["node_lives"]:
        return Seen(name, name, State.PREEMPTED, "Its node has left the cluster.")
    return Seen(name, name, State.FAILED, "Its actor was killed.")


def _awaited(asked: str) -> str:
    """Why an allocation waits, of what it takes."""
    return f"It waits for a node of the Ray cluster with enough free: {_counts(json.loads(asked)) or 'nothing'}."


def _counts(resources: Mapping[str, float]) -> str:
    """Resources of Ray's, for people."""
    shown = {name: size(int(count)) if name in _SIZES else f"{count:g}" for name, count in resources.items()}
    return ", ".join(f"{name} {count}" for name, count in sorted(shown.items()))


def _taken(settings: RaySettings, request: Request) -> dict[str, Any]:
    shape = request.shape
    return {
        "cpus": shape.slots,
        "gpus": shape.gpus,
        "memory": shape.memory_bytes,
        "resources": dict(settings.resources),
    }


def shown(settings: RaySettings, request: Request) -> str:
    """What Ray would be asked for a request, for people."""
    taken = json.dumps(_taken(settings, request))
    return f"actor {request.name} in namespace {settings.namespace}, detached, takes {taken}, holds\n" + " ".join(
        request.agent.arguments
    )


class _Side:
    """The process that is connected with the cluster. It is started when it is needed, and anew when it has ended."""

    def __init__(self, settings: RaySettings) -> None:
        self._settings = settings
        self._process: subprocess.Popen[str] | None = None
        self._errors: IO[str] | None = None

    def call(self, what: str, **values: Any) -> Any:
        """What the cluster answers. Raises Refused, Unreachable."""
        if self._process is None or self._process.poll() is not None:
            self._start()
        process = self._process
        assert process is not None and process.stdin is not None
        try:
            process.stdin.write(json.dumps({"call": what, **values}) + "\n")
            process.stdin.flush()
        except OSError:
            self._fail("The connection with the cluster broke")
        answer = self._answer(ANSWER_S)
        if "refused" in answer:
            raise Refused(answer["refused"])
        if "silent" in answer:
            raise Unreachable(f"The Ray cluster does not answer: {_brief(answer['silent'])}")
        return answer["answer"]

    def _start(self) -> None:
        self._end()
        self._errors = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115  it lives as long as the process
        command = [self._settings.python, str(_RAY_SIDE), self._settings.address, self._settings.namespace]
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                text=True,
                start_new_session=True,
                # Windrow need not be there, and nothing of this folder may stand for Ray itself.
                env={**os.environ, "PYTHONSAFEPATH": "1", "RAY_ADDRESS": ""},
            )
        except OSError as error:
            raise Unreachable(f"{self._settings.python} cannot be run: {error.strerror}") from error
        self._answer(CONNECT_S)

    def _answer(self, limit_s: float) -> dict[str, Any]:
        process = self._process
        assert process is not None and process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            if not selector.select(limit_s):
                self._fail(f"The Ray cluster did not answer within {limit_s:g} s")
        line = process.stdout.readline()
        if not line:
            self._fail("The Ray cluster cannot be reached, or has ended the connection")
        found: dict[str, Any] = json.loads(line)
        return found

    def _fail(self, what: str) -> None:
        """End the process, and say what it said. Raises Unreachable."""
        words = self._end()
        raise Unreachable(f"{what}{f': {words}' if words else ''}")

    def _end(self) -> str:
        """End the process; what it said last."""
        process, errors = self._process, self._errors
        self._process = self._errors = None
        words = ""
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    with contextlib.suppress(OSError):
                        stream.close()
        if errors is not None:
            errors.seek(0)
            words = _brief((errors.read().strip().splitlines() or [""])[-1])
            errors.close()
        return words


def _brief(text: str) -> str:
    return " ".join(text.split())[:_WORDS_MAX]
