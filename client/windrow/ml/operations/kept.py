"""Environments and components: this client keeps them, since a job carries what it needs of them."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterator
from typing import Any

from windrow.errors import NotFound
from windrow.ml.entities import Environment
from windrow.ml.environments import find_environment
from windrow.ml.steps import Step

Component = Step | Callable[..., Any]
"""What is called to make a step: a component, or a function under @pipeline."""


class EnvironmentOperations:
    """`MLClient.environments`: jobs of this client may name them, as `name:version` or `name@latest`."""

    def __init__(self) -> None:
        self.known: dict[str, Environment] = {}

    def create_or_update(self, environment: Environment) -> Environment:
        """Make an environment known to this client. Without a name or version it gets one."""
        if environment.get("name") is None:
            digest = hashlib.sha256(repr(environment.to_dict()).encode()).hexdigest()
            environment["name"] = f"env_{digest[:12]}"
        name = environment["name"]
        if environment.get("version") is None:
            versions = [str(env["version"]) for env in self.known.values() if env["name"] == name]
            environment["version"] = str(1 + max((int(v) for v in versions if v.isdigit()), default=0))
        self.known.pop(f"{name}:{environment['version']}", None)
        self.known[f"{name}:{environment['version']}"] = environment
        return environment

    def get(self, name: str, version: str | None = None, label: str | None = None) -> Environment:
        """One that was made known. Raises NotFound: of others jobs keep the name."""
        found = find_environment(f"{name}:{version}" if version else f"{name}@latest", self.known)
        if found is None:
            raise NotFound(
                f"This client knows no environment {name}{f':{version}' if version else ''}. Make it with "
                "environments.create_or_update, or name it in the job as it is: scripts then run in the interpreter of "
                "the agent."
            )
        return found

    def list(self, name: str | None = None, **more: Any) -> Iterator[Environment]:
        """Those that were made known."""
        return iter([env for env in self.known.values() if name is None or env["name"] == name])


class ComponentOperations:
    """`MLClient.components`: kept for as long as this client lives."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], Component] = {}

    def create_or_update(self, component: Component, *, version: str | int | None = None, **more: Any) -> Component:
        """Keep a component under its name and version ("1" where it says none), or a function under @pipeline."""
        if not isinstance(component, Step):
            self._known[component.__name__, str(version or "1")] = component
            return component
        own = component.get("version")
        version = str(version or own or "1")
        if own not in (None, version):
            component = copy.deepcopy(component)  # the given one may be kept under its own version
        component["version"] = version
        self._known[str(component.get("name") or component.default_key), version] = component
        return component

    def get(self, name: str, version: str | int | None = None, label: str | None = None) -> Component:
        """One that was kept, the last without a version. Raises NotFound."""
        version = None if version is None else str(version)
        fitting = [made for (n, v), made in self._known.items() if n == name and version in (None, v)]
        if not fitting:
            raise NotFound(
                f"This client keeps no component {name}{f':{version}' if version else ''}. Load it from its file: "
                "load_component(source=PATH)."
            )
        return fitting[-1]

    def list(self, name: str | None = None, **more: Any) -> Iterator[Component]:
        """Those that were kept."""
        return iter([made for (n, _), made in self._known.items() if name in (None, n)])
