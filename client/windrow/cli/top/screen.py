"""The terminal of `windrow top`: the alternate screen, keys, and when it is drawn."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import sys
import termios
import threading
import time
import tty
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live

from windrow.cli.interrupts import Interrupts
from windrow.cli.messages import is_colourful
from windrow.cli.tables import out
from windrow.cli.top import View
from windrow.cli.top.frame import frame

if TYPE_CHECKING:
    from windrow.cli.top.looks import Look, Looks

LOOK_S = 1.0
LOOK_REST = 10
"""The master is asked again after LOOK_S, or LOOK_REST times as long as the last look took, at most LOOK_MAX_S."""
LOOK_MAX_S = 10.0
KEY_S = 0.1
VIEWS = {"j": View.JOBS, "1": View.JOBS, "n": View.NODES, "2": View.NODES, "w": View.WORKERS, "3": View.WORKERS}
UP, DOWN = ("\x1b[A", "\x1bOA"), ("\x1b[B", "\x1bOB")
WIDTH_OF_FILES = 200


def print_once(look: Look, view: View) -> None:
    """Print what the screen would show, as long as it is."""
    width = shutil.get_terminal_size((WIDTH_OF_FILES, 0)).columns
    lines = frame(look, view, width, None).lines
    if is_colourful(sys.stdout):
        Console(width=width).print(Group(*lines))
    else:
        for line in lines:
            out(line.plain.rstrip())


def show(looks: Looks, view: View) -> None:
    """Show it until the user ends it. Raises what looking raises; the terminal is in order then."""
    watch = _Watch(looks)
    interrupts = Interrupts()
    offset = 0
    # The first look before the screen is taken: an error is told as of any command.
    watch.start()
    console = Console()
    try:
        with _keys() as descriptor, Live(console=console, screen=True, auto_refresh=False) as live:
            drawn: tuple[object, ...] = ()
            while True:
                look = watch.newest()
                shown = frame(look, view, *console.size, offset)
                offset = min(offset, shown.offset_max)
                if drawn != (look, view, console.size, offset):
                    drawn = (look, view, console.size, offset)
                    live.update(Group(*shown.lines), refresh=True)
                for key in _read_keys(descriptor):
                    if key in ("q", "Q", "\x03"):
                        return
                    if key in VIEWS and VIEWS[key] is not view:
                        view, offset = VIEWS[key], 0
                    elif key in UP:
                        offset = max(0, offset - 1)
                    elif key in DOWN:
                        offset += 1
    except KeyboardInterrupt:
        pass
    finally:
        interrupts.disarm()
        watch.close()


class _Watch:
    """Looks in a thread, so that keys are answered while a master is slow."""

    def __init__(self, looks: Looks) -> None:
        self._looks = looks
        self._look: Look | None = None
        self._error: Exception | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="look", daemon=True)

    def start(self) -> None:
        """Look for the first time, and begin the thread. Raises WindrowError."""
        self._look = self._looks.look()
        self._thread.start()

    def newest(self) -> Look:
        """The newest look. Raises what the last one raised."""
        if self._error is not None:
            raise self._error
        assert self._look is not None
        return self._look

    def close(self) -> None:
        """End the thread."""
        self._closing.set()

    def _run(self) -> None:
        wait_s = LOOK_S
        while not self._closing.wait(wait_s):
            begun_s = time.monotonic()
            try:
                self._look = self._looks.look()
            except Exception as error:  # the main thread reports it, whatever it is
                self._error = error
                return
            wait_s = min(LOOK_MAX_S, max(LOOK_S, LOOK_REST * (time.monotonic() - begun_s)))


@contextlib.contextmanager
def _keys() -> Iterator[int]:
    """Keys come one at a time and are not shown; Ctrl-C stays a signal."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)
    try:
        yield descriptor
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _read_keys(descriptor: int) -> Iterator[str]:
    """The keys that were pressed, after a moment at most. An arrow is one key."""
    if not select.select([descriptor], [], [], KEY_S)[0]:
        return
    data = os.read(descriptor, 1024)
    if not data:
        # The terminal is gone.
        raise KeyboardInterrupt
    text = data.decode(errors="replace")
    while text:
        length = 3 if text.startswith(("\x1b[", "\x1bO")) else 1
        yield text[:length]
        text = text[length:]
