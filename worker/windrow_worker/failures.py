"""Encodes failures of the script: a cause, one line, and the traceback without the host's own frames."""

from __future__ import annotations

import json
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple

    from windrow_worker.splitting import FailedItems

MESSAGE_CHARACTERS_MAX = 1000
DETAIL_CHARACTERS_MAX = 16000
"""A character takes at most 4 bytes of UTF-8, and a completion may carry 4 KiB and 64 KiB."""
EXAMPLE_CHARACTERS_MAX = 240
"""For an example of a value that did not fit. Its end is kept, since the value and its line follow the path."""

EXCEPTION = "exception"
BAD_RETURN = "bad_return"
LOAD_FAILED = "load_failed"
INPUT_CHANGED = "input_changed"
INPUT_MISREAD = "input_misread"
INIT_FAILED = "init_failed"
NODE_FAULT = "node_fault"
MARKED = "marked"
"""Of items alone: the script has marked them."""
ITEM_CHARACTERS_MAX = 240
"""For the message of a failed item: there may be thousands in a mini-batch."""

FAILED_ITEMS_MAX = 50000
MISFITS_MAX = 10000
ENTRIES_BYTES_MAX = 3 << 20
"""Of each of the two lists of a side document: the agent reads none of more than 8 MiB, and no longer lists. What is
left out counts as items without a result."""

_OURS = os.path.dirname(os.path.abspath(__file__))
_LIBRARY = (os.path.join(os.path.dirname(os.__file__), ""), "<")
_INSTALLED = ("/site-packages/", "/dist-packages/")
_IMPORTING = ("<frozen importlib", os.path.join(os.path.dirname(os.__file__), "importlib", ""))
"""Code between the host and a script that is being imported."""


_below = ""


def name_files_below(folder: str) -> None:
    """Let tracebacks name files of this folder by their path in it: the agent's copy of the code is of no use to who
    reads them.
    """
    global _below
    _below = os.path.join(folder, "")


def encode_failure(
    cause: str, message: str, detail: str, failed: Sequence[FailedItems] = (), retry_after_s: float = 0.0
) -> bytes:
    """The side document of an INIT_FAILED or FAILED frame. Lone surrogates and control characters become escapes.
    `failed`: the items, if it is known of each that it fails. `retry_after_s`: how long the exception asks to wait.
    """
    line = " ".join(_cut(message, MESSAGE_CHARACTERS_MAX).split())
    document: Dict[str, Any] = {
        "cause": cause,
        "message": _printable(line),
        "detail": _printable(_cut(detail, DETAIL_CHARACTERS_MAX)),
    }
    if failed:
        document["failed"] = _failed(failed)
    if retry_after_s:
        document["retry_after_s"] = retry_after_s
    return json.dumps(document, ensure_ascii=False).encode()


_CONTROL = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\t\n"}
"""Characters that would move the cursor of a terminal, or do not belong into a line of a CSV file."""


def _printable(text: str) -> str:
    return text.translate(_CONTROL).encode("utf-8", "backslashreplace").decode("utf-8")


def _cut(text: str, most: int) -> str:
    """Cuts out the middle of a text: the beginning and the end of a traceback say most."""
    if len(text) <= most:
        return text
    head = most // 3
    tail = most - head - 60
    return f"{text[:head]}\n[... {len(text) - head - tail} characters left out ...]\n{text[-tail:]}"


def describe(error: BaseException) -> str:
    """An exception in words, such as "ValueError: bad item (score.py, line 12)". Never raises."""
    if isinstance(error, SystemExit):
        what = f"SystemExit: sys.exit({_text_of(error.code)}) was called"
    else:
        text = _text_of(error)
        what = type(error).__name__ + (f": {text}" if text else "")
    place = _place(error)
    return f"{what} ({place})" if place else what


def _text_of(value: object) -> str:
    try:
        return _cut(str(value), MESSAGE_CHARACTERS_MAX // 2)
    except BaseException as error:
        return f"<its str() raised {type(error).__name__}>"


def _place(error: BaseException) -> str:
    """The innermost line of the script, or of its own modules, in the traceback."""
    found = ""
    trace = error.__traceback__
    while trace is not None:
        path = trace.tb_frame.f_code.co_filename
        if _is_own(path):
            found = f"{os.path.basename(path)}, line {trace.tb_lineno}"
        trace = trace.tb_next
    return found


def own_depth(trace: TracebackType) -> Tuple[int, int]:
    """Which frame of a traceback is the innermost one of the script or of its own modules, counted from 0, and how many
    frames there are. -1 if none is."""
    found, count = -1, 0
    step = trace  # type: Optional[TracebackType]
    while step is not None:
        if _is_own(step.tb_frame.f_code.co_filename):
            found = count
        count += 1
        step = step.tb_next
    return found, count


def _is_own(path: str) -> bool:
    """Whether the file is the script's or one of its own modules, and not the host's or a library's. Compiled libraries
    name their files without a folder (`index.pyx`)."""
    library = path.startswith(_LIBRARY) or any(part in path for part in _INSTALLED) or not os.path.isabs(path)
    return not (library or _is_ours(path))


def _without_host(trace: Optional[TracebackType]) -> Optional[TracebackType]:
    """The traceback from the script's first frame on."""
    while trace is not None and _is_ours(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    return trace


def script_traceback(error: BaseException) -> Optional[TracebackType]:
    """The traceback from the script's first frame on; None if the script is not in it."""
    return _without_host(error.__traceback__)


def _is_ours(path: str) -> bool:
    return path.startswith(_OURS) or path.startswith(_IMPORTING)


def traceback_of(error: BaseException, whole: bool = False) -> str:
    """Python's traceback as text, without the host's frames unless `whole`. Never raises."""
    import traceback

    traces = []  # type: List[Tuple[BaseException, Optional[TracebackType]]]
    try:
        if not whole:
            # Causes are printed too; debuggers need them unchanged.
            for one in _with_causes(error):
                traces.append((one, one.__traceback__))
                one.__traceback__ = _without_host(one.__traceback__)
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        return text.replace(f'File "{_below}', 'File "') if _below else text
    except BaseException as second:
        return f"{type(error).__name__} (its traceback cannot be shown: {type(second).__name__})"
    finally:
        for one, trace in traces:
            one.__traceback__ = trace


def _with_causes(error: BaseException) -> List[BaseException]:
    """An exception and everything that led to it, each once."""
    found = [error]
    for one in found:
        for behind in (one.__cause__, one.__context__):
            if behind is not None and not any(behind is known for known in found):
                found.append(behind)
    return found


def _failed(failed: Sequence[FailedItems]) -> List[List[Any]]:
    rows = (
        [one.first, one.count, one.cause, item_line(one.message), _printable(_cut(one.place, EXAMPLE_CHARACTERS_MAX))]
        for one in failed
    )
    return _first_of(rows, FAILED_ITEMS_MAX)


def _first_of(entries: Iterable[List[Any]], most: int) -> List[List[Any]]:
    """As many as a side document may hold."""
    kept: List[List[Any]] = []
    left = ENTRIES_BYTES_MAX
    for entry in entries:
        left -= len(json.dumps(entry, ensure_ascii=False).encode()) + 2
        if left < 0 or len(kept) >= most:
            break
        kept.append(entry)
    return kept


def item_line(message: str) -> str:
    """The message of a failed item, in one line that is not too long. Its end is kept, which names the place in the
    script: by error and place, the master knows which failures are of one kind.
    """
    line = " ".join(message.split())
    if len(line) > ITEM_CHARACTERS_MAX:
        head = ITEM_CHARACTERS_MAX // 3
        line = f"{line[:head]}…{line[head + 1 - ITEM_CHARACTERS_MAX :]}"
    return _printable(line)


def encode_done(misfits: Sequence[Tuple[str, int, str]], failed: Sequence[FailedItems] = ()) -> bytes:
    """The side document of a DONE frame: values that did not fit the pinned type of their column, by column, and the
    items that failed although `run()` returned.
    """
    most = EXAMPLE_CHARACTERS_MAX
    rows = (
        [
            _printable(_cut(column, MESSAGE_CHARACTERS_MAX)),
            count,
            _printable(text if len(text) <= most else "…" + text[1 - most :]),
        ]
        for column, count, text in misfits
    )
    document: Dict[str, Any] = {"misfits": _first_of(rows, MISFITS_MAX)}
    if failed:
        document["failed"] = _failed(failed)
    return json.dumps(document, ensure_ascii=False).encode()
