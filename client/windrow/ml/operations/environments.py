"""Environments: registered with the master, so that jobs name them as `azureml:<name>:<version>`."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from windrow.errors import NotFound
from windrow.ml.absent import refuse_label
from windrow.ml.assets.environment import Environment
from windrow.sdk.asset import Asset
from windrow.spec.naming.assets import ENVIRONMENT, PACKAGE_FILES
from windrow.spec.reading.nodes import Mapping as MappingNode
from windrow.spec.reading.problems import Problems
from windrow.spec.reading.yaml_files import read_yaml

if TYPE_CHECKING:
    from windrow.ml.connection import MasterConnection


class EnvironmentOperations:
    """`MLClient.environments`."""

    def __init__(self, connection: MasterConnection) -> None:
        """`connection`: to the master."""
        self._connection = connection

    def create_or_update(self, environment: Environment) -> Environment:
        """Register an environment, with what its conda file says now. It gets a name, if it has none, and without a
        version the next one, unless it equals the newest. Raises windrow.spec.JobFileError for a wrong conda file, and
        RequestRefused if the version exists and differs.
        """
        from windrow.sdk.packages import register_environment

        if environment.get("name") is None:
            digest = hashlib.sha256(repr(environment.to_dict()).encode()).hexdigest()
            environment["name"] = f"env_{digest[:12]}"
        values = environment.to_dict()
        node = environment.to_node(named=False)
        content = {key: value for key, value in node.entries.items() if key not in ("description", "tags")}
        tags = {str(key): str(value) for key, value in (values.get("tags") or {}).items()}
        version, description = str(values.get("version") or ""), values.get("description") or ""
        wanted = Asset(ENVIRONMENT, values["name"], version, "", "", False, description, tags)
        made = register_environment(self._connection.client(), node._replace(entries=content), wanted)
        environment["version"] = made.version
        return environment

    def get(self, name: str, version: str | int | None = None, label: str | None = None) -> Environment:
        """Return a registered environment; without a version (or with the label latest) the newest.

        Raises NotFound for others: a job may still name them. Raises UsageError for another label.
        """
        refuse_label(f"environment {name}", label)
        try:
            if not self._connection.has_state:
                raise NotFound("There is no state folder.", reason="ASSET_UNKNOWN")
            wanted = None if version is None else str(version)
            return self._made(self._connection.client().registry.get(ENVIRONMENT, name, wanted))
        except NotFound as error:
            raise NotFound(
                f"There is no environment {name}{f':{version}' if version else ''}. Make it with "
                "environments.create_or_update, or name it in the job as it is: scripts then run in the interpreter of "
                "the agent.",
                reason=error.reason,
            ) from error

    def list(self, name: str | None = None, **more: Any) -> Iterator[Environment]:
        """The newest version of each environment, or all versions of one."""
        if not self._connection.has_state:
            return iter(())
        return map(self._made, self._connection.client().registry.list(ENVIRONMENT, name or ""))

    def _made(self, asset: Asset) -> Environment:
        from windrow.sdk.packages import folder_of

        folder = folder_of(self._connection.client(), asset, self._connection.packages_state)
        problems = Problems()
        root = read_yaml(os.path.join(folder, PACKAGE_FILES[ENVIRONMENT]), "environment", problems)
        problems.raise_errors()
        assert isinstance(root, MappingNode)
        # As nodes: files that it names are beside its own.
        content: dict[str, Any] = dict(root.entries)
        own = {"name": asset.name, "version": asset.version, "description": asset.description or None}
        return Environment(**{**content, **own, "tags": asset.tags or None})
