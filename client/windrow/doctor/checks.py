"""Runs all checks, in order. A check that fails itself becomes a finding, and the others continue."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from windrow.doctor import access, installation, machine, scripts, state
from windrow.doctor.findings import FAIL, WARN, Finding
from windrow.errors import UsageError
from windrow.rpc.contexts import Access, find_access


def run_checks(
    folder: str, *, master: str | None, python: str | None, with_master: bool, deep: bool = False
) -> Iterator[Finding]:
    """Run all checks. `folder`: the state folder. `master`: an address or the name of a context [default: that of the
    environment, or the one in use]. `deep`: verify all of the state folder."""
    yield from _guarded("Windrow", installation.check())
    yield from _guarded("Machine", machine.check())
    yield from _guarded("Scripts", scripts.check(python))
    yield from _guarded("State folder", state.check(folder, deep=deep))
    yield from _guarded("Access", access.check(os.environ))
    if not with_master:
        return
    try:
        found = find_access(master, os.environ)
    except UsageError as error:
        yield Finding("Master", "address", FAIL, str(error), "windrow context list")
        return
    if found is not None:
        yield from _guarded("Master", _master(found))


def _master(found: Access) -> Iterator[Finding]:
    # It imports gRPC, which nothing else here needs.
    from windrow.doctor.master import check

    yield from check(found)


def _guarded(area: str, findings: Iterable[Finding]) -> Iterator[Finding]:
    try:
        yield from findings
    except Exception as error:
        yield Finding(area, "the check itself", WARN, f"failed: {error!r}", "Please report this.")
