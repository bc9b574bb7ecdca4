"""Whatever a peer may send is refused or ignored, never raised, and never more than a store can hold."""

from __future__ import annotations

from typing import Any

from core_driver import CoreDriver
from hypothesis import given, settings
from hypothesis import strategies as st
from windrow.rpc.v1 import work_pb2
from windrow_master.core import commands
from windrow_master.core.commands import HeldLease
from windrow_master.core.records import Dirty
from windrow_master.core.settings import StepSettings

UINT32, UINT64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
INT64_MAX = 2**63 - 1
SMALL = st.integers(0, 6)
STEPS = st.one_of(SMALL, UINT64)
NODES = st.sampled_from(["n1", "n2", "n3", "", "x" * 64])
INCARNATIONS = st.sampled_from(["a", "b", ""])
TEXT = st.one_of(st.text(max_size=20), st.just("m" * 100_000))
LIVE_PREFIX = 7 << 32
LEASES = st.one_of(st.integers(LIVE_PREFIX, LIVE_PREFIX + 12), UINT64)

MISFITS = st.builds(work_pb2.Misfit, column=TEXT, count=UINT64, example=TEXT)
RESULTS = st.builds(
    work_pb2.Completion,
    lease_id=LEASES,
    cause=st.one_of(st.just(0), st.integers(-3, 20)),
    item_count=st.one_of(SMALL, UINT32),
    result_count=st.one_of(SMALL, UINT32),
    row_count=UINT32,
    rows=st.binary(max_size=8),
    staged_segment=st.sampled_from(["", "", "../../etc/passwd"]),
    rows_length=st.one_of(SMALL, UINT64),
    rows_crc32=UINT32,
    header=st.sampled_from([b"", b"a\n", b"b\n"]),
    start_unix_us=st.integers(-(2**63), 2**63 - 1),
    elapsed_us=UINT64,
    run_us=UINT64,
    cpu_us=UINT64,
    peak_rss_kib=UINT64,
    process_number=UINT32,
    message=TEXT,
    detail=TEXT,
    misfits=st.lists(MISFITS, max_size=2),
)
HELD = st.builds(HeldLease, LEASES, STEPS, st.one_of(SMALL, UINT64), st.integers(0, 3))
COMMANDS: st.SearchStrategy[Any] = st.one_of(
    st.builds(commands.RegisterNode, NODES, INCARNATIONS, INCARNATIONS, st.just(b"{}"), st.just(b"{}")),
    st.builds(commands.HeartbeatNode, NODES, INCARNATIONS, UINT32, UINT64),
    st.builds(
        commands.OpenWork, NODES, INCARNATIONS, st.integers(1, 4), st.lists(HELD, max_size=4).map(tuple),
        st.lists(STEPS, max_size=3).map(tuple),
    ),
    st.builds(commands.CloseWork, NODES, st.integers(1, 4)),
    st.builds(
        commands.SetCapacity, NODES, st.integers(1, 4),
        st.lists(st.tuples(STEPS, st.one_of(SMALL, UINT32), UINT32), max_size=3).map(tuple), st.booleans(),
        st.lists(STEPS, max_size=2).map(tuple),
    ),
    st.builds(commands.CompleteAttempts, NODES, st.lists(RESULTS, max_size=4)),
    st.builds(commands.ReleaseLeases, NODES, st.lists(LEASES, max_size=4)),
    st.builds(commands.ReportWorkerFailure, NODES, STEPS, st.integers(-3, 20), TEXT, TEXT, UINT32, UINT32),
    st.builds(commands.DrainNode, NODES),
    st.builds(commands.CordonNode, NODES, st.booleans()),
    st.builds(commands.RemoveNode, NODES),
    st.builds(commands.CancelJob, st.sampled_from(["job", "other", ""])),
    st.builds(commands.SubmitJob, st.just("job"), TEXT, st.just(b"[]"), TEXT, st.just((StepSettings("s"),))),
    st.just(commands.Tick()),
)  # fmt: skip


def assert_storable(dirty: Dirty) -> None:
    """Every number fits into 63 bits, every text into what the protocol promises."""
    rows = (*dirty.jobs, *dirty.steps, *dirty.planned, *dirty.outcomes, *dirty.attempts, *dirty.item_outcomes)
    for row in rows:
        for value in row:
            assert not isinstance(value, int) or -INT64_MAX - 1 <= value <= INT64_MAX, row
    for attempt in dirty.attempts:
        assert len(attempt.message) <= 4096 and len(attempt.detail) <= 65536
    for step in dirty.steps:
        assert len(step.counters) < 4_000_000
    for block in dirty.row_blocks:
        assert block.staged_segment or len(block.rows) == block.length


class Watched(CoreDriver):
    """A driver that looks at every row before it is stored."""

    def commit(self) -> None:
        """As in CoreDriver, with a look."""
        take = self.core.take_dirty

        def looked() -> Dirty:
            dirty = take()
            assert_storable(dirty)
            return dirty

        self.core.take_dirty = looked  # type: ignore[method-assign]
        try:
            super().commit()
        finally:
            self.core.take_dirty = take  # type: ignore[method-assign]


@settings(max_examples=250, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([0.0, 0.1, 0.3, 2.0]), COMMANDS), max_size=25), st.booleans())
def test_no_peer_makes_the_core_raise_or_break_an_invariant(script: list[tuple[float, Any]], waited: bool) -> None:
    driver = Watched()
    driver.running([3, 0, 2, 1, 1], error_threshold=50)
    driver.join("n1", 3)
    driver.join("n2", 1)
    if waited:
        driver.tick_alive(1.5, "n1", "n2")
    for after_s, command in script:
        driver.now_s += after_s
        driver.group(command)
    driver.tables.check()
