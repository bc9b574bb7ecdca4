"""`python -m windrow_master.salvage check DIR | export DIR OUT`: one line of JSON on stdout.

`check`: {"damage": [[where, what]], "jobs": n, "trouble": ""}; `export`: what `salvage.json` says, or {"trouble": why}.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from pathlib import Path
from typing import Any

from windrow_master.salvage.checks import CHECKS, Damage, database_damage
from windrow_master.salvage.database import SavedDatabase
from windrow_master.salvage.export import export
from windrow_master.salvage.folder import StateFolder
from windrow_master.store.lock import LOCK_FILE, is_locked
from windrow_master.store.sqlite import DATABASE_FILE
from windrow_master.temporary import temporary_folder

DAMAGE_MAX = 1000


def main(arguments: list[str]) -> dict[str, Any]:
    """The answer."""
    what, folder = arguments[0], Path(arguments[1])
    if not folder.is_dir():
        return {"trouble": f"{folder} is no folder."}
    if is_locked(folder / LOCK_FILE):
        return {"trouble": f"A master works over {folder}: stop it first."}
    database = folder / DATABASE_FILE
    if not database.exists() and not (folder / "jobs").is_dir() and not (folder / LOCK_FILE).exists():
        return {"trouble": f"{folder} is no state folder: it holds neither {DATABASE_FILE} nor jobs/."}
    try:
        return _check(folder, database) if what == "check" else _export(folder, database, Path(arguments[2]))
    except OSError as error:
        return {"trouble": f"{error.filename or folder}: {error.strerror}"}


def _check(folder: Path, database: Path) -> dict[str, Any]:
    damage = list(database_damage(database))
    jobs = 0
    if database.exists():
        with temporary_folder("windrow-check-") as place:
            try:
                copy = SavedDatabase(database, place)
            except sqlite3.Error:
                copy = None
            if copy is not None:
                try:
                    state = StateFolder(folder, copy)
                    jobs = len(state.jobs())
                    for look in CHECKS:
                        for found in look(state):
                            damage.append(found)
                            if len(damage) >= DAMAGE_MAX:
                                break
                    gaps = dict.fromkeys(copy.gaps)
                    damage += [
                        Damage(f"windrow.db, table {gap.table}", f"keys {gap.first} to {gap.last} cannot be read")
                        for gap in gaps
                    ]
                finally:
                    copy.close()
    return {"damage": [list(found) for found in dict.fromkeys(damage)], "jobs": jobs, "trouble": ""}


def _export(folder: Path, database: Path, out: Path) -> dict[str, Any]:
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        return {"trouble": f"{out} is there already, and not empty: name a new folder with --to."}
    if out.resolve().is_relative_to(folder.resolve()):
        return {"trouble": f"{out} lies in the state folder, which is left as it is: name another with --to."}
    out.mkdir(parents=True, exist_ok=True)
    return {"trouble": "", **export(folder, database, out)}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1:])))
