"""Mini-batches of an earlier job that are also mini-batches of this step: their results are taken over.

Both steps have to read their input alike, and no file of the mini-batch may have changed since the earlier step began.
For a local file, its ctime (which nobody can set back) decides, if its path still leads to the same file
(`plan_files.places_seen`); in a store, the stamp in the recipe; for data that a client uploaded, the lists made of it
(`uploads`). What is not taken over has a reason (`Why`), which is counted for the user.
"""

from __future__ import annotations

import json
import os
import stat
import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple
from zlib import crc32

from windrow.storage.recipe_files import local_files

from windrow_master.files.step_damage import StepDamaged
from windrow_master.planning.earlier.file_clocks import FileClocks
from windrow_master.planning.earlier.uploads import Uploads
from windrow_master.planning.earlier.why import Why
from windrow_master.planning.errors import SYSTEM_ERROR, PlanningError
from windrow_master.planning.plan_files.places_seen import PlacesKnown

NONE = -1
"""Stands for the number of an earlier mini-batch when there is none."""
_NOT_GOOD = -2
RECORD = struct.Struct("<QIQIIB")
"""A record of the index: mini_batch, items, recipe_offset, recipe_length, recipe_crc32, whether each item has a
result."""
_READ_BYTES = RECORD.size * 5000


class EarlierMiniBatch(NamedTuple):
    """A mini-batch of the earlier step. `items`: as counted then. `offset`: of its recipe. `is_good`: each item has a
    result.
    """

    mini_batch: int
    items: int
    recipe: bytes
    offset: int = 0
    is_good: bool = True


class EarlierJob:
    """The earlier job, from the request's key `earlier` (docs/contracts.md, section 3)."""

    def __init__(self, given: dict[str, Any]) -> None:
        self.job_id: str = given["job"]
        self._index: str = given["index"]
        self._index_crc32: int = given["index_crc32"]
        self._recipes: str = given["recipes"]
        self._reader: Any = json.loads(given["reader"])
        self._alike: bool | None = given["alike"]
        """Whether this step's reader, where a planner before has pinned it, is the same."""
        self._places = PlacesKnown(given["places"])
        self._uploads = None if given["uploads"] is None else Uploads(given["uploads"])
        self._damaged = 0
        self._clocks = FileClocks(given["began"])

    def reads_alike(self, reader: dict[str, Any] | None) -> bool:
        """Whether recipes mean the same to this step's reader (None for the one that an earlier planner pinned)."""
        if self._alike is None:
            # As both are stored.
            self._alike = bool(json.loads(json.dumps(reader)) == self._reader)
        return self._alike

    def unchanged_names(self, reader: dict[str, Any] | None) -> Iterator[bytes] | None:
        """Names of unchanged files, if both readers list files in folders of two uploads and are otherwise the same.

        None if they are not. Raises OSError.
        """
        before = self._reader
        if self._uploads is None or reader is None or before is None or before.get("kind") != "files":
            return None
        # As both are stored.
        if {**json.loads(json.dumps(reader)), "root": ""} != {**before, "root": ""}:
            return None
        return self._uploads.unchanged_names(before["root"], reader["root"])

    def recipes(self, reader: dict[str, Any] | None) -> EarlierRecipes | None:
        """The recipes, if a step with this reader reads alike; else None. Raises OSError."""
        names = self.unchanged_names(reader)
        if names is None and not self.reads_alike(reader):
            return None
        return EarlierRecipes(self, self._reader, None if names is None else frozenset(names))

    def mini_batches(self) -> Iterator[EarlierMiniBatch]:
        """The earlier mini-batches, in order. Raises OSError, PlanningError.

        One whose recipe is damaged or gone is left out: it runs again.
        """
        self._verify_index()
        self._damaged = 0
        try:
            recipes = os.open(self._recipes, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            self._damaged = os.stat(self._index).st_size // RECORD.size
            return
        try:
            with open(self._index, "rb") as index:
                while records := index.read(_READ_BYTES):
                    for mini_batch, items, offset, length, crc, is_good in RECORD.iter_unpack(records):
                        recipe = os.pread(recipes, length, offset)
                        if len(recipe) == length and crc32(recipe) == crc:
                            yield EarlierMiniBatch(mini_batch, items, recipe, offset, bool(is_good))
                        else:
                            self._damaged += 1
        finally:
            os.close(recipes)

    def recipes_at(self, places: Sequence[tuple[int, int, int]]) -> Iterator[bytes]:
        """Recipes that `mini_batches` has given before, by offset, length and crc32; without those that are damaged
        since. Raises OSError.
        """
        if not places:
            return
        recipes = os.open(self._recipes, os.O_RDONLY | os.O_CLOEXEC)
        try:
            for offset, length, crc in places:
                recipe = os.pread(recipes, length, offset)
                if crc32(recipe) == crc:
                    yield recipe
        finally:
            os.close(recipes)

    def trouble(self) -> str:
        """A warning about `mini_batches` after the last one; "" if there is none."""
        if not self._damaged:
            return ""
        return (
            f"{self._recipes}, of job {self.job_id}, is damaged or gone: {self._damaged:,} mini-batches of that job "
            "are not taken over, and their items run again. Check that disk."
        )

    def _verify_index(self) -> None:
        """Raises PlanningError if the index is not what was written for this planner."""
        found = 0
        with open(self._index, "rb") as index:
            while records := index.read(_READ_BYTES):
                found = crc32(records, found)
        if found != self._index_crc32:
            raise PlanningError(str(StepDamaged(self._index, "it fails its checksum")), SYSTEM_ERROR)

    def change_of(self, path: bytes) -> Why | None:
        """What has happened to a local file since the earlier step began; None if its path leads to the same file,
        which is unchanged.
        """
        try:
            status = os.lstat(path)
            # Within a folder, another file can take this name only by a change that its own ctime shows.
            place = os.path.dirname(path)
            if stat.S_ISLNK(status.st_mode):
                status, place = os.stat(path), path
        except OSError:
            return Why.CHANGED
        change = self._clocks.change_of(status)
        if change is None and not self._places.is_same(place):
            change = Why.MOVED
        if change is not None and self._uploads is not None and self._uploads.is_intact(path):
            return None
        return change


class EarlierRecipes:
    """Finds the earlier mini-batch with a given recipe.

    For inputs whose equal parts have equal recipes: all but plain lists of files (`file_lists`).
    """

    def __init__(self, earlier: EarlierJob, reader: dict[str, Any], names: frozenset[bytes] | None) -> None:
        """`names`: of lists of files, those that have not changed; if None, each file is looked at. Raises OSError."""
        self._names = names
        self.job_id = earlier.job_id
        self._earlier = earlier
        self._reader = reader
        self._known = {
            digest_of(one.recipe): one.mini_batch if one.is_good else _NOT_GOOD for one in earlier.mini_batches()
        }
        self._changes: dict[bytes, Why | None] = {}
        self.whys: Counter[Why] = Counter()
        """Why mini-batches were not found, since the beginning."""

    def find(self, recipe: bytes) -> int:
        """The number of the mini-batch; NONE if there is none, or its files have changed."""
        found = self._known.get(digest_of(recipe), NONE)
        why = Why.NEW if found == NONE else Why.NO_RESULT if found == _NOT_GOOD else self._change_of_files(recipe)
        if why is None:
            return found
        self.whys[why] += 1
        return NONE

    def _change_of_files(self, recipe: bytes) -> Why | None:
        if self._names is not None:
            return None if self._names.issuperset(recipe.split(b"\0")) else Why.CHANGED
        return next(filter(None, map(self._change_of, local_files(self._reader, recipe))), None)

    def _change_of(self, path: bytes) -> Why | None:
        if path not in self._changes:
            self._changes[path] = self._earlier.change_of(path)
        return self._changes[path]


def digest_of(recipe: bytes) -> bytes:
    """What a recipe is known by."""
    return blake2b(recipe, digest_size=16).digest()
