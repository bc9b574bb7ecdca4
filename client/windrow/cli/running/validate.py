"""`windrow validate`, also as `windrow job validate`: all that is wrong with a file, before anything runs."""

from __future__ import annotations

import contextlib
import functools
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from windrow.cli import exit_codes
from windrow.cli.messages import RED, YELLOW, coloured, say
from windrow.cli.options.declared import Argument, Option, command
from windrow.cli.options.shared import Output, OutputForm, Sets, open_client
from windrow.cli.tables import out, print_json
from windrow.common.quantities import counted
from windrow.embedded import state_folder
from windrow.errors import UsageError

if TYPE_CHECKING:
    from windrow.spec.naming.assets import AssetLookup

CheckedFile = Annotated[
    Path,
    Argument(metavar="FILE", help="A job file (v2 or v1), a component file, or a folder with an MLTable file."),
]
ScriptPython = Annotated[
    str | None,
    Option(
        "--python",
        metavar="PATH",
        help="Interpreter that would run the scripts [default: the active environment's, else Windrow's].",
    ),
]
Datastores = Annotated[
    list[str] | None,
    Option("--datastore", metavar="NAME=PLACE", help="Datastore that the run would have. Repeatable."),
]
StateFolder = Annotated[
    Path,
    Option(
        "--state",
        envvar="WINDROW_STATE",
        metavar="DIR",
        help="State folder of the run: only outputs that it wrote may be replaced.",
    ),
]


@command(
    epilog="Example: windrow validate job.yml --set inputs.data.path=./other",
    short_help="Check a job file, a component or a table without running it.",
)
def validate(
    file: CheckedFile,
    sets: Sets = None,
    python: ScriptPython = None,
    datastores: Datastores = None,
    state: StateFolder = Path(state_folder.DEFAULT),
    output: Output = OutputForm.TEXT,
) -> int:
    """Check a job file, component or table without running it.

    Shows all errors and warnings with their places, also in files that it names on this machine: components, MLTable
    files, code folders, entry scripts. Exit codes: 0 valid, perhaps with warnings, 2 not valid.
    """
    from windrow.embedded.datastores import known, read
    from windrow.spec import load_job
    from windrow.validation.validate import validate as check

    with contextlib.ExitStack() as opened:
        assets = functools.partial(_registry, opened)  # asked only by a file that names an asset
        load = functools.partial(load_job, datastores=known(str(state), read(datastores or ())), assets=assets)
        found = check(file, sets or (), load=load, assets=assets, python=python, state=str(state))
    if output is OutputForm.JSON:
        print_json(found.to_dict())
        return exit_codes.DONE if found.valid else exit_codes.USAGE
    for error in found.errors:
        say(f"{coloured('error:', RED, sys.stderr)} {error}")
    for warning in found.warnings:
        out(f"{coloured('warning:', YELLOW, sys.stdout)} {warning}")
    if found.valid:
        out(f"{found.file} is a valid {found.kind}.")
        return exit_codes.DONE
    say(f"{found.file} is not a valid {found.kind}: {counted(len(found.errors), 'error')}.")
    return exit_codes.USAGE


def _registry(opened: contextlib.ExitStack) -> AssetLookup:
    """The registry of the context in use, or else of the runs in this folder. Empty if there is neither."""
    from windrow.spec.naming.assets import NO_ASSETS

    try:
        return opened.enter_context(open_client(None, None)).asset_lookup()
    except UsageError:
        return NO_ASSETS
