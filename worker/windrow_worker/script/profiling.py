"""Profiles of a worker, with `--profiling_module` (docs/reference/azure-ml/parallel-job.md#profiles): files that
`pstats` can load.

The host's calls (the script's functions, loading, writing rows) are profiled one by one, so that the profile is
consistent whenever it is written: at the end, and now and then before, in case the worker is killed.
"""

from __future__ import annotations

import os
from time import monotonic_ns

from windrow_worker import failures, process

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from windrow_worker.protocol.configuration import Configuration

WRITTEN_EVERY_NS = 2_000_000_000
WRITTEN_FIRST = 20
"""The file is written after each of the first calls, then every WRITTEN_EVERY_NS: a worker that is killed in a call
leaves the profile of the calls before."""

# Bound early: a script may replace what the module holds.
_getpid = os.getpid
_replace = os.replace


class Profile:
    """The profile of this process."""

    def __init__(self, module: str, path: str) -> None:
        """`module`: `cProfile` or `profile`. Raises ImportError."""
        self._profiler: Any
        if module == "profile":
            import profile

            self._profiler = profile.Profile()
            self._source = profile.__file__
        else:
            import cProfile

            self._profiler = cProfile.Profile()
            self._source = cProfile.__file__
        self._path = path
        self._pid = _getpid()
        self._written_ns = 0
        self._calls = 0
        self._told = False

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Calls a function under the profiler; writes the file if that is due. Raises what the function raises."""
        try:
            return self._profiler.runcall(function, *arguments)
        except BaseException as error:
            # The script's traceback must not show the profiler.
            trace = error.__traceback__
            while trace is not None and trace.tb_frame.f_code.co_filename in (__file__, self._source):
                trace = trace.tb_next
            raise error.with_traceback(trace)  # noqa: B904 - it is the same one
        finally:
            self._calls += 1
            if self._calls <= WRITTEN_FIRST or monotonic_ns() - self._written_ns > WRITTEN_EVERY_NS:
                self.write()

    def write(self) -> None:
        """Writes the file atomically. Never raises: a missing profile is not a failure."""
        if _getpid() != self._pid:
            return
        temporary = self._path + ".partial"
        try:
            os.makedirs(os.path.dirname(self._path), exist_ok=True)
            self._profiler.dump_stats(temporary)
            _replace(temporary, self._path)
        except BaseException as error:
            if not self._told:
                process.warn(f"The profile {self._path} could not be written: {failures.describe(error)}")
                self._told = True
        self._written_ns = monotonic_ns()


def make_profile(configuration: Configuration) -> Any:
    """The profile that the configuration asks for, or None."""
    if not configuration.profiling_module or not configuration.profile_path:
        return None
    try:
        return Profile(configuration.profiling_module, configuration.profile_path)
    except ImportError as error:
        # A Python without its standard library's profilers.
        process.warn(f"No profile is written: {failures.describe(error)}")
        return None
