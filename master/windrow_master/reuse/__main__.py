"""`python -m windrow_master.reuse`: the process that makes digests (asked by `windrow_master.reuse.digest_processes`).

It reads one line of JSON from stdin: `cache` (the folder of the digest cache), `datastores` (what their names mean),
`roots` (the folders in which everything that is read must be; anywhere if null) and `places` (by name, each type and
path). It writes one line of JSON to stdout: `digests` by name; or `name` and `why` of a place that has no digest.

The process ends when it has answered, or when stdin closes: the master is gone, or no longer needs the answer.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from windrow.storage.credentials import hide_credentials

from windrow_master.datastores import Datastores, UnknownDatastore
from windrow_master.helper_process import read_request
from windrow_master.reuse.digest_cache import remove_unused
from windrow_master.reuse.digests import Digests, NoDigest, Place
from windrow_master.roots import Roots


def main() -> None:
    """Answer one request."""
    hide_credentials()
    line = read_request()
    if not line:
        return
    request = json.loads(line)
    json.dump(answer_to(request), sys.stdout)
    remove_unused(Path(request["cache"]))
    sys.stdout.flush()
    # A normal exit would wait for files that are being read.
    os._exit(0)


def answer_to(request: dict[str, Any]) -> dict[str, Any]:
    """The digests of the places in a request, or the first place that has none."""
    roots = None if request["roots"] is None else Roots(request["roots"])
    digests = Digests(Path(request["cache"]), Datastores(request["datastores"]).resolve, roots)
    found: dict[str, str] = {}
    for name, (type_, path) in request["places"].items():
        try:
            found[name] = digests.of(Place(type_, path))
        except (NoDigest, UnknownDatastore) as error:
            return {"name": name, "why": str(error)}
    return {"digests": found}


if __name__ == "__main__":
    main()
