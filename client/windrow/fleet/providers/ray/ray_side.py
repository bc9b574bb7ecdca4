"""Speaks to a Ray cluster for the provider: `PYTHON ray_side.py ADDRESS NAMESPACE`, in a process of its own.

A process that is connected with a cluster is ended by Ray when the cluster goes away; this one may be. It needs nothing
but Ray, so it runs in whatever Python has the versions of the cluster. It reads one JSON document a line, and answers
with one.

What is known of an allocation is in the key-value store of the cluster, below the namespace and its name:

- `asked`: it was asked for, and what it takes of a node.
- `fate`: the actor writes `started NODE` before it starts the agent, whoever cancels it before that writes `cancelled`;
  only the first of the two is written.
- `stopped`: somebody has told the agent to stop.
- `ended`: how the agent ended, and what it wrote last.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from importlib import import_module
from typing import Any

# Not `import`: where there is no Ray, types are checked all the same.
ray: Any = import_module("ray")
internal_kv: Any = import_module("ray.experimental.internal_kv")

LOG_LINES = 8
STOP_S = 10.0
# Whoever kills the actor, or its node, ends the agent, too: it drains.
SHIM = "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 15); os.execvp(sys.argv[1], sys.argv[1:])"


def store() -> bytes:
    """The part of the cluster's store that belongs to the namespace: Ray itself keeps only actors apart by it."""
    return f"windrow-fleet {ray.get_runtime_context().namespace}".encode()


class AgentHolder:
    """The actor: it lives as long as its agent, and the resources are taken as long as it lives."""

    def __init__(self, name: str, arguments: list[str], environment: dict[str, str]) -> None:
        self._name = name
        node = ray.get_runtime_context().get_node_id()
        self._agent: subprocess.Popen[str] | None = None
        if internal_kv._internal_kv_put(f"{name}/fate", f"started {node}", overwrite=False, namespace=store()):
            # Somebody has cancelled it.
            self._end()
            return
        try:
            self._agent = subprocess.Popen(
                [sys.executable, "-c", SHIM, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                env={**os.environ, **environment},
                start_new_session=True,
            )
        except OSError as error:
            self._tell(127, [str(error)])
            self._end()
            return
        threading.Thread(target=self._wait, daemon=True).start()

    def stop(self) -> bool:
        """Tell the agent to drain."""
        if self._agent is not None:
            internal_kv._internal_kv_put(f"{self._name}/stopped", "yes", namespace=store())
            self._agent.send_signal(signal.SIGTERM)
        return True

    def _wait(self) -> None:
        last: deque[str] = deque(maxlen=LOG_LINES)
        assert self._agent is not None and self._agent.stdout is not None
        for line in self._agent.stdout:
            # It goes into Ray's logs.
            print(line, end="", flush=True)
            last.append(line.rstrip())
        self._tell(self._agent.wait(), list(last))
        self._end()

    def _tell(self, code: int, log: list[str]) -> None:
        internal_kv._internal_kv_put(f"{self._name}/ended", json.dumps({"code": code, "log": log}), namespace=store())

    def _end(self) -> None:
        actor = ray.get_runtime_context().current_actor
        threading.Thread(target=lambda: ray.kill(actor), daemon=True).start()


def submit(
    name: str,
    arguments: list[str],
    environment: dict[str, str],
    cpus: float,
    gpus: int,
    memory: int,
    resources: dict[str, float],
) -> None:
    """Make the actor of an allocation."""
    takes = {what: count for what, count in {"CPU": cpus, "GPU": gpus, "memory": memory, **resources}.items() if count}
    internal_kv._internal_kv_put(f"{name}/asked", json.dumps(takes), namespace=store())
    taken: dict[str, Any] = {"num_cpus": cpus, "num_gpus": gpus, "resources": resources}
    if memory:
        taken["memory"] = memory
    made = ray.remote(AgentHolder).options(name=name, lifetime="detached", max_restarts=0, **taken)
    made.remote(name, arguments, environment)


def list_all(prefix: str) -> list[dict[str, Any]]:
    """What is known of the allocations whose names begin so."""
    # First who lives: what those that have died have written, is written by now.
    living = {name for name in ray.util.list_named_actors() if name.startswith(prefix)}
    nodes = {node["NodeID"] for node in ray.nodes() if node["Alive"]}
    found = []
    for key in sorted(internal_kv._internal_kv_list(prefix.encode(), namespace=store())):
        name, _, what = key.decode().partition("/")
        if what == "asked":
            told = {"name": name, "lives": name in living, **state_of(name)}
            told["node_lives"] = told["fate"].partition(" ")[2] in nodes
            found.append(told)
    return found


def state_of(name: str) -> dict[str, Any]:
    """What the store has of an allocation; "" for what it does not have."""
    told: dict[str, Any] = {}
    for what in ("asked", "fate", "stopped", "ended"):
        value = internal_kv._internal_kv_get(f"{name}/{what}", namespace=store())
        told[what] = "" if value is None else value.decode()
    return told


def cancel(name: str, only_queued: bool) -> bool:
    """End an actor that has not started its agent, or tell the agent to stop; False: neither."""
    try:
        actor = ray.get_actor(name)
    except ValueError:
        return False
    if not internal_kv._internal_kv_put(f"{name}/fate", "cancelled", overwrite=False, namespace=store()):
        ray.kill(actor)
        return True
    if only_queued or state_of(name)["ended"]:
        return False
    return bool(ray.get(actor.stop.remote(), timeout=STOP_S))


def forget(name: str) -> None:
    """Remove what the store has of an allocation."""
    # `asked` goes last: what is listed has it.
    for what in ("fate", "stopped", "ended", "asked"):
        internal_kv._internal_kv_del(f"{name}/{what}", namespace=store())


def free() -> dict[str, float]:
    """What nobody has taken, in all nodes together."""
    return dict(ray.available_resources())


def main() -> None:
    """Connect, and answer until nobody asks any more."""
    # Ray writes to standard output.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    address, namespace = sys.argv[1:]
    ray.init(address=address, namespace=namespace, log_to_driver=False, logging_level=logging.ERROR)
    calls: dict[str, Any] = {"submit": submit, "list_all": list_all, "cancel": cancel, "forget": forget, "free": free}
    print(json.dumps({"connected": True}), file=answers, flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            answer = {"answer": calls[asked.pop("call")](**asked)}
        except ValueError as error:
            # Also a name that is taken, which Ray counts among its own errors.
            answer = {"refused": str(error)}
        except (ray.exceptions.RayError, OSError, RuntimeError) as error:
            answer = {"silent": str(error) or type(error).__name__}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
