"""What notebooks set up that has nothing to do here. It is accepted, and the first use of each kind says so."""

from __future__ import annotations

import functools
from typing import Any

from windrow.ml.v1.absent import tell_no_effect


class DockerConfiguration:
    """How a run uses a container, as `azureml.core.runconfig.DockerConfiguration`. It has no effect: workers do not run
    in containers. Raises nothing; warns (JobWarning) if it asks for a container.
    """

    def __init__(self, use_docker: bool = False, **options: Any) -> None:
        """`options`: shared_volumes, arguments, shm_size, …"""
        self.use_docker = use_docker
        self.__dict__.update(options)
        if use_docker or options.get("enabled"):
            _tell_of_containers(type(self).__name__)


class DockerSection(DockerConfiguration):
    """The older name of a container's settings."""


class ContainerRegistry:
    """Where images come from: address, username, password. It has no effect: workers do not run in containers."""

    def __init__(self, **values: Any) -> None:
        """Accept any values."""
        self.__dict__.update({"address": None, "username": None, "password": None, **values})


@functools.cache
def _tell_of_containers(what: str) -> None:
    tell_no_effect(what, "workers do not run in containers; an Environment's conda_dependencies are installed")


def set_diagnostics_collection(send_diagnostics: bool = True, verbosity: Any = None, **more: Any) -> None:
    """Do nothing: Windrow sends nothing to anyone."""
