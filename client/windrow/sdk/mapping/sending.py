"""How a function reaches the workers: by the name of its module, or, where it is in none, as it stands in memory.

A function of `__main__` (a script, a notebook, `python -c`) has no module that a worker could import without running
the program again. Its code goes along, and the names that it uses: modules by their name, functions in the same way,
values pickled. Pickle alone refuses such functions, and sources are not always there.
"""

from __future__ import annotations

import base64
import dis
import importlib.util
import marshal
import os
import pickle
import sys
import sysconfig
import types
from collections.abc import Iterator
from typing import Any, NamedTuple

from windrow.errors import UsageError

_MARSHAL = 2
"""The last version without references between objects: equal code gives equal bytes, and the same run."""

_FILE_BYTES_MAX = 16 * 1024 * 1024


class Sent(NamedTuple):
    """`spec`: what `entry.load` makes the function of. `files`: those that go along, by path below the code folder.
    `magic`: the Python whose code is in it; "" if there is none.
    """

    spec: dict[str, Any]
    files: dict[str, str]
    magic: str


def send(function: Any) -> Sent:
    """Describe a function for the workers. Raises UsageError, saying why it cannot be sent and what to do."""
    if not callable(function):
        raise UsageError(f"windrow.map calls a function for each item; {function!r} cannot be called.")
    sender = _Sender()
    spec = sender.value(function, _named(function))
    return Sent(spec, sender.files, importlib.util.MAGIC_NUMBER.hex() if sender.by_code else "")


def _named(function: Any) -> str:
    return str(getattr(function, "__qualname__", None) or type(function).__name__)


class _Sender:
    def __init__(self) -> None:
        self.files: dict[str, str] = {}
        self.by_code = False
        self._ids: dict[int, str] = {}

    def value(self, value: Any, name: str) -> dict[str, Any]:
        """Describe a value that the function uses under a name."""
        if isinstance(value, types.ModuleType):
            self._take_along(value.__name__)
            return {"kind": "module", "name": value.__name__}
        if isinstance(value, types.FunctionType) and not _is_importable(value):
            return self._function(value)
        return {"kind": "pickle", "data": self._pickled(value, name)}

    def _function(self, function: types.FunctionType) -> dict[str, Any]:
        name = _named(function)
        if function.__closure__:
            kept = ", ".join(function.__code__.co_freevars)
            raise UsageError(
                f"{name} cannot be sent to the workers: it is made inside another function and keeps variables of that "
                f"one ({kept}). Define it at the top level, and give it what it needs as part of the items or as a "
                "global variable."
            )
        if id(function) in self._ids:
            return {"kind": "code", "id": self._ids[id(function)]}
        self.by_code = True
        self._ids[id(function)] = f"{len(self._ids)}"
        used = {}
        for word in sorted(set(_globals_of(function.__code__))):
            if word in function.__globals__:
                used[word] = self.value(function.__globals__[word], word)
        return {
            "kind": "code",
            "id": self._ids[id(function)],
            "name": function.__name__,
            "code": _text(marshal.dumps(_without_place(function.__code__), _MARSHAL)),
            "defaults": self._pickled(function.__defaults__, f"the defaults of {name}"),
            "kwdefaults": self._pickled(function.__kwdefaults__, f"the defaults of {name}"),
            "globals": used,
        }

    def _pickled(self, value: Any, name: str) -> str:
        try:
            data = pickle.dumps(value, 4)
        except Exception as error:
            raise UsageError(
                f"{name} cannot be sent to the workers: {type(value).__name__} cannot be pickled ({error}). Make it "
                "inside the function, or put the function into a module that makes it."
            ) from error
        if b"__main__" in data:
            raise UsageError(
                f"{name} cannot be sent to the workers: its class is defined in this session or program, which workers "
                "do not run. Put the class into a module (a .py file), and import it."
            )
        for module in _modules_in(value):
            self._take_along(module)
        return _text(data)

    def _take_along(self, module: str) -> None:
        """Take the files of a module along, if it is a user's own and not installed."""
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


def _sources(folder: str) -> Iterator[str]:
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name != "__pycache__" and not name.startswith("."))
        for name in sorted(names):
            path = os.path.join(place, name)
            if not name.endswith(".pyc") and os.path.getsize(path) <= _FILE_BYTES_MAX:
                yield path


def _is_importable(function: types.FunctionType) -> bool:
    """Whether importing its module gives this function."""
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


def _modules_in(value: Any) -> Iterator[str]:
    for one in (value, type(value), getattr(value, "func", None)):
        module = getattr(one, "__module__", None)
        if isinstance(module, str):
            yield module


def _globals_of(code: types.CodeType) -> Iterator[str]:
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME") and isinstance(instruction.argval, str):
            yield instruction.argval
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            yield from _globals_of(inner)


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
