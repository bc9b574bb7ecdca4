"""Reading the recipes of a step: each is verified against the crc32 that its mini-batch was planned with."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple
from zlib import crc32

from windrow_master.step_damage import StepDamaged, read_part


class RecipePlace(NamedTuple):
    """Where the recipe of a mini-batch lies in its step's `recipes`, and its crc32."""

    mini_batch: int
    offset: int
    length: int
    crc32: int


class Recipes:
    """The recipes of one step, open for reading. Close it."""

    def __init__(self, path: Path) -> None:
        """Raises StepDamaged where there is no such file, OSError where it cannot be opened."""
        self._path = path
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise StepDamaged(str(path), "it is gone") from error

    def __enter__(self) -> Recipes:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Nothing more is read."""
        os.close(self._descriptor)

    def read(self, place: RecipePlace) -> bytes:
        """The recipe of one mini-batch. Raises StepDamaged."""
        return self._verified(place, self._read(place.offset, place.offset + place.length))

    def read_all(self, places: Sequence[RecipePlace], bytes_max: int) -> Iterator[bytes]:
        """The recipe of each; runs of recipes that stand one behind the other are read at once, up to about
        `bytes_max`. Raises StepDamaged.
        """
        at = 0
        while at < len(places):
            _, begin, length, _ = places[at]
            end = begin + length
            stop = at + 1
            while stop < len(places) and end - begin < bytes_max:
                # Neighbours mostly, with a byte between; but where one of several inputs ends and the next one begins,
                # recipes may lie anywhere.
                _, offset, length, _ = places[stop]
                if not end <= offset <= end + 1:
                    break
                end = offset + length
                stop += 1
            data = self._read(begin, end)
            for place in places[at:stop]:
                first = place.offset - begin
                yield self._verified(place, data[first : first + place.length])
            at = stop

    def _read(self, begin: int, end: int) -> bytes:
        return read_part(self._descriptor, str(self._path), begin, end)

    def _verified(self, place: RecipePlace, recipe: bytes) -> bytes:
        if crc32(recipe) != place.crc32 or len(recipe) != place.length:
            how = "fails its checksum" if len(recipe) == place.length else "is cut off"
            raise StepDamaged(
                str(self._path),
                f"the recipe of mini-batch {place.mini_batch} ({place.length:,} bytes at {place.offset:,}) {how}",
            )
        return recipe
