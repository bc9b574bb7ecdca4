"""Collects mini-batches into groups and sends them, each with the checkpoint that it leads to.

Invariants:
1. The `from` of a group is the `to` of the one before it, or the checkpoint the planner was started with.
2. A group is sent after the plan files are on disk up to the lengths in its `to`.
3. A group is sent only when a further mini-batch is known, or as the last one, so no checkpoint is "all but done".
4. With several inputs, mini-batches come input by input. `next` of a position is then `{"input": number, "at": …}`, and
   a recipe that does not belong to a list of files begins with the number of its input and NUL.
"""

from __future__ import annotations

import json
import os
import struct
import time
import zlib
from array import array
from collections.abc import Mapping
from typing import Any

from windrow.common.quantities import counted

from windrow_master.planning.earlier.earlier import NONE, EarlierJob, EarlierRecipes
from windrow_master.planning.earlier.why import reasons_in_words
from windrow_master.planning.errors import PlanningError
from windrow_master.planning.plan_files.checkpoint import Checkpoint
from windrow_master.planning.plan_files.places_seen import PlacesNoted
from windrow_master.planning.plan_files.plan_files import PlanFiles

HEAD = struct.Struct("<II")
RECORD = struct.Struct("<QIQII")
"""item_first, item_count, recipe_offset, recipe_length, recipe_crc32."""
RANK = struct.Struct("<Q")

GROUP_FIRST = 16
GROUP_GROWTH = 4
GROUP_MAX = 5000
GROUP_S = 0.1
"""A small group is sent after this time: agents may be idle while a slow disk is listed."""

RECIPE_BYTES_MAX = 2**32 - 1
ITEMS_MAX = 2**32 - 1
WARNINGS_MAX = 100


class Output:
    """The planner's end of the pipe. Writing blocks while the master is busy, which paces the planner.

    Not an output of a step, which holds rows.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def send(self, message: dict[str, Any], records: bytes = b"") -> None:
        """Send one message of docs/contracts.md, section 3. Raises BrokenPipeError when the master is gone."""
        text = json.dumps(message, separators=(",", ":")).encode()
        view = memoryview(HEAD.pack(len(text), len(records)) + text + records)
        while view:
            view = view[os.write(self._fd, view) :]


class Emitter:
    """Sends the mini-batches of one step."""

    def __init__(self, output: Output, plan_files: PlanFiles, places: PlacesNoted, start: Checkpoint | None) -> None:
        self._output = output
        self.places = places
        """Records the folders and links that are listed."""
        self._plan_files = plan_files
        self._sent = None if start is None else start.to_json()
        self._mini_batches = 0 if start is None else start.mini_batches
        self.items = 0 if start is None else start.items
        self._position = self._start = None if start is None else start.position["next"]
        self._input: int | None = None
        self._input_mini_batches = 0 if start is None else start.mini_batches
        self.mark = b""
        """The prefix of recipes of the current input, if there are several inputs."""
        self.subject = ""
        """The prefix of warnings."""
        self.frontier = None if start is None else start.position["frontier"]
        """How far the strategy has written ahead of the last mini-batch; part of the checkpoint as it is when a group
        is sent."""
        self._reader: dict[str, Any] | None = None
        self._records: list[bytes] = []
        self._ranks: list[bytes] = []
        self._is_first = start is None
        self._taken: dict[int, int] = {}
        """By position in the group: the earlier mini-batch whose result is taken over."""
        self._slow: Mapping[tuple[int, int], int] = {}
        self._ranks_all = start is not None and start.position.get("ranked", False)
        """Every mini-batch has a rank, also those without one of their own. Decided with the first group."""
        self._earlier: EarlierJob | None = None
        self._recipes_known: EarlierRecipes | None = None
        self._taken_over = 0
        self._size = GROUP_FIRST
        self._since = time.monotonic()
        self._warnings: list[str] = []
        self._warnings_left_out = 0
        self._notes: list[str] = []
        self._misfits = 0

    def set_reader(self, reader: dict[str, Any]) -> None:
        """Set what all recipes of the step have in common; it is sent with the first group."""
        self._reader = reader

    def begin_first(self, slow: Mapping[tuple[int, int], int]) -> None:
        """Give mini-batches a higher rank that are known to be slow, by length and crc32 of their recipes."""
        self._slow = slow
        self._ranks_all = self._ranks_all or (self._is_first and bool(slow))

    def take_over(self, earlier: EarlierJob) -> None:
        """From now on, take over results for mini-batches that an earlier job has."""
        self._earlier = earlier

    def warn(self, text: str) -> None:
        """Warn the user with the next group; beyond WARNINGS_MAX, only the number of warnings is sent."""
        if len(self._warnings) < WARNINGS_MAX:
            self._warnings.append(self.subject + text)
        else:
            self._warnings_left_out += 1

    def note(self, text: str) -> None:
        """Tell the user, with the next group, what is no reason to warn: all of the input runs, or has a result."""
        self._notes.append(self.subject + text)

    def count_misfits(self, number: int) -> None:
        """Count values that did not fit their column, before the first mini-batch of an input. If some of those are
        sent already, so is the number.
        """
        if not self._input_mini_batches:
            self._misfits += number

    def begin_input(self, number: int) -> Any:
        """Begin one of several inputs. Return the position in it to continue from, or None for its beginning."""
        start: dict[str, Any] = self._start if isinstance(self._start, dict) else {}
        resumed = start.get("input") == number
        self._input = number
        self._input_mini_batches = int(resumed)
        self.mark = b"%d\0" % number
        return start["at"] if resumed else None

    @property
    def is_input_empty(self) -> bool:
        """Whether the current input has no mini-batch so far."""
        return self._input_mini_batches == 0

    def add(
        self,
        items: int,
        offset: int,
        length: int,
        crc32: int,
        position: Any,
        rank: int | None = None,
        before: int = NONE,
    ) -> None:
        """Add the mini-batch whose recipe is `length` bytes at `offset`, already written.

        `crc32`: of the recipe as it was written, not as the file holds it now. `position`: where planning continues
        after it. `items`: 0 if not known before loading. `rank`: higher ranks run sooner; either all mini-batches of a
        step have a rank, or none has. `before`: the mini-batch of an earlier job whose result is taken over.
        """
        self._make_room()
        self._add(items, offset, length, crc32, position, rank, before)

    def add_recipe(self, items: int, recipe: bytes, position: Any, rank: int | None = None) -> None:
        """Write the recipe of a mini-batch and add it; groups sent before do not contain any of it."""
        self._make_room()
        recipe = self.mark + recipe
        before = self._find(recipe)
        offset = self._plan_files.recipes.append(recipe)
        self._add(items, offset, len(recipe), zlib.crc32(recipe), position, rank, before)

    def _find(self, recipe: bytes) -> int:
        if self._earlier is None:
            return NONE
        if self._recipes_known is None:
            self._recipes_known = self._earlier.recipes(self._reader)
            if self._recipes_known is None:
                self.warn(f"The input is read differently than in job {self._earlier.job_id}: all of it runs again.")
                self._earlier = None
                return NONE
            if trouble := self._earlier.trouble():
                self.warn(trouble)
        return self._recipes_known.find(recipe)

    def _make_room(self) -> None:
        if len(self._records) >= self._size or (self._records and time.monotonic() - self._since > GROUP_S):
            self._send(done=False)

    def _add(
        self, items: int, offset: int, length: int, crc32: int, position: Any, rank: int | None, before: int
    ) -> None:
        if length > RECIPE_BYTES_MAX or items > ITEMS_MAX:
            raise PlanningError(f"A mini-batch of {items} items is too large; make mini_batch_size smaller.")
        if not self._records:
            self._since = time.monotonic()
        self._records.append(RECORD.pack(self.items, items, offset, length, crc32))
        if rank is not None or self._ranks_all:
            rank = max(rank or 0, self._slow.get((length, crc32), 0))
            self._ranks.append(RANK.pack(rank))
        if before != NONE:
            self._taken[len(self._records) - 1] = before
            self._taken_over += 1
        self._mini_batches += 1
        self._input_mini_batches += 1
        self.items += items
        self._position = position if self._input is None else {"input": self._input, "at": position}

    def finish(self) -> None:
        """Send the last group."""
        if self._recipes_known is not None and self._is_first:
            whys = reasons_in_words(self._recipes_known.whys, "mini-batch")
            self.note(
                f"Results of job {self._recipes_known.job_id} are taken over: {self._taken_over:,} of "
                f"{counted(self._mini_batches, 'mini-batch')}. {whys}".rstrip()
            )
        self._send(done=True)

    def _send(self, *, done: bool) -> None:
        self._plan_files.sync()
        position = {"next": self._position, "frontier": self.frontier}
        if self._ranks_all:
            position["ranked"] = True
        recipes, listing = self._plan_files.recipes, self._plan_files.listing
        end = Checkpoint(
            self._mini_batches,
            self.items,
            recipes.length,
            listing.length,
            recipes.checksum,
            listing.checksum,
            position,
            done,
        ).to_json()
        message: dict[str, Any] = {
            "type": "group",
            "from": self._sent,
            "to": end,
            "count": len(self._records),
            "warnings": self._take_warnings(),
        }
        if self._sent is None:
            message["reader"] = self._reader
        if self._notes:
            message["notes"], self._notes = self._notes, []
        if self._misfits:
            message["misfits"], self._misfits = self._misfits, 0
        if self._ranks:
            message["ranked"] = True
        taken = b""
        if self._taken:
            taken = array("q", [self._taken.get(place, NONE) for place in range(len(self._records))]).tobytes()
        self._output.send(message, b"".join(self._records + self._ranks) + taken)
        self._sent = end
        self._records.clear()
        self._ranks.clear()
        self._taken.clear()
        self._size = min(self._size * GROUP_GROWTH, GROUP_MAX)

    def _take_warnings(self) -> list[str]:
        taken, self._warnings = self._warnings, []
        if self._warnings_left_out:
            taken.append(f"… and {self._warnings_left_out} more warnings of planning")
            self._warnings_left_out = 0
        return taken
