"""Asks whether what is locked has known vulnerabilities, by pip-audit.

pip-audit says "No known vulnerabilities found", and ends with 0, where it was told of none because it could not ask.
Here every package must have an answer.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import locks
from advisories import Advisories, served

NONE_KNOWN, SOME_KNOWN, NOT_ASKED = 0, 1, 2
"""Exit codes."""


class NoAnswer(Exception):
    """For some packages it is not known; the text says why."""


def audit(database: Path | None = None, folder: Path = locks.FOLDER) -> int:
    """Print what is known of all that is locked; the exit code.

    `database`: of advisories, as OSV publishes them for PyPI; None asks PyPI. Raises LockError, DatabaseError.
    """
    pins: dict[tuple[str, str], list[str]] = {}
    for part, of_part in locks.read_all(folder).items():
        for pin in of_part:
            pins.setdefault((pin.name, pin.version), []).append(part)
    with ExitStack() as stack:
        source = ["--vulnerability-service", "pypi"]
        told = "PyPI"
        if database is not None:
            advisories = Advisories(database)
            source = ["--vulnerability-service", "osv", "--osv-url", stack.enter_context(served(advisories))]
            told = f"{database} (advisories: {advisories.count:,}, the newest of {advisories.newest[:10]})"
        try:
            found = [row for group in _groups(pins) for row in _ask(group, source)]
        except NoAnswer as error:
            print(
                f"{told} was asked, and gave no answer, so nothing is known about the locked packages: {error}\n"
                "Try again where the network can be reached, or bring a database: make audit DATABASE=all.zip "
                "(docs/how-to/check-the-images.md says where it comes from).",
                file=sys.stderr,
            )
            return NOT_ASKED
    for name, version, one in found:
        fixed = f"fixed in {', '.join(one['fix_versions'])}" if one["fix_versions"] else "not fixed yet"
        ids = " ".join(dict.fromkeys([one["id"], *one["aliases"]]))
        print(f"{name} {version} ({', '.join(pins[name, version])}): {ids}: {fixed}\n  {one['description'][:300]}")
    if found:
        names = " ".join(sorted({name for name, _, _ in found}))
        print(f'\nTry: make lock UPGRADE="{names}", then build the images anew.', file=sys.stderr)
        return SOME_KNOWN
    print(f"None of {len(pins)} locked packages has a known vulnerability. Asked: {told}.")
    return NONE_KNOWN


def _groups(pins: Iterable[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    """The same pins, each name once in a group: some packages have a version for each Python."""
    left = sorted(pins)
    while left:
        group = dict(reversed(left))
        yield list(group.items())
        left = [pin for pin in left if group[pin[0]] != pin[1]]


def _ask(pins: list[tuple[str, str]], source: list[str]) -> list[tuple[str, str, dict[str, Any]]]:
    """(name, version, advisory) of all that is known. Raises NoAnswer."""
    # Proxies are not for the database that this process serves.
    environment = {**os.environ, "NO_PROXY": ",".join(filter(None, [os.environ.get("NO_PROXY"), "127.0.0.1"]))}
    with tempfile.TemporaryDirectory() as scratch:
        requirements = Path(scratch, "requirements.txt")
        requirements.write_text("".join(f"{name}=={version}\n" for name, version in pins))
        options = ["--no-deps", "--disable-pip", "--progress-spinner", "off", "--format", "json"]
        # A cache of its own: answers of another source would be taken for this one's.
        done = subprocess.run(
            [sys.executable, "-m", "pip_audit", *options, *source, "--cache-dir", scratch, "-r", requirements],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
    try:
        rows = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError) as error:
        last = done.stderr.strip().splitlines()[-1:] or [f"pip-audit ended with {done.returncode}"]
        raise NoAnswer(last[0]) from error
    skipped = [f"{row['name']}: {row['skip_reason']}" for row in rows if "skip_reason" in row]
    if skipped:
        more = f" (and {len(skipped) - 1} more)" if len(skipped) > 1 else ""
        raise NoAnswer(f"{skipped[0]}{more}")
    if missing := {name for name, _ in pins} - {row["name"] for row in rows}:
        raise NoAnswer(f"pip-audit left out {', '.join(sorted(missing))}")
    return [(row["name"], row["version"], one) for row in rows for one in row["vulns"]]
