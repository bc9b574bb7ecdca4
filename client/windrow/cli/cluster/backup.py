"""`windrow backup` and `windrow restore`: copies of a state folder, made while its master runs."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from windrow.cli import exit_codes
from windrow.cli.messages import say
from windrow.cli.options.declared import Argument, Option, command
from windrow.cli.options.shared import Output, OutputForm
from windrow.cli.tables import local_time, out, print_json
from windrow.common.quantities import counted, size
from windrow.common.role_query import Unanswered, ask
from windrow.errors import UsageError

Folder = Annotated[
    Path,
    Option(
        "--state",
        envvar="WINDROW_STATE",
        metavar="DIR",
        help="The state folder of runs, or of a master, on this machine.",
    ),
]


@command(epilog="Example: windrow backup /mnt/backups/monday --state /var/lib/windrow")
def backup(
    to: Annotated[Path, Argument(metavar="DIR", help="New folder for the backup.")],
    state: Folder = Path(".windrow"),
    output: Output = OutputForm.TEXT,
) -> int:
    """Back up a state folder, while its master runs or not.

    The backup is as the state was at one moment: whatever was acknowledged by then is in it. It is read again and
    checked before it gets its name; a backup that breaks off leaves nothing. Data and outputs elsewhere are not in
    it. No job is deleted meanwhile.
    """
    told = _asked("make", state, to)
    if output is OutputForm.JSON:
        print_json({"backup": str(to.absolute()), **told})
    else:
        what = f"{counted(told['jobs'], 'job')}, {counted(told['files'], 'file')}, {size(told['bytes'])}"
        out(f"Backed up to {to}: {what}.")
        if told["left_out"]:
            say(
                "Not in it is what lies too deep in folders that scripts have nested: below "
                f"{', '.join(told['left_out'][:5])}"
            )
    return exit_codes.DONE


@command(epilog="Example: windrow restore /mnt/backups/monday --state /var/lib/windrow")
def restore(
    source: Annotated[Path, Argument(metavar="DIR", help="The backup.")],
    state: Folder = Path(".windrow"),
    output: Output = OutputForm.TEXT,
) -> int:
    """Bring a backup back into an empty state folder.

    The backup is verified before, and the copy afterwards. Until then, no master starts there; the same command begins
    again what broke off.
    """
    told = _asked("restore", source, state)
    if output is OutputForm.JSON:
        print_json({"state": str(state.absolute()), **told})
    else:
        made = local_time(datetime.fromtimestamp(told["time"], UTC))
        out(f"Restored into {state}: {counted(told['jobs'], 'job')}, {size(told['bytes'])}, as of {made}.")
    return exit_codes.DONE


def _asked(what: str, source: Path, target: Path) -> dict[str, Any]:
    """Run the master's own code, and return its answer. Raises UsageError."""
    try:
        told = ask("windrow_master.backup", what, str(source.absolute()), str(target.absolute()), patience_s=None)
    except Unanswered as error:
        raise UsageError(f"The master's code does not run: {error}") from error
    trouble = told.pop("trouble")
    if trouble:
        raise UsageError(str(trouble))
    return told
