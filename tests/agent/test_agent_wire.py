"""Frames, packets and the page: what passes between agent and worker, byte by byte."""

from __future__ import annotations

import importlib.util
import os
import sys
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from windrow_agent.outgoing import completions
from windrow_agent.workers import frames
from windrow_agent.workers.frames import BadFrame, FrameReader
from windrow_agent.workers.page import SPOILT, Page, Phase


@lru_cache
def worker_module(name: str) -> ModuleType:
    """A module of the worker's, loaded as the worker does: the two sides of the contract are tested against each
    other.
    """
    spec = importlib.util.find_spec(f"windrow_worker.{name}")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(spec.name, module)
    spec.loader.exec_module(module)
    return module


def frame(kind: int, lease_id: int, rows: bytes, header: bytes = b"", side: bytes = b"", flags: int = 0) -> bytes:
    their = worker_module("protocol.frames")
    body = rows + b"\0" if flags else rows
    return their.FRAME.pack(
        their.MAGIC, len(header), kind, flags, 0, lease_id, 3, 2, 2, 99, 123456, 50, 40, 30, 20, len(rows), len(side)
    ) + header + side + body  # fmt: skip


FRAMES = st.lists(
    st.tuples(
        st.sampled_from([1, 2, 3, 4, 5]),
        st.integers(0, 2**64 - 1),
        st.binary(max_size=300) | st.integers(70_000, 70_500).map(lambda n: b"r" * n),
        st.binary(max_size=20),
        st.binary(max_size=20),
    ),
    max_size=6,
)


@settings(max_examples=40)
@given(FRAMES, st.data())
def test_frames_survive_any_cutting(made: list[tuple[int, int, bytes, bytes, bytes]], data: Any) -> None:
    stream = b"".join(frame(*parts) for parts in made)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    reader = FrameReader()
    got = []
    for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        got += reader.feed(stream[begin:end])
    assert [(g.type, g.lease_id, g.rows, g.header, g.side) for g in got] == made


def test_rows_in_a_file_are_named() -> None:
    data = frame(3, 7, b"/scratch/a file", flags=1) + frame(3, 8, b"x")
    for cut in range(len(data)):
        reader = FrameReader()
        got = reader.feed(data[:cut]) + reader.feed(data[cut:])
        assert [(g.lease_id, g.flags, g.rows) for g in got] == [(7, 1, b"/scratch/a file"), (8, 0, b"x")]


@pytest.mark.parametrize("junk", [b"x" * 200, b"\0" * 200, frame(9, 1, b"")])
def test_what_is_no_frame_is_refused(junk: bytes) -> None:
    """A script that writes to the result channel must be found out, not believed."""
    with pytest.raises(BadFrame):
        FrameReader().feed(junk)


def test_what_came_before_junk_still_counts() -> None:
    reader = FrameReader()
    data = frame(3, 7, b"a") + frame(3, 8, b"b") + b"x" * 200
    before = reader.feed(data[:30])
    with pytest.raises(BadFrame) as caught:
        reader.feed(data[30:])
    assert [one.lease_id for one in before + caught.value.before] == [7, 8]


@pytest.mark.parametrize(
    "side",
    [
        b"no JSON",
        b"3",
        b"[" * 100_000,
        b'{"misfits": 3}',
        b'{"misfits": [[1]]}',
        b'{"misfits": [["a", "many", ""]]}',
        b'{"misfits": [["a", 1, ""], ["a", -1, ""]]}',
        b'{"misfits": [["a", 1e999, ""]]}',
        b'{"misfits": [["a", 18446744073709551615, ""]]}',
        b'{"misfits": {"a": 1}}',
        b'{"cause": {}, "message": [], "detail": "\\ud800"}',
    ],
)
@pytest.mark.parametrize("kind", [3, 4])
def test_whatever_comes_beside_a_result_it_is_one(kind: int, side: bytes) -> None:
    """A lease whose result were given up half-way would never end."""
    (result,) = FrameReader().feed(frame(kind, 7, b"row\n", side=side))
    completion = completions.from_result(result, 1)
    assert (completion.lease_id, completion.item_count, len(completion.misfits)) == (7, 3, 0)
    assert bool(completion.cause) == (kind == 4)


def test_a_packet_names_its_lease() -> None:
    their = worker_module("protocol.frames")
    packet = frames.run_packet(2, 2**63 + 5, 11, 22, 33, b"recipe")
    assert their.PACKET.unpack_from(packet) == (1, 0, 0, 2, 2**63 + 5, 11, 22, 33)
    assert packet[their.PACKET.size :] == b"recipe"
    assert frames.packet_lease(packet) == 2**63 + 5
    assert frames.packet_lease(frames.shutdown_packet()) == 0


def test_the_page_shows_what_the_worker_writes(tmp_path: Path) -> None:
    page = Page(tmp_path / "page")
    assert page.look().phase is Phase.NONE
    theirs = worker_module("protocol.page").Page(str(page.path))
    theirs.completed = 4
    start = theirs.enter(5, 77, 6, 12)
    look = page.look()
    assert (look.phase, look.lease_id, look.mini_batch_index, look.items) == (Phase.RUNNING, 77, 6, 12)
    assert (look.completed, look.phase_start_ns) == (4, start)
    page.close()
    assert not page.path.exists()


def test_a_page_written_over_or_cut_by_the_script_says_so(tmp_path: Path) -> None:
    page = Page(tmp_path / "page")
    with open(page.path, "r+b") as file:
        file.write(b"\xfe" * 100)
    assert page.look() == SPOILT
    os.truncate(page.path, 0)
    assert page.look() == SPOILT
    page.close()


def test_the_worker_writes_no_longer_lists_than_the_agent_reads() -> None:
    failures = worker_module("failures")
    items = worker_module("splitting").FailedItems
    many = failures.encode_done([], [items(i, 1, "marked", "") for i in range(60_000)])
    long = failures.encode_done(
        [("\x00" * 900, 1, "€" * 240)] * 20_000, [items(i, 1, "x", "€" * 240) for i in range(20_000)]
    )
    for side in (many, long):
        assert len(side) <= frames.SIDE_BYTES_MAX
        (result,) = FrameReader().feed(frame(3, 7, b"", side=side))
        assert len(completions.from_result(result, 1).failed_items) == len(completions.side_of(result)["failed"]) > 3000
