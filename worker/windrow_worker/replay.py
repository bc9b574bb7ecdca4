"""The replay host: runs one mini-batch in the user's terminal, apart from its job (`boot.py --replay <config.json>`).

It is the same host as in a job: it loads the script and the mini-batch, calls `init()`, `run()` and `shutdown()`,
checks the result and makes rows of it. But it reports to the person at the terminal, on stderr, instead of to an agent.
What the script prints stays on the script's own streams.

Exit codes: 0 `run()` returned a usable result; 1 it did not, or the script did not get that far; 130 interrupted.
"""

from __future__ import annotations

import json
import os
import sys

from windrow_worker import failures, process
from windrow_worker.host import Host
from windrow_worker.protocol.configuration import BadConfiguration, read_configuration
from windrow_worker.splitting import piece_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any, Dict, Iterator, List, NoReturn, Sequence, Tuple, Union

    from windrow_worker.loaded import Loaded, Loader
    from windrow_worker.protocol.configuration import Configuration
    from windrow_worker.rows.writer import Rows
    from windrow_worker.splitting import FailedItems

FAILED, BAD_USAGE, INTERRUPTED = 1, 2, 130
RUNNING = ".running"
"""Ending of the name of a file beside the configuration, which the host removes when it ends the process. If the script
ends the process, the file stays."""
LOG_LINES_SHOWN = 100
ROWS_SHOWN = 5
FAILED_SHOWN = 20
COLUMNS_SHOWN = 200
HEAD_BYTES = 64 << 10


def main(arguments: List[str]) -> NoReturn:
    """Replays the mini-batch that the channel of the configuration file `arguments[0]` holds."""
    try:
        configuration, document = read_configuration(arguments[0])
        host = ReplayHost(configuration, document.get("replay") or {})
    except (BadConfiguration, OSError, ValueError, IndexError) as error:
        process.leave(FAILED, f"The replay cannot start: {error}")
    process.tell_of_crashes()
    _mark_until_the_end(arguments[0] + RUNNING)
    try:
        host.start()
        host.serve()
    except BaseException as error:
        process.leave(FAILED, "The replay cannot continue:\n" + failures.traceback_of(error, whole=True))


def _mark_until_the_end(path: str) -> None:
    host = os.getpid()

    def unmark() -> None:
        if os.getpid() == host and os.path.exists(path):
            os.unlink(path)

    open(path, "wb").close()
    process.before_leaving.append(unmark)


class _NoResults:
    """Replaces the result channel: there is no agent."""

    def send(self, frame: Union[bytes, bytearray]) -> None:
        """Drops the frame; the results are reported in words."""

    def close_in_child(self) -> None:
        """Does nothing."""


class NoSuchItem(ValueError):
    """The mini-batch has no item of the number that was asked for."""


class _OneItem:
    """Another loader's mini-batches, with only one of their items."""

    def __init__(self, loader: Loader, item: int) -> None:
        self._loader = loader
        self._item = item

    def load(self, recipe: bytes) -> Loaded:
        """Loads that item. Raises NoSuchItem, ValueError if it cannot be read, and what the other loader raises."""
        loaded = self._loader.load(recipe)
        if self._item >= loaded.item_count:
            raise NoSuchItem(
                f"--item {self._item}: there is no such item. The mini-batch has {_items(loaded.item_count)}, counted "
                "from 0."
            )
        if self._item >= loaded.readable_count:
            raise ValueError(": ".join(loaded.unreadable[self._item - loaded.readable_count]))
        loaded.value, loaded.item_count, loaded.unreadable = piece_of(loaded.value, self._item, 1), 1, ()
        loaded.positions = None
        return loaded


class ReplayHost(Host):
    """Reports to a person what a host reports to an agent. `wishes`: the key `replay` of the configuration."""

    def __init__(self, configuration: Configuration, wishes: Dict[str, Any]) -> None:
        super().__init__(configuration)
        self._results = _NoResults()  # type: ignore[assignment]
        self._wishes = wishes
        self._code = FAILED
        self._was_interrupted = False

    def start(self) -> None:
        super().start()
        item = self._wishes.get("item")
        if item is not None:
            self._loader = _OneItem(self._loader, item)

    # Hooks of Host. ------------------------------------------------------------------------------------------------

    def _start_failure(self, error: BaseException, stage: str) -> bytes:
        side = super()._start_failure(error, stage)
        self._tell_failure(error, json.loads(side)["message"], "init_failed")
        self._show_log()
        process.leave(INTERRUPTED if self._was_interrupted else FAILED)

    def _send_failure(
        self,
        started: int,
        cause: str,
        message: str,
        detail: str,
        *,
        failed: Sequence[FailedItems] = (),
        retry_after_s: float = 0.0,
    ) -> None:
        error = sys.exc_info()[1]
        super()._send_failure(started, cause, message, detail, failed=failed, retry_after_s=retry_after_s)
        self._tell_failure(error, message, cause)
        self._tell_figures()

    def _send_done(
        self,
        started: int,
        rows: Rows,
        misfits: Sequence[Tuple[str, int, str]],
        failed: Sequence[FailedItems] = (),
    ) -> None:
        super()._send_done(started, rows, misfits, failed)
        self._code = 0
        report = self._report
        items, results = report.item_count, report.result_count
        if self._configuration.command:
            _say("The command succeeded.")
            self._tell_figures()
            return
        if items == 0 and not report.run_us:
            _say("run() was not called: no row of the mini-batch is left after the steps of its MLTable file.")
        else:
            what = "one result" if results == 1 else f"{results:,} results"
            _say(f"run() returned {what} for {_items(items)}.")
            for one in failed[:FAILED_SHOWN]:
                _say(f"  The script marked item {one.first} as failed: {one.message}")
            if len(failed) > FAILED_SHOWN:
                _say(f"  … and {len(failed) - FAILED_SHOWN:,} more.")
            if results < items - len(failed):
                _say(f"  In the job, {items - len(failed) - results:,} count as failed: they have no result.")
        for line in _rows(rows, self._configuration.rows):
            _say(line)
        for column, count, example in misfits:
            _say(f"  {count:,} values did not fit column {column!r}, as in {example}")
        self._tell_figures()

    def _stop(self) -> NoReturn:
        side = self._shut_down()
        if side:
            told = json.loads(side)
            _say(f"{told['message']}\n{told['detail'].rstrip()}\n  In a job this is a warning.")
        self._show_log()
        self._tell_outputs()
        process.leave(INTERRUPTED if self._was_interrupted else self._code)

    # Words. --------------------------------------------------------------------------------------------------------

    def _tell_failure(self, error: Any, message: str, cause: str) -> None:
        process.flush_output()
        if isinstance(error, KeyboardInterrupt):
            self._was_interrupted = True
        elif isinstance(error, NoSuchItem):
            self._code = BAD_USAGE
            _say(str(error))
            return
        elif type(error).__name__ == "BdbQuit":
            # Raised by `q` in a debugger that the script started.
            _say("The debugger was quit before the end.")
            return
        # For the host's own errors (a bad return), the message says everything.
        trace = failures.script_traceback(error) if error is not None else None
        if trace is not None:
            sys.stderr.write(failures.traceback_of(error))
        _say(f"{cause}: {message}")
        if self._wishes.get("pdb") and trace is not None and not self._was_interrupted:
            _debug(trace)

    def _tell_figures(self) -> None:
        report = self._report
        whole, run = report.elapsed_us / 1e6, report.run_us / 1e6
        if self._configuration.command:
            _say(f"It took {_duration(whole)}.")
            return
        _say(
            f"It took {_duration(whole)}: run() {_duration(run)}, loading and writing "
            f"{_duration(max(0.0, whole - run))}, CPU {_duration(report.cpu_us / 1e6)}; at most "
            f"{_size(report.peak_rss_kib << 10)} of memory."
        )
        limit = self._wishes.get("run_timeout_s") or 0
        if limit and run > limit and not self._wishes.get("pdb"):
            _say(f"  In the job run() is stopped after {limit:g} s: it would have been a timeout.")

    def _show_log(self) -> None:
        """Shows what the script wrote with EntryScript().logger and Run.log."""
        configuration = self._configuration
        own = os.path.join(configuration.log_folder, configuration.process_name + ".log.txt")
        for what, path in (("EntryScript().logger wrote", own), ("Run.log kept", configuration.metrics_path)):
            try:
                with open(path, "rb") as file:
                    lines = file.read().decode("utf-8", "replace").splitlines()
            except OSError:
                continue
            left = len(lines) - LOG_LINES_SHOWN
            _say(f"{what}:" + (f" (the last {LOG_LINES_SHOWN} lines)" if left > 0 else ""))
            for line in lines[-LOG_LINES_SHOWN:]:
                _say(f"  {line}")

    def _tell_outputs(self) -> None:
        for name, place in sorted((self._wishes.get("outputs") or {}).items()):
            files, size = _files_below(place)
            if files:
                kept = "" if self._wishes.get("kept") else "; removed now (--keep DIR keeps it)"
                what = "1 file" if files == 1 else f"{files:,} files"
                _say(f"Output {name}: {what}, {_size(size)}, in {place}{kept}.")


def _items(count: int) -> str:
    return "1 item" if count == 1 else f"{count:,} items"


def _say(text: str) -> None:
    """Writes to stderr, after everything that was printed before."""
    process.flush_output()
    process.warn(text)


def _debug(trace: TracebackType) -> None:
    """Python's debugger, in the innermost frame of the script's own code."""
    import pdb

    own, count = failures.own_depth(trace)
    deeper = count - 1 - own if own >= 0 else 0

    class Debugger(pdb.Pdb):
        """Begins `deeper` frames above the innermost one."""

        def get_stack(self, f: Any, t: Any) -> Tuple[List[Tuple[Any, int]], int]:
            stack, at = super().get_stack(f, t)
            return stack, max(0, at - deeper)

    if deeper:
        frames = "1 frame of a library lies" if deeper == 1 else f"{deeper} frames of libraries lie"
        _say(
            f"The debugger is in the last frame of your own code; {frames} deeper (d goes there). w shows the stack, "
            "u and d go up and down, q quits."
        )
    else:
        _say("The debugger is where it was raised: w shows the stack, u and d go up and down, q quits.")
    sys.stdin, sys.stdout = sys.__stdin__, sys.__stdout__
    try:
        debugger = Debugger()
        debugger.reset()
        debugger.interaction(None, trace)
    except (EOFError, SystemExit):
        pass


def _files_below(place: str) -> Tuple[int, int]:
    """The number of files, and of bytes in them."""
    if os.path.isfile(place):
        return 1, os.path.getsize(place)
    count = size = 0
    for folder, _, names in os.walk(place):
        for name in names:
            try:
                size += os.lstat(os.path.join(folder, name)).st_size
                count += 1
            except OSError:
                pass
    return count, size


def _duration(seconds: float) -> str:
    """`12 µs`, `3.4 ms`, `0.42 s`, `3 min 5 s`."""
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 0.1:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 60:
        return f"{seconds:.2f} s"
    return f"{int(seconds // 60)} min {int(seconds % 60)} s"


def _size(count: int) -> str:
    """`512 B`, `4.2 KB`, `1.5 GB` (powers of 1,000)."""
    value = float(count)
    for unit in ("B", "KB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def _rows(rows: Rows, settings: Dict[str, Any]) -> Iterator[str]:
    """Says how many rows would be written, and shows the first. `settings`: `rows` of the configuration."""
    if settings.get("action") != "append_row":
        yield "  No rows would be written: the step's output_action is summary_only."
        return
    if not rows.length:
        yield "  No rows would be written."
        return
    count = "1 row" if rows.count == 1 else f"{rows.count:,} rows"
    yield f"  {count} would be written, {_size(rows.length)}. The first:"
    shown = _parquet_rows(rows) if settings.get("format") == "parquet" else _text_rows(rows, settings)
    for line in shown:
        yield "    " + (line if len(line) <= COLUMNS_SHOWN else line[: COLUMNS_SHOWN - 1] + "…")
    if rows.count > ROWS_SHOWN:
        yield "    …"


def _head(rows: Rows, size: int) -> bytes:
    if not rows.path:
        return bytes(rows.inline[:size])
    with open(rows.path, "rb") as file:
        return file.read(size)


def _text_rows(rows: Rows, settings: Dict[str, Any]) -> List[str]:
    encoding = (settings.get("dataframe_to_csv") or {}).get("encoding") or "utf-8"
    try:
        head = _head(rows, HEAD_BYTES).decode(encoding, "replace")
        header = rows.header.decode(encoding, "replace")
    except LookupError:
        head, header = _head(rows, HEAD_BYTES).decode("utf-8", "replace"), rows.header.decode("utf-8", "replace")
    if settings.get("format", "text") == "csv":
        return head.splitlines()[: ROWS_SHOWN + 1]  # these rows begin with their header
    lines = header.splitlines()[:1] if settings.get("dataframe_header", True) else []
    return lines + head.splitlines()[:ROWS_SHOWN]


def _parquet_rows(rows: Rows) -> List[str]:
    import pyarrow

    source = pyarrow.memory_map(rows.path.decode()) if rows.path else pyarrow.BufferReader(rows.inline)
    with pyarrow.ipc.open_stream(source) as stream:
        for batch in stream:
            if batch.num_rows:
                return [
                    json.dumps(row, default=str, ensure_ascii=False) for row in batch.slice(0, ROWS_SHOWN).to_pylist()
                ]
    return []
