"""What the commands over all kinds of registered assets share: options, names, lists."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated

from windrow.cli.options.declared import Argument, Option
from windrow.cli.options.shared import OutputForm
from windrow.cli.tables import ago, out, print_json, print_table
from windrow.errors import UsageError
from windrow.sdk.asset import Asset

Reference = Annotated[str, Argument(metavar="NAME", help="Name, or [azureml:]NAME:VERSION as in job files.")]
Version = Annotated[str | None, Option("--version", metavar="VERSION", help="Version [default: the latest].")]
ListedName = Annotated[
    str,
    Option("--name", "-n", metavar="NAME", help="All versions of this one [default: the latest of each]."),
]
Tags = Annotated[list[str] | None, Option("--tag", metavar="KEY=VALUE", help="Tag for people. Repeatable.")]

Columns = Mapping[str, Callable[[Asset], str]]
"""Behind name and version: a heading, and what stands below it."""


def print_assets(
    found: Sequence[Asset], output: OutputForm, *, columns: Columns, word: str, name: str, register: str
) -> None:
    """Print a list of assets. `word`: what they are; `name`: the one that was asked for, if any; `register`: how to
    make the first one, a sentence."""
    if output is OutputForm.JSON:
        print_json([asset.to_dict() for asset in found])
    elif not found:
        of = f" named {name}" if name else ""
        out(f"There is no {word}{of} yet. {register}")
    else:
        print_table(
            ("NAME", "VERSION", *columns),
            [
                (asset.name, asset.version, *(column(asset) for column in columns.values()))
                for asset in sorted(found, key=lambda asset: asset.name)
            ],
        )


def age_of(asset: Asset) -> str:
    """How long ago an asset was registered."""
    return ago(asset.create_time)


def described(asset: Asset) -> list[tuple[str, str]]:
    """The fields of an asset that are for people: its description and its tags."""
    return [
        *([("description", asset.description)] if asset.description else []),
        *((f"tag {key}", value) for key, value in sorted(asset.tags.items())),
    ]


def named_version(word: str, text: str, version: str | None) -> tuple[str, str | None]:
    """Return name and version (None for the latest) of an asset, given as in a job file or by its name alone. Raises
    UsageError for text that is not an asset reference, and for two versions.
    """
    from windrow.spec.naming.assets import split_asset_reference

    try:
        found = split_asset_reference(text.removeprefix("azureml:"))
    except ValueError as error:
        raise UsageError(f'"{text}" {error}') from None
    if found is None:
        raise UsageError(f'"{text}" is not the name of a {word}. Write NAME, NAME:VERSION or NAME@latest.')
    name, sign, said = found
    if sign and version is not None and version != said:
        raise UsageError(f'"{text}" and --version {version} name different versions. Keep one of them.')
    return name, said if sign == ":" else version


def tag_of(text: str) -> tuple[str, str]:
    """The key and the value of a --tag. Raises UsageError."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise UsageError(f"--tag {text}: expected KEY=VALUE, for example --tag owner=me.")
    return key, value
