"""Components: registered with the master, so that jobs name them as `azureml:<name>:<version>`."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from windrow.errors import NotFound
from windrow.ml.absent import refuse_label
from windrow.ml.jobs.loading import load_component
from windrow.ml.jobs.pipeline_job import PipelineJob
from windrow.ml.jobs.pipeline_step import PipelineStep
from windrow.ml.jobs.step import Step
from windrow.sdk.asset import Asset
from windrow.spec.naming.assets import COMPONENT, PACKAGE_FILES

if TYPE_CHECKING:
    from windrow.ml.connection import MasterConnection


class ComponentOperations:
    """`MLClient.components`."""

    def __init__(self, connection: MasterConnection, registry: str | None = None) -> None:
        """`registry`: the name of a registry, whose components are found, too."""
        self._connection = connection
        self._registry = registry

    def create_or_update(
        self, component: Step | PipelineJob | Callable[..., Any], *, version: str | int | None = None, **more: Any
    ) -> Step:
        """Register a component with the code and the environment that it has now: a step, a function under @pipeline,
        or a pipeline (`pipeline_function().component`). Without a version, it becomes the next one of its name, unless
        it equals the newest. Returns it, to make steps of.

        Raises windrow.spec.JobFileError for a wrong file that it names, UsageError for code that cannot be packed, and
        RequestRefused if the version exists and differs.
        """
        from windrow.sdk.packages import register_component

        step = _step_of(component)
        name = str(step.get("name") or step.default_key)
        own = step.get("version")
        version = str(version or own or "")
        if own not in (None, version):
            step = copy.deepcopy(step)  # the original keeps its own version
        tags = {str(key): str(value) for key, value in (step.get("tags") or {}).items()}
        wanted = Asset(
            COMPONENT,
            name,
            version,
            "",
            "",
            False,
            str(step.get("description") or ""),
            tags,
        )
        made = register_component(self._connection.client(), step.to_component(name), wanted)
        step["version"] = made.version
        return step

    def get(self, name: str, version: str | int | None = None, label: str | None = None) -> Step:
        """Return a registered component, as it was then; without a version (or with the label latest) the newest.
        Raises NotFound, and UsageError for another label.
        """
        refuse_label(f"component {name}", label)
        wanted = None if version is None else str(version)
        try:
            if not self._connection.has_state:
                raise NotFound("There is no state folder.", reason="ASSET_UNKNOWN")
            return self._made(self._connection.client().registry.get(COMPONENT, name, wanted))
        except NotFound as error:
            if self._registry:
                return self._of_registry(self._registry, name, wanted or "")
            raise NotFound(
                f"There is no component {name}{f':{version}' if version else ''}. Register it with "
                "components.create_or_update, or load it from its file: load_component(source=PATH).",
                reason=error.reason,
            ) from error

    def list(self, name: str | None = None, **more: Any) -> Iterator[Step]:
        """The newest version of each component, or all versions of one."""
        if not self._connection.has_state:
            return iter(())
        return map(self._made, self._connection.client().registry.list(COMPONENT, name or ""))

    def _made(self, asset: Asset) -> Step:
        from windrow.sdk.packages import folder_of

        folder = folder_of(self._connection.client(), asset, self._connection.packages_state)
        made = load_component(source=os.path.join(folder, PACKAGE_FILES[COMPONENT]))
        made["version"] = asset.version
        return made

    def _of_registry(self, registry: str, name: str, version: str) -> Step:
        from windrow.spec.assets.components import ComponentReference, component_file

        try:
            return load_component(source=component_file(ComponentReference(registry, name, version)))
        except ValueError as error:
            raise NotFound(f"The component {name}{f':{version}' if version else ''} {error}") from error


def _step_of(component: Any) -> Step:
    """The step that stands for a component."""
    if isinstance(component, Step):
        return component
    if isinstance(component, PipelineJob):
        name = str(component.get("name") or component.get("display_name") or "pipeline")
        return PipelineStep(component, settings={"name": name})
    return PipelineStep(component(), settings={"name": component.__name__})
