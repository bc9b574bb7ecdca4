"""`windrow environment` and `windrow component`: what the master keeps for job files to name."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated

from windrow.cli import exit_codes
from windrow.cli.assets.named_assets import (
    ListedName,
    Reference,
    Tags,
    Version,
    age_of,
    described,
    named_version,
    print_assets,
    tag_of,
)
from windrow.cli.messages import YELLOW, coloured, say
from windrow.cli.options.declared import Option, command
from windrow.cli.options.shared import Master, Output, OutputForm, State, open_client
from windrow.cli.tables import local_time, out, print_fields, print_json
from windrow.errors import UsageError
from windrow.sdk.asset import Asset

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windrow.spec.naming.assets import OpenLookup
    from windrow.spec.reading.nodes import Mapping
    from windrow.spec.reading.problems import Problem

KEPT = {"environment": "its list of packages", "component": "its code and its environment"}


def make_commands(kind: str) -> SimpleNamespace:
    """The commands over environments or components."""

    @command(epilog=f"Example: windrow {kind} create --file {kind}.yml --tag owner=me")
    def create(
        file: Annotated[Path, Option("--file", "-f", metavar="FILE", help="Its YAML file.")],
        name: Annotated[
            str | None, Option("--name", "-n", metavar="NAME", help="Name [default: that in the file].")
        ] = None,
        version: Annotated[
            str | None,
            Option("--version", metavar="VERSION", help="Version [default: that in the file, else the next]."),
        ] = None,
        tag: Tags = None,
        master: Master = None,
        state: State = None,
        output: Output = OutputForm.TEXT,
    ) -> int:
        from windrow.sdk.packages import register_component, register_environment

        root = _read(kind, str(file.absolute()))
        texts = {key: getattr(root.entries.get(key), "text", "") for key in ("name", "version", "description")}
        wanted = Asset(
            kind,
            name or texts["name"],
            version or texts["version"],
            "",
            "",
            False,
            texts["description"],
            dict(tag_of(text) for text in tag or ()),
        )
        if not wanted.name:
            raise UsageError(f"The {kind} has no name. Give --name, or write name: into {file}.")
        content = {key: node for key, node in root.entries.items() if key not in ("version", "tags")}
        register = register_environment if kind == "environment" else register_component
        with open_client(master, state, make=True) as client:
            warnings = _check(kind, str(file.absolute()), root, client.asset_lookup)
            made = register(client, root._replace(entries=content), wanted)
        for problem in warnings:
            say(f"{coloured('warning:', YELLOW, sys.stderr)} {problem}")
        if output is OutputForm.JSON:
            print_json(made.to_dict())
        else:
            out(made.reference)
        return exit_codes.DONE

    create.__doc__ = (
        f"Register {'an' if kind == 'environment' else 'a'} {kind} under a name and a version.\n\n"
        f"The master keeps {KEPT[kind]}. Job files name it as azureml:NAME:VERSION or azureml:NAME@latest. "
        "A version never changes; registering the same again is harmless."
    )

    @command(epilog=f"Example: windrow {kind} list")
    def list_all(
        name: ListedName = "",
        master: Master = None,
        state: State = None,
        output: Output = OutputForm.TEXT,
    ) -> int:
        with open_client(master, state) as client:
            found = sorted(client.registry.list(kind, name), key=lambda asset: asset.name)
        print_assets(
            found,
            output,
            columns={"REGISTERED": age_of, "DESCRIPTION": lambda asset: asset.description},
            word=kind,
            name=name,
            register=f"Register one with: windrow {kind} create --file FILE",
        )
        return exit_codes.DONE

    list_all.__doc__ = f"List {kind}s.\n\nShows the latest version of each, or all versions of one."

    @command(epilog=f"Example: windrow {kind} show NAME:2")
    def show(
        name: Reference,
        version: Version = None,
        master: Master = None,
        state: State = None,
        output: Output = OutputForm.TEXT,
    ) -> int:
        from windrow.sdk.packages import folder_of
        from windrow.spec.naming.assets import PACKAGE_FILES

        name, version = named_version(kind, name, version)
        with open_client(master, state) as client:
            asset = client.registry.get(kind, name, version)
            text = Path(folder_of(client, asset, None), PACKAGE_FILES[kind]).read_text("utf-8")
        if output is OutputForm.JSON:
            print_json({**asset.to_dict(), "file": text})
            return exit_codes.DONE
        print_fields(
            [
                ("name", asset.name),
                ("version", asset.version),
                ("in job files", asset.reference),
                ("registered", local_time(asset.create_time)),
                *described(asset),
            ]
        )
        out(f"\n{text.rstrip()}")
        return exit_codes.DONE

    show.__doc__ = f"Show a version of {'an' if kind == 'environment' else 'a'} {kind}, with its file."
    return SimpleNamespace(create=create, list=list_all, show=show)


def _read(kind: str, file: str) -> Mapping:
    """The content of a file. Raises JobFileError, UsageError."""
    from windrow.spec.reading.nodes import Mapping
    from windrow.spec.reading.problems import Problems
    from windrow.spec.reading.yaml_files import read_yaml
    from windrow.validation.standalone import is_component

    problems = Problems()
    root = read_yaml(file, kind, problems)
    problems.raise_errors()
    if not isinstance(root, Mapping) or (kind == "component" and not is_component(root)):
        raise UsageError(f"{file} is no {kind}: a {kind}'s file is a mapping of settings, as in Azure ML.")
    return root


def _check(kind: str, file: str, root: Mapping, assets: OpenLookup) -> Sequence[Problem]:
    """The warnings about a component; an environment is checked when it is packed. Raises JobFileError."""
    from windrow.validation.standalone import read_component

    if kind == "environment":
        return ()
    _, context = read_component(file, root, assets)
    context.problems.raise_errors()
    return context.problems.warnings


ENVIRONMENT = make_commands("environment")
COMPONENT = make_commands("component")
