"""`windrow top`: looks at the master every second, draws, and reacts to keys."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from windrow.cli import exit_codes
from windrow.cli.options import completion
from windrow.cli.options.declared import Argument, Option, command
from windrow.cli.options.shared import Master, State, open_client
from windrow.errors import UsageError, WindrowError

if TYPE_CHECKING:
    from windrow.cli.top.looker import Looker
    from windrow.cli.top.moment import Moment

KEY_WAIT_S = 0.1
PLAIN_SIZE = (120, 1000)
"""Columns and lines of one frame that goes to a file or a pipe, unless COLUMNS says how wide it is to be."""


@command(
    epilog="Example: windrow top --view workers --master 127.0.0.1:8470",
    short_help="Show jobs, nodes and workers, live on the whole screen.",
)
def top(
    job: Annotated[
        str | None,
        Argument(
            metavar="JOB",
            help="Only this job: its name, a beginning of it, or last.",
            autocompletion=completion.job_names,
        ),
    ] = None,
    once: Annotated[bool, Option("--once", help="Print how things are now, and end.")] = False,
    view: Annotated[str, Option("--view", metavar="jobs|nodes|workers", help="What to show first.")] = "jobs",
    interval: Annotated[
        float, Option("--interval", metavar="SECONDS", min=0.2, max=3600, help="How often to look.")
    ] = 1.0,
    master: Master = None,
    state: State = None,
) -> int:
    """Show jobs, nodes and workers, live on the whole screen.

    Keys: j, n and w switch between jobs, nodes and workers; q or Ctrl-C ends. Where there is no terminal, it prints how
    things are now, and ends.
    """
    from windrow.cli.top.frame import VIEWS
    from windrow.cli.top.looker import Looker

    if view not in VIEWS:
        raise UsageError(f"--view {view}: choose one of {', '.join(VIEWS)}.")
    with open_client(master, state) as client:
        job_id = client.find(job).job_id if job is not None else None
        looker = Looker(client, job_id)
        try:
            if once or not (sys.stdout.isatty() and sys.stdin.isatty()):
                _print_once(looker.look(), view)
            else:
                _show(looker, view, interval)
        finally:
            looker.close()
    return exit_codes.DONE


def _print_once(moment: Moment, view: str) -> None:
    from rich.console import Console

    from windrow.cli.top.frame import frame

    console = Console()
    is_known = sys.stdout.isatty() or "COLUMNS" in os.environ
    width, height = (console.width if is_known else PLAIN_SIZE[0]), PLAIN_SIZE[1]
    Console(width=width).print(frame(moment, view, width, height))


def _show(looker: Looker, view: str, interval_s: float) -> None:
    """Draw until a key or Ctrl-C ends it."""
    from rich.console import Console
    from rich.live import Live

    from windrow.cli.top.frame import VIEWS, frame

    console = Console()
    moment = looker.look()
    looked_s = time.monotonic()
    by_key = {name[0]: name for name in VIEWS}
    with (
        _keys() as keys,
        Live(console=console, screen=True, auto_refresh=False) as live,
        contextlib.suppress(KeyboardInterrupt),
    ):
        while True:
            live.update(frame(moment, view, *console.size), refresh=True)
            key = _key(keys, min(interval_s, KEY_WAIT_S * 3))
            if key in ("q", "\x03", "\x04"):
                return
            view = by_key.get(key, view)
            if time.monotonic() - looked_s >= interval_s:
                try:
                    moment = looker.look()
                except WindrowError as error:
                    moment = moment._replace(trouble=str(error))
                looked_s = time.monotonic()


@contextlib.contextmanager
def _keys() -> Iterator[int]:
    """Have the terminal hand over each key at once, without showing it. Yields its file descriptor."""
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        yield descriptor
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _key(descriptor: int, wait_s: float) -> str:
    """The next key; "" if none is pressed in time."""
    ready, _, _ = select.select([descriptor], [], [], wait_s)
    return os.read(descriptor, 1).decode("ascii", "ignore") if ready else ""
