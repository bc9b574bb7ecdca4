"""`windrow registry`: folders that mirror registries of components."""

from __future__ import annotations

from typing import Annotated

from windrow.cli import exit_codes
from windrow.cli.options.declared import Argument, command
from windrow.cli.options.shared import Output, OutputForm
from windrow.cli.tables import out, print_json, print_table
from windrow.common.registries import Registries

Name = Annotated[str, Argument(metavar="NAME", help="Name of the registry, as in azureml://registries/NAME/….")]


@command(epilog="Example: windrow registry add azureml ./azureml-assets")
def add(
    name: Name,
    folder: Annotated[str, Argument(metavar="FOLDER", help="The folder with the files of its components.")],
) -> int:
    """Name a folder that holds the components of a registry.

    A component `azureml://registries/NAME/components/…` in a job file is then the YAML file below the folder that has
    its name and version, wherever it lies there. Nothing is copied.
    """
    Registries().add(name, folder)
    return exit_codes.DONE


@command(epilog="Example: windrow registry list --format json")
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


@command(epilog="Example: windrow registry remove azureml")
def remove(name: Name) -> int:
    """Forget a registry. Its folder stays."""
    Registries().remove(name)
    return exit_codes.DONE
