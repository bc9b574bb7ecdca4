"""The host: it starts, calls the script for each mini-batch, and leaves.

States of the process, which the page shows (see `protocol.page`):

    starting -> init -> idle <-> loading -> running -> returning
                  |      |
                  |      +--(SHUTDOWN)--> stopping -> gone
                  +--(init failed)--> gone

1. Each packet taken leads to exactly one DONE or FAILED frame, or to the end of the process.
2. A frame is written at once: no result waits for a later `run()`.
3. Every exception from `init()`, `run()` or `shutdown()`, SystemExit and KeyboardInterrupt included, is a failure of
   the script, never of the host.
4. A forked child that returns from the script writes neither page nor frame; it leaves.
5. If a frame can no longer be sent, the process leaves with an exit code that says why (`protocol.exits`).
"""

from __future__ import annotations

import os
import sys
from io import open  # a script may replace the one in builtins
from time import monotonic_ns, time_ns
from zlib import crc32

from windrow_worker import failure_causes, failures, process, retry_after, splitting
from windrow_worker.loading import is_row_index_exact, make_loader
from windrow_worker.protocol import exits, frames, page
from windrow_worker.protocol.channels import AgentGone, ChannelClosed, ResultChannel, WaitInterrupted, WorkChannel
from windrow_worker.protocol.configuration import BadConfiguration, read_configuration
from windrow_worker.rows.writer import NO_ROWS, RowWriter
from windrow_worker.script import checked_imports, entry_point, entry_script, offered_run, spawned_children
from windrow_worker.script.context import MiniBatch, MiniBatchContext
from windrow_worker.usage import Usage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, List, NoReturn, Optional, Sequence, Tuple

    from windrow_worker.loaded import Loaded, Loader
    from windrow_worker.protocol.configuration import Configuration
    from windrow_worker.rows.writer import Rows

# Bound early: a script may replace what these modules hold.
_getpid = os.getpid
_unlink = os.unlink


def main(arguments: List[str]) -> NoReturn:
    """Hosts the script that the configuration file `arguments[1]` names, until the agent asks it to stop."""
    try:
        if len(arguments) != 2:
            raise BadConfiguration(f"boot.py takes one argument, its configuration file, not {arguments[1:]!r}")
        configuration = read_configuration(arguments[1])[0]
        # Not in a replay, whose code may be the user's own folder.
        failures.name_files_below(configuration.code_folder)
        host = Host(configuration)
    except (BadConfiguration, OSError, ValueError) as error:
        process.leave(exits.HOST_FAULT, f"The worker cannot start: {error}")
    try:
        host.start()
        host.serve()
    except AgentGone:
        process.leave(exits.AGENT_GONE, "The agent is gone; this worker exits.")
    except ChannelClosed:
        process.leave(
            exits.CHANNEL_CLOSED,
            "The script has closed descriptors that it did not open (os.closerange, a daemon library?). Results can "
            "no longer be sent, so this worker exits. Close only what the script has opened itself.",
        )
    except BaseException as error:
        process.leave(
            exits.HOST_FAULT,
            "The worker failed in its own code. If the script does not change that code, please report this:\n"
            + failures.traceback_of(error, whole=True),
        )


class Host:
    """One worker process. `start` once, then `serve`."""

    def __init__(self, configuration: Configuration) -> None:
        """Takes over its descriptors and its page. Raises OSError, ValueError."""
        self._configuration = configuration
        self._pid = _getpid()
        self._work = WorkChannel(configuration.work_fd, frames.PACKET_BYTES_MAX)
        self._results = ResultChannel(configuration.result_fd)
        os.register_at_fork(after_in_child=self._close_in_child)
        self._page = page.Page(configuration.page_path)
        self._page.enter(page.STARTING)
        self._usage = Usage()
        self._report = frames.Report()
        self._loader: Loader
        self._row_index_exact = False
        self._rows: RowWriter
        self._script: entry_point.Script
        self._name = configuration.entry_script
        self._profile: Any = None
        if configuration.profiling_module:
            from windrow_worker.script.profiling import make_profile

            self._profile = make_profile(configuration)

    def _close_in_child(self) -> None:
        self._work.close_in_child()
        self._results.close_in_child()

    # Start -----------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Prepares the process, loads the script and calls `init()`. Leaves if that fails."""
        configuration = self._configuration
        process.prepare_output()
        if not configuration.command:
            # For a command, only its shell knows where it is.
            process.tell_of_crashes()
        self._usage.begin()
        started = monotonic_ns()
        self._report.start_unix_us = time_ns() // 1000
        stage = failure_causes.ROWS
        try:
            self._rows = RowWriter(
                configuration.rows, configuration.scratch_folder, configuration.inline_rows_bytes_max
            )
            stage = failure_causes.INPUT
            self._loader = make_loader(configuration.reader)
            self._row_index_exact = is_row_index_exact(configuration.reader)
            stage = failure_causes.SCRIPT
            self._page.enter(page.INIT)
            self._profiled(self._load_script)
            stage = failure_causes.INIT
            if self._script.init is not None:
                self._call(self._script.init)
        except BaseException as error:
            self._leave_if_forked(error)
            self._finish_report(started)
            side = self._start_failure(error, stage)
            self._results.send(frames.encode_frame(frames.INIT_FAILED, self._report, side=side))
            process.leave(exits.INIT_FAILED)
        self._finish_report(started)
        self._results.send(frames.encode_frame(frames.READY, self._report))
        self._page.enter(page.IDLE)

    def _load_script(self) -> None:
        """Makes the script importable as it expects, imports it, finds its functions."""
        configuration = self._configuration
        environment = os.environ
        environment.setdefault("AZUREML_RUN_ID", configuration.job_id)
        environment.setdefault("AZUREML_CR_NODE_RANK", str(configuration.node_rank))
        environment.setdefault("HostName", configuration.node_id)
        if configuration.output_path:
            environment.setdefault("AZUREML_BI_OUTPUT_PATH", configuration.output_path)
        offered_run.announce(configuration)
        code = None
        if configuration.code_sums:
            sums = configuration.code_sums, configuration.code_sums_crc32
            code = checked_imports.begin(configuration.code_folder, *sums, self._pid)
        if configuration.command:
            from windrow_worker.script.command import as_script

            if code is not None:
                # What the command imports, this process does not see.
                code.check_all()
            self._script = as_script(
                configuration.command,
                configuration.output_files,
                configuration.artifacts,
                configuration.unmade_outputs,
            )
            return
        entry_script.install_root_handler()
        entry = entry_point.locate(configuration.code_folder, configuration.entry_script)
        sys.argv = [entry.path or configuration.entry_script, *configuration.arguments]
        if entry_point.reads_process_data(entry):
            sys.argv.append(entry_point.process_data(configuration.process_name))
        entry_point.make_importable(configuration.code_folder, entry)
        entry_script.offer(entry_script.values_of(configuration))
        spawned_children.announce(configuration, entry)
        module, path = entry_point.load(entry)
        self._leave_if_forked(None)
        sys.argv[:1] = [path]
        self._script = entry_point.examine(module, self._name)

    def _start_failure(self, error: BaseException, stage: str) -> bytes:
        """The side document of an INIT_FAILED frame."""
        return failure_causes.start_failure(self._configuration, error, stage)

    # Work ------------------------------------------------------------------------------------------------------------

    def serve(self) -> NoReturn:
        """Takes packets and answers each of them, until SHUTDOWN. Raises AgentGone, ChannelClosed."""
        take, view, unpack, size = self._work.take, self._work.view, frames.PACKET.unpack_from, frames.PACKET.size
        serve = self._serve_mini_batch if self._profile is None else self._serve_profiled
        while True:
            try:
                length = take()
            except WaitInterrupted as interruption:
                # Perhaps from a timer that the script left running.
                what = failures.describe(interruption.__cause__ or interruption)
                process.warn(f"A signal handler of the script raised while no mini-batch ran; ignored: {what}")
                continue
            if length < size:
                process.leave(
                    exits.HOST_FAULT,
                    f"The agent has sent a packet of {length} bytes, shorter than its header of {size}.",
                )
            kind, flags, _, attempt, lease_id, index, item_first, item_count = unpack(view)
            if kind == frames.RUN:
                serve(flags, attempt, lease_id, index, item_first, item_count, length)
            elif kind == frames.SHUTDOWN:
                self._stop()
            elif kind == frames.SPLIT:
                self._serve_split(flags, attempt, lease_id, index, item_first, item_count, length)
            else:
                process.leave(exits.HOST_FAULT, f"The agent has sent a packet of the unknown type {kind}.")

    def _serve_profiled(self, *packet: int) -> None:
        self._profile.call(self._serve_mini_batch, *packet)

    def _serve_mini_batch(
        self, flags: int, attempt: int, lease_id: int, index: int, item_first: int, item_count: int, length: int
    ) -> None:
        """Makes one attempt: load, run, return."""
        enter, report = self._page.enter, self._report
        report.clear(lease_id, item_count)
        report.start_unix_us = time_ns() // 1000
        started = enter(page.LOADING, lease_id, index, item_count)
        try:
            recipe = self._recipe(flags, length)
            loaded = self._loader.load(recipe)
        except BaseException as error:
            self._leave_if_forked(error)
            self._send_failure(started, *failure_causes.load_failure(error, index))
            return
        items, readable = loaded.item_count, loaded.readable_count
        report.item_count = items
        value, misfits, unreadable = loaded.value, loaded.misfits, _unreadable_items(loaded)
        if type(value) is list:
            value = MiniBatch(value, index)
        if loaded.is_void:
            enter(page.RETURNING, lease_id, index, 0)
            self._send_done(started, NO_ROWS, misfits, unreadable)
            return
        run = self._script.run
        context = None
        if self._script.takes_context:
            first = item_first if self._row_index_exact else None
            key = loaded.partition_key_value
            context = MiniBatchContext(index, attempt - 1, first, key, self._loader, recipe, value)
        # From here on, only the script holds the mini-batch: what it releases is freed before rows are made.
        loaded = None  # type: ignore[assignment]
        run_started = enter(page.RUNNING, lease_id, index, items)
        try:
            result = run(value) if context is None else run(value, context)
        except BaseException as error:
            run_ended = monotonic_ns()
            self._leave_if_forked(error)
            report.run_us = (run_ended - run_started) // 1000
            enter(page.RETURNING, lease_id, index, items)
            message, detail = failure_causes.run_failure(self._configuration, error)
            asked_s = retry_after.seconds_of(error)
            self._send_failure(started, failures.EXCEPTION, message, detail, retry_after_s=asked_s)
            return
        if _getpid() != self._pid:
            self._leave_if_forked(None)
        failed = [] if context is None else context.take_marks()
        value = context = None
        report.run_us = (enter(page.RETURNING, lease_id, index, items) - run_started) // 1000
        try:
            report.result_count = self._rows.results_of(result, readable)
            rows = self._rows.write(result, lease_id)
        except BaseException as error:
            self._leave_if_forked(error)
            self._send_failure(started, *failure_causes.return_failure(error))
            return
        result = None
        failed += unreadable
        if failed:
            report.result_count = min(report.result_count, items - len(failed))
            self._place(failed, recipe)
        self._send_done(started, rows, misfits, failed)

    def _serve_split(
        self, flags: int, attempt: int, lease_id: int, index: int, item_first: int, item_count: int, length: int
    ) -> None:
        """Makes one attempt of a mini-batch that is split: load, run each piece, return."""
        enter, report = self._page.enter, self._report
        report.clear(lease_id, item_count)
        report.start_unix_us = time_ns() // 1000
        started = enter(page.LOADING, lease_id, index, item_count)
        try:
            order, begin = splitting.read_order(self._work.view, frames.PACKET.size)
            recipe = self._recipe(flags, length, begin)
            loaded = self._loader.load(recipe)
        except BaseException as error:
            self._leave_if_forked(error)
            self._send_failure(started, *failure_causes.load_failure(error, index))
            return
        items, readable, misfits = loaded.item_count, loaded.readable_count, loaded.misfits
        report.item_count = items
        gathered = self._rows.gather(lease_id)
        marked: List[splitting.FailedItems] = []
        first_item = item_first if self._row_index_exact else None
        pace = splitting.Pace(order, lambda: enter(page.RETURNING, lease_id, index, items))

        def run_piece(first: int, count: int, kept: bool = True) -> Optional[Tuple[str, str, str]]:
            value = splitting.piece_of(loaded.value, first, count)
            if type(value) is list:
                value = MiniBatch(value, index)
            context = None
            if self._script.takes_context:
                begins = None if first_item is None else first_item + first
                key, piece = loaded.partition_key_value, (first, count)
                context = MiniBatchContext(index, attempt - 1, begins, key, self._loader, recipe, value, piece)
            pace.wait(count)
            run_started = enter(page.RUNNING, lease_id, index, items, first, count)
            try:
                result = self._script.run(value) if context is None else self._script.run(value, context)
            except BaseException as error:
                self._leave_if_forked(error)
                pace.delay(retry_after.seconds_of(error))
                message, detail = failure_causes.run_failure(self._configuration, error)
                return failures.EXCEPTION, message, detail
            finally:
                if _getpid() == self._pid:
                    report.run_us += (enter(page.RETURNING, lease_id, index, items, first, count) - run_started) // 1000
            self._leave_if_forked(None)
            marks = [] if context is None else context.take_marks()
            if not kept:
                return None
            try:
                results = self._rows.results_of(result, count)
                gathered.add(result)
            except BaseException as error:
                self._leave_if_forked(error)
                cause, message, detail = failure_causes.return_failure(error)
                if cause == failures.NODE_FAULT:
                    raise
                return cause, message, detail
            report.result_count += min(results, count - len(marks))
            marked.extend(marks)
            return None

        try:
            failed, last = splitting.find_failures(
                order, readable, run_piece, lambda first, count: run_piece(first, count, False)
            )
            rows = gathered.finish()
        except BaseException as error:
            gathered.discard()
            self._send_failure(started, *failure_causes.return_failure(error))
            return
        enter(page.RETURNING, lease_id, index, items)
        failed += _unreadable_items(loaded)
        if last is not None and splitting.count_of(failed) == items:
            gathered.discard()
            self._place(failed, recipe, loaded)
            self._send_failure(started, *last, failed=failed)
            return
        failed = sorted([*failed, *marked], key=lambda one: one.first)
        self._place(failed, recipe, loaded)
        self._send_done(started, rows, misfits, failed)

    def _place(self, failed: Sequence[splitting.FailedItems], recipe: bytes, loaded: Optional[Loaded] = None) -> None:
        """Adds to failed rows of a table where they are. If `loaded` is None, they are read again for that."""
        kind, reader = self._configuration.reader.get("kind"), self._configuration.reader
        if kind == "inputs":
            number, _, recipe = recipe.partition(b"\0")
            reader = reader["inputs"][int(number)]
            kind = reader.get("kind")
        single = [one for one in failed if one.count == 1 and not one.place]
        if kind not in ("table", "records") or not single:
            return
        try:
            from windrow_worker.tables.places import row_places

            loaded = loaded or make_loader(reader).load(recipe)
            for one, place in zip(single, row_places(loaded, recipe, [one.first for one in single])):
                one.place = place
        except Exception as error:
            # A file is gone, or a library is missing: the number of the record in its part also says it.
            process.warn(f"The lines of failed rows are not known: {failures.describe(error)}")

    def _send_done(
        self,
        started: int,
        rows: Rows,
        misfits: Sequence[Tuple[str, int, str]],
        failed: Sequence[splitting.FailedItems] = (),
    ) -> None:
        side = failures.encode_done(misfits, failed) if misfits or failed else b""
        self._finish_report(started)
        report = self._report
        self._results.send(
            frames.encode_frame(
                frames.DONE, report, rows.header, side, rows.inline, rows.count, rows.crc32, rows.length, rows.path
            )
        )
        self._page.completed += 1
        self._page.enter(page.IDLE)

    def _recipe(self, flags: int, length: int, begin: int = frames.PACKET.size) -> bytes:
        """The recipe in the packet, from `begin` on, or in the file that it names. Raises BadPacket."""
        if length > frames.PACKET_BYTES_MAX:
            raise failure_causes.BadPacket(
                f"its description of {length} bytes should have been in a file, from {frames.PACKET_BYTES_MAX} on"
            )
        recipe = bytes(self._work.view[begin:length])
        if not flags & frames.RECIPE_IN_FILE:
            return recipe
        try:
            checksum, path = int.from_bytes(recipe[:4], "little"), recipe[4:]
            with open(path, "rb") as file:
                content = file.read()
            _unlink(path)
        except OSError as error:
            raise failure_causes.BadPacket(f"its description cannot be read: {error}") from error
        if crc32(content) != checksum:
            raise failure_causes.BadPacket("its description was damaged in its file: check this node's disk")
        return content

    def _send_failure(
        self,
        started: int,
        cause: str,
        message: str,
        detail: str,
        *,
        failed: Sequence[splitting.FailedItems] = (),
        retry_after_s: float = 0.0,
    ) -> None:
        self._finish_report(started)
        side = failures.encode_failure(cause, message, detail, failed, retry_after_s)
        self._results.send(frames.encode_frame(frames.FAILED, self._report, side=side))
        self._page.completed += 1
        self._page.enter(page.IDLE)

    def _finish_report(self, started: int) -> None:
        report = self._report
        report.elapsed_us = (monotonic_ns() - started) // 1000
        report.cpu_us, report.peak_rss_kib = self._usage.end(report.elapsed_us)

    # End -------------------------------------------------------------------------------------------------------------

    def _stop(self) -> NoReturn:
        """Calls `shutdown()`, runs exit functions, sends STOPPED, and leaves."""
        side = self._shut_down()
        self._results.send(frames.encode_frame(frames.STOPPED, self._report, side=side))
        process.leave(0)

    def _shut_down(self) -> bytes:
        """Calls `shutdown()` and runs exit functions; returns the side document of the STOPPED frame."""
        self._page.enter(page.STOPPING)
        self._report.clear(0, 0)
        self._report.start_unix_us = time_ns() // 1000
        started = monotonic_ns()
        side = b""
        try:
            if self._script.shutdown is not None:
                self._call(self._script.shutdown)
        except BaseException as error:
            self._leave_if_forked(error)
            side = failures.encode_failure(
                failures.EXCEPTION, f"shutdown() raised {failures.describe(error)}", failures.traceback_of(error)
            )
        process.finish_process()
        if self._profile is not None:
            self._profile.write()
        self._leave_if_forked(None)
        self._finish_report(started)
        return side

    # Forks -----------------------------------------------------------------------------------------------------------

    def _call(self, function: Callable[[], Any]) -> None:
        self._profiled(function)
        self._leave_if_forked(None)

    def _profiled(self, function: Callable[[], Any]) -> None:
        if self._profile is None:
            function()
        else:
            self._profile.call(function)

    def _leave_if_forked(self, error: Any) -> None:
        """Leaves, in a forked child that returned from the script, with the exit code that it would have had."""
        if _getpid() == self._pid:
            return
        code = 0
        if isinstance(error, SystemExit):
            code = error.code if isinstance(error.code, int) else int(error.code is not None)
        elif error is not None:
            process.warn(failures.traceback_of(error))
            code = 1
        process.leave(code & 0xFF)


def _unreadable_items(loaded: Loaded) -> List[splitting.FailedItems]:
    """The items of a mini-batch that cannot be read, which come last."""
    return [
        splitting.FailedItems(first, 1, failures.LOAD_FAILED, message, place)
        for first, (place, message) in enumerate(loaded.unreadable, loaded.readable_count)
    ]
