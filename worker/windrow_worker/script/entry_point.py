"""Finds, imports and examines the user's entry script, once, before the first mini-batch. Reference:
docs/reference/azure-ml/parallel-job.md#functions.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import json
import os
import re
import sys
from types import FunctionType

from windrow_worker.script import checked_imports
from windrow_worker.script.offered_run import OFFERED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any, Callable, Optional, Sequence, Tuple

_PROCESS_DATA = re.compile(rb"json\s*\.\s*loads\s*\(\s*sys\s*\.\s*argv\s*\[\s*-\s*1\s*\]")
_CO_VARARGS = 0x04
PACKAGE = "windrow_entry"
"""The package of the script's private name, in `children`."""
CHILDREN = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "children")
"""The last folder on `sys.path` but one, also in processes that the script starts."""
_CO_COROUTINE = 0x80
_CO_ASYNC_GENERATOR = 0x200


class BadScript(Exception):
    """The entry script cannot be used: it is missing, or lacks a function. The message says what to do."""


class EntryPoint:
    """The path of the script, and the name of its module. `path` is None for a dotted module."""

    __slots__ = ("module_name", "path")

    def __init__(self, module_name: str, path: Optional[str]) -> None:
        self.module_name = module_name
        self.path = path


class Script:
    """A script that can be called. `takes_context`: `run` has a second positional parameter."""

    __slots__ = ("init", "run", "shutdown", "takes_context")

    def __init__(
        self,
        init: Optional[Callable[[], object]],
        run: Callable[..., Any],
        shutdown: Optional[Callable[[], object]],
        takes_context: bool,
    ) -> None:
        self.init = init
        self.run = run
        self.shutdown = shutdown
        self.takes_context = takes_context


def reads_process_data(entry: EntryPoint) -> bool:
    """Whether the script reads its last argument as JSON, as those do that take a GPU of their process from it."""
    if entry.path is None:
        return False
    with open(entry.path, "rb") as file:
        return _PROCESS_DATA.search(file.read()) is not None


def process_data(process_name: str) -> str:
    """What Azure ML gives such scripts as the last argument. `gpu_index`: the worker's GPU, as it stands in
    CUDA_VISIBLE_DEVICES; -1 without one.
    """
    gpu = os.environ.get("CUDA_VISIBLE_DEVICES") or "-1"
    return json.dumps({"gpu_index": int(gpu) if gpu.lstrip("-").isdigit() else gpu, "process_name": process_name})


class EntryFinder:
    """Imports the entry script under its module name. It is the last finder, and does not find any other module."""

    def __init__(self, entry: EntryPoint) -> None:
        self._entry = entry

    def find_spec(
        self, name: str, path: Optional[Sequence[str]] = None, target: Optional[ModuleType] = None
    ) -> Optional[importlib.machinery.ModuleSpec]:
        """The script's spec, if this is its name."""
        entry = self._entry
        if name != entry.module_name or entry.path is None:
            return None
        loader = _Loader(name, entry.path)
        spec = importlib.machinery.ModuleSpec(name, loader, origin=entry.path)
        spec.has_location = True
        return spec


class _Loader(checked_imports.SourceLoader):
    """Loads the script as a module outside any package, although its private name has one."""

    def exec_module(self, module: ModuleType) -> None:
        module.__package__ = ""
        super().exec_module(module)


def locate(code_folder: str, entry_script: str) -> EntryPoint:
    """Finds the script: a file below `code_folder`, or a dotted module. Raises BadScript.

    A file becomes the module of its own name if an import in the script would find exactly that file. Other modules
    that import it then get this module, and pickled classes and functions are found elsewhere (by another script, or in
    a notebook beside the file). Any other file gets a private name, so that it shadows no module. `__name__` is never
    `"__main__"`.
    """
    path = os.path.join(code_folder, entry_script)
    checked_imports.check_file(path)
    if os.path.isfile(path):
        stem = os.path.splitext(os.path.basename(path))[0]
        if entry_script == stem + ".py" and _is_free(stem, code_folder, path):
            return EntryPoint(stem, os.path.abspath(path))
        letters = "".join(letter if letter.isalnum() and letter.isascii() else "_" for letter in stem)
        return EntryPoint(PACKAGE + "." + letters, os.path.abspath(path))
    if entry_script.endswith(".py") or os.sep in entry_script or not _is_dotted_name(entry_script):
        raise BadScript(
            f"The entry script {entry_script!r} is not in the code folder, which contains {_some_names(code_folder)}. "
            "Correct task.entry_script (a path relative to task.code, or a dotted module), or add the file there"
        )
    return EntryPoint(entry_script, None)


def _is_free(name: str, code_folder: str, path: str) -> bool:
    """Whether an import of `name`, with the code folder first on `sys.path`, loads the file at `path`."""
    if not name.isidentifier() or name in sys.modules or name in sys.builtin_module_names or name == "__main__":
        return False
    if importlib.machinery.FrozenImporter.find_spec(name) is not None:
        return False
    spec = importlib.machinery.PathFinder.find_spec(name, [code_folder])
    return spec is not None and spec.origin == path


def _is_dotted_name(name: str) -> bool:
    return all(part.isidentifier() for part in name.split("."))


def _some_names(folder: str) -> str:
    """A few of the names in a folder, for an error message."""
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        return f"nothing readable ({error})"
    if not names:
        return "nothing"
    shown = ", ".join(repr(name) for name in names[:8])
    return shown + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def make_importable(code_folder: str, entry: EntryPoint) -> None:
    """Makes the script and its neighbours importable in this process."""
    if code_folder not in sys.path[:1]:
        sys.path.insert(0, code_folder)
    for folder in (CHILDREN, OFFERED):
        if folder not in sys.path:
            sys.path.append(folder)
    importlib.import_module("windrow_run_context").install()
    sys.meta_path.append(EntryFinder(entry))


def load(entry: EntryPoint) -> Tuple[ModuleType, str]:
    """Imports the script; returns its module and its file. Raises BadScript, or what the script's code raises."""
    from importlib import import_module

    try:
        module = import_module(entry.module_name)
    except ModuleNotFoundError as error:
        if entry.path is None and error.name and (entry.module_name + ".").startswith(error.name + "."):
            raise BadScript(
                f"The entry script {entry.module_name!r} is not a module in the code folder: {error}. "
                "Correct task.entry_script (a path relative to task.code, or a dotted module)"
            ) from error
        raise
    return module, getattr(module, "__file__", None) or entry.module_name


def examine(module: ModuleType, name: str) -> Script:
    """Finds the functions that the host calls. `name` is for messages. Raises BadScript."""
    run = _function(module, "run", name)
    if run is None:
        hint = ""
        for other in ("Run", "main", "predict", "score"):
            if callable(getattr(module, other, None)):
                hint = f" (it has {other}; the name must be run)"
                break
        raise BadScript(
            f"The entry script {name!r} does not define a run() function{hint}. Define run(mini_batch), which is "
            "called with each mini-batch and returns a list or a pandas DataFrame"
        )
    return Script(_function(module, "init", name), run, _function(module, "shutdown", name), _takes_context(run, name))


def _function(module: ModuleType, attribute: str, name: str) -> Optional[Callable[..., Any]]:
    found = getattr(module, attribute, None)
    if found is not None and not callable(found):
        raise BadScript(
            f"In the entry script {name!r}, {attribute} is of type {type(found).__name__}, not a function. "
            "Define it as a function"
        )
    flags = getattr(getattr(found, "__code__", None), "co_flags", 0)
    if flags & (_CO_COROUTINE | _CO_ASYNC_GENERATOR):
        raise BadScript(
            f"{attribute}() in the entry script {name!r} is defined with async def, which Windrow does not await. "
            "Define it with def, and call asyncio.run() in it"
        )
    return found


def _takes_context(run: Callable[..., Any], name: str) -> bool:
    """Whether `run` takes two arguments. Raises BadScript if it takes neither one nor two.

    Plain functions are read directly: importing `inspect` costs more than the rest of a worker's start.
    """
    if type(run) is FunctionType and not hasattr(run, "__wrapped__"):
        code = run.__code__
        positional = code.co_argcount
        required = positional - len(run.__defaults__ or ())
        variable = bool(code.co_flags & _CO_VARARGS)
        keywords = code.co_kwonlyargcount - len(run.__kwdefaults__ or ())
    else:
        import inspect

        try:
            parameters = list(inspect.signature(run).parameters.values())
        except (TypeError, ValueError):
            return False  # Compiled code without a signature.
        kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        places = [parameter for parameter in parameters if parameter.kind in kinds]
        positional = len(places)
        required = sum(parameter.default is parameter.empty for parameter in places)
        variable = any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters)
        keywords = sum(
            parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty
            for parameter in parameters
        )
    if required > 2 or keywords > 0 or (positional == 0 and not variable):
        needs = "no argument" if positional == 0 and not keywords else f"{required + keywords} arguments"
        raise BadScript(
            f"run() in the entry script {name!r} takes {needs}; it is called with one or two, by position. "
            "Define it as run(mini_batch) or run(mini_batch, mini_batch_context)"
        )
    return positional >= 2
