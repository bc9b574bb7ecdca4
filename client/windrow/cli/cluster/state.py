"""`windrow state`: checks a state folder, and saves what can still be read of a damaged one."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any

from windrow.cli import exit_codes
from windrow.cli.options.declared import Argument, Option, command
from windrow.cli.options.shared import Output, OutputForm
from windrow.cli.tables import out, print_json, print_table
from windrow.common.quantities import counted
from windrow.common.role_query import Unanswered, ask
from windrow.errors import UsageError

Folder = Annotated[
    Path, Argument(metavar="DIR", envvar="WINDROW_STATE", help="The state folder of runs, or of a master.")
]
ADVICE = (
    "Keep a copy of the folder as it is. Then restore the whole folder from a backup, or save what can still be "
    "read: windrow state salvage {folder} --to OUT"
)


@command(epilog="Example: windrow state check /var/lib/windrow")
def check(folder: Folder = Path(".windrow"), output: Output = OutputForm.TEXT) -> int:
    """Verify every checksum in a state folder.

    Checks the database and each of its rows, committed rows, recipes, listings, sorted rows, archives, notes and lists.
    Each finding names the job and step, and says what the damage means. No master may use the folder meanwhile; nothing
    in it is changed. Exit codes: 0 no damage, 1 damage was found.
    """
    found = _asked("check", folder)
    damage = found["damage"]
    if output is OutputForm.JSON:
        listed = [{"where": where, "what": what} for where, what in damage]
        print_json({"sound": not damage, "damage": listed, "unfinished": found["unfinished"]})
    elif found["unfinished"]:
        out(found["unfinished"])
    elif not damage:
        out(f"{folder} is sound: {counted(found['jobs'], 'job')}, and nothing damaged.")
    else:
        for where, what in damage:
            out(f"{where}: {what}")
        out("")
        advice = ADVICE.format(folder=shlex.quote(str(folder)))
        out(f"Damaged in {counted(len(damage), 'place')}. {advice}")
    return exit_codes.JOB_FAILED if damage else exit_codes.DONE


@command(epilog="Example: windrow state salvage /var/lib/windrow --to /mnt/saved")
def salvage(
    folder: Folder = Path(".windrow"),
    to: Annotated[
        Path | None, Option("--to", metavar="OUT", help="New folder for what can be read.  [required]")
    ] = None,
    output: Output = OutputForm.TEXT,
) -> int:
    """Save what can still be read into a new folder.

    Saves committed rows, documents and code archives, and a list of what is missing. What fails its checksum is left
    out and listed. No master may use the folder meanwhile; nothing in it is changed. Exit codes: 0 nothing is missing,
    1 something is.
    """
    if to is None:
        raise UsageError("--to OUT is required: a new folder for what can be read.")
    found = _asked("export", folder, to)
    lost = bool(found["notes"])
    if output is OutputForm.JSON:
        print_json(found)
        return exit_codes.JOB_FAILED if lost else exit_codes.DONE
    rows = []
    for job in found["jobs"]:
        for step in job["steps"]:
            numbers = [f"{step[name]:,}" if name in step else "?" for name in ("mini_batches", "rows", "missing")]
            rows.append((job["job"], step["step"], *numbers, step.get("file") or step.get("segments") or ""))
    if rows:
        print_table(("JOB", "STEP", "SAVED", "ROWS", "MISSING", "FILE"), rows)
    for note in found["notes"]:
        out(note)
    saved = f"{counted(len(found['jobs']), 'job')}, {counted(found['artifacts'], 'archive')}"
    out(f"Saved in {to}: {saved}. A step's missing.csv lists the mini-batches without rows; salvage.json has it all.")
    return exit_codes.JOB_FAILED if lost else exit_codes.DONE


def _asked(what: str, folder: Path, *more: Path) -> dict[str, Any]:
    """Run the master's own code, and return its answer. Raises UsageError."""
    try:
        places = [str(path.absolute()) for path in (folder, *more)]
        found = ask("windrow_master.salvage", what, *places, patience_s=None)
    except Unanswered as error:
        raise UsageError(f"The state folder could not be checked: {error}") from error
    if found["trouble"]:
        raise UsageError(str(found["trouble"]))
    return found
