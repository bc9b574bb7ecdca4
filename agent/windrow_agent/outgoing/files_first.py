"""What a script has written to a local output is on disk before the result of the mini-batch that wrote it counts.

Otherwise a loss of power right after it would leave a mini-batch that is done, and whose files are torn or missing for
good. Syncing takes as long for many results as for one, so those that arrive meanwhile wait for the next sync together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from windrow.common.journal import log

from windrow_agent.node.disks import sync_places

HandIn = Callable[[str], None]
"""Takes why the files are not on disk; "": they are."""


class FilesFirst:
    """Holds results until the files before them are on disk."""

    def __init__(self) -> None:
        self._held: list[tuple[Sequence[str], HandIn]] = []
        self._waiting = 0
        self._syncing: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        """How many times `hold` waits."""
        return self._waiting

    def hold(self, places: Sequence[str], hand_in: HandIn) -> None:
        """Calls `hand_in` once what was written to these places until now is on disk, or cannot be brought there."""
        self._held.append((places, hand_in))
        self._waiting += 1
        if self._syncing is None:
            self._syncing = asyncio.create_task(self._sync())

    async def _sync(self) -> None:
        try:
            while self._held:
                held, self._held = self._held, []
                places = dict.fromkeys(place for places, _ in held for place in places)
                why = ""
                try:
                    await asyncio.to_thread(sync_places, places)
                except OSError as error:
                    why = f"What the script has written cannot be brought to disk on this node: {error}"
                for _, hand_in in held:
                    self._waiting -= 1
                    try:
                        hand_in(why)
                    except Exception:
                        # The others must not be lost with it.
                        log.exception("a result could not be handed in; please report this")
        finally:
            self._syncing = None
