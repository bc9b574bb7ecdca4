"""A job file, component or environment together with the files that it names, so that it is read where these are not:
components, environments, and the places of code. Data stays where it is.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from windrow.spec.environments.environment import is_path, read_environment
from windrow.spec.job.components import Components
from windrow.spec.naming.assets import COMPONENT, ENVIRONMENT, PACKAGE_FILES
from windrow.spec.naming.expressions import has_expression
from windrow.spec.naming.locations import absolute, parse_location
from windrow.spec.reading.context import Context
from windrow.spec.reading.from_python import scalar
from windrow.spec.reading.keys import as_mapping
from windrow.spec.reading.nodes import Mapping, Node, Scalar, is_null
from windrow.spec.reading.packages import registered_file
from windrow.spec.reading.yaml_files import read_yaml
from windrow.spec.writing.dumping import absolute_path, pipeline_plain, plain_of, step_plain, yaml_text

JOB_FILE = "pipeline.yml"
CODE, COMPONENTS, CONSTRAINTS = "code", "components", "constraints"
_PIP_FILE = re.compile(r"\s*(-r|-c|--requirement|--constraint)\b")


class Package(NamedTuple):
    """What a package holds. `files`: texts by their relative paths. `code`: by absolute code folder, where in the
    package its content belongs.
    """

    files: dict[str, str]
    code: dict[str, str]


def package_of(root: Mapping, name: str, context: Context) -> Package:
    """The package of a pipeline's tree, which has been read without an error. `name`: for people; the name of a job is
    its own alone, so it does not stay in the file.

    The job file is JOB_FILE. Paths of data become absolute if the job runs on this machine (`context.embedded`);
    otherwise outputs at relative paths go to the master's default place.
    """
    writer = _Writer(context)
    plain = pipeline_plain(root, _Names(writer, "."))
    plain["display_name"] = plain.get("display_name") or plain.get("name") or name
    plain.pop("name", None)
    writer.files[JOB_FILE] = yaml_text(plain)
    return Package(writer.files, writer.code)


def component_package(root: Mapping, context: Context) -> Package:
    """The package of a component, whose file is that of PACKAGE_FILES. Notes what is wrong with what it names."""
    writer = _Writer(context)
    assert writer.write_component(root) == PACKAGE_FILES[COMPONENT]
    return Package(writer.files, writer.code)


def environment_package(node: Mapping, context: Context) -> Package:
    """The package of an environment, whose file is that of PACKAGE_FILES. Notes what is wrong with it."""
    read_environment(node, "", context)
    writer = _Writer(context)
    plain: Any = plain_of(node)
    conda = node if "dependencies" in node.entries else node.entries.get("conda_file")
    if conda is not None and not is_null(conda) and not context.problems.errors:
        root = conda
        if isinstance(conda, Scalar) and (file := _local(conda)) and not file.endswith(".txt"):
            root = read_yaml(file, "environment", context.problems) or conda
        kept: Any = {"conda_file": plain_of(root)}
        if not isinstance(root, Mapping) or _names_files(kept):
            kept = _Names(writer, ".").environment(node)
        plain = {**({} if conda is node else plain), **(kept or {})}
    files = {PACKAGE_FILES[ENVIRONMENT]: yaml_text(plain)}
    return Package({**files, **writer.files}, writer.code)


def _names_files(plain: Any) -> bool:
    """Whether a conda list has lines of pip that name other files."""
    lists = [entry.get("pip") for entry in plain["conda_file"].get("dependencies") or () if isinstance(entry, dict)]
    return any(_PIP_FILE.match(str(line)) for lines in lists for line in lines or ())


class _Writer:
    def __init__(self, context: Context) -> None:
        self.context = context
        self.files: dict[str, str] = {}
        self.code: dict[str, str] = {}
        self.components = Components(context)
        self._names: dict[str, str] = {}
        self._components = 0
        self._constraints = 0

    def code_of(self, path: str) -> str:
        return self.code.setdefault(path, f"{CODE}/{len(self.code) + 1}")

    def component_of(self, path: str) -> str:
        """Where the file of a component is in the package; it is added if it is not there yet."""
        if path not in self._names:
            root = as_mapping(read_yaml(path, "component", self.context.problems), "", self.context)
            assert root is not None
            self._names[path] = self.write_component(root)
        return self._names[path]

    def write_component(self, component: Mapping) -> str:
        self._components += 1  # before those that it names: the first is PACKAGE_FILES' own
        name = f"{COMPONENTS}/{self._components}.yml"
        self.files[name] = yaml_text(step_plain(component, _Names(self, "..")))
        return name

    def constraints_of(self, lines: tuple[str, ...]) -> str:
        self._constraints += 1
        name = f"{CONSTRAINTS}/{self._constraints}.txt"
        self.files[name] = "\n".join(lines) + "\n"
        return name


class _Names:
    """How one file of the package names others. `top`: the path from its folder to that of the package."""

    def __init__(self, writer: _Writer, top: str) -> None:
        self._writer = writer
        self._top = top

    def step(self, node: Mapping) -> tuple[Mapping, dict[str, Any]]:
        own, component = self._writer.components.without_sets(node)
        if component is None:
            return own, {}
        if isinstance(node.entries["component"], Mapping):
            return own, {"component": step_plain(component, self)}
        return own, {"component": f"{self._top}/{self._writer.write_component(component)}"}

    def code(self, node: Scalar) -> Any:
        path = _local(node)
        return plain_of(node) if path is None else f"{self._top}/{self._writer.code_of(path)}"

    def component(self, node: Scalar) -> Any:
        path = self._writer.components.path_of(node, "component")
        assert path is not None
        return f"{self._top}/{self._writer.component_of(path)}"

    def environment(self, node: Node) -> Any:
        """The environment as it is read, with all lines of the files that it names."""
        context = self._writer.context
        if isinstance(node, Scalar) and not is_path(node.text, node.place.source.folder):
            file = registered_file(node, ENVIRONMENT, "environment", context)
            if not file:
                return plain_of(node)
            node = scalar(file, node.place)
        own = Context(context.source, embedded=context.embedded)
        found = read_environment(node, "environment", own)
        context.problems.errors += own.problems.errors
        if found is None:  # an image alone
            file = _local(node) if isinstance(node, Scalar) else None
            root = node if file is None else read_yaml(file, "environment", context.problems)
            return None if root is None else plain_of(root)
        conda = found.conda
        pip: list[Any] = [*(found.requirements if conda is None else conda.pip), *found.options]
        if found.constraints:
            pip.append(f"-c {self._top}/{self._writer.constraints_of(found.constraints)}")
        if conda is not None:
            return {"conda_file": {"channels": [*conda.channels], "dependencies": [*conda.specs, {"pip": pip}]}}
        python = found.python
        dependencies: list[Any] = []
        if python is not None:
            dependencies.append(f"python={python}" if python[0].isdigit() else f"python{python}")
        return {"conda_file": {"dependencies": [*dependencies, {"pip": pip}]}}

    def data(self, node: Node) -> Any:
        return absolute_path(node)

    def output(self, node: Node) -> Any:
        is_here = isinstance(node, Scalar) and not node.text.startswith("/") and _local(node) is not None
        return None if is_here and not self._writer.context.embedded else absolute_path(node)


def _local(node: Node) -> str | None:
    """The absolute path that a node names on this machine; None if it names something else."""
    if not isinstance(node, Scalar) or not isinstance(node.value, str) or has_expression(node.text):
        return None
    location = parse_location(node.text)
    if location.kind != "local" or not location.value:
        return None
    return absolute(location.value, node.place.source.folder)
