"""How a function reaches the workers: by the name of its module, or, where it is in none, as it stands in memory.

A function of `__main__` (a script, a notebook, `python -c`) has no module that a worker could import without running
the program again. Its code goes along, and the names that it uses: modules by their name, functions in the same way,
values pickled. Pickle alone refuses such functions, and sources are not always there. Items are sent like such values.
"""

from __future__ import annotations

import base64
import dis
import functools
import importlib.util
import io
import marshal
import os
import pickle
import sys
import sysconfig
import types
from collections.abc import Callable, Iterator
from typing import Any

from windrow.common.trees import walk
from windrow.errors import UsageError

_MARSHAL = 2
"""The last version without references between objects: equal code gives equal bytes, and the same run."""
_PICKLE = 4

_FILE_BYTES_MAX = 16 * 1024 * 1024

_PLAIN = frozenset((bool, bytes, dict, float, int, list, set, str, tuple, type(None)))
"""Types of values that are never parts: most values, which are told apart quickly."""
_CACHED = type(functools.lru_cache(lambda: None))
"""Of functions with `functools.lru_cache`."""
_ADVICE = "Make it inside the function, or put the function into a module that makes it."


class Sender:
    """Makes texts of the function and the items, of which `entry.unpickled` makes them again.

    What pickle alone refuses, or finds by the name of a module that workers do not have, becomes one of the `parts`:
    modules, functions by their code, and their caches. `globals`: those that functions use, each once, so that
    functions share them as they do here. `files`: those that go along, by path below the code folder.
    """

    def __init__(self) -> None:
        self.parts: dict[str, dict[str, Any]] = {}
        self.globals: dict[str, dict[str, Any]] = {}
        self.files: dict[str, str] = {}
        self._ids: dict[int, tuple[str, Any]] = {}
        self._globals_ids: dict[int, str] = {}
        self._taken: set[str] = set()

    @property
    def magic(self) -> str:
        """The Python whose code is in the parts; "" if there is none."""
        by_code = any(part["kind"] == "function" for part in self.parts.values())
        return importlib.util.MAGIC_NUMBER.hex() if by_code else ""

    def function(self, function: Any) -> str:
        """Send what is called for each item. Raises UsageError, saying why it cannot be sent and what to do."""
        if not callable(function):
            raise UsageError(f"windrow.map calls a function for each item; {function!r} cannot be called.")
        return self._value(function, _named(function))

    def item(self, index: int, item: Any) -> str:
        """Send an item. Raises UsageError, as `function` does."""
        advice = "Give the function what the item can be made of: a path, a number, a text."
        return self._value(item, f"Item {index}, of type {type(item).__name__},", advice)

    def _value(self, value: Any, name: str, advice: str = _ADVICE) -> str:
        file = io.BytesIO()
        try:
            _Pickler(file, self._part).dump(value)
        except UsageError:
            raise
        except _ClassOfProgram as error:
            found = error.found
            what = (
                "it" if value is found else "its class" if type(value) is found else f"the class {_named(found)} in it"
            )
            raise UsageError(
                f"{name} cannot be sent to the workers: {what} is defined in this session or program, which workers "
                "do not run. Put the class into a module (a .py file), and import it."
            ) from None
        except Exception as error:
            raise UsageError(
                f"{name} cannot be sent to the workers: it cannot be pickled ({error}). {advice}"
            ) from error
        return _text(file.getvalue())

    def _part(self, value: Any) -> str | None:
        """The id of the part that a value is; None if it is pickled."""
        if type(value) in _PLAIN:
            return None
        if id(value) in self._ids:
            return self._ids[id(value)][0]
        if isinstance(value, types.ModuleType):
            self._take_along(value.__name__)
            return self._add(value, {"kind": "module", "name": value.__name__})
        if isinstance(value, types.FunctionType) and not _is_importable(value):
            return self._function(value)
        if isinstance(value, _CACHED) and not _is_importable(value):
            part: dict[str, Any] = {"kind": "cached", **value.cache_parameters()}
            found = self._add(value, part)
            part["function"] = self._value(value.__wrapped__, _named(value))
            return found
        if isinstance(value, (type, types.FunctionType, _CACHED)):
            if value.__module__ == "__main__":
                raise _ClassOfProgram(value)
            self._take_along(value.__module__)
        return None

    def _add(self, value: Any, part: dict[str, Any]) -> str:
        found = str(len(self.parts))
        # The value is kept, so that no other one gets its id.
        self._ids[id(value)] = (found, value)
        self.parts[found] = part
        return found

    def _function(self, function: types.FunctionType) -> str:
        name = _named(function)
        if function.__closure__:
            kept = ", ".join(function.__code__.co_freevars)
            raise UsageError(
                f"{name} cannot be sent to the workers: it is made inside another function and keeps variables of that "
                f"one ({kept}). Define it at the top level, and give it what it needs as part of the items or as a "
                "global variable."
            )
        part: dict[str, Any] = {"kind": "function", "name": function.__name__}
        found = self._add(function, part)
        part["code"] = _text(marshal.dumps(_without_place(function.__code__), _MARSHAL))
        part["defaults"] = self._value(function.__defaults__, f"the defaults of {name}")
        part["kwdefaults"] = self._value(function.__kwdefaults__, f"the defaults of {name}")
        part["globals"] = self._globals(function)
        return found

    def _globals(self, function: types.FunctionType) -> str:
        """Send the global variables that a function uses; return the id of those of its module."""
        held = function.__globals__
        found = self._globals_ids.setdefault(id(held), str(len(self._globals_ids)))
        space = self.globals.setdefault(found, {"name": held.get("__name__"), "imports": [], "values": {}})
        values = space["values"]
        codes = list(_codes_in(function.__code__))
        for word in sorted({word for code in codes for word in _globals_of(code)}):
            if word not in held or word in values or word == "__name__":
                continue
            values[word] = ""  # a function may use itself
            values[word] = self._value(held[word], word)
        attributes = {name for code in codes for name in code.co_names}
        for module in [held[word] for word in values if isinstance(held[word], types.ModuleType)]:
            for name in _submodules(module, attributes):
                self._take_along(name)
                space["imports"] = sorted({*space["imports"], name})
        return found

    def _take_along(self, module: str) -> None:
        """Take the files of a module along, if it is a user's own and not installed."""
        if module in self._taken:
            return
        self._taken.add(module)
        top = sys.modules.get(module.partition(".")[0])
        file = getattr(top, "__file__", None)
        if file is None or module == "__main__" or _is_installed(file):
            return
        folder = os.path.dirname(os.path.abspath(file))
        root = os.path.dirname(folder) if hasattr(top, "__path__") else folder
        # Modules of the same folder that it has imported are sent as well.
        for other in list(sys.modules.values()):
            place = getattr(other, "__file__", None)
            if place is None or getattr(other, "__name__", "__main__") == "__main__" or not place.endswith(".py"):
                continue
            path = os.path.abspath(place)
            if path.startswith(os.path.join(root, "")) and not _is_installed(path):
                self.files[os.path.relpath(path, root)] = path
        if hasattr(top, "__path__"):
            for path in _sources(folder):
                self.files[os.path.relpath(path, root)] = path


class _ClassOfProgram(Exception):
    """A class of `__main__` is to be pickled, which no worker could find."""

    def __init__(self, found: Any) -> None:
        super().__init__()
        self.found = found


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, part: Callable[[Any], str | None]) -> None:
        super().__init__(file, _PICKLE)
        self._part = part

    def persistent_id(self, value: Any) -> str | None:
        return self._part(value)


def _named(function: Any) -> str:
    return str(getattr(function, "__qualname__", None) or type(function).__name__)


def _submodules(module: types.ModuleType, attributes: set[str]) -> list[str]:
    """The imported submodules of a module that code may reach by attributes: `import xml.dom` makes only `xml` known
    to it.
    """
    begin = f"{module.__name__}."
    return [
        name
        for name in list(sys.modules)
        if name.startswith(begin) and attributes.issuperset(name[len(begin) :].split("."))
    ]


def _sources(folder: str) -> Iterator[str]:
    for place, folders, names in walk(folder):
        folders[:] = sorted(name for name in folders if name != "__pycache__" and not name.startswith("."))
        for name in sorted(names):
            path = os.path.join(place, name)
            if not name.endswith(".pyc") and os.path.getsize(path) <= _FILE_BYTES_MAX:
                yield path


def _is_importable(function: Any) -> bool:
    """Whether importing its module gives this function, or cache of a function."""
    module = sys.modules.get(function.__module__ or "")
    if module is None or function.__module__ == "__main__" or getattr(module, "__file__", None) is None:
        return False
    found: Any = module
    for name in function.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is function


def _is_installed(file: str) -> bool:
    path = os.path.abspath(file)
    places = {sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    return any(path.startswith(os.path.join(place, "")) for place in places) or "site-packages" in path.split(os.sep)


def _codes_in(code: types.CodeType) -> Iterator[types.CodeType]:
    """The code of a function, and of what is defined in it."""
    yield code
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            yield from _codes_in(inner)


def _globals_of(code: types.CodeType) -> Iterator[str]:
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME") and isinstance(instruction.argval, str):
            yield instruction.argval


def _without_place(code: types.CodeType) -> types.CodeType:
    """The code with the name of its file alone, and without that of a notebook's cell, which is another one in each
    kernel.
    """
    name = os.path.basename(code.co_filename)
    is_file = os.path.isfile(code.co_filename) and "ipykernel" not in code.co_filename
    consts = tuple(_without_place(one) if isinstance(one, types.CodeType) else one for one in code.co_consts)
    return code.replace(co_filename=name if is_file else "<cell>", co_consts=consts)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
