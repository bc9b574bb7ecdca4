"""Every named crash point of committer and concatenation, by kill and by loss of power: nothing acknowledged is lost,
nothing counts twice, and the output comes out byte for byte as without the crash."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from crash_driver import COUNT, output, rows_of
from output_step import STEP, CommittedStep
from windrow_master import crash_points

DRIVER = Path(__file__).with_name("crash_driver.py")

COMMITTER = [
    "segments.created",
    "segments.appended",
    "segments.synced",
    "staging.written",
    "staging.synced",
    "store.begun",
    "store.written",
    "store.committed",
]
CONCATENATION = sorted(name for name in crash_points.POINTS if name.startswith("concatenate."))


def drive(folder: Path, how: str, seed: int, crash_point: str = "") -> tuple[int, list[list[str]]]:
    """Run the driver to its end or its crash; return its exit code and its lines, as words."""
    done = subprocess.run(
        [sys.executable, str(DRIVER), str(folder), str(seed), how],
        env={**os.environ, crash_points.VARIABLE: crash_point},
        stdout=subprocess.PIPE,
        check=False,
    )
    return done.returncode, [line.split() for line in done.stdout.decode().splitlines()]


def committed_rows(folder: Path) -> dict[int, bytes]:
    """What the store says is committed, read from the segments and verified."""
    step = CommittedStep(folder)
    names = {row.segment_id: row.name for row in step.store.reader().segments_of(STEP)}
    found = {}
    for page in step.store.reader().ranges_of(STEP):
        for row in page:
            content = (step.segments_folder / names[row.segment_id]).read_bytes()
            found[row.mini_batch] = content[row.offset : row.offset + row.length]
            assert zlib.crc32(found[row.mini_batch]) == row.crc32
    step.close()
    return found


@pytest.mark.parametrize(
    ("crash_point", "how"),
    [
        *((f"{name}:{count}", how) for name in COMMITTER for count, how in ((1, "power"), (2, "kill"), (3, "power"))),
        *((name, how) for name in CONCATENATION for how in ("kill", "power")),
    ],
)
def test_a_crash_loses_nothing(tmp_path: Path, crash_point: str, how: str) -> None:
    seed = zlib.crc32(f"{crash_point} {how}".encode())
    code, lines = drive(tmp_path, how, seed, crash_point)
    assert code == -signal.SIGKILL, f"{crash_point} was never reached"
    acknowledged = {int(word) for words in lines if words[0] == "committed" for word in words[1:]}
    found = committed_rows(tmp_path)
    assert acknowledged <= found.keys()
    assert all(rows == rows_of(number) for number, rows in found.items())
    code, lines = drive(tmp_path, "kill", seed)
    assert code == 0
    # What is committed does not run again, acknowledged or not.
    assert lines[0] == ["open", *(str(number) for number in range(COUNT) if number not in found)]
    assert (tmp_path / "out" / "rows.csv").read_bytes() == output()
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["rows.csv"]


def test_crashes_in_a_row(tmp_path: Path) -> None:
    for seed, crash_point in enumerate([*(f"{name}:2" for name in COMMITTER[1:]), *CONCATENATION]):
        code, _ = drive(tmp_path, "power", seed, crash_point)
        assert code in (0, -signal.SIGKILL)
        committed_rows(tmp_path)
    assert drive(tmp_path, "kill", 0)[0] == 0
    assert (tmp_path / "out" / "rows.csv").read_bytes() == output()


def test_a_misspelt_crash_point_is_refused(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import windrow_master.crash_points"],
        env={**os.environ, crash_points.VARIABLE: "store.comitted"},
        stderr=subprocess.PIPE,
        check=False,
    )
    assert done.returncode == 1
    assert b"'store.comitted', which is not a crash point" in done.stderr
