"""The process around the script: its output streams, and the ways to leave."""

from __future__ import annotations

import os
import sys
from time import monotonic_ns

from windrow_worker import failures

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, List, NoReturn, Tuple

# Bound early: a script may replace what the module holds.
_exit = os._exit

WHERE_SIGNAL = 59
"""At which the process writes to stderr where all of its threads are. A number: `signal` takes long to import."""

_THREADS_GRACE_S = 5.0
"""How long threads of the script may go on after `shutdown()`."""


before_leaving: List[Callable[[], object]] = []
"""Called by `leave`, not where the script ends the process by itself."""


def leave(code: int, message: str = "") -> NoReturn:
    """Ends the process at once: no threads are waited for, no exit functions run. What was printed is written out."""
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
    """Writes out what the script has printed. Never raises: the script may have closed or replaced its streams."""
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        try:
            stream.flush()  # type: ignore[union-attr]
        except BaseException:
            pass


def warn(text: str) -> None:
    """A line for the worker's standard error."""
    try:
        os.write(2, text.encode("utf-8", "backslashreplace") + b"\n")
    except OSError:
        pass


def prepare_output() -> None:
    """Lets prints reach their file line by line, so that none is lost when the process dies.

    File names that are no UTF-8 can be printed, too.
    """
    for stream, errors in ((sys.stdout, "surrogateescape"), (sys.stderr, "backslashreplace")):
        try:
            stream.reconfigure(line_buffering=True, errors=errors)  # type: ignore[union-attr]
        except (AttributeError, OSError, ValueError):
            pass


def tell_of_crashes() -> None:
    """From here on, where C code crashes, and at `WHERE_SIGNAL`, Python's lines that led there go to stderr."""
    try:
        import faulthandler

        faulthandler.enable(2)
        faulthandler.register(WHERE_SIGNAL, 2)
    except (ImportError, OSError, ValueError, AttributeError, RuntimeError):
        pass


def _ends_of_pools(threading: Any) -> Tuple[List[Any], Any]:
    """The functions that end pools, and the threads of pools that are daemons."""
    if hasattr(threading, "_threading_atexits"):
        # Python 3.9 and newer (`threading._shutdown`).
        return list(reversed(threading._threading_atexits)), ()
    # Python 3.8 has them among the exit functions, where nothing would limit them.
    import atexit

    modules = [sys.modules.get("concurrent.futures." + name) for name in ("process", "thread")]
    functions = [module._python_exit for module in modules if module is not None]
    for function in functions:
        atexit.unregister(function)
    return functions, getattr(modules[1], "_threads_queues", ())


def finish_process() -> None:
    """Ends as an interpreter does: waits for the script's threads, but not for ever, then runs exit functions."""
    try:
        import threading

        deadline = monotonic_ns() + int(_THREADS_GRACE_S * 1e9)
        # Those of pools end when these functions tell them to. Each in a thread: it waits for its pool without a limit.
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
