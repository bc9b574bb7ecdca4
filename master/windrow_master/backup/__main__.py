"""`python -m windrow_master.backup make STATE DIR | restore DIR STATE`: one line of JSON on stdout."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from windrow_master.backup.contents import BackupNote
from windrow_master.backup.making import make_backup
from windrow_master.backup.restoring import restore_backup
from windrow_master.files.errors import StateError


def main(arguments: list[str]) -> dict[str, Any]:
    """Run one command and return its answer."""
    what, source, target = arguments[0], Path(arguments[1]), Path(arguments[2])
    try:
        note = make_backup(source, target) if what == "make" else restore_backup(source, target)
    except StateError as error:
        return {"trouble": str(error)}
    except OSError as error:
        return {"trouble": f"{error.filename or target}: {error.strerror}"}
    return _answer(note)


def _answer(note: BackupNote) -> dict[str, Any]:
    return {
        "trouble": "",
        "time": note.time,
        "windrow_version": note.windrow_version,
        "schema": note.schema,
        "jobs": note.jobs,
        "files": len(note.files),
        "bytes": note.size,
        "left_out": note.left_out,
    }


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1:])))
