"""`python -m windrow_master`: what `windrow master` and `windrow run` start."""

from __future__ import annotations

import asyncio
import sys

from windrow_master.config import guard_process, parse


def main() -> int:
    """Run a master; return its exit code."""
    config = parse(sys.argv[1:])
    guard_process()
    from windrow.journal import open_journal

    from windrow_master.service import MasterService
    from windrow_master.store.protocol import StoreError

    async def run() -> int:
        return await MasterService(config).run()

    try:
        config.state.mkdir(parents=True, exist_ok=True)
        open_journal(config.state / "master.log", "master", served=not config.embedded)
        # Switching threads often keeps the committer from waiting for the event loop a whole interval per call.
        sys.setswitchinterval(0.001)
        return asyncio.run(run())
    except (OSError, StoreError) as error:
        print(f"windrow master: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
