"""The limit of open files: raised as far as the system allows, and checked before any work begins.

Systems keep the soft limit low for programs that use select(). Windrow's do not, but scripts may: workers get back the
soft limit with which their agent was started.
"""

# Only cheap modules: this is on the way to the first run().
from __future__ import annotations

import resource

from windrow.errors import UsageError

BASE = 48
"""The open files of a master, or of an agent without workers, and some more."""
EACH_WORKER = 8
_RAISED_MAX = 65536
"""More would only enlarge tables that the kernel goes through at each start of a process."""


class TooFewOpenFiles(UsageError):
    """The system allows this process too few open files; the text says how many, and how to get more."""


def need_open_files(who: str, workers: int) -> None:
    """Make sure that `who` can handle that many workers, by raising the soft limit if necessary. Raises TooFewOpenFiles
    if the hard limit is too low.
    """
    needed = BASE + EACH_WORKER * workers
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < needed:
        fewer = " or use fewer --slots" if hard >= BASE + EACH_WORKER else ""
        raise TooFewOpenFiles(
            f"{who} cannot start: it needs {needed} open files, but the limit is {hard}. "
            "Raise the hard limit of open files (ulimit -Hn; LimitNOFILE= of a systemd service; --ulimit nofile= of a "
            f"container){fewer}."
        )
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def raise_open_files() -> int:
    """Raise this process's soft limit towards the hard one. Returns the former limit, for child processes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _RAISED_MAX if hard == resource.RLIM_INFINITY else min(hard, _RAISED_MAX)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return soft
