"""`python -m windrow_master.salvage check DIR | export DIR OUT`: one line of JSON on stdout.

`check`: {"damage": [[where, what]], "jobs": n, "trouble": "", "unfinished": what, of a folder whose database was not
completed}; `export`: what `salvage.json` says, or {"trouble": why}.
"""

from __future__ import annotations

import json
import sys
from itertools import chain, islice
from pathlib import Path
from typing import Any

from windrow.common.removal import remove_tree
from windrow.common.state_mark import STATE_MARK

from windrow_master.files.durable import is_full
from windrow_master.files.lock import incarnation_in, is_locked
from windrow_master.files.state_files import StateFiles
from windrow_master.files.temporary import temporary_folder
from windrow_master.salvage.checks import CHECKS
from windrow_master.salvage.damage import Damage
from windrow_master.salvage.export import export
from windrow_master.salvage.folder import DamagedState
from windrow_master.store.errors import StoreBroken
from windrow_master.store.protocol import Traces
from windrow_master.store.sqlite.examination import all_damage, has_tables
from windrow_master.store.sqlite.saved import SavedDatabase
from windrow_master.store.sqlite.saved_records import SavedRecords

DAMAGE_MAX = 1000
_NO_ROOM = "it has not enough space for a copy of the database, which is needed for the check"


def main(arguments: list[str]) -> dict[str, Any]:
    """Run one command and return its answer."""
    what, folder = arguments[0], Path(arguments[1])
    if not folder.is_dir():
        return {"trouble": f"{folder} is not a folder."}
    files = StateFiles(folder)
    if is_locked(files.lock):
        return {"trouble": f"A master is using {folder}: stop it first."}
    if not any(path.exists() for path in (files.database, files.jobs, files.lock)):
        return {"trouble": f"{folder} is not a state folder: it contains neither {STATE_MARK} nor jobs/."}
    try:
        if files.database.exists() and not _was_in_use(files) and not has_tables(files.database):
            unfinished = (
                f"{files.database} has no tables yet: whoever made this state folder was interrupted before its "
                "database was complete, by a loss of power, say. Nothing is lost, since nothing was stored. Start the "
                "run or master again, which makes the rest; or delete the folder"
            )
            if what == "check":
                return {"damage": [], "jobs": 0, "trouble": "", "unfinished": f"{unfinished}."}
            return {"trouble": f"There is nothing to save: {unfinished}."}
        return _check(files) if what == "check" else _export(files, Path(arguments[2]))
    except OSError as error:
        return {"trouble": f"{error.filename or folder}: {error.strerror}"}


def _was_in_use(files: StateFiles) -> bool:
    """Whether a master has had a whole database here."""
    return bool(incarnation_in(files.lock) or files.signs_of_use())


def _check(files: StateFiles) -> dict[str, Any]:
    database = files.database
    traces = Traces(incarnation_in(files.lock), files.signs_of_use())
    damage = [Damage(where, what) for where, what in all_damage(database, traces)]
    jobs = 0
    if database.exists() and has_tables(database):
        with temporary_folder("windrow-check-") as place:
            copy = _copied(database, place, damage)
            if copy is not None:
                try:
                    state = DamagedState(files, SavedRecords(copy))
                    jobs = len(state.records.jobs())
                    found = chain.from_iterable(look(state) for look in CHECKS)
                    damage += islice(found, DAMAGE_MAX)
                    if next(found, None) is not None:
                        damage.append(
                            Damage(str(files.folder), f"there is more; only the first {DAMAGE_MAX:,} are listed")
                        )
                    damage += [
                        Damage(f"{STATE_MARK}, table {gap.table}", f"keys {gap.first} to {gap.last} cannot be read")
                        for gap in copy.gaps
                    ]
                finally:
                    copy.close()
    return {"damage": [list(found) for found in dict.fromkeys(damage)], "jobs": jobs, "trouble": "", "unfinished": ""}


def _copied(database: Path, place: Path, damage: list[Damage]) -> SavedDatabase | None:
    """Copy the database; None if nothing of it can be read, which is then added to `damage`. Raises OSError."""
    try:
        return SavedDatabase(database, place)
    except StoreBroken as error:
        if not damage:
            damage.append(Damage(str(database), f"its tables cannot be read: {error}"))
    except OSError as error:
        if is_full(error):
            raise OSError(error.errno, f"{_NO_ROOM}. Set another folder: TMPDIR=FOLDER", str(place)) from error
        raise
    return None


def _export(files: StateFiles, out: Path) -> dict[str, Any]:
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        return {"trouble": f"{out} already exists and is not empty: choose a new folder with --to."}
    if out.resolve().is_relative_to(files.folder.resolve()):
        return {"trouble": f"{out} is in the state folder, which must not change: choose another with --to."}
    is_new = not out.exists()
    out.mkdir(parents=True, exist_ok=True)
    try:
        return {"trouble": "", **export(files, out)}
    except OSError as error:
        if not is_full(error):
            raise
        _empty(out)
        if is_new:
            out.rmdir()
        what = (
            "its disk is full. What had been saved there was incomplete, and was removed. Choose a folder "
            "with more space"
        )
        return {"trouble": f"{out}: {what}: --to OUT"}


def _empty(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_dir():
            remove_tree(path)
        else:
            path.unlink()


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1:])))
