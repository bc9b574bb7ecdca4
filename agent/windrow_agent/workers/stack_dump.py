"""Where a worker was when it crashed or was asked, from what Python's `faulthandler` wrote to its stderr."""

from __future__ import annotations

import os
import re
from pathlib import Path

WHERE_SIGNAL = 59
"""The same as in `windrow_worker/process.py`. A real-time signal that neither libraries nor scripts use. A worker that
does not handle it yet is ended by it."""

_THREAD = re.compile(r"^(Current thread|Thread) 0x[0-9a-f]+.*\(most recent call first\):$", re.MULTILINE)
_FRAME = re.compile(r'^  File "(?P<path>[^"\n]+)", line (?P<line>\d+) in (?P<function>.+)$', re.MULTILINE)
_HOST = re.compile(
    r'^  File "[^"\n]*/(?:windrow_worker/(?:host|boot)|windrow_agent/workers/launch)\.py", line .*\n?', re.MULTILINE
)


def for_users(stderr: str, code: Path) -> str:
    """The stderr of a worker, without the host's own lines in the stacks of threads. Files of the script's code folder
    have their path in it, as in tracebacks of exceptions: the agent's copy is of no use to who reads them.
    """
    stderr = stderr.replace(f'  File "{code}{os.sep}', '  File "')
    first = _THREAD.search(stderr)
    return stderr[: first.start()] + _HOST.sub("", stderr[first.start() :]).rstrip() if first else stderr


def place(stderr: str, code: Path) -> str:
    """The innermost line within the script's code folder, as in `score.py, line 12`; "" if there is none.

    After a crash, it is from the thread that crashed. Otherwise it is from the main thread, or from any other thread if
    the main thread is not in the script.
    """
    heads = list(_THREAD.finditer(stderr))
    ends = [*(head.start() for head in heads[1:]), len(stderr)]
    threads = [(head[1] == "Current thread", stderr[head.end() : end]) for head, end in zip(heads, ends, strict=False)]
    # The main thread comes last; the one that handled the signal is "current" by chance.
    threads.reverse()
    if "Fatal Python error" in stderr:
        threads.sort(key=lambda thread: not thread[0])
    for _, frames in threads:
        for frame in _FRAME.finditer(frames):
            if Path(frame["path"]).is_relative_to(code):
                return f"{os.path.relpath(frame['path'], code)}, line {frame['line']}"
    return ""
