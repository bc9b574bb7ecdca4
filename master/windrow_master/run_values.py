"""What runs have logged and been tagged with: scripts ask for it, and clients add tags.

    jobs/<job>/logs/<step>/user/metrics/<node>/process<n>.csv   what scripts of a step have logged
    jobs/<job>/logs/<step>/tags.csv                             what clients have tagged the run of the step with
    jobs/<job>/logs/tags.csv                                    of the job

All files have the same columns (docs/contracts.md, section 4). The last one says whose value it is: a script of a step
also logs for the run of its job.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import threading
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from windrow.common.durable import sync_folder
from windrow.rpc.v1 import job_service_pb2 as pb

from windrow_master.files.durable import make_durable
from windrow_master.script_files import ScriptRun
from windrow_master.store.protocol import StoreReader

TAGS = "tags.csv"
"""In the logs of a step, and in those of its job."""
COLUMNS = ("Utc Time", "Name", "Value", "Kind", "Run")
KINDS = {
    pb.RUN_TAG_KIND_UNSPECIFIED: "tag",
    pb.RUN_TAG_KIND_PROPERTY: "property",
    pb.RUN_TAG_KIND_REMOVED: "untag",
}
READ_BYTES_MAX = 64 << 20
TAGS_MAX = 1000
"""Of one call."""
ROW_BYTES_MAX = 64 << 10
FILE_BYTES_MAX = 1 << 20
_CHUNK = 1 << 20
_FIRST = "0001-01-01T00:00:00.000000Z"
_METRICS = "user/metrics/*/process*.csv"
_ROW = re.compile(rb"\d{4}-\d\d-\d\dT[\d:.]{15}Z,.*,(\w+),(step|job)\n")


class ValuesRefused(Exception):
    """What is asked for is too much, or is no tag; the text says which."""


class RunValues:
    """Blocks on the disk; any thread may call it."""

    def __init__(self, reader: StoreReader) -> None:
        """`reader`: knows what jobs were submitted with."""
        self._reader = reader
        self._writing = threading.Lock()

    def rows(self, run: ScriptRun, *, of_job: bool, only_tags: bool) -> Iterator[bytes]:
        """The rows of a run, file by file, in pieces of about 1 MiB; of a job, first the tags that it was submitted
        with. Raises ValuesRefused, OSError, StateError.
        """
        if of_job and (submitted := self._submitted(run.job_id)):
            yield submitted
        wanted = b"job" if of_job else b"step"
        pieces: list[bytes] = []
        size = total = 0
        for path in self._files(run, of_job=of_job):
            with path.open("rb") as file:
                # A row has at most 64 KiB; a longer line is what was left of others where the file was cut.
                while line := file.readline(ROW_BYTES_MAX + 1):
                    row = _ROW.fullmatch(line)
                    if row is None or row[2] != wanted or (only_tags and row[1].decode() not in KINDS.values()):
                        continue
                    pieces.append(line)
                    size += len(line)
                    if size >= _CHUNK:
                        total += size
                        if total > READ_BYTES_MAX:
                            raise ValuesRefused(
                                f"The run has logged more than {READ_BYTES_MAX >> 20} MiB, the most that a script gets "
                                "back. `windrow job show JOB --metrics` shows all of it."
                            )
                        yield b"".join(pieces)
                        pieces, size = [], 0
        if pieces:
            yield b"".join(pieces)

    def tag(self, logs: Path, tags: Iterable[pb.RunTag], *, of_job: bool) -> None:
        """Add tags of a client. `logs`: of the step, or the job. On return they are on the disk. Raises ValuesRefused,
        OSError.
        """
        level = "job" if of_job else "step"
        moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        new = b"".join(_row(moment, tag, level) for tag in tags)
        target = logs / TAGS
        with self._writing:
            make_durable(target.parent)
            descriptor = os.open(target, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
            try:
                size = os.fstat(descriptor).st_size
                if size + len(new) > FILE_BYTES_MAX:
                    raise ValuesRefused(
                        f"The tags that notebooks and clients give a run have {FILE_BYTES_MAX >> 20} MiB at most, and "
                        f"these would make it more. Write long texts into a file, and tag the run with its name."
                    )
                if not size:
                    new = ",".join(COLUMNS).encode() + b"\n" + new
                elif os.pread(descriptor, 1, size - 1) != b"\n":
                    # The master was killed while it wrote.
                    new = b"\n" + new
                rest = memoryview(new)
                while rest:
                    rest = rest[os.write(descriptor, rest) :]
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            sync_folder(target.parent)

    def _submitted(self, job_id: str) -> bytes:
        row = self._reader.job_by_id(job_id)
        tags = json.loads(row.document or b"{}").get("tags") if row is not None else None
        return b"".join(_line(_FIRST, str(name), str(value), "tag", "job") for name, value in (tags or {}).items())

    def _files(self, run: ScriptRun, *, of_job: bool) -> list[Path]:
        found = run.logs.glob(f"*/{_METRICS}" if of_job else _METRICS)
        tags = run.logs / TAGS
        return sorted(found) + ([tags] if tags.is_file() else [])


def _row(moment: str, tag: pb.RunTag, level: str) -> bytes:
    if not tag.name or "\n" in tag.name or "\r" in tag.name:
        raise ValuesRefused(f"The name of a tag is one line of text, not {tag.name[:200]!r}.")
    if tag.kind not in KINDS:
        raise ValuesRefused(f"{tag.kind} is no kind of tag that this master knows.")
    row = _line(moment, tag.name, tag.value if tag.HasField("value") else None, KINDS[tag.kind], level)
    if len(row) > ROW_BYTES_MAX:
        raise ValuesRefused(
            f"The tag {tag.name[:200]!r} would need a row of {len(row):,} bytes, and {ROW_BYTES_MAX:,} are the most."
        )
    return row


def _line(moment: str, name: str, value: str | None, kind: str, level: str) -> bytes:
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow((moment, name, json.dumps(value), kind, level))
    return line.getvalue().encode("utf-8", "backslashreplace")
