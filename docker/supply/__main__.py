"""What the images are made of: `python docker/supply lock|audit|licences`, as `make lock` and so on run it.

`lock [PACKAGE…|all]` locks the dependencies of pyproject.toml, and takes the newest version of the packages named.
`audit [DATABASE]` ends with 1 where a locked package has a known vulnerability, with 2 where that could not be asked.
`licences` lists the licences of all that is locked, and ends with 1 where one is not allowed.
"""

from __future__ import annotations

import sys
from pathlib import Path

import audit
import licences
import locks
from advisories import DatabaseError


def main(arguments: list[str]) -> int:
    """Returns the exit code."""
    try:
        match arguments:
            case ["lock", *upgrade]:
                return lock(upgrade)
            case ["audit"]:
                return audit.audit()
            case ["audit", database]:
                return audit.audit(Path(database))
            case ["licences"]:
                return list_licences()
    except (locks.LockError, DatabaseError) as error:
        print(error, file=sys.stderr)
        return 2
    print(__doc__, file=sys.stderr)
    return 2


def lock(upgrade: list[str]) -> int:
    """Write the locks, and the page of licences; tell what is another version now."""
    try:
        before = _versions()
    except locks.LockError:  # there is no lock yet, or it was damaged
        before = {}
    locks.write(upgrade)
    licences.write()
    after = _versions()
    for name in sorted({*before, *after}):
        if before.get(name) != after.get(name):
            print(f"{name} {before.get(name, 'was not there')} -> {after.get(name, 'is gone')}")
    return _tell_refused()


def _versions() -> dict[str, str]:
    """The locked versions of each package. Raises LockError."""
    found: dict[str, set[str]] = {}
    for pins in locks.read_all().values():
        for pin in pins:
            found.setdefault(pin.name, set()).add(pin.version)
    return {name: ", ".join(sorted(versions)) for name, versions in found.items()}


def list_licences() -> int:
    """Print all rows of the page."""
    for row in licences.read():
        print(f"{row.name:28} {row.version:20} {row.licence:52} {row.where}")
    return _tell_refused()


def _tell_refused() -> int:
    """Name what has a licence that is not allowed."""
    refused = licences.refused(licences.read())
    for row in refused:
        print(
            f"{row.name} {row.version} is under '{row.licence}', which docker/supply/licences.py does not allow. "
            "Do without it, or read the licence and list it there.",
            file=sys.stderr,
        )
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
