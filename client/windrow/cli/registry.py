"""`windrow registry`: folders that mirror registries of components."""

from __future__ import annotations

from typing import Annotated

import typer

from windrow.cli import exit_codes
from windrow.cli.options import Output, OutputForm, guarded
from windrow.cli.tables import out, print_json, print_table
from windrow.common.registries import Registries

app = typer.Typer(
    help="Name folders that mirror registries of components.",
    no_args_is_help=True,
    epilog="Example: windrow registry add azureml ./azureml-assets",
)
Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the registry, as in azureml://registries/NAME/….")]


@app.command("add", epilog="Example: windrow registry add azureml ./azureml-assets")
@guarded
def add(
    name: Name,
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="The folder with the files of its components.")],
) -> int:
    """Name a folder that holds the components of a registry.

    A component `azureml://registries/NAME/components/…` in a job file is then the YAML file below the folder that has
    its name and version, wherever it lies there. Nothing is copied.
    """
    Registries().add(name, folder)
    return exit_codes.DONE


@app.command("list", epilog="Example: windrow registry list --format json")
@guarded
def list_registries(output: Output = OutputForm.TEXT) -> int:
    """List the registries with their folders."""
    folders = Registries().folders
    if output is OutputForm.JSON:
        print_json(folders)
    elif not folders:
        out("There is no registry yet. Name a folder with: windrow registry add NAME FOLDER")
    else:
        print_table(("NAME", "FOLDER"), sorted(folders.items()))
    return exit_codes.DONE


@app.command("remove", epilog="Example: windrow registry remove azureml")
@guarded
def remove(name: Name) -> int:
    """Forget a registry. Its folder stays."""
    Registries().remove(name)
    return exit_codes.DONE
