"""Checks the modules of the submitted code when they are imported, so that no worker runs a module changed on disk.

While the agent unpacks the verified archive, it records the crc32 of every source file and extension module
(docs/contracts.md, section 4). This module checks them when they are imported, in the worker and in children that
`multiprocessing` starts. Compiled files are not used, since they have no checksums. Changed code ends the worker at
once, so that no `except ImportError` of a script runs something else instead; the agent then unpacks it again.

Files that a script opens itself are not checked, nor files that it writes beside its code and then imports.
"""

from __future__ import annotations

import importlib.machinery
import json
import os
import signal
import sys
from io import open  # a script may replace the one in builtins
from zlib import crc32

from windrow_worker import process
from windrow_worker.protocol import exits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any, Dict, List, Mapping, NoReturn, Optional, Union

# Bound early: a script may replace what the module holds.
_getpid = os.getpid

CHANGED = ".changed"
"""Replaces the ending of the checksum file's name: this file holds the name of the changed file."""

_code: Optional[CheckedCode] = None


class CheckedCode:
    """The checksums of a code folder. `host_pid`: the worker, of which this process may be a child."""

    def __init__(self, folder: str, sums_path: str, sums_crc32: int, host_pid: int) -> None:
        """Reads the checksum file; ends the worker if that file has changed."""
        self._roots = sorted({folder + os.sep, os.path.realpath(folder) + os.sep})
        self._sums_path = sums_path
        self._host_pid = host_pid
        try:
            with open(sums_path, "rb") as file:
                content = file.read()
        except OSError:
            content = b""
        if crc32(content) != sums_crc32:
            self._leave(os.path.basename(sums_path))
        self._sums: Dict[str, int] = json.loads(content)

    def holds(self, path: str) -> bool:
        """Whether a file was unpacked from the archive, and can be checked."""
        return self._name(path) in self._sums

    def contains(self, folder: str) -> bool:
        """Whether a folder is the code folder or below it."""
        return (folder + os.sep).startswith(tuple(self._roots))

    def check(self, path: str, content: Union[bytes, bytearray, memoryview]) -> None:
        """Ends the worker if this is not the content that was unpacked at `path`."""
        name = self._name(path)
        expected = self._sums.get(name)
        if expected is not None and crc32(content) != expected:
            self._leave(name)

    def check_all(self) -> None:
        """Ends the worker if any file has changed."""
        for name in self._sums:
            self.check_file(self._roots[0] + name)

    def check_file(self, path: str) -> None:
        """Ends the worker if the file at `path` has changed or is gone."""
        name = self._name(path)
        if name not in self._sums:
            return
        try:
            with open(path, "rb") as file:
                content = file.read()
        except OSError:
            self._leave(name)
        self.check(path, content)

    def _name(self, path: str) -> str:
        for root in self._roots:
            if path.startswith(root):
                return path[len(root) :]
        return ""

    def _leave(self, name: str) -> NoReturn:
        """Ends the worker; the agent will find the name."""
        try:
            with open(os.path.splitext(self._sums_path)[0] + CHANGED, "wb") as file:
                file.write(os.fsencode(name))
        except OSError:
            pass
        process.warn(f"{name} has changed since the code was unpacked into {self._roots[0]}. This worker exits.")
        if _getpid() != self._host_pid:
            # If only the child ended, nobody but its parent would notice.
            os.kill(self._host_pid, signal.SIGKILL)
        process.leave(exits.CODE_CHANGED)


class SourceLoader(importlib.machinery.SourceFileLoader):
    """Loads a source file, and checks it."""

    def path_stats(self, path: str) -> Mapping[str, Any]:
        """Raises OSError if the source can be checked, so that no compiled file is used."""
        if _code is not None and _code.holds(path):
            raise OSError
        return super().path_stats(path)

    def get_data(self, path: str) -> bytes:
        """The content of a file."""
        content = super().get_data(path)
        if _code is not None:
            _code.check(path, content)
        return content


class _ExtensionLoader(importlib.machinery.ExtensionFileLoader):
    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        if _code is not None:
            _code.check_file(self.path)
        return super().create_module(spec)


_LOADERS = (
    (_ExtensionLoader, importlib.machinery.EXTENSION_SUFFIXES),
    (SourceLoader, importlib.machinery.SOURCE_SUFFIXES),
    (importlib.machinery.SourcelessFileLoader, importlib.machinery.BYTECODE_SUFFIXES),
)


class _Finder(importlib.machinery.FileFinder):
    def find_spec(self, fullname: str, target: Optional[ModuleType] = None) -> Optional[importlib.machinery.ModuleSpec]:
        spec = super().find_spec(fullname, target)
        if (spec is None or spec.loader is None) and _code is not None:
            # Not found, or a folder without `__init__.py`: was it unpacked, and is it gone?
            stem = os.path.join(self.path, fullname.rpartition(".")[2])
            for path in (stem + ".py", os.path.join(stem, "__init__.py")):
                if not os.path.exists(path):
                    _code.check_file(path)
        return spec


def _finder_of(path: str) -> _Finder:
    """The finder for a path, for `sys.path_hooks`. Raises ImportError for a path that is not in the code folder."""
    if _code is None or not _code.contains(path) or not os.path.isdir(path):
        raise ImportError("not a folder of the step's code", path=path)
    return _Finder(path, *_LOADERS)


def begin(folder: str, sums_path: str, sums_crc32: int, host_pid: int) -> CheckedCode:
    """Checks imports from `folder` in this process from now on. Ends the worker if that is not possible."""
    global _code
    _code = CheckedCode(folder, sums_path, sums_crc32, host_pid)
    sys.path_hooks.insert(0, _finder_of)
    known: List[str] = [path for path in sys.path_importer_cache if _code.contains(path)]
    for path in known:
        del sys.path_importer_cache[path]
    return _code


def check_file(path: str) -> None:
    """Ends the worker if the file was unpacked, and has changed or is gone."""
    if _code is not None:
        _code.check_file(path)
