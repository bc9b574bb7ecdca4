"""How the input of a step would be divided: runs its planner for a while and counts what it sends."""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from windrow.common.trees import walk

from windrow_master.core.records import PLAN_RECORD
from windrow_master.dry_run.earlier_results import EarlierResults
from windrow_master.dry_run.recipes import bytes_of
from windrow_master.files.recipes import RecipePlace, Recipes
from windrow_master.files.state_files import StepFiles
from windrow_master.helper_process import command_of
from windrow_master.planning import describe_items
from windrow_master.planning.no_input import groups_without_input
from windrow_master.planning.recipes.description import describe_partition
from windrow_master.shell.planning_driver import EARLIER, ENDS_S, MESSAGE_HEAD, GroupRecords, how_it_died

LOOK_S = 0.2
ITEMS_SHOWN = 5
STDERR_TAIL = 2000


class Limits(NamedTuple):
    """How far a division is followed. Beyond these limits, counts are lower bounds ("at least").

    Not the time limits of a step, which agents watch.
    """

    seconds: float = 10.0
    mini_batches: int = 200_000
    disk_bytes: int = 1 << 30
    """In the folder of the step: rows that are sorted by partition keys go there."""
    recipes: int = 3
    """The number of mini-batches that are described."""


_planners: list[subprocess.Popen[bytes]] = []


def end_planners() -> None:
    """End the running planners. When this returns, nothing writes to their folders. Any thread may call it."""
    for process in list(_planners):
        process.kill()
        process.wait()


class Division:
    """Counts of what a planner has sent so far. `to_dict` is the answer."""

    def __init__(self, files: StepFiles, limits: Limits, taking_over: EarlierResults | None = None) -> None:
        self._files = files
        self._limits = limits
        self._taking_over = taking_over
        self.mini_batches = 0
        self.items = 0
        self.items_known = True
        self.largest = 0
        self.complete = False
        self.stopped = ""
        self.error = ""
        self.category = ""
        self.warnings: list[str] = []
        self.notes: list[str] = []
        self.reader: dict[str, Any] = {}
        self.first: list[dict[str, Any]] = []

    def run(self, request: dict[str, Any]) -> None:
        """Run the planner to its end, or to a limit."""
        if not request["inputs"]:
            self._files.recipes.touch()
            for message, records in groups_without_input(request["rank_mini_batch_count"], None):
                self._take(message, records)
            return
        process = subprocess.Popen(
            command_of("windrow_master.planning"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        _planners.append(process)
        try:
            process.stdin.write(json.dumps({**request, "checkpoint": None}).encode() + b"\n")
            process.stdin.flush()
            self._follow(process.stdout.fileno())
            if not (self.complete or self.stopped or self.error):
                with suppress(subprocess.TimeoutExpired):
                    process.wait(ENDS_S)
            process.kill()
            said = process.stderr.read().decode(errors="replace").strip()
        finally:
            process.kill()
            process.wait()
            _planners.remove(process)
            for stream in (process.stdin, process.stdout, process.stderr):
                stream.close()
        if not (self.complete or self.stopped or self.error):
            self.error = (
                f"The planner process ended before it was done. {how_it_died(process.returncode)}"
                f"Its last output: {said[-STDERR_TAIL:]}"
            )
            self.category = "SystemError"

    def _follow(self, stdout: int) -> None:
        deadline = time.monotonic() + self._limits.seconds
        buffer = bytearray()
        while not (self.complete or self.error):
            if self._is_over(deadline):
                return
            if not select.select([stdout], [], [], LOOK_S)[0]:
                continue
            part = os.read(stdout, 1 << 20)
            if not part:
                return
            buffer += part
            self._take_messages(buffer)

    def _is_over(self, deadline: float) -> bool:
        limits = self._limits
        if self.mini_batches >= limits.mini_batches:
            self.stopped = f"counted up to {limits.mini_batches:,} mini-batches"
        elif time.monotonic() > deadline:
            self.stopped = f"counted for {limits.seconds:g} s"
        elif _disk_use(self._files.folder) > limits.disk_bytes:
            self.stopped = f"the rows to sort come to more than {limits.disk_bytes >> 20:,} MiB"
        return bool(self.stopped)

    def _take_messages(self, buffer: bytearray) -> None:
        while len(buffer) >= MESSAGE_HEAD.size and self.mini_batches < self._limits.mini_batches:
            json_length, records_length = MESSAGE_HEAD.unpack_from(buffer)
            end = MESSAGE_HEAD.size + json_length + records_length
            if len(buffer) < end:
                return
            message = json.loads(buffer[MESSAGE_HEAD.size : MESSAGE_HEAD.size + json_length])
            records = bytes(buffer[MESSAGE_HEAD.size + json_length : end])
            del buffer[:end]
            self._take(message, records)

    def _take(self, message: dict[str, Any], records: bytes) -> None:
        if message["type"] == "error":
            self.error, self.category = message["message"], message["category"]
            return
        self.reader = message.get("reader") or self.reader
        self.warnings += message.get("warnings", ())
        self.notes += message.get("notes", ())
        counted = message["to"]
        self.items = counted["items"]
        group = GroupRecords.of(message, records)
        taken = self._take_over(group.earlier)
        for index, (_, items, offset, length, crc) in enumerate(PLAN_RECORD.iter_unpack(group.planned)):
            self.items_known = self.items_known and (items > 0 or self.reader["kind"] == "none")
            self.largest = max(self.largest, items)
            if len(self.first) < self._limits.recipes:
                number = self.mini_batches + index
                described = self._describe(number, items, RecipePlace(number, offset, length, crc))
                self.first.append({**described, "taken_over": number in taken})
        self.mini_batches = counted["mini_batches"]
        self.complete = counted["done"]

    def _take_over(self, earlier: bytes) -> set[int]:
        """Return the mini-batches of a group that would be taken over."""
        pairs = enumerate(EARLIER.iter_unpack(earlier), self.mini_batches)
        found = [(number, before) for number, (before,) in pairs if before >= 0]
        return self._taking_over.take(found) if self._taking_over is not None and found else set()

    def _describe(self, index: int, items: int, place: RecipePlace) -> dict[str, Any]:
        """Describe a mini-batch. Raises StepDamaged."""
        with Recipes(self._files.recipes) as recipes:
            recipe = recipes.read(place)
        texts = describe_items(self.reader, recipe)
        return {
            "index": index,
            "items": items or None,
            "bytes": bytes_of(self.reader, recipe),
            "partition": describe_partition(self.reader, recipe),
            "holds": texts[:ITEMS_SHOWN],
            "holds_more": max(0, len(texts) - ITEMS_SHOWN),
        }

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types. `items` is None if their number is known only after loading the mini-batches."""
        return {
            "state": "failed" if self.error else "divided",
            "error": self.error,
            "category": self.category,
            "complete": self.complete,
            "stopped": self.stopped,
            "mini_batches": self.mini_batches,
            "items": self.items if self.items_known else None,
            "largest": self.largest if self.items_known else None,
            "kind": _kind(self.reader),
            "first": self.first,
            "warnings": self.warnings,
            "notes": self.notes,
            "taken_over": None if self._taking_over is None else self._taking_over.to_dict(),
        }


def _kind(reader: dict[str, Any]) -> str:
    """What a mini-batch consists of: files, a table format, records, or nothing."""
    one = reader["inputs"][0] if reader.get("kind") == "inputs" else reader
    return str(one.get("format") or one.get("kind") or "")


def _disk_use(folder: Path) -> int:
    total = 0
    for place, _, names in walk(folder):
        for name in names:
            try:
                total += Path(place, name).stat().st_size
            except OSError:
                continue  # the planner's own, and gone
    return total
