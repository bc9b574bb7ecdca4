"""`windrow data` and `windrow model`: the registry of data assets and models."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated

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
from windrow.cli.display.uploads import UploadDisplay
from windrow.cli.messages import YELLOW, coloured, say
from windrow.cli.options.declared import Option, command
from windrow.cli.options.shared import Master, Output, OutputForm, State, open_client
from windrow.cli.tables import local_time, out, print_fields, print_json
from windrow.errors import UsageError
from windrow.sdk.asset import Asset

WORDS = {"data": "data asset", "model": "model"}
TYPES_HELP = (
    "Data: uri_folder (default), uri_file, mltable. Models: custom_model (default), mlflow_model, triton_model."
)
DEFAULT_TYPES = {"data": "uri_folder", "model": "custom_model"}


def make_commands(kind: str) -> SimpleNamespace:
    """The commands over assets of one kind."""
    word = WORDS[kind]

    @command(epilog=f"Example: windrow {kind} create --name flowers --path ./flowers --tag owner=me")
    def create(
        name: Annotated[str | None, Option("--name", "-n", metavar="NAME", help="Name of the asset.")] = None,
        version: Annotated[
            str | None, Option("--version", metavar="VERSION", help="Version [default: the next number].")
        ] = None,
        path: Annotated[
            str | None,
            Option("--path", metavar="PATH", help="A file, a folder, or an address in storage."),
        ] = None,
        type_: Annotated[
            str | None,
            Option("--type", metavar="TYPE", help=TYPES_HELP),
        ] = None,
        description: Annotated[
            str | None, Option("--description", metavar="TEXT", help="Description for people.")
        ] = None,
        tag: Tags = None,
        file: Annotated[
            Path | None,
            Option("--file", "-f", metavar="FILE", help="YAML file with all of this; options override it."),
        ] = None,
        master: Master = None,
        state: State = None,
        output: Output = OutputForm.TEXT,
    ) -> int:
        wanted, folder = _wanted(kind, file)
        if path is not None:
            folder = Path.cwd()
        wanted = wanted._replace(
            name=name or wanted.name,
            version=version or wanted.version,
            path=path or wanted.path,
            type=type_ or wanted.type or DEFAULT_TYPES[kind],
            description=description if description is not None else wanted.description,
            tags={**wanted.tags, **dict(tag_of(text) for text in tag or ())},
        )
        for option, value in (("--name", wanted.name), ("--path", wanted.path)):
            if not value:
                raise UsageError(f"The {word} has no {option.lstrip('-')}. Give {option}, or --file FILE.")
        with open_client(master, state, make=True) as client, UploadDisplay(quiet=output is OutputForm.JSON) as display:
            made = client.create_asset(wanted, folder=folder, on_upload=display.show)
        if output is OutputForm.JSON:
            print_json(made.to_dict())
        else:
            out(f"{made.reference}  {made.type}  {made.path}")
        return exit_codes.DONE

    create.__doc__ = (
        f"Register a {word} under a name and a version.\n\n"
        "Job files name it as azureml:NAME:VERSION or azureml:NAME@latest. "
        "A version never changes; registering the same again is harmless. Data at a relative path is on this machine "
        "and is uploaded to a served master; an absolute path is the master's."
    )

    @command(epilog=f"Example: windrow {kind} list --name flowers")
    def list_assets(
        name: ListedName = "",
        master: Master = None,
        state: State = None,
        output: Output = OutputForm.TEXT,
    ) -> int:
        with open_client(master, state) as client:
            found = list(client.registry.list(kind, name))
        print_assets(
            found,
            output,
            columns={"TYPE": lambda asset: asset.type, "REGISTERED": age_of, "PATH": lambda asset: asset.path},
            word=word,
            name=name,
            register=f"Register one with: windrow {kind} create --name NAME --path PATH",
        )
        return exit_codes.DONE

    list_assets.__doc__ = f"List {word}s.\n\nShows the latest version of each, or all versions of one."

    @command(epilog=f"Example: windrow {kind} show flowers --version 2")
    def show(
        name: Reference,
        version: Version = None,
        master: Master = None,
        state: State = None,
        output: Output = OutputForm.TEXT,
    ) -> int:
        name, version = named_version(word, name, version)
        with open_client(master, state) as client:
            asset = client.registry.get(kind, name, version)
        if output is OutputForm.JSON:
            print_json(asset.to_dict())
            return exit_codes.DONE
        output_of = f"output {asset.output} of " if asset.output else ""  # a script has registered it
        made_by = f"{output_of}step {asset.step} of job {asset.job_id}" if asset.job_id else ""
        print_fields(
            [
                ("name", asset.name),
                ("version", asset.version),
                ("type", asset.type),
                ("path", asset.path),
                ("in job files", asset.reference),
                ("registered", local_time(asset.create_time)),
                *([("written by", made_by)] if made_by else []),
                *described(asset),
            ]
        )
        return exit_codes.DONE

    show.__doc__ = f"Show one version of a {word}."
    return SimpleNamespace(create=create, list=list_assets, show=show)


def _wanted(kind: str, file: Path | None) -> tuple[Asset, Path]:
    """The asset that a file describes, and the folder where its relative paths begin."""
    if file is None:
        return Asset(kind, "", "", "", ""), Path.cwd()
    from windrow.spec.assets.asset_file import load_asset_file

    read = load_asset_file(file, kind)
    for warning in read.warnings:
        say(f"{coloured('warning:', YELLOW, sys.stderr)} {warning}")
    asset = Asset(kind, read.name, read.version, read.type, read.path, False, read.description, read.tags)
    return asset, Path(read.folder)


DATA = make_commands("data")
MODEL = make_commands("model")
