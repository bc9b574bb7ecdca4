"""Environments and conda files, as v1 notebooks make them."""

from __future__ import annotations

import copy
import os
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from windrow.errors import NotFound, UsageError
from windrow.ml.absent import refuse_label
from windrow.ml.exceptions import JobWarning
from windrow.spec.naming.locations import absolute, parse_location
from windrow.spec.reading.nodes import Mapping as MappingNode
from windrow.spec.reading.nodes import Scalar, to_plain
from windrow.spec.v1.environments import Environment as WrittenEnvironment

"""Base images by the names that notebooks use. Windrow notes them, and runs no containers."""


class CondaDependencies:
    """The content of a conda file, built package by package."""

    def __init__(
        self, conda_dependencies_file_path: str | None = None, content: Mapping[str, Any] | None = None
    ) -> None:
        """Start from a conda file, from the content of one, or empty."""
        if conda_dependencies_file_path:
            with open(conda_dependencies_file_path, encoding="utf-8") as file:
                content = yaml.safe_load(file)
        content = content or {}
        self._channels: list[str] = list(content.get("channels") or [])
        self._conda: list[str] = []
        self._pip: list[str] = []
        for entry in content.get("dependencies") or []:
            if isinstance(entry, dict):
                self._pip += list(entry.get("pip") or [])
            else:
                self._conda.append(str(entry))

    @classmethod
    def create(
        cls,
        pip_indexurl: str | None = None,
        pip_packages: Sequence[str] | None = None,
        conda_packages: Sequence[str] | None = None,
        python_version: str | None = None,
        pin_sdk_version: bool = True,
    ) -> CondaDependencies:
        """Make the content from lists of packages."""
        made = cls()
        if python_version:
            made.set_python_version(python_version)
        for package in conda_packages or ():
            made.add_conda_package(package)
        if pip_indexurl:
            made._pip.append(f"--index-url {pip_indexurl}")
        for package in pip_packages or ():
            made.add_pip_package(package)
        return made

    def add_pip_package(self, pip_package: str) -> None:
        """Add a package from PyPI."""
        self._pip.append(pip_package)

    def add_conda_package(self, conda_package: str) -> None:
        """Add a package from conda."""
        self._conda.append(conda_package)

    def add_channel(self, channel: str) -> None:
        """Add a conda channel."""
        self._channels.append(channel)

    def set_python_version(self, version: str) -> None:
        """Set the Python version."""
        self._conda = [f"python={version}", *(name for name in self._conda if not name.startswith("python="))]

    def set_pip_requirements(self, pip_requirements: Sequence[str]) -> None:
        """Replace the packages from PyPI."""
        self._pip = list(pip_requirements)

    @property
    def pip_packages(self) -> list[str]:
        """The packages from PyPI."""
        return list(self._pip)

    @property
    def conda_packages(self) -> list[str]:
        """The packages from conda."""
        return list(self._conda)

    def as_dict(self) -> dict[str, Any]:
        """Return the content of the conda file."""
        dependencies: list[Any] = [*self._conda]
        if self._pip:
            dependencies.append({"pip": list(self._pip)})
        content: dict[str, Any] = {"dependencies": dependencies}
        return {"channels": list(self._channels), **content} if self._channels else content

    def serialize_to_string(self) -> str:
        """Return the text of the conda file."""
        return str(yaml.safe_dump(self.as_dict(), sort_keys=False))

    def save_to_file(self, base_directory: str, conda_file_path: str = "conda_dependencies.yml") -> str:
        """Write the conda file into a folder; return its path."""
        path = os.path.join(base_directory, conda_file_path)
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.serialize_to_string())
        return path


class _Section:
    """A part of an environment. Any attribute can be set; Windrow reads only those that it knows."""

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)

    def __setattr__(self, name: str, value: Any) -> None:
        self.__dict__[name] = value

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return None


class Environment:
    """An environment: `python.conda_dependencies`, `docker.base_image`, `environment_variables`.

    Not the `Environment` of `windrow.ml.assets`, which names a conda file.
    """

    def __init__(self, name: str, **more: Any) -> None:
        """An empty environment: scripts run in the interpreter of the agent."""
        self.name = name
        self.version: str | None = None
        self.python = _Section(conda_dependencies=CondaDependencies(), user_managed_dependencies=False)
        self.docker = _Section(base_image=None, base_dockerfile=None, enabled=True)
        self.spark = _Section()
        self.environment_variables: dict[str, str] = {}

    @staticmethod
    def get(workspace: Any, name: str, version: str | None = None, label: str | None = None) -> Environment:
        """Return a registered environment: the newest, or a version. One of Azure ML's own (`AzureML-…`) has no
        packages, unless one of that name is registered. Raises NotFound for others, and for a version that was not
        registered; UsageError for a label other than `latest`.
        """
        refuse_label(f"environment {name}", label)
        try:
            found: Environment = workspace.environments.find(name, version)
        except NotFound:
            if not is_vendors(name):
                raise
            found = Environment(name)
            found.version = version
        return found

    @staticmethod
    def from_conda_specification(name: str, file_path: str) -> Environment:
        """Make an environment from a conda file."""
        made = Environment(name)
        made.python.conda_dependencies = CondaDependencies(file_path)
        return made

    @staticmethod
    def from_pip_requirements(name: str, file_path: str, pip_version: str | None = None) -> Environment:
        """Make an environment from a requirements file. `pip_version` is ignored: Windrow does not use pip."""
        made = Environment(name)
        with open(file_path, encoding="utf-8") as file:
            lines = [line.strip() for line in file]
        made.python.conda_dependencies.set_pip_requirements(
            [line for line in lines if line and not line.startswith("#")]
        )
        return made

    @staticmethod
    def list(workspace: Any) -> dict[str, Environment]:
        """The newest version of each registered environment, by name."""
        return dict(workspace.environments)

    @staticmethod
    def from_docker_image(
        name: str,
        image: str,
        container_registry: Any = None,
        conda_specification: str | None = None,
        pip_requirements: str | None = None,
    ) -> Environment:
        """Make an environment from an image, which has no effect (a warning says so), and the path of a conda file or
        requirements file.
        """
        made = _from_list(name, conda_specification, pip_requirements)
        made.docker.base_image = image
        return made

    @staticmethod
    def from_dockerfile(
        name: str, dockerfile: str, conda_specification: str | None = None, pip_requirements: str | None = None
    ) -> Environment:
        """Make an environment from the text or path of a Dockerfile, otherwise as `from_docker_image`."""
        made = _from_list(name, conda_specification, pip_requirements)
        made.docker.base_dockerfile = dockerfile
        return made

    def register(self, workspace: Any) -> Environment:
        """Register the environment, as it is now, with the master, so that other notebooks find it. It becomes the next
        version of its name, unless it equals the newest one. Raises windrow.spec.JobFileError for packages that cannot
        be installed, RequestRefused.
        """
        self.version = workspace.environments.register_plain(self.name, self.to_plain())
        return self

    def clone(self, new_name: str) -> Environment:
        """Return a copy with another name."""
        made = copy.deepcopy(self)
        made.name, made.version = new_name, None
        return made

    @staticmethod
    def from_plain(name: str, plain: Mapping[str, Any]) -> Environment:
        """The environment of a file of v1 or v2, with the content of its conda file."""
        made = Environment(name)
        python, docker = plain.get("python") or {}, plain.get("docker") or {}
        made.python.user_managed_dependencies = bool(python.get("userManagedDependencies"))
        if conda := python.get("condaDependencies") or plain.get("conda_file"):
            made.python.conda_dependencies = CondaDependencies(content=conda)
        made.docker.base_image = docker.get("baseImage") or plain.get("image")
        made.docker.base_dockerfile = docker.get("baseDockerfile")
        made.environment_variables = dict(plain.get("environmentVariables") or {})
        return made

    def to_plain(self) -> dict[str, Any]:
        """Return the environment in the form that v1 writes to files."""
        python: dict[str, Any] = {"userManagedDependencies": bool(self.python.user_managed_dependencies)}
        conda = self.python.conda_dependencies
        if isinstance(conda, CondaDependencies) and conda.as_dict()["dependencies"]:
            python["condaDependencies"] = conda.as_dict()
        plain: dict[str, Any] = {"name": self.name, "python": python}
        docker = {"baseImage": self.docker.base_image, "baseDockerfile": self.docker.base_dockerfile}
        if given := {key: value for key, value in docker.items() if value}:
            plain["docker"] = given
        if self.environment_variables:
            plain["environmentVariables"] = dict(self.environment_variables)
        return plain

    @staticmethod
    def from_written(written: WrittenEnvironment, workspace: Any) -> Environment | None:
        """The environment of a file, from its reader; None if it does not name one. Raises OSError for its conda file.

        A version or label that is not registered gives a JobWarning, and means the newest version.
        """
        node = written.node
        if isinstance(node, Scalar):
            named, _, label = node.text.strip().removeprefix("azureml:").partition("@")
            name, _, version = named.partition(":")
            try:
                return Environment.get(workspace, name, version or None, label or None)
            except (NotFound, UsageError) as error:
                if not version and label in ("", "latest"):
                    raise
                # The file may name a version of another workspace; this one counts its own.
                newest = Environment.get(workspace, name)
                warnings.warn(f"{node.place}: {node.text}: {error} The newest one is used.", JobWarning, stacklevel=3)
                return newest
        if not isinstance(node, MappingNode):
            return None
        plain: Any = to_plain(node)
        made = Environment(str(plain.get("name") or "environment"))
        conda = node.entries.get("conda_file")
        if isinstance(conda, Scalar):
            path = absolute(parse_location(conda.text).value, conda.place.source.folder)
            made.python.conda_dependencies = CondaDependencies(path)
        elif conda is not None:
            made.python.conda_dependencies = CondaDependencies(content=plain["conda_file"])
        made.docker.base_image = plain.get("image")
        made.docker.base_dockerfile = (plain.get("build") or {}).get("dockerfile")
        if written.variables is not None:
            made.environment_variables = {
                name: value.text for name, value in written.variables.entries.items() if isinstance(value, Scalar)
            }
        return made


def is_vendors(name: str) -> bool:
    """Whether it is the name of an environment that comes with Azure ML."""
    return name.lower().startswith("azureml-")


def _from_list(name: str, conda: str | None, pip: str | None) -> Environment:
    """Make an environment from a conda file or a requirements file, if one is given."""
    if conda:
        return Environment.from_conda_specification(name, conda)
    return Environment.from_pip_requirements(name, pip) if pip else Environment(name)


class RunConfiguration:
    """The environment of a script step."""

    def __init__(
        self,
        script: Any = None,
        arguments: Any = None,
        framework: Any = None,
        communicator: Any = None,
        conda_dependencies: CondaDependencies | None = None,
        **more: Any,
    ) -> None:
        """With an environment of these packages, or an empty one, and no compute. The other arguments have no effect:
        give them to the step."""
        self.environment = Environment("environment")
        if conda_dependencies is not None:
            self.environment.python.conda_dependencies = conda_dependencies
        self.target: Any = None
        self.docker = _Section()
        self.environment_variables: dict[str, str] = {}
