"""A cluster of the tests with a group of a fleet on it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from asked_group import STAYS, AskedGroup
from kube_api import KubeApi, kube_api
from kube_engine import KubeEngine
from windrow.fleet.provider import AgentCommand, Request, Seen, Shape, State
from windrow.fleet.providers.kubernetes import KubernetesProvider
from windrow.fleet.providers.kubernetes.settings import KubernetesSettings

PREFIX = "site-cpu-0a1b2c-"
DEADLINE_S = 120.0
DRAINS = ("sh", "-c", "trap 'echo told; exit 0' TERM; echo begun; while :; do sleep 0.05; done")
"""Leaves well when it is told to."""


class KubeCluster(AskedGroup):
    """The API, the engine behind it, and the provider of one group."""

    def __init__(self, api: KubeApi, engine: KubeEngine) -> None:
        self.api, self.engine = api, engine
        self.settings = KubernetesSettings(
            "windrow-agent:test", kubeconfig=str(api.kubeconfig), grace_s=30, timeout_s=20
        )
        self.provider = self.new_provider()
        self._count = 0

    def new_provider(self, prefix: str = PREFIX, **settings: Any) -> KubernetesProvider:
        """What a fleet that starts anew has."""
        return KubernetesProvider(self.settings._replace(**settings), prefix)

    def request(self, arguments: tuple[str, ...] = STAYS, **given: Any) -> Request:
        """A request with a new name: one slot, an hour."""
        self._count += 1
        request = Request(f"{PREFIX}x{self._count}", Shape(1), 3600.0, AgentCommand(arguments, {}))
        return request._replace(**given)

    def wait(self, name: str, state: State) -> Seen:
        """An allocation, once it is in a state."""
        until(lambda: self.must_see(name).state is state, lambda: f"{name} is {state.value}: {self.must_see(name)}")
        return self.must_see(name)

    def started(self, arguments: tuple[str, ...] = STAYS, **given: Any) -> str:
        """Ask for an allocation, and wait until it has started."""
        name = self.submit(arguments, **given)
        self.wait(name, State.STARTED)
        if arguments is DRAINS:
            until(lambda: "begun" in (self.engine.folder_of(name) / "log").read_text(), lambda: f"{name} has begun")
        return name


def until(condition: Callable[[], object], what: Callable[[], str]) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, what()
        time.sleep(0.01)


@contextmanager
def kube_cluster(folder: Path) -> Iterator[KubeCluster]:
    """A cluster for one test."""
    with kube_api(folder) as api:
        engine = KubeEngine(api, folder / "pods")
        try:
            yield KubeCluster(api, engine)
        finally:
            engine.end()
