"""What a script has logged by `Run.log` reaches the master before the result of the mini-batch that logged it.

Otherwise a node that is lost in between would leave a mini-batch that counts, and whose metrics are gone for good.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from windrow_agent.workers.capture import CapturedFile


class _Held(NamedTuple):
    file: CapturedFile
    mark: int
    hand_in: Callable[[], None]


class MetricsFirst:
    """Holds results until the metrics before them are with the master.

    `push`: called when something is held; it sees to it that the metrics are pushed soon.
    """

    def __init__(self) -> None:
        self.push: Callable[[], None] = lambda: None
        self._held: deque[_Held] = deque()

    def __len__(self) -> int:
        """How many times `hold` waits."""
        return len(self._held)

    def hold(self, file: CapturedFile, hand_in: Callable[[], None]) -> None:
        """Calls `hand_in` once the master has what the file of metrics holds now."""
        self._held.append(_Held(file, file.written, hand_in))
        self.push()

    def look(self) -> None:
        """Something was pushed: hands in what has waited for it."""
        for _ in range(len(self._held)):
            held = self._held.popleft()
            if held.file.pushed_to(held.mark):
                held.hand_in()
            else:
                self._held.append(held)

    def give_up(self) -> None:
        """Metrics cannot be pushed, which must not hold results back: hands in everything."""
        while self._held:
            self._held.popleft().hand_in()
