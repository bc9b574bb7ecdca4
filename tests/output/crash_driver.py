"""A small master in a process of its own: commits a step's rows group by group, then makes the output.

Arguments: folder, seed, "kill" or "power". It goes on where the one before it ended. Prints `committed <mini-batches>`
once a commit has returned: what is printed was acknowledged, and must never be lost or run again.
"""

from __future__ import annotations

import sys
import zlib
from pathlib import Path

# This runs without pytest, too.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from output_step import STEP, CommittedStep
from volatile_files import VolatileFiles
from windrow_master import crash_points
from windrow_master.core.ids import LeaseId
from windrow_master.output.staging import StagedSegment, remove_orphans

COUNT = 24
GROUP = 6
HEADER = b"number,text\n"


def rows_of(mini_batch: int) -> bytes:
    return b"%d,%s\n" % (mini_batch, b"x" * (mini_batch * 37 % 200))


def output() -> bytes:
    return HEADER + b"".join(rows_of(number) for number in range(COUNT))


def main(folder: Path, seed: int, how: str) -> None:
    files = VolatileFiles(seed)
    if how == "power":
        crash_points.before_crash = files.lose_power
    step = CommittedStep(folder, files, segment_bytes_max=300)
    reader = step.store.reader()
    if not step.store.load().jobs:
        step.plan(COUNT)
    remove_orphans(step.segments_folder, step.store.incarnation, {segment.name for segment in reader.segments_of(STEP)})
    states = step.store.load().steps[0].states
    open_ones = [number for number in range(COUNT) if not states[number]]
    print("open", *open_ones, flush=True)
    for at in range(0, len(open_ones), GROUP):
        group = open_ones[at : at + GROUP]
        large = group[-1]
        upload = StagedSegment(step.segments_folder, LeaseId(1000 + large), files=files)
        upload.write(rows_of(large))
        upload.finish()
        assert upload.crc32 == zlib.crc32(rows_of(large))
        step.commit({number: rows_of(number) for number in reversed(group)}, {large: upload.name})
        print("committed", *group, flush=True)
    step.concatenate(header=HEADER)
    print("written", flush=True)
    step.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
