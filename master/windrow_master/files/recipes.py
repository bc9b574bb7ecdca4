"""Reads the recipes of a step. Each is verified against the crc32 with which its mini-batch was planned."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple
from zlib import crc32

from windrow_master.files.step_damage import StepDamaged, read_part


class RecipePlace(NamedTuple):
    """Where the recipe of a mini-batch is in its step's `recipes`, and its crc32."""

    mini_batch: int
    offset: int
    length: int
    crc32: int


class Recipes:
    """The open recipes file of one step. Close it."""

    def __init__(self, path: Path) -> None:
        """Raises StepDamaged if there is no such file, OSError if it cannot be opened."""
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
        """Close the file."""
        os.close(self._descriptor)

    def read(self, place: RecipePlace) -> bytes:
        """The recipe of one mini-batch. Raises StepDamaged."""
        (recipe,) = self.read_all([place], place.length)
        return recipe

    def read_all(self, places: Sequence[tuple[int, int, int, int]], bytes_max: int) -> Iterator[bytes]:
        """The recipe at each RecipePlace (plain tuples will do). Raises StepDamaged.

        Neighbouring recipes are read at once, up to about `bytes_max`.
        """
        at = 0
        while at < len(places):
            _, begin, length, _ = places[at]
            end = begin + length
            stop = at + 1
            while stop < len(places) and end - begin < bytes_max:
                # Neighbours mostly, with a byte between; but where one of several inputs ends and the next one begins,
                # recipes may be anywhere.
                _, offset, length, _ = places[stop]
                if not end <= offset <= end + 1:
                    break
                end = offset + length
                stop += 1
            data = read_part(self._descriptor, str(self._path), begin, end)
            for mini_batch, offset, length, checksum in places[at:stop]:
                recipe = data[offset - begin : offset - begin + length]
                if crc32(recipe) != checksum or len(recipe) != length:
                    how = "fails its checksum" if len(recipe) == length else "is cut off"
                    which = f"the recipe of mini-batch {mini_batch} ({length:,} bytes at {offset:,})"
                    raise StepDamaged(str(self._path), f"{which} {how}")
                yield recipe
            at = stop
