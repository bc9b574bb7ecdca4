"""`python -m windrow_master.reuse`: the process that makes digests (asked by `windrow_master.reuse.asking`).

One JSON object on stdin: `listings` (a folder), `datastores` (what their names mean) and `places` (by name, each type
and path). One on stdout: `digests`, by name; or `name` and `why`, of a place that has none.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from windrow_master.datastores import Datastores, UnknownDatastore
from windrow_master.reuse.digests import Digests, NoDigest, Place
from windrow_master.reuse.listing import remove_unused


def main() -> None:
    """Answer one request."""
    request = json.load(sys.stdin)
    listings = Path(request["listings"])
    digests = Digests(listings, Datastores(request["datastores"]).resolve)
    found: dict[str, str] = {}
    answer: dict[str, object] = {"digests": found}
    for name, (type_, path) in request["places"].items():
        try:
            found[name] = digests.of(Place(type_, path))
        except (NoDigest, UnknownDatastore) as error:
            answer = {"name": name, "why": str(error)}
            break
    json.dump(answer, sys.stdout)
    remove_unused(listings)


if __name__ == "__main__":
    main()
