"""Writes what is made from the code: pages of docs/, the JSON Schema and stubs. `python docs/generate`, or `make docs`.

With `--check` it writes nothing, names the files that are not what the code says, and ends with 1 if there are any.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import commands
import job_file
import job_schema
import rpc
import settings
import v1_stubs

ROOT = Path(__file__).resolve().parents[2]


def state_machines() -> str:
    """The page that a script of its own draws."""
    return str(runpy.run_path(str(ROOT / "docs" / "state_machines.py"))["page"]())


PAGES: dict[str, Callable[[], str]] = {
    "docs/state-machines.md": state_machines,
    "docs/reference/commands.md": commands.page,
    "docs/reference/job-file.md": job_file.page,
    "client/windrow/spec/job.schema.json": job_schema.text,
    "docs/reference/rpc.md": rpc.page,
    "docs/reference/settings.md": settings.page,
    **v1_stubs.files(),
}
"""Each file, and what makes it."""


def main(arguments: list[str]) -> int:
    """Writes or checks all pages."""
    stale = []
    for name, make in PAGES.items():
        path, text = ROOT / name, make()
        if path.exists() and path.read_text() == text:
            continue
        stale.append(name)
        if "--check" not in arguments:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    if stale and "--check" in arguments:
        print(
            f"These files are not what the code says: {', '.join(stale)}. Run 'make docs' and commit the result.",
            file=sys.stderr,
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
