"""`python -m windrow_master.reuse`: the process that makes digests (asked by `windrow_master.reuse.asking`).

One JSON object, a line, on stdin: `listings` (a folder), `datastores` (what their names mean), `roots` (where
everything must lie that is read; null: anywhere) and `places` (by name, each type and path). One on stdout: `digests`,
by name; or `name` and `why`, of a place that has none.

It ends when it has answered, or when stdin closes: the master is gone, or wants no more.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from windrow.storage.secrecy import hide_credentials

from windrow_master.datastores import Datastores, UnknownDatastore
from windrow_master.helper_process import read_request
from windrow_master.reuse.digests import Digests, NoDigest, Place
from windrow_master.reuse.listing import remove_unused
from windrow_master.roots import Roots


def main() -> None:
    """Answer one request."""
    hide_credentials()
    line = read_request()
    if not line:
        return
    request = json.loads(line)
    json.dump(answer_to(request), sys.stdout)
    remove_unused(Path(request["listings"]))
    sys.stdout.flush()
    # An orderly end would wait for files that are being read.
    os._exit(0)


def answer_to(request: dict[str, Any]) -> dict[str, Any]:
    """See above."""
    roots = None if request["roots"] is None else Roots(request["roots"])
    digests = Digests(Path(request["listings"]), Datastores(request["datastores"]).resolve, roots)
    found: dict[str, str] = {}
    for name, (type_, path) in request["places"].items():
        try:
            found[name] = digests.of(Place(type_, path))
        except (NoDigest, UnknownDatastore) as error:
            return {"name": name, "why": str(error)}
    return {"digests": found}


if __name__ == "__main__":
    main()
