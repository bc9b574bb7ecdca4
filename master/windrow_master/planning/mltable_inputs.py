"""Plans an `mltable` input: a list of files, or a table cut into slices; and JSON lines files as lists of records.

A table's stages: list all files (size, time; Parquet footers) → pin the reader from headers and a sample → cut file by
file. The first two end before the first mini-batch and are in the listing; a restarted planner begins with the third.
`next` of a position: `files_end` and `file_at` are offsets in the listing, `begin` is where the next slice begins
(Parquet: row group); see `cut` for the rest.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from windrow.spec.tables.delta import ReadDelta
from windrow.spec.tables.mltable import Read, ReadDelimited, ReadJsonLines, ReadParquet
from windrow.spec.tables.steps import SelectPartitions, Step
from windrow.storage.copies import copied
from windrow_worker.tables.partition_format import PathColumns

from windrow_master.planning.emitter import Emitter
from windrow_master.planning.errors import PlanningError, shown
from windrow_master.planning.file_lists import FileList, plan_file_lists, refuse_some_copies
from windrow_master.planning.file_steps import FileSteps
from windrow_master.planning.inputs import about, input_entry
from windrow_master.planning.listing.entries import nothing_found
from windrow_master.planning.listing.stamps import name_of, stamp_of, through
from windrow_master.planning.partitions.file_groups import emit_file_groups, list_file_groups
from windrow_master.planning.partitions.keys import Unmatched, check_keys, counts_rows, path_columns
from windrow_master.planning.partitions.row_groups import RowsPlace, emit_row_groups, sort_rows
from windrow_master.planning.partitions.table_groups import emit_table_groups
from windrow_master.planning.plan_files.plan_files import PlanFiles
from windrow_master.planning.request import DividedInput, Request
from windrow_master.planning.sections import Listed, Section, plan_sections
from windrow_master.planning.tables import listing
from windrow_master.planning.tables.cut import cut
from windrow_master.planning.tables.files import TableFile, keep_within, stat_file
from windrow_master.planning.tables.partitions import Partitions
from windrow_master.planning.tables.pin_delimited import DelimitedPinning
from windrow_master.planning.tables.pin_json_lines import JsonLinesPinning
from windrow_master.planning.tables.pin_paths import check_names, path_columns_json
from windrow_master.planning.tables.row_steps import column_names, columns_after, drops_rows, resolve, takes_rows
from windrow_master.planning.tables.source import Source, is_marker, open_source, plain_read

BYTES_DEFAULT = 1024 * 1024
"""Bytes of a mini-batch by default. Reference: docs/reference/azure-ml/parallel-job.md#division-by-size."""


def plan_tables(request: Request, plan_files: PlanFiles, emitter: Emitter) -> None:
    """Plan a step with an input of type mltable, or one that gets its JSON lines files as lists of dicts
    (docs/reference/azure-ml/parallel-job.md#undocumented-arguments, `--amlbi_file_format jsonl`).

    Raises PlanningError.
    """
    keep_within(request.roots)
    start = request.checkpoint
    position = None if start is None else start.position["next"]
    if position is not None and request.several:
        position = position["at"]
    sources: list[Source] = []
    if not isinstance(position, dict):
        for given in request.inputs:
            with about(given, request, emitter):
                sources.append(_open(given, request, emitter))
        _refuse_two_kinds(sources, request)
        if _is_file_list(sources[0]):
            refuse_some_copies(request.inputs)
        if _is_file_list(sources[0]) and not request.partition_keys:
            plan_file_lists(_file_lists(sources, request), request, plan_files, emitter)
            return

    def list_input(number: int) -> Listed:
        return _list_input(sources[number], number, request, plan_files, emitter)

    told: set[object] = set()

    def emit_input(given: DividedInput, section: Section, position: dict[str, Any]) -> None:
        _emit_input(given, section, position, request, plan_files, emitter)
        # Sorted rows are not read from remote storage again.
        for url in () if "recipe" in position else copied():
            if url not in told:
                told.add(url)
                emitter.note(
                    f"{url}: its web server does not support range requests, so every mini-batch reads it from the "
                    "start. Make mini_batch_size larger, or copy it to a folder or a bucket."
                )

    plan_sections(request, list_input, emit_input, plan_files, emitter)


def _open(given: DividedInput, request: Request, emitter: Emitter) -> Source:
    if given.type == "mltable":
        return open_source(given.path, emitter.warn, request.roots, request.datastores)
    read = None if request.file_format is None else ReadJsonLines()
    return Source(given.path, [input_entry(given, request.roots)], read, plain=False)


def _is_file_list(source: Source) -> bool:
    return source.read is None and not source.plain


def _refuse_two_kinds(sources: Sequence[Source], request: Request) -> None:
    """Raise PlanningError if some inputs are lists of files and others are tables."""
    names = [given.name for given in request.inputs]
    files = [name for name, source in zip(names, sources, strict=True) if _is_file_list(source)]
    tables = [name for name in names if name not in files]
    if files and tables:
        raise PlanningError(
            f"The inputs that are divided together must be of one kind, but {', '.join(files)}: lists of files; "
            f"{', '.join(tables)}: tables. Divide them in separate steps, or give them types of one kind."
        )


def _file_lists(sources: Sequence[Source], request: Request) -> list[FileList]:
    """The inputs, with their steps at the progress that the checkpoint says."""
    start = request.checkpoint
    frontier: dict[str, Any] = {"entry": -1} if start is None else start.position["frontier"]
    lists, first = [], 0
    for given, source in zip(request.inputs, sources, strict=True):
        behind = first + len(source.entries)
        seen = frontier["seen"] if "seen" in frontier and first <= frontier["entry"] < behind else None
        lists.append(FileList(given, source.path, source.entries, _file_steps(source, seen)))
        first = behind
    return lists


def _list_input(source: Source, number: int, request: Request, plan_files: PlanFiles, emitter: Emitter) -> Listed:
    """List an input and pin its reader; sort its rows if its keys require that."""
    given, keys = request.inputs[number], request.partition_keys
    if _is_file_list(source):
        columns = path_columns(_steps(source))
        check_keys(given.path, keys, columns.names)
        steps = _file_steps(source)
        reader = list_file_groups(
            source.path, source.entries, columns, keys, plan_files, emitter, steps, copies=given.copies
        )
        return Listed(reader, {"file_group": 0})
    begin = plan_files.listing.length
    files_end = _list_and_pin(source, given, request, plan_files, emitter)
    pinned = listing.read_pinned(plan_files.listing, files_end, plan_files.listing.length)
    position = {"files_end": files_end, "file_at": begin, "begin": None}
    if keys and "partition" not in pinned["reader"]:
        place = RowsPlace(request.rows_folder, f"rows-{number}.arrow" if request.several else "rows.arrow")
        recipes_begin = plan_files.recipes.length
        reader = sort_rows(pinned, keys, position, place, plan_files, emitter)
        if plan_files.recipes.length == recipes_begin:
            raise _no_rows(given, pinned)
        return Listed(reader, {"recipe": recipes_begin})
    return Listed(pinned["reader"] | ({"remote": True} if pinned.get("remote") else {}), position)


def _emit_input(
    given: DividedInput,
    section: Section,
    position: dict[str, Any],
    request: Request,
    plan_files: PlanFiles,
    emitter: Emitter,
) -> None:
    if "file_group" in position:
        emit_file_groups(section, position["file_group"], plan_files, emitter)
        return
    if "recipe" in position:
        emit_row_groups(section, position["recipe"], plan_files, emitter)
        return
    pinned = listing.read_pinned(plan_files.listing, position["files_end"], section.listing[1])
    if request.partition_keys:
        emit_table_groups(pinned, section, position, plan_files, emitter)
    else:
        cut(pinned, position, plan_files, emitter)
    if emitter.is_input_empty:
        raise _no_rows(given, pinned)


def _no_rows(given: DividedInput, pinned: dict[str, Any]) -> PlanningError:
    if "base" in pinned:
        return PlanningError(
            f"The steps in the MLTable file of the input {shown(given.path)} leave no rows, or its files have none."
        )
    return PlanningError(f"The input {shown(given.path)} has no records: its files are empty or contain only headers.")


def _steps(source: Source) -> tuple[Step, ...]:
    return () if source.mltable is None else (*source.mltable.before, *source.mltable.after)


def _list_and_pin(
    source: Source, given: DividedInput, request: Request, plan_files: PlanFiles, emitter: Emitter
) -> int:
    """Write the listing of an input; return the offset of its last line."""
    begin = plan_files.listing.length
    if isinstance(source.read, ReadDelta):
        return _list_delta(source, source.read, given, request, plan_files, emitter)
    read: Read | None = source.read
    size = request.mini_batch_size
    before = path_columns(source.mltable.before if source.mltable is not None else ())
    unmatched = Unmatched(path_columns(_steps(source)))
    file_steps = _file_steps(source)
    names = _names(source, read, file_steps, emitter)
    first = next(names, None)
    if first is None:
        raise nothing_found(source.path, source.entries) if file_steps is None else file_steps.nothing_left()
    read = read or plain_read(first[0], source.path)
    pinning = _pinning(read, request, emitter, before, source)
    partitions = _partitions(source, read)
    for file in pinning.looked_at(_files(source, read, chain([first], names))):
        plan_files.listing.append(listing.file_line(file if partitions is None else partitions.of(file)))
        unmatched.look_at(file.name)
    if partitions is not None:
        partitions.check()
    files_end = plan_files.listing.length
    remote = any(not entry.folder.startswith(b"/") for entry in source.entries)
    pinned: dict[str, Any] = {
        "remote": remote,
        "slice_bytes": size or getattr(read, "partition_size", None) or BYTES_DEFAULT,
    }
    if isinstance(read, ReadParquet):
        pinned["reader"] = pinning.pin()
        if size is not None:
            emitter.warn(_ROW_GROUPS)
    else:
        files = listing.files(plan_files.listing, begin, files_end)
        pinned["how"] = pinning.how.to_json()
        if isinstance(read, ReadDelimited):
            found = pinning.pin(files)
            pinned |= {"reader": found.reader, "header": found.header, "header_at": found.header_at}
            if found.common_header is not None:
                pinned["common_header"] = found.common_header._asdict()
        else:
            pinned |= {"reader": pinning.pin(files), "header": "no_header", "header_at": -1}
        if request.file_format is not None:
            told = {name: pinned["reader"][name] for name in ("format", "encoding", "drop_invalid")}
            pinned["reader"] = {"kind": "records", **told}
        pinned["slice_rows"] = request.mini_batch_rows
    unmatched.tell(emitter.warn)
    # Footers contain the number of rows, and cutting by rows counts them.
    known = isinstance(read, ReadParquet) or request.mini_batch_rows is not None
    _pin_steps(source, given, request, pinned, counts_known=known)
    listing.append_pinned(plan_files.listing, pinned)
    return files_end


MIXED_TYPES = "--amlbi_dataframe_mixed_types has no effect: only JSON lines have values of several kinds in one column."
_ROW_GROUPS = "Parquet is cut at its row groups; mini_batch_size has no effect."


def _list_delta(
    source: Source, read: ReadDelta, given: DividedInput, request: Request, plan_files: PlanFiles, emitter: Emitter
) -> int:
    # Imported here: few installations have the package.
    from windrow_master.planning.tables.delta import DeltaSource

    if source.mltable is not None and source.mltable.before:
        raise PlanningError(
            f"{source.mltable.before[0].place}: a step before read_delta_lake has no files to work on; put it after "
            "read_delta_lake, where it applies to rows."
        )
    table = DeltaSource(source.entries, read, request.roots)
    partitions = _partitions(source, read)
    files = table.files()
    for folder in {os.path.dirname(file.name) for file in files if not file.is_remote}:
        emitter.places.note(folder)
    for file in files:
        plan_files.listing.append(listing.file_line(file if partitions is None else partitions.of(file)))
    if partitions is not None:
        partitions.check()
    files_end = plan_files.listing.length
    if request.mini_batch_size is not None:
        emitter.warn(_ROW_GROUPS)
    pinned: dict[str, Any] = {"reader": table.pin(), "remote": any(file.is_remote for file in files)}
    _pin_steps(source, given, request, pinned, counts_known=True, constants=table.partition_columns)
    listing.append_pinned(plan_files.listing, pinned)
    return files_end


def _partitions(source: Source, read: Read) -> Partitions | None:
    after = source.mltable.after if source.mltable else ()
    selects = any(isinstance(step, SelectPartitions) for step in after)
    return Partitions(after, read) if selects else None


def _pin_steps(
    source: Source,
    given: DividedInput,
    request: Request,
    pinned: dict[str, Any],
    *,
    counts_known: bool,
    constants: Sequence[str] = (),
) -> None:
    """Add columns from paths, the steps on rows, and how partition keys divide the table.

    Also note whether the index of rows is exact: after a step on rows, only counting shows what is left. `constants`:
    columns with one value for each file.
    """
    steps: list[dict[str, Any]] = []
    reader = pinned["reader"]
    before = path_columns(source.mltable.before if source.mltable is not None else ())
    if before.names and "path_columns" not in reader:
        # Before JSON lines or Parquet are read, they come after the data.
        check_names(before, column_names(reader))
        reader["path_columns"] = path_columns_json(before, None)
    if source.mltable is not None and source.mltable.after:
        steps = resolve(source.mltable.after, column_names(reader))
        reader["steps"] = steps
        if reader["format"] == "parquet" and not source.reads_plain and takes_rows(source.mltable.after):
            reader.update(by_row=True, null_objects=True)
        pinned["base"] = os.fsdecode(source.path)
    if request.partition_keys:
        _pin_partition(source, given, request, reader, constants)
    pinned["count"] = request.exact_row_index
    pinned["reader"]["row_index_exact"] = request.exact_row_index or (counts_known and not drops_rows(steps))


def _pin_partition(
    source: Source, given: DividedInput, request: Request, reader: dict[str, Any], constants: Sequence[str]
) -> None:
    """Group whole files if all keys have one value per file; else rows have to be sorted. Raises PlanningError."""
    of_files = [*path_columns(_steps(source)).names, *constants]
    known = columns_after(reader)
    check_keys(given.path, request.partition_keys, [*of_files, *(name for name in known if name not in of_files)])
    if set(request.partition_keys) <= set(of_files) and not counts_rows(source.mltable):
        reader["partition"] = {"keys": list(request.partition_keys)}
    else:
        check_keys(given.path, request.partition_keys, known)


def _file_steps(source: Source, seen: Sequence[int] | None = None) -> FileSteps | None:
    if source.mltable is None or not source.mltable.before:
        return None
    return FileSteps(source.mltable.before, source.path, seen)


def _files(source: Source, read: Read, names: Iterable[tuple[bytes, tuple[int, str] | None]]) -> Iterator[TableFile]:
    """The files with these names, which have to be of one format."""
    for name, stamp in names:
        if source.plain and plain_read(name, source.path) != read:
            raise PlanningError(
                f"The input {shown(source.path)} contains files of different formats; {shown(name)} differs from "
                "those before it. Put each format into its own folder, or add an MLTable file."
            )
        yield TableFile(name, stamp[0], 0, etag=stamp[1]) if stamp is not None else stat_file(name)


def _names(
    source: Source, read: Read | None, steps: FileSteps | None, emitter: Emitter
) -> Iterator[tuple[bytes, tuple[int, str] | None]]:
    """Absolute names of the data files, in order; those in stores with size and mark."""
    every_marker = source.plain or isinstance(read, ReadParquet)
    for entry in source.entries:
        remote = not entry.folder.startswith(b"/")
        for chunk in entry.names(emitter.warn, emitter.places.note):
            names = [
                name
                for name in chunk
                if entry.file or not _is_mark(name_of(name) if remote else name, read, every_marker)
            ]
            if steps is not None:
                if steps.nothing_passes:
                    return
                names = through(steps.apply, entry.folder, names)
            for text in names:
                name = name_of(text) if remote else text
                path = os.path.join(entry.folder, name)
                if source.plain and not entry.file and _is_hidden_stranger(name):
                    emitter.warn(
                        f"{shown(path)} was left out: a hidden file whose extension is not a known table format."
                    )
                    continue
                yield path, stamp_of(text) if remote else None


def _is_mark(name: bytes, read: Read | None, every_marker: bool) -> bool:
    """Whether a file is a by-product that Spark and others leave beside data.

    Beside text, only hidden files count, since those are never meant to be read, while `x.crc` may be text.
    """
    hidden = read is not None and os.path.basename(name).startswith((b".", b"_"))
    return (every_marker or hidden) and is_marker(name)


def _is_hidden_stranger(name: bytes) -> bool:
    base = os.path.basename(name)
    if not base.startswith((b".", b"_")):
        return False
    try:
        plain_read(base, base)
    except PlanningError:
        return True
    return False


def _pinning(read: Read, request: Request, emitter: Emitter, before: PathColumns, source: Source) -> Any:
    plain = source.reads_plain
    if isinstance(read, ReadJsonLines):
        as_records = request.file_format is not None
        return JsonLinesPinning(read, as_records=as_records, mixed_types=request.mixed_types, plain=plain)
    if request.mixed_types:
        emitter.warn(MIXED_TYPES)
    if isinstance(read, ReadDelimited):
        return DelimitedPinning(read, emitter.warn, before, plain=plain, only_words=source.only_words)
    # Only Parquet needs pyarrow here; text starts without.
    from windrow_master.planning.tables.pin_parquet import ParquetPinning

    assert isinstance(read, ReadParquet), "a Delta table is listed by its log"
    return ParquetPinning(read, plain=plain)
