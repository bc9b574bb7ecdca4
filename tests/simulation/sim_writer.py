"""The writer's rules under a virtual clock: handle, pick, commit later, release after the commit.

Every arrow of windrow_master/shell/writer.py is an event of its own (handle, append, sync, commit, release), so that a
master can die between any two of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from zlib import crc32

from sim_disk import Disk, Segment
from sim_planting import asserts
from sim_tables import IncarnationSuperseded, SegmentRange
from sim_world import Process
from windrow_master.core import invariants
from windrow_master.core.core import Core
from windrow_master.core.effects import AFTER_COMMIT, Effect
from windrow_master.core.records import Dirty
from windrow_master.shell.writer import VOLATILE

if TYPE_CHECKING:
    from sim_checkers import Checkers
    from sim_config import Config

SEGMENT_BYTES_MAX = 2_000
Reply = Callable[[Any], None]


class SimSegments:
    """Open segments of one master incarnation."""

    def __init__(self, disk: Disk, incarnation: int) -> None:
        self._disk = disk
        self._incarnation = incarnation
        self._open: dict[int, tuple[str, Segment]] = {}
        self._touched: list[Segment] = []
        self._count = 0
        self._brought: dict[tuple[int, str], str] = {}

    def append(self, dirty: Dirty) -> list[SegmentRange]:
        """Write the rows of a group; they are not durable yet."""
        ranges = []
        for block in dirty.row_blocks:
            if block.source:
                name = self._bring(block.step_id, block.source)
                ranges.append(SegmentRange(name, block.offset, block.length, block.crc32))
                continue
            name, segment = self._segment(block.step_id)
            ranges.append(SegmentRange(name, len(segment.data), len(block.rows), crc32(block.rows)))
            segment.data += block.rows
            if segment not in self._touched:
                self._touched.append(segment)
        return ranges

    def sync(self) -> None:
        """Make all that was appended durable."""
        for segment in self._touched:
            segment.synced = len(segment.data)
        self._touched.clear()

    def seal(self) -> None:
        """Never write to the open segments again."""
        self._open.clear()
        self._touched.clear()

    def _segment(self, step_id: int) -> tuple[str, Segment]:
        found = self._open.get(step_id)
        if found is None or len(found[1].data) > SEGMENT_BYTES_MAX:
            self._count += 1
            name = self.name(step_id, self._count)
            found = self._open[step_id] = (name, self.create(name))
        return found

    def _bring(self, step_id: int, source: str) -> str:
        """The rows of an earlier job, under a name of this step's."""
        found = self._brought.get((step_id, source))
        if found is None:
            self._count += 1
            found = self._brought[step_id, source] = self.name(step_id, self._count)
            self._disk.link_segment(source, found)
        return found

    def name(self, step_id: int, count: int) -> str:
        """The incarnation is in the name: no other ever writes to it."""
        return f"{step_id}/{self._incarnation}-{count}.rows"

    def create(self, name: str) -> Segment:
        """A new segment."""
        return self._disk.create_segment(name, self._incarnation)


class SimWriter:
    """Owns the core of one master process."""

    def __init__(
        self,
        process: Process,
        core: Core,
        disk: Disk,
        config: Config,
        checkers: Checkers,
        carry_out: Callable[[list[Effect]], None],
    ) -> None:
        self.core = core
        self.segments = SimSegments(disk, core.state.incarnation)
        self._process, self._world = process, process.world
        self._disk, self._config, self._checkers = disk, config, checkers
        self._carry_out = carry_out
        self._arrived: list[tuple[Any, Reply | None]] = []
        self._replies: list[tuple[Reply, Any]] = []
        self._owed: list[Effect] = []
        self._in_flight = False
        self._groups = 0
        self.after_group: Callable[[list[Any]], None] = lambda handled: None
        """Told of each group of commands when it is handled."""

    def submit(self, command: Any, reply: Reply | None = None) -> None:
        """Queue a command."""
        if not self._arrived:
            self._process.after(self._world.rng.random() * 0.002, self._handle_group)
        self._arrived.append((command, reply))

    def start(self) -> None:
        """Carry out what the core owes after a recovery."""
        self._owed.extend(self.core.take_effects())
        self._commit_if_idle()

    def _handle_group(self) -> None:
        group, self._arrived = self._arrived, []
        now = self._world.moment
        for command, reply in group:
            answer = self._handle(command)
            if reply is None:
                continue
            if isinstance(command, VOLATILE):
                reply(answer)
            else:
                self.keep(reply, answer)
        self.core.pick(now)
        self._groups += 1
        if self._config.agents < 30 or self._groups % 20 == 0:
            with asserts(21):
                invariants.check(self.core.state)
        at_once: list[Effect] = []
        for effect in self.core.take_effects():
            (self._owed if type(effect) in AFTER_COMMIT else at_once).append(effect)
        self._checkers.on_effects(self.core, at_once)
        self._carry_out(at_once)
        self._commit_if_idle()
        self.after_group([command for command, _ in group])

    def _handle(self, command: Any) -> Any:
        self._checkers.before(self.core, command)
        answer = self.core.handle(command, self._world.moment)
        self._checkers.after(self.core, command, answer)
        return answer

    def keep(self, reply: Reply, answer: Any) -> None:
        """Hold a reply back until what it promises is durable."""
        self._replies.append((reply, answer))

    def _commit_if_idle(self) -> None:
        if self._in_flight:
            return
        dirty = self.core.take_dirty()
        replies, self._replies = self._replies, []
        owed, self._owed = self._owed, []
        if not dirty:
            self._release(replies, owed)
            self._checkers.on_quiet(self.core)
            return
        self._in_flight = True
        self._commit(dirty, replies, owed)

    def _commit(self, dirty: Dirty, replies: list[tuple[Reply, Any]], owed: list[Effect]) -> None:
        """Append, sync, commit, release: four events, and a death possible between any two."""
        ranges: list[SegmentRange] = []

        def append() -> None:
            ranges.extend(self.segments.append(dirty))
            self._later(self.sync_then_commit(self.segments.sync, commit))

        def commit() -> None:
            if self._world.chance(self._config.postponed):
                self.segments.seal()
                self._process.after(1.0, lambda: self._commit(dirty, replies, owed))
                return
            try:
                self._checkers.on_commit(self.core.state.incarnation, dirty, ranges)
            except IncarnationSuperseded:
                self._process.alive = False
                self._world.trace("superseded", self.core.state.incarnation)
                return
            self._later(release)

        def release() -> None:
            self._in_flight = False
            self._release(replies, owed)
            self._commit_if_idle()

        self._later(append)

    def sync_then_commit(self, sync: Callable[[], None], commit: Callable[[], None]) -> Callable[[], None]:
        """The order in which rows and the rows that name them become durable."""

        def step() -> None:
            sync()
            self._later(commit)

        return step

    def _later(self, event: Callable[[], None]) -> None:
        mean_s = self._config.commit_s / 4 * (100 if self._world.chance(self._config.commit_stall) else 1)
        self._process.after(self._world.around(mean_s), event)

    def _release(self, replies: list[tuple[Reply, Any]], owed: list[Effect]) -> None:
        for reply, answer in replies:
            reply(answer)
        self._carry_out(owed)
