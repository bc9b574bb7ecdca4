"""The licences of what is locked: docs/reference/licences.md, and which of them Windrow's images may hold."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterable
from importlib.metadata import distributions
from pathlib import Path
from typing import NamedTuple

import locks
import spdx
from packaging.utils import canonicalize_name

PAGE = locks.ROOT / "docs" / "reference" / "licences.md"

ALLOWED = {
    "0BSD",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    # Of files, not of programs that use them: unchanged files of a wheel may be passed on beside any other code.
    "MPL-2.0",
    "PSF-2.0",
    "Zlib",
}
"""By their SPDX names: they ask no more than that their text and the names of authors stay, and they do."""


class Row(NamedTuple):
    """A package of the page. `where`: the parts of the lock that have it."""

    name: str
    version: str
    licence: str
    where: str


HEAD = """\
# Licences of what the images hold

<!-- `make lock` writes this page: it asks the packages themselves. -->

Windrow is under the Apache License 2.0. This page lists what its images install beside it, or are built with. The texts
are in the packages. The column *In* says why a package is there:

- *core*: in both images.
- *agent*: in that of agents.
- *storage*: in both. *setup*: in the master's. Other extras: in the master's, where `WINDROW_MASTER_EXTRAS` names them.
- *build*, *sbom*: while an image is built; not in it.

`make licences` fails where a licence is not on the list of those that Windrow allows. The packages of Debian, and their
licences, are in the [list that each image holds](../how-to/check-the-images.md#what-an-image-holds).

| Package | Version | Licence | In |
| --- | --- | --- | --- |
"""


def asked(folder: Path = locks.FOLDER) -> list[Row]:
    """What the locked packages say. They are installed into a folder for that. Raises LockError."""
    pins = locks.read_all(folder)
    told: dict[tuple[str, str], str] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for python in locks.PYTHONS:
            target = Path(scratch, python)
            _install(pins, folder, target, python)
            for package in distributions(path=[str(target)]):
                key = canonicalize_name(package.metadata["Name"]), package.version
                told[key] = spdx.licence(package) or "unknown"
    where: dict[tuple[str, str], list[str]] = {}
    for part, of_part in pins.items():
        for pin in of_part:
            parts = where.setdefault((pin.name, pin.version), [])
            if part not in parts:
                parts.append(part)
    missing = sorted(set(where) - set(told))
    if missing:
        raise locks.LockError(f"no Python of {', '.join(locks.PYTHONS)} installs {missing}")
    return [Row(*key, told[key], ", ".join(parts)) for key, parts in sorted(where.items())]


def _install(pins: Iterable[str], folder: Path, target: Path, python: str) -> None:
    """Install all parts for a Python."""
    files = [word for part in pins for word in ("-r", str(folder / f"{part}.txt"))]
    options = ["--quiet", "--only-binary", ":all:", "--require-hashes", "--python-version", python]
    done = subprocess.run(
        [locks.UV, "pip", "install", *options, "--target", target, *files], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise locks.LockError(f"what is locked cannot be installed:\n{done.stderr.strip()}")


def write(page: Path = PAGE, folder: Path = locks.FOLDER) -> None:
    """Write the page. Raises LockError."""
    rows = "".join(f"| {' | '.join(row)} |\n" for row in asked(folder))
    page.write_text(HEAD + rows)


def read(page: Path = PAGE) -> list[Row]:
    """The rows of the page."""
    lines = page.read_text().splitlines()
    rows = [[cell.strip() for cell in line.strip("| ").split("|")] for line in lines if line.startswith("| ")]
    return [Row(*cells) for cells in rows[2:]]


def refused(rows: Iterable[Row]) -> list[Row]:
    """Those under a licence that is not allowed, or not known."""
    return [row for row in rows if not allowed(row.licence)]


def allowed(expression: str) -> bool:
    """Whether an SPDX expression leaves a choice in which all licences are allowed."""
    from boolean import ParseError
    from license_expression import ExpressionError, get_spdx_licensing

    try:
        parsed = get_spdx_licensing().parse(expression, validate=True)
    except (ExpressionError, ParseError):
        return False
    return parsed is not None and _permits(parsed)


def _permits(parsed: object) -> bool:
    """The same, of what the library has parsed."""
    from license_expression import AND, OR, LicenseSymbol

    if isinstance(parsed, AND):
        return all(map(_permits, parsed.args))
    if isinstance(parsed, OR):
        return any(map(_permits, parsed.args))
    return isinstance(parsed, LicenseSymbol) and parsed.key in ALLOWED
