"""The first milliseconds of `windrow run`: it starts master and agent before it imports anything else.

Both processes import for a few hundred milliseconds. Whatever this one imports before delays the first `run()`.
"""

from __future__ import annotations

import os

from windrow.common import garbage_collector

TYPE_CHECKING = False
if TYPE_CHECKING:
    from windrow.cli.options.run_options import RunOptions
    from windrow.embedded.session import Session


def run(options: RunOptions) -> int:
    """Run a job with these options. Returns the exit code."""
    if options.save is not None:
        from windrow.cli.running.one_line import save

        return save(options)
    if options.dry_run:
        try:
            from windrow.cli.running.dry_run import dry_run

            return dry_run(options)
        except KeyboardInterrupt:
            return 130
    garbage_collector.pause()  # resumed when the job is submitted
    try:
        return _run(options)
    finally:
        garbage_collector.resume()


def _run(options: RunOptions) -> int:
    session: Session | None = None
    error: Exception | None = None
    # A missing job file starts nothing.
    if os.path.isfile(options.job_file) or (options.retried and not options.job_file):
        from windrow.errors import WindrowError

        try:
            session = options.open_session()
        except WindrowError as raised:
            error = raised
        except KeyboardInterrupt:
            return 130
    if error is not None:
        from windrow.cli.messages import report

        return report(error, options.form)
    from windrow.cli.running.run import run_command

    return run_command(options, session)
