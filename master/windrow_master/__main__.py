"""`python -m windrow_master`: what `windrow master` and `windrow run` start."""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path

from windrow.common.hidden_process import hide_process
from windrow.common.open_files import TooFewOpenFiles, need_open_files, raise_open_files

from windrow_master.config import parse


def main() -> int:
    """Run a master; return its exit code."""
    config = parse(sys.argv[1:])
    hide_process()
    try:
        need_open_files("The master", 0)
    except TooFewOpenFiles as error:
        print(f"windrow master: {error}", file=sys.stderr)
        return 2
    if config.cancel:
        return _cancel(config.state, config.cancel)
    raise_open_files()
    from windrow.common.journal import open_journal, say

    from windrow_master.files.errors import StateError
    from windrow_master.files.state_files import StateFiles
    from windrow_master.service import MasterService
    from windrow_master.state_folder.opening import refuse_links

    async def run() -> int:
        return await MasterService(config).run()

    try:
        _make(config.state)
        refuse_links(StateFiles(config.state))  # before the first line goes where one may lead
        open_journal(config.state / "master.log", "master", served=not config.embedded)
        # Switching threads often keeps the committer from waiting for the event loop a whole interval per call.
        sys.setswitchinterval(0.001)
        try:
            return asyncio.run(run())
        except (OSError, StateError) as error:
            say(logging.INFO, "master ended", exit_code=2, reason=str(error))
            raise
    except (OSError, StateError) as error:
        print(f"windrow master: {error}", file=sys.stderr)
        return 2


def _cancel(state: Path, job_id: str) -> int:
    """Cancel a job in a state folder without a master; return the exit code."""
    from windrow_master.files.errors import StateError
    from windrow_master.shell.offline_cancel import NotCancelled, cancel

    try:
        print(cancel(state, job_id))
    except (OSError, StateError, NotCancelled) as error:
        print(f"windrow master: {error}", file=sys.stderr)
        return 2
    return 0


def _make(state: Path) -> None:
    try:
        state.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        what = "it, or a part of its path, is a file" if isinstance(error, FileExistsError) else error.strerror
        raise OSError(
            f"The state folder {state} cannot be made: {what}. Choose another folder with --state DIR."
        ) from error


if __name__ == "__main__":
    exit_code = main()
    # Only now: nobody waits for it before.
    from windrow.common.process_end import end_process

    end_process(exit_code)
