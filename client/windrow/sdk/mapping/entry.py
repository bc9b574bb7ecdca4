"""The entry script of `windrow.map`. It is copied beside the function, and imports nothing of Windrow: workers run it
in the Python of scripts.
"""

from __future__ import annotations

import base64
import functools
import importlib
import importlib.util
import io
import json
import marshal
import os
import pickle
import sys
import traceback
import types
from collections.abc import Mapping

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

# Modules of the function may call `windrow.map` when they are imported; it refuses to run within itself.
os.environ["WINDROW_MAP_WORKER"] = "imports"

told: dict[str, Any]
function: Callable[[Any], Any]
made: dict[str, Any] = {}
"""The values of parts, by id."""
spaces: dict[str, dict[str, Any]] = {}
"""The global variables of functions that were sent by their code, by module."""

HERE = os.path.dirname(os.path.abspath(__file__))


def init() -> None:
    """Loads the function."""
    global function, told
    with open(os.path.join(HERE, "windrow_map.json"), encoding="utf-8") as file:
        told = json.load(file)
    magic = importlib.util.MAGIC_NUMBER.hex()
    if told["magic"] not in ("", magic):
        raise RuntimeError(
            f"The function was sent as it stands in memory, by Python {told['python']}, and this is Python "
            f"{sys.version.split()[0]}. Put it into a module, or let both be the same Python"
        )
    for number, space in told["globals"].items():
        spaces[number] = {"__builtins__": __builtins__, "__name__": space["name"]}
    function = unpickled(told["function"])
    for number, space in told["globals"].items():
        fill(spaces[number], space)
    os.environ["WINDROW_MAP_WORKER"] = "calls"


def run(mini_batch: Any, mini_batch_context: Any) -> list[Any]:
    """Calls the function for each item."""
    rows: list[Any] = []
    failed = 0
    for at, (index, packed) in enumerate(items_of(mini_batch, mini_batch_context.global_row_index_lower_bound)):
        value, failure = call(packed)
        if not told["rows"]:
            row, failure = line(index, value, failure)
            rows.append(row)
        elif failure is None:
            rows.append(value)
        if failure is not None:
            note(index, failure)
            failed += 1
            # One more fails the whole mini-batch.
            if failed <= told["marks_max"]:
                mini_batch_context.fail(at, words_of(index, failure))
    return rows


def items_of(mini_batch: Any, first: int) -> Iterator[tuple[int, Any]]:
    """The items of a mini-batch, each with its number among all. `first`: that of the first one."""
    if told["items"] == "pickled":
        for record in mini_batch:
            yield record["index"], record["item"]
    elif told["items"] == "paths":
        yield from enumerate(mini_batch, first)
    else:
        yield from enumerate(mini_batch.to_dict("records"), first)


def call(packed: Any) -> tuple[Any, Any]:
    """What the function returns, and why it has failed (or None)."""
    failure = None
    for _ in range(told["tries"]):
        try:
            item = unpickled(packed) if told["items"] == "pickled" else packed
            value = function(item)
        except (Exception, SystemExit) as error:
            failure = failure_of(error)
        else:
            return value, misfit_of(value) if told["dicts"] else None
    return None, failure


def failure_of(error: BaseException) -> dict[str, str]:
    """An exception in words, from the function on."""
    trace = error.__traceback__
    text = "".join(traceback.format_exception(type(error), error, None if trace is None else trace.tb_next))
    message = str(error)
    name = getattr(error, "filename", None)
    if isinstance(error, FileNotFoundError) and isinstance(name, str) and not os.path.isabs(name):
        message += (
            ". It is looked for in the folder of the worker, not where windrow.map was called: give the function an "
            "absolute path, as of os.path.abspath"
        )
    # Users know their files by their own names, not the copies on the node.
    text = text.replace(f'File "{HERE}{os.sep}', 'File "')
    return {"error": type(error).__name__, "message": message, "traceback": text}


def misfit_of(value: Any) -> dict[str, str] | None:
    """Why a result cannot be a row of the output, or None."""
    if isinstance(value, Mapping):
        return None
    kind = type(value)
    message = (
        f"the function returned {kind.__name__}, and a row of the output is a dict of names and values. Return a dict, "
        "or leave out the output to get a list of all results"
    )
    if hasattr(kind, "iloc"):
        message = (
            f"the function returned a {kind.__name__}, and a row of the output is one dict for each item. Of one row, "
            "return frame.iloc[0].to_dict(); for several rows of an item, leave out the output, and join what "
            "windrow.map returns with pandas.concat"
        )
    return {"error": "TypeError", "message": message, "traceback": ""}


def line(index: int, value: Any, failure: Any) -> tuple[str, Any]:
    """A result as a line of text, and why there is none (or None)."""
    if failure is None:
        try:
            data = pickle.dumps((True, value), 4)
        except Exception as error:
            failure = failure_of(error)
            failure["message"] = f"the result, of type {type(value).__name__}, cannot be pickled: {error}"
    if failure is not None:
        data = pickle.dumps((False, failure), 4)
    return f"{index} {base64.b64encode(data).decode()}", failure


def words_of(index: int, failure: dict[str, str]) -> str:
    """A failure for the list of failed items, which names files and rows itself."""
    words = f"{failure['error']}: {failure['message']}"
    return f"item {index}: {words}" if told["items"] == "pickled" else words


def note(index: int, failure: dict[str, str]) -> None:
    """Keeps a failure for the caller, and prints it for the logs."""
    print(failure["traceback"] or words_of(index, failure), file=sys.stderr)
    with open(f"{told['failures']}{os.environ['AZUREML_RUN_ID']}.jsonl", "a", encoding="utf-8") as file:
        file.write(json.dumps({"index": index, **failure}) + "\n")


class Unpickler(pickle.Unpickler):
    """Reads what `sending` has pickled: values, and parts by their ids."""

    def persistent_load(self, part: str) -> Any:
        """The value of a part, made once."""
        if part not in made:
            made[part] = make(told["parts"][part])
        return made[part]


def unpickled(text: str) -> Any:
    """A value that was sent."""
    return Unpickler(io.BytesIO(base64.b64decode(text))).load()


def make(part: dict[str, Any]) -> Any:
    """The value of a part."""
    if part["kind"] == "module":
        return importlib.import_module(part["name"])
    if part["kind"] == "cached":
        return functools.lru_cache(part["maxsize"], part["typed"])(unpickled(part["function"]))
    code = placed(marshal.loads(base64.b64decode(part["code"])))
    found = types.FunctionType(code, spaces[part["globals"]], part["name"])
    found.__defaults__ = unpickled(part["defaults"])
    found.__kwdefaults__ = unpickled(part["kwdefaults"])
    return found


def placed(code: types.CodeType) -> types.CodeType:
    """The code as that of a file in this folder: what tells where a worker was knows the user's code by that."""
    consts = tuple(placed(one) if isinstance(one, types.CodeType) else one for one in code.co_consts)
    return code.replace(co_filename=os.path.join(HERE, code.co_filename), co_consts=consts)


def fill(names: dict[str, Any], space: dict[str, Any]) -> None:
    """Gives functions the global variables that they use."""
    for module in space["imports"]:
        importlib.import_module(module)
    for name, text in space["values"].items():
        names[name] = unpickled(text)
