"""`windrow.map(function, items)`: a function is called for each item, on all processors, with a job's guarantees."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import os
import pickle
import re
import sys
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from windrow.common.quantities import counted
from windrow.common.removal import discard_tree
from windrow.embedded import state_folder
from windrow.errors import JobFailed, RunChanged, UsageError
from windrow.sdk.arguments import (
    check_callable,
    check_path,
    check_size,
    duration,
    rate_of_items,
    whole,
    worker_needs_of,
)
from windrow.sdk.client import Client
from windrow.sdk.ending import job_failed, state_option
from windrow.sdk.job import Job, JobState
from windrow.sdk.mapping.confined import NotPlainData, is_confined, plain_data
from windrow.sdk.mapping.sending import Sender
from windrow.sdk.mini_batch import FailedItem
from windrow.sdk.python_words import python_words
from windrow.sdk.run import Run, run
from windrow.spec.one_line.inputs import Given, read_inputs
from windrow.spec.one_line.job_file import make_job_file
from windrow.spec.one_line.request import OneLine
from windrow.spec.one_line.sizes import BYTES_MAX, MINI_BATCHES_PER_WORKER
from windrow.spec.settings.fields import timeout as seconds
from windrow.spec.settings.schema import RETRY_SETTINGS

FOLDER = "map"
"""In the state folder: what the calls of `windrow.map` send, by function and output."""

TIMEOUT_S = 3600
MARKS_MAX = 5_000
"""So many items of a mini-batch can be marked as failed."""
_ROWS_OF_FRAMES = {"iterrows": 'to_dict("records")', "to_dicts": "to_dicts()", "to_pylist": "to_pylist()"}
"""By a method that shows whose DataFrame or table it is (of pandas, Polars, Arrow): how to get its rows."""
ENTRY = "windrow_map_entry.py"
LOCK = "lock"
NO_RESULT = "NoResult"
NOT_READ = "ResultNotRead"
_WORDS = {
    "run() returned": "the function returned",
    "from every mini-batch": "for every item",
    "retry_settings.timeout": "timeout",
}
_RECORDS = re.compile(r", records (\d+)-(\d+)$")
"""Ends what names several rows of a mini-batch."""


@dataclass(frozen=True)
class Failed:
    """In place of a result, with `check=False`: why an item has none.

    `error`: the name of the exception, or "NoResult" if the worker ended, took too long, or could not write the result.

    Example:
        results = windrow.map(parse, texts, check=False)
        failed = [result for result in results if isinstance(result, windrow.Failed)]
    """

    index: int
    error: str
    message: str
    traceback: str

    def __str__(self) -> str:
        """The error in one line; what is no exception of the function is its message alone."""
        return self.message or NO_RESULT if self.error == NO_RESULT else f"{self.error}: {self.message}"


class ItemsFailed(JobFailed):
    """Some items of a `windrow.map` failed. `failed`: each of them; `results`: of the others, in order.

    Example:
        try:
            windrow.map(parse, texts)
        except windrow.ItemsFailed as error:
            print([(one.index, str(one)) for one in error.failed])
    """

    def __init__(self, message: str, failed: Sequence[Failed], results: Sequence[Any], job: Job | None = None) -> None:
        super().__init__(message, job=job)
        self.failed = tuple(failed)
        self.results = list(results)


@python_words()
def map(
    function: Callable[[Any], Any],
    items: Iterable[Any] | str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    *,
    check: bool = True,
    mini_batch_size: int | str | None = None,
    workers: int | None = None,
    timeout: int = TIMEOUT_S,
    max_retries: int = 2,
    retry_delay: str | float | None = None,
    rate_limit: str | None = None,
    speculate: bool = False,
    cpus_per_worker: float | None = None,
    memory_per_worker: int | str | None = None,
    gpus_per_worker: float | None = None,
    idle_gpu_timeout: int | None = None,
    state: str | os.PathLike[str] | None = None,
    python: str | os.PathLike[str] | None = None,
    restart: bool = False,
    on_progress: Callable[[Job], None] = lambda job: None,
    progress: bool = True,
) -> Any:
    """Call a function for each item, on all processors of this machine, and return the results in the items' order.

    `items`: values that can be pickled; or, as one text or path, a folder or pattern (the function gets the path of
    each file) or a table (it gets each row as a dict). `output`: a file for the rows (.csv, .jsonl and .parquet take
    dicts, .txt any text); then the `Run` is returned. `check`: raise ItemsFailed if an item failed; otherwise a
    `Failed` stands in place of its result. `mini_batch_size`: items of a list, files, or bytes of a
    table (of a list, too, with a unit: "64kb"). `timeout`: seconds for a mini-batch.
    `max_retries`: so often a failed item is tried again. `retry_delay`: so many seconds it waits before that (or
    "500ms"), doubled each time. `rate_limit`: the most items that are begun, such as "20/s"; unless `mini_batch_size`
    is given, each is a mini-batch of its own then. `speculate`: the function may be called twice for an item at the
    same time; when workers are idle, the slowest mini-batches begin once more.
    `cpus_per_worker`, `memory_per_worker` (bytes, or "8gb"), `gpus_per_worker` (0.5: half of one): what a worker takes
    of this machine; no more of them run at a time than fit. `idle_gpu_timeout`: seconds after which a worker without
    items gives back a GPU that it does not use. `state`, `python`, `restart`, `on_progress`, `progress`: as of
    `windrow.run`.

    A call that was interrupted or killed continues when it is made again. It is known by the names of its function and
    output, so calls at the same time must differ in one of these, or in `state`. Raises UsageError for a function that
    cannot be sent, JobFailed, and what `windrow.run` raises.

    Example:
        lengths = windrow.map(len, ["a", "bb", "ccc"])
    """
    if where := os.environ.get("WINDROW_MAP_WORKER"):
        raise UsageError(
            "windrow.map was called while a worker of windrow.map imports this module. Put the call under "
            '`if __name__ == "__main__":`.'
            if where == "imports"
            else "windrow.map was called by a function of windrow.map, on a worker. All processors are at work "
            "already: call the inner function in a loop there, or make one list of all items, and one call."
        )
    _check_items(items)
    for name, place in {"output": output, "state": state, "python": python}.items():
        if place is not None:
            check_path(name, place)
    if mini_batch_size is not None:
        check_size("mini_batch_size", mini_batch_size)
    workers = None if workers is None else whole("workers", workers)
    timeout = whole("timeout", timeout, RETRY_SETTINGS["timeout"])
    max_retries = whole("max_retries", max_retries, RETRY_SETTINGS["max_retries"])
    check_callable("on_progress", on_progress)
    if retry_delay is not None:
        retry_delay = duration("retry_delay", retry_delay)
    if rate_limit is not None:
        rate_limit = rate_of_items("rate_limit", rate_limit)
        mini_batch_size = mini_batch_size or 1
    needs = {"cpus_per_worker": cpus_per_worker, "memory_per_worker": memory_per_worker}
    taken = worker_needs_of({**needs, "gpus_per_worker": gpus_per_worker})
    if idle_gpu_timeout is not None:
        idle_gpu_timeout = whole("idle_gpu_timeout", idle_gpu_timeout, seconds())
    state = state_folder.default() if state is None else state
    sender = Sender()
    sent = sender.function(function)
    slots = workers or len(os.sched_getaffinity(0))
    call = _Call(_name(function), os.path.abspath(os.fspath(state)), output, slots)
    with call.alone():
        if isinstance(items, (str, os.PathLike)):
            typed, count = os.fspath(items), None
            first = _read_path(typed)
            kind, size = "paths" if first.is_list else "rows", mini_batch_size
        else:
            packed = _packed(sender, items)
            if not packed and output is None:
                return []
            if not packed:
                raise UsageError(f"There are no items, so {os.fspath(output or '')} is not written.")
            typed, count, kind = call.write_items(packed), len(packed), "pickled"
            wanted = MINI_BATCHES_PER_WORKER * slots
            lengths = [map_length(line) for line in packed]
            size = mini_batch_size or max(1, min(BYTES_MAX, sum(lengths) // wanted, MARKS_MAX * min(lengths)))
        call.write_code(sender, sent, kind, max_retries + 1)
        # So that each row has its number among all.
        arguments = ["--exact_row_index", "True"] if kind != "paths" else []
        if kind == "pickled":
            arguments += ["--amlbi_file_format", "jsonl"]
            if mini_batch_size is not None and str(mini_batch_size).strip().isdecimal():
                size, arguments = None, [*arguments, "--amlbi_mini_batch_rows", str(int(mini_batch_size))]
        made = make_job_file(
            OneLine(
                script=os.path.join(call.code, ENTRY),
                inputs=(typed,),
                kind="files" if kind == "pickled" else "auto",
                output=call.rows,
                mini_batch_size=None if size is None else str(size),
                timeout=timeout,
                max_retries=max_retries,
                retry_delay=retry_delay,
                rate_limit=rate_limit,
                speculate=speculate,
                cpus_per_worker=taken.get("cpus_per_worker"),
                memory_per_worker=taken.get("memory_per_worker"),
                gpus_per_worker=taken.get("gpus_per_worker"),
                idle_gpu_timeout=idle_gpu_timeout,
                arguments=tuple(arguments),
                slots=slots,
                name=_name(function),
                output_option="output",
            ),
            os.getcwd(),
        )
        call.write(made.files)
        try:
            ended = run(
                os.path.join(call.folder, made.job_name),
                state=state,
                python=python,
                slots=workers,
                restart=restart,
                on_progress=on_progress,
                check=False,
                progress=progress,
            )
        except RunChanged as error:
            raise RunChanged(
                f"A call of windrow.map with a function {_name(function)} and the same output was interrupted, and "
                "this call has other items or options, or the function has changed. Make that call again to continue "
                "it, or start from scratch with restart=True."
            ) from error
        job = ended.job
        if not ended.succeeded and not (job.state is JobState.FAILED and 0 < job.items.failed == job.items.total):
            raise job_failed(job, state_option(state), "make the same call again")
        found = call.checked(ended, check) if output is not None else call.results(ended, count, check)
        call.clear(job)
        return found


def map_length(line: str) -> int:
    """The bytes of a line of items."""
    return len(line) + 1


class _Call:
    """The folder of one function and output."""

    def __init__(self, name: str, state: str, output: str | os.PathLike[str] | None, slots: int) -> None:
        place = "" if output is None else os.path.abspath(os.fspath(output))
        digest = hashlib.sha256(f"{name}\0{place}".encode("utf-8", "surrogateescape")).hexdigest()
        self._state = state
        self._is_list = output is None
        self.folder = os.path.join(state_folder.prepare(state), FOLDER, f"{name}-{digest[:12]}")
        self.code = os.path.join(self.folder, "code")
        self.rows = os.fspath(output) if output is not None else os.path.join(self.folder, "results.txt")
        self._failures = os.path.join(self.folder, "failures-")
        self._items = ""
        os.makedirs(self.folder, exist_ok=True)
        self._name = name

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other calls out of the folder. Raises UsageError if one is at work there."""
        # A file object: it is closed, and the lock with it, wherever an interrupt comes.
        with open(os.path.join(self.folder, LOCK), "w") as lock:
            if not state_folder.try_lock(lock.fileno(), self.folder):
                output = "without an output" if self._is_list else f"with the output {self.rows}"
                raise UsageError(
                    f"Another call of windrow.map with a function named {self._name} and {output} is at work over "
                    f"{self._state}, in another thread or process. Wait until it has ended, or tell them apart: define "
                    "each function under a name of its own (def name, not lambda), or give each call its own output= "
                    "or state=."
                )
            yield

    def write_items(self, lines: Sequence[str]) -> str:
        """Write the items, under a name that says what they are: an unfinished call may still read others."""
        content = "".join(f"{line}\n" for line in lines).encode()
        self._items = os.path.join(self.folder, f"items-{hashlib.sha256(content).hexdigest()[:16]}.jsonl")
        if not os.path.exists(self._items):
            _write(self._items, content)
        return self._items

    def write_code(self, sender: Sender, function: str, kind: str, tries: int) -> None:
        """Rewrite the code folder. `function`: as the sender has sent it."""
        discard_tree(self.code)
        told = {
            "items": kind,
            "rows": not self._is_list,
            "dicts": not self._is_list and not self.rows.endswith(".txt"),
            "marks_max": MARKS_MAX,
            "tries": tries,
            "failures": self._failures,
            "function": function,
            "parts": sender.parts,
            "globals": sender.globals,
            "magic": sender.magic,
            "python": sys.version.split()[0] if sender.magic else "",
        }
        _write(os.path.join(self.code, "windrow_map.json"), json.dumps(told, sort_keys=True).encode())
        with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "entry.py"), "rb") as entry:
            _write(os.path.join(self.code, ENTRY), entry.read())
        for name, path in sender.files.items():
            with open(path, "rb") as file:
                _write(os.path.join(self.code, name), file.read())

    def write(self, files: dict[str, str]) -> None:
        """Write the job file, and what stands beside it."""
        for name, text in files.items():
            _write(os.path.join(self.folder, name), text.encode("utf-8", "surrogateescape"))

    def results(self, ended: Run, count: int | None, check: bool) -> list[Any]:
        """The results of all items, in their order."""
        by_index: dict[int, Any] = {} if ended.succeeded else dict(self._noted(ended.job))
        for text in ended.results() if ended.succeeded else ():
            index, _, data = text.partition(" ")
            number = int(index)
            by_index[number] = _result(number, base64.b64decode(data))
        numbers = range(ended.job.items.total if count is None else count)
        if len(by_index) < len(numbers):
            unknown = f"the worker ended or took too long. {_logs(ended.job)}"
            why = self._listed(ended.job)
            for number in numbers:
                by_index.setdefault(number, Failed(number, NO_RESULT, why.get(number, unknown), ""))
        found = [by_index[number] for number in numbers]
        failed = [one for one in found if isinstance(one, Failed)]
        if failed and check:
            raise _items_failed(failed, len(found), [one for one in found if not isinstance(one, Failed)], ended.job)
        return found

    def checked(self, ended: Run, check: bool) -> Run:
        """The run that wrote the output. Raises ItemsFailed if it has failed items, and `check`."""
        if not ended.job.items.failed or not check:
            return ended
        noted = self._noted(ended.job)
        listed = self._listed(ended.job, noted)
        failed = [noted.get(index) or Failed(index, NO_RESULT, why, "") for index, why in sorted(listed.items())]
        raise _items_failed(failed, ended.job.items.total, [], ended.job)

    def _listed(self, job: Job, noted: Container[int] = ()) -> dict[int, str]:
        """The items without a result, by index, and why. `noted`: those that workers have noted, some of which have a
        result all the same.
        """
        found: dict[int, str] = {}
        with Client(state=self._state) as client:
            for batch in client.mini_batches(job):
                if batch.ok_count == batch.item_count:
                    continue
                details = client.mini_batch(job, batch.mini_batch_index)
                items = range(batch.item_first, batch.item_first + batch.item_count)
                for one in details.failed_items:
                    found |= dict.fromkeys(_items_of(one, items), _in_words(one.message))
                if details.failed_items_left_out:
                    found |= dict.fromkeys((index for index in items if index in noted), "")
        return found

    def _noted(self, job: Job) -> dict[int, Failed]:
        """What workers have noted about items that failed, by index: some may have been tried again."""
        path = f"{self._failures}{job.job_id}.jsonl"
        if not os.path.exists(path):
            return {}
        with open(path, encoding="utf-8") as file:
            failed = [Failed(**json.loads(line)) for line in file if line.endswith("\n")]
        return {one.index: one for one in failed}

    def clear(self, job: Job) -> None:
        """Remove what the call wrote for its job: the results are handed out."""
        for path in (self._items, f"{self._failures}{job.job_id}.jsonl"):
            if path and os.path.exists(path):
                os.unlink(path)


def _items_of(failed: FailedItem, items: Sequence[int]) -> Sequence[int]:
    """Which items of a mini-batch are meant, of all that it has."""
    if failed.number is not None:
        return (items[failed.number],)
    found = _RECORDS.search(failed.item)
    return items[int(found[1]) - 1 : int(found[2])] if found else items


def _in_words(message: str) -> str:
    """A reason in the words of this call, not of scripts and job files."""
    for theirs, ours in _WORDS.items():
        message = message.replace(theirs, ours)
    return message


def _result(number: int, content: bytes) -> Any:
    """The result of an item, as its worker has sent it: a value, or a `Failed`."""
    if not is_confined():
        good, value = pickle.loads(content)
        return value if good else Failed(number, value["error"], value["message"], value["traceback"])
    try:
        good, value = plain_data(content)
        if good:
            return value
        return Failed(number, *(str(value[name]) for name in ("error", "message", "traceback")))
    except Exception as error:
        what = (
            f"holds {error}, which is not plain data" if isinstance(error, NotPlainData) else f"is broken ({error!r})"
        )
        told = (
            f"Its result {what}. It comes out of a sandbox (WINDROW_SANDBOX), so only numbers, text, bytes, dates, "
            "lists, dicts, sets and numpy arrays of these are read. Return those; or give the call an output; or, if "
            "the function and its items can be trusted, run it without a sandbox."
        )
        return Failed(number, NOT_READ, told, "")


def _items_failed(failed: Sequence[Failed], total: int, results: Sequence[Any], job: Job) -> ItemsFailed:
    first = f"; first, item {failed[0].index}: {failed[0]}\n{failed[0].traceback}" if failed else f". {_logs(job)}"
    count = job.items.failed if job.items.failed > len(failed) else len(failed)
    return ItemsFailed(f"{count:,} of {counted(total, 'item')} failed{first}".rstrip(), failed, results, job)


def _packed(sender: Sender, items: Iterable[Any]) -> list[str]:
    return [json.dumps({"index": index, "item": sender.item(index, item)}) for index, item in enumerate(items)]


def _check_items(items: Any) -> None:
    """Raise UsageError for what is no list of items, although Python would go through it."""
    kind = type(items)
    if isinstance(items, Mapping):
        raise UsageError(
            f"items is a {kind.__name__}, of which only the keys would be taken. Give list(items.items()) for its "
            "pairs, or list(items) for its keys."
        )
    if isinstance(items, (bytes, bytearray, memoryview)):
        raise UsageError(f"items is {kind.__name__}, of which each byte would be an item. Give a list: [items].")
    if hasattr(kind, "columns") or hasattr(kind, "column_names"):
        for name, rows in _ROWS_OF_FRAMES.items():
            if hasattr(kind, name):
                raise UsageError(
                    f"items is a {kind.__name__}, of which the columns would be taken, not the rows. Give "
                    f"items.{rows}, or the path of a table file: the function gets each row as a dict."
                )
    try:
        iter(items)
    except TypeError:
        raise UsageError(
            f"items={items!r}: it must be a list or another iterable, or the path of a folder, a pattern or a table."
        ) from None


def _read_path(path: str) -> Given:
    try:
        return read_inputs([path], "auto", os.getcwd())[0]
    except UsageError as error:
        if os.path.exists(path):
            raise
        raise UsageError(f"{error} A text is taken for a path; give a list to have it as an item.") from error


def _name(function: Any) -> str:
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__name__", type(function).__name__)
    return "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in name).strip("_")[:40]


def _logs(job: Job) -> str:
    return f"What the workers printed: windrow job logs {job.job_id}"


def _write(path: str, content: bytes) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    part = f"{path}.{os.getpid()}"
    with open(part, "wb") as file:
        file.write(content)
    os.replace(part, path)
