"""The process around the script: its output streams, and the ways to leave."""

from __future__ import annotations

import os
import sys
from stat import S_ISREG
from time import monotonic_ns

from windrow_worker import failures

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, List, NoReturn, Tuple

# Bound early: a script may replace what the module holds.
_exit = os._exit

WHERE_SIGNAL = 59
"""The signal at which the process writes the stacks of its threads to stderr. A number: importing `signal` is slow."""

_STDERR_BYTES = 4096

_THREADS_GRACE_S = 5.0
"""How long threads of the script may run on after `shutdown()`."""


before_leaving: List[Callable[[], object]] = []
"""Called by `leave`, but not if the script ends the process itself."""


def leave(code: int, message: str = "") -> NoReturn:
    """Ends the process at once, without waiting for threads or running exit functions. Printed output is flushed."""
    for call in before_leaving:
        call()
    if message:
        try:
            os.write(2, message.encode("utf-8", "backslashreplace") + b"\n")
        except OSError:
            pass
    flush_output()
    _exit(code)


def flush_output() -> None:
    """Flushes what the script has printed. Never raises: the script may have closed or replaced its streams."""
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        try:
            stream.flush()  # type: ignore[union-attr]
        except BaseException:
            pass


def end_of_stderr() -> str:
    """The last lines that the process has written to stderr, if that is a file."""
    flush_output()
    try:
        if not S_ISREG(os.fstat(2).st_mode):
            return ""
        with open("/proc/self/fd/2", "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _STDERR_BYTES))
            return file.read().decode("utf-8", "replace").strip()
    except OSError:
        return ""


def warn(text: str) -> None:
    """Writes a line to the worker's stderr."""
    try:
        os.write(2, text.encode("utf-8", "backslashreplace") + b"\n")
    except OSError:
        pass


def prepare_output() -> None:
    """Makes stdout and stderr line-buffered, so that no line is lost when the process dies.

    File names that are not UTF-8 can then be printed too.
    """
    for stream, errors in ((sys.stdout, "surrogateescape"), (sys.stderr, "backslashreplace")):
        try:
            stream.reconfigure(line_buffering=True, errors=errors)  # type: ignore[union-attr]
        except (AttributeError, OSError, ValueError):
            pass


def tell_of_crashes() -> None:
    """From now on, a crash in C code, or `WHERE_SIGNAL`, writes the Python stacks to stderr."""
    try:
        import faulthandler

        faulthandler.enable(2)
        faulthandler.register(WHERE_SIGNAL, 2)
    except (ImportError, OSError, ValueError, AttributeError, RuntimeError):
        pass


def _ends_of_pools(threading: Any) -> Tuple[List[Any], Any]:
    """The functions that end the script's thread and process pools (not node pools), and daemon threads of pools."""
    if hasattr(threading, "_threading_atexits"):
        # Python 3.9 and newer (`threading._shutdown`).
        return list(reversed(threading._threading_atexits)), ()
    # Python 3.8 runs them as exit functions, where nothing limits their time.
    import atexit

    modules = [sys.modules.get("concurrent.futures." + name) for name in ("process", "thread")]
    functions = [module._python_exit for module in modules if module is not None]
    for function in functions:
        atexit.unregister(function)
    return functions, getattr(modules[1], "_threads_queues", ())


def finish_process() -> None:
    """Ends as an interpreter does: waits for the script's threads, but not forever, then runs exit functions."""
    try:
        import threading

        deadline = monotonic_ns() + int(_THREADS_GRACE_S * 1e9)
        # These functions end the threads of pools. Each runs in a thread, since it waits for its pool without limit.
        functions, pooled = _ends_of_pools(threading)
        calls = [threading.Thread(target=function, daemon=True) for function in functions]
        for call in calls:
            call.start()
        for thread in threading.enumerate():
            if thread is not threading.current_thread() and (not thread.daemon or thread in pooled):
                thread.join(max(0.0, (deadline - monotonic_ns()) / 1e9))
                if thread.is_alive():
                    warn(
                        f"The thread {thread.name!r} still runs {_THREADS_GRACE_S:.0f} s after shutdown(); it is left "
                        "behind. End the script's threads in shutdown()."
                    )
        for call in calls:
            call.join(max(0.0, (deadline - monotonic_ns()) / 1e9))
    except BaseException as error:
        warn(f"The script's threads could not be waited for: {failures.describe(error)}")
    try:
        import atexit

        atexit._run_exitfuncs()
    except BaseException as error:
        warn(f"An exit function of the script raised {failures.describe(error)}")
    flush_output()
