"""Environments. The client keeps them, since a job carries what it needs of them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

from windrow.errors import NotFound
from windrow.ml.absent import refuse_label
from windrow.ml.assets.environment import Environment, find_environment


class EnvironmentOperations:
    """`MLClient.environments`: jobs of this client may name them as `name:version` or `name@latest`."""

    def __init__(self) -> None:
        self.known: dict[str, Environment] = {}

    def create_or_update(self, environment: Environment) -> Environment:
        """Keep an environment. Without a name or version, it gets one."""
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
        """An environment that this client keeps; without a version (or with the label latest) the one made last.

        Raises NotFound for others: a job may still name them. Raises UsageError for another label.
        """
        refuse_label(f"environment {name}", label)
        found = find_environment(f"{name}:{version}" if version else f"{name}@latest", self.known)
        if found is None:
            raise NotFound(
                f"This client has no environment {name}{f':{version}' if version else ''}. Make it with "
                "environments.create_or_update, or name it in the job as it is: scripts then run in the interpreter of "
                "the agent."
            )
        return found

    def list(self, name: str | None = None, **more: Any) -> Iterator[Environment]:
        """The environments that this client keeps."""
        return iter([env for env in self.known.values() if name is None or env["name"] == name])
