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

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

# Modules of the function may call `windrow.map` when they are imported; it refuses to run within itself.
os.environ["WINDROW_MAP_WORKER"] = "1"

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


def run(mini_batch: Any, mini_batch_context: Any) -> list[Any]:
    """Calls the function for each item."""
    rows: list[Any] = []
    for index, packed in items_of(mini_batch, mini_batch_context.global_row_index_lower_bound):
        value, failure = call(packed)
        if told["rows"]:
            if failure is None:
                rows.append(value)
            else:
                note(index, failure)
        else:
            rows.append(line(index, value, failure))
    return rows


def items_of(mini_batch: Any, first: int) -> Iterator[tuple[int, Any]]:
    """The items of a mini-batch, each with its number among all. `first`: that of the first one."""
    if told["items"] == "pickled":
        for index, text in mini_batch[["index", "item"]].itertuples(index=False, name=None):
            yield int(index), text
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
            return function(item), None
        except Exception as error:
            failure = failure_of(error)
    return None, failure


def failure_of(error: Exception) -> dict[str, str]:
    """An exception in words, from the function on."""
    trace = error.__traceback__
    text = "".join(traceback.format_exception(type(error), error, None if trace is None else trace.tb_next))
    return {"error": type(error).__name__, "message": str(error), "traceback": text}


def line(index: int, value: Any, failure: Any) -> str:
    """A result as a line of text."""
    if failure is None:
        try:
            data = pickle.dumps((True, value), 4)
        except Exception as error:
            failure = failure_of(error)
            failure["message"] = f"the result, of type {type(value).__name__}, cannot be pickled: {error}"
    if failure is not None:
        data = pickle.dumps((False, failure), 4)
    return f"{index} {base64.b64encode(data).decode()}"


def note(index: int, failure: dict[str, str]) -> None:
    """Keeps a failure for the caller, and prints it for the logs."""
    print(failure["traceback"], file=sys.stderr)
    with open(told["failures"], "a", encoding="utf-8") as file:
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
    code = marshal.loads(base64.b64decode(part["code"]))
    found = types.FunctionType(code, spaces[part["globals"]], part["name"])
    found.__defaults__ = unpickled(part["defaults"])
    found.__kwdefaults__ = unpickled(part["kwdefaults"])
    return found


def fill(names: dict[str, Any], space: dict[str, Any]) -> None:
    """Gives functions the global variables that they use."""
    for module in space["imports"]:
        importlib.import_module(module)
    for name, text in space["values"].items():
        names[name] = unpickled(text)
