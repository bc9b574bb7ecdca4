"""Run by the Python of a user's scripts, as `python script_probe.py CODE_FOLDER ENTRY_SCRIPT PROVIDED...`: reads an
entry script, and the modules beside it that it imports, without importing anything.

Prints one line, `windrow: ` and JSON: `{"findings": [[kind, file, line, column, text], ...]}`. Kinds: `syntax`
and `entry` (the script cannot serve), `missing` (text: the name of a package that this Python lacks).
`PROVIDED`: modules, and names of modules, that are there when the script runs, though not in this Python.

Python 3.8 or newer, standard library only.
"""

from __future__ import annotations

import ast
import json
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FILES_MAX = 200
"""At most this many modules beside a script are read."""
SOURCE_BYTES_MAX = 4 * 1024 * 1024
_FORGIVING = ("ImportError", "ModuleNotFoundError", "Exception", "BaseException")


class Look:
    """One examination of a script. `findings` holds the result.

    Not the agent's `Look`, which is a reading of a worker's page.
    """

    def __init__(self, folder: str, provided: list[str]) -> None:
        self.folder = folder
        self.findings: list[list[object]] = []
        self._provided = set(provided)
        self._read: set[str] = set()
        self._missing: set[str] = set()

    def script(self, entry_script: str) -> None:
        """Examine the entry script, and what it imports."""
        path = self._file_of(entry_script)
        tree = self._tree(path) if path else None
        if path and tree is not None:
            self._entry(path, tree)
            self._imports(path, tree)

    def _file_of(self, entry_script: str) -> str:
        path = os.path.join(self.folder, entry_script)
        if os.path.isfile(path):
            return path
        module = os.path.join(self.folder, *entry_script.split("."))
        return next(filter(os.path.isfile, (module + ".py", os.path.join(module, "__init__.py"))), "")

    def _tree(self, path: str) -> ast.Module | None:
        self._read.add(path)
        try:
            with open(path, "rb") as file:
                source = file.read(SOURCE_BYTES_MAX + 1)
        except OSError:
            return None  # packing the code folder reports that
        if len(source) > SOURCE_BYTES_MAX:
            return None
        try:
            # The parser alone lets pass what cannot be compiled, such as a return outside of a function.
            compile(source, path, "exec", dont_inherit=True)
            return ast.parse(source, path)
        except SyntaxError as error:
            # For bytes that are not text, Python does not report a line.
            self._note("syntax", path, error.lineno or 1, error.offset or 1, error.msg)
        except (ValueError, RecursionError, MemoryError) as error:
            self._note("syntax", path, 1, 1, str(error) or "it is nested too deeply")
        return None

    def _note(self, kind: str, path: str, line: int, column: int, text: str) -> None:
        self.findings.append([kind, os.path.relpath(path, self.folder), line, column, text])

    # What the host calls ------------------------------------------------------------------------------------------

    def _entry(self, path: str, tree: ast.Module) -> None:
        bound: dict[str, ast.AST] = {}
        star = False
        for node in _statements(tree.body, everything=True):
            for name in _names_bound(node):
                bound[name] = node
                star = star or name == "*"
        run = bound.get("run")
        if run is None:
            if not star and "globals" not in bound:
                other = next((name for name in ("Run", "main", "predict", "score") if name in bound), "")
                hint = f" (it has {other}; the name must be run)" if other else ""
                self._note(
                    "entry",
                    path,
                    1,
                    1,
                    f"does not define a run() function{hint}. Define run(mini_batch), which is called with each "
                    "mini-batch and returns a list or a pandas DataFrame",
                )
            return
        for name in ("init", "run", "shutdown"):
            function = bound.get(name)
            if isinstance(function, ast.AsyncFunctionDef):
                self._note(
                    "entry",
                    path,
                    function.lineno,
                    function.col_offset + 1,
                    f"{name}() is defined with async def, which Windrow does not await. Define it with def, and call "
                    "asyncio.run() in it",
                )
        if isinstance(run, ast.FunctionDef) and not run.decorator_list:
            self._parameters(path, run)

    def _parameters(self, path: str, run: ast.FunctionDef) -> None:
        given = run.args
        positional = len(given.posonlyargs) + len(given.args)
        required = positional - len(given.defaults)
        keywords = sum(default is None for default in given.kw_defaults)
        if required > 2 or keywords or (positional == 0 and given.vararg is None):
            needs = "no argument" if positional == 0 and not keywords else f"{required + keywords} arguments"
            self._note(
                "entry",
                path,
                run.lineno,
                run.col_offset + 1,
                f"run() takes {needs}; it is called with one or two, by position. Define it as run(mini_batch) or "
                "run(mini_batch, mini_batch_context)",
            )

    # What it imports ----------------------------------------------------------------------------------------------

    def _imports(self, path: str, tree: ast.Module) -> None:
        for node in _statements(tree.body, everything=False):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    self._import(path, node, alias.name, [])
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                self._import(path, node, node.module, [alias.name for alias in node.names])

    def _import(self, path: str, node: ast.stmt, name: str, members: list[str]) -> None:
        top = name.split(".")[0]
        beside = os.path.join(self.folder, top)
        if os.path.isfile(beside + ".py") or os.path.isdir(beside):
            for module in [name] + [f"{name}.{member}" for member in members]:
                self._module(module)
            return
        wanted = [f"{name}.{member}" for member in members] or [name]
        if all(map(self._is_provided, wanted)) or top in self._missing or not _lacks(top):
            return
        self._missing.add(top)
        self._note("missing", path, node.lineno, node.col_offset + 1, top)

    def _is_provided(self, name: str) -> bool:
        """Whether a module or a name of one is there: it, one above it, or a part of it is provided."""
        return any((name + ".").startswith(one + ".") or one.startswith(name + ".") for one in self._provided)

    def _module(self, name: str) -> None:
        """Examine a module of the user's, and the packages that contain it: all of them are imported with it."""
        parts = name.split(".")
        for end in range(1, len(parts) + 1):
            base = os.path.join(self.folder, *parts[:end])
            for path in (os.path.join(base, "__init__.py"), base + ".py"):
                if os.path.isfile(path) and path not in self._read and len(self._read) < FILES_MAX:
                    tree = self._tree(path)
                    if tree is not None:
                        self._imports(path, tree)


def _statements(body: list[Any], everything: bool) -> list[Any]:
    """Statements that run when the module is imported. Without `everything`, only those that run in any case."""
    found: list[Any] = []
    for node in body:
        found.append(node)
        # `except*` and `match` came after Python 3.8.
        if isinstance(node, ast.Try) or _is(node, "TryStar"):
            forgiven = any(_forgives(handler) for handler in node.handlers)
            if everything or not forgiven:
                found += _statements(node.body + node.orelse, everything)
            if everything:
                for handler in node.handlers:
                    found += _statements(handler.body, everything)
            found += _statements(node.finalbody, everything)
        elif isinstance(node, ast.With):
            # Whether `with suppress(ImportError)` runs its body to the end is not known.
            if everything:
                found += _statements(node.body, everything)
        elif everything and isinstance(node, (ast.If, ast.For, ast.While)):
            found += _statements(node.body + node.orelse, everything)
        elif everything and _is(node, "Match"):
            for case in node.cases:
                found += _statements(case.body, everything)
    return found


def _is(node: Any, kind: str) -> bool:
    return type(node).__name__ == kind


def _forgives(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(getattr(kind, "id", getattr(kind, "attr", "")) in _FORGIVING for kind in kinds)


def _names_bound(node: ast.stmt) -> list[str]:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return [node.name]
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return [(alias.asname or alias.name).split(".")[0] for alias in node.names]
    if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return [part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)]
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        # These may define any name, so none can be called missing.
        called = {part.id for part in ast.walk(node.value.func) if isinstance(part, ast.Name)}
        return ["*"] if called & {"exec", "setattr", "globals"} else []
    return []


def _lacks(name: str) -> bool:
    from importlib.util import find_spec

    try:
        return name not in sys.builtin_module_names and find_spec(name) is None
    except (ValueError, ImportError, AttributeError):
        return False


if __name__ == "__main__":
    # As in a worker: the code folder is searched first, and no folder of Windrow.
    sys.path[:1] = [sys.argv[1]]
    _look = Look(sys.argv[1], sys.argv[3:])
    _look.script(sys.argv[2])
    print("windrow: " + json.dumps({"findings": _look.findings}))
