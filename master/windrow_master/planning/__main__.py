"""The planner process: reads one request from stdin, writes groups of mini-batches to stdout (docs/contracts.md,
section 3).

It ends when its work is done, when stdin closes (the master is gone or wants no more), or when stdout is closed. A
bug ends it with a traceback on stderr; the master starts another from the last checkpoint.
"""

from __future__ import annotations

import os
from contextlib import closing

from windrow.common import garbage_collector

if __name__ == "__main__":
    # Before all other imports: see `main`.
    garbage_collector.pause()

from windrow.storage.credentials import hide_credentials

from windrow_master.helper_process import read_request
from windrow_master.planning.emitter import Emitter, Output
from windrow_master.planning.errors import PlanningError
from windrow_master.planning.memory import bound_memory, lacked_memory, too_much_memory
from windrow_master.planning.plan_files.checkpoint import Checkpoint
from windrow_master.planning.plan_files.places_seen import PlacesNoted
from windrow_master.planning.plan_files.plan_files import PlanFiles
from windrow_master.planning.request import Request, parse_request

STDOUT, STDERR = 1, 2


def main() -> None:
    """Plan one step, then exit at once: the watcher's blocked read would hold up an orderly end."""
    # Until the end: names and records are made by the million and hold no cycles. Looking for some costs a third of the
    # time of a listing.
    garbage_collector.pause()
    hide_credentials()
    # Nothing that is printed may get into the stream of messages.
    stdout = os.dup(STDOUT)
    os.dup2(STDERR, STDOUT)
    line = read_request()
    if not line:
        os._exit(0)
    output = Output(stdout)
    try:
        try:
            request = parse_request(line)
            bound_memory(request.memory_bytes_max)
            try:
                plan(request, output)
            except Exception as error:
                if not lacked_memory(error):
                    raise
                raise too_much_memory(request.memory_bytes_max, error) from error
        except PlanningError as error:
            output.send({"type": "error", "category": error.category, "message": str(error)})
    except BrokenPipeError:
        os._exit(0)
    os._exit(0)


def plan(request: Request, output: Output) -> None:
    """Plan one step from its checkpoint to its end. Raises PlanningError, and BrokenPipeError when the master is
    gone."""
    start = request.checkpoint
    if start is not None and start.done:
        return
    with (
        closing(PlanFiles(request.files, start or Checkpoint())) as plan_files,
        closing(PlacesNoted(request.files, anew=start is None)) as places,
    ):
        _plan(request, plan_files, Emitter(output, plan_files, places, start))


def _plan(request: Request, plan_files: PlanFiles, emitter: Emitter) -> None:
    if request.slow:
        emitter.begin_first(request.slow)
    if request.earlier is not None:
        emitter.take_over(request.earlier)
    if request.file_format is not None or any(given.type == "mltable" for given in request.inputs):
        # Tables import YAML and a reader of tables; file lists start without them.
        from windrow_master.planning.mltable_inputs import plan_tables

        plan_tables(request, plan_files, emitter)
        return
    from windrow_master.planning.file_lists import FileList, plan_file_lists
    from windrow_master.planning.inputs import about, input_entry

    lists = []
    for given in request.inputs:
        with about(given, request, emitter):
            lists.append(FileList(given, given.path, [input_entry(given, request.roots)]))
    plan_file_lists(lists, request, plan_files, emitter)


if __name__ == "__main__":
    main()
