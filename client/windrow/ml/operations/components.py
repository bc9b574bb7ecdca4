"""Components. The client keeps them, since a job carries what it needs of them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

from windrow.errors import NotFound
from windrow.ml.absent import refuse_label
from windrow.ml.jobs.pipeline_job import PipelineJob
from windrow.ml.jobs.pipeline_step import PipelineStep
from windrow.ml.jobs.step import Step

Component = Step | Callable[..., Any]
"""Called to make a step: a component, or a function under @pipeline. A pipeline stands for its component."""


class ComponentOperations:
    """`MLClient.components`: kept while this client lives."""

    def __init__(self, registry: str | None = None) -> None:
        """`registry`: the name of a registry, whose components are found, too."""
        self._registry = registry
        self._known: dict[tuple[str, str], Component] = {}

    def create_or_update(self, component: Component, *, version: str | int | None = None, **more: Any) -> Component:
        """Keep a component under its name and version ("1" if it has none), a function under @pipeline, or a pipeline
        (`pipeline_function().component`) under its name.
        """
        if isinstance(component, PipelineJob):
            name = str(component.get("name") or component.get("display_name"))
            made = PipelineStep(component, settings={"name": name, "version": str(version or "1")})
            self._known[name, str(version or "1")] = made
            return made
        if not isinstance(component, Step):
            self._known[component.__name__, str(version or "1")] = component
            return component
        own = component.get("version")
        version = str(version or own or "1")
        if own not in (None, version):
            component = copy.deepcopy(component)  # the original may be kept under its own version
        component["version"] = version
        self._known[str(component.get("name") or component.default_key), version] = component
        return component

    def get(self, name: str, version: str | int | None = None, label: str | None = None) -> Component:
        """Return a kept component; without a version (or with the label latest) the last one. Raises NotFound, and
        UsageError for another label.
        """
        refuse_label(f"component {name}", label)
        version = None if version is None else str(version)
        fitting = [made for (n, v), made in self._known.items() if n == name and version in (None, v)]
        if not fitting and self._registry:
            return self._of_registry(self._registry, name, version or "")
        if not fitting:
            raise NotFound(
                f"This client has no component {name}{f':{version}' if version else ''}. Load it from its file: "
                "load_component(source=PATH)."
            )
        return fitting[-1]

    def _of_registry(self, registry: str, name: str, version: str) -> Component:
        from windrow.ml.jobs.loading import load_component
        from windrow.spec.assets.components import ComponentReference, component_file

        try:
            return load_component(source=component_file(ComponentReference(registry, name, version)))
        except ValueError as error:
            raise NotFound(f"The component {name}{f':{version}' if version else ''} {error}.") from error

    def list(self, name: str | None = None, **more: Any) -> Iterator[Component]:
        """The components that were kept."""
        return iter([made for (n, _), made in self._known.items() if name in (None, n)])
