"""`azureml.core.Datastore`, offered where the real package is not installed: a datastore of the master.

The master says where it is. The script reads and writes there with its own rights, so its sandbox counts as ever.
"""

from __future__ import annotations

import json
import os
import shutil

from ._agent import ask
from ._stand_ins import DATA, OUTPUT, Named, missing, names_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, NoReturn, Optional, Sequence

__all__ = ["Datastore"]

_DEFAULTS = ("workspaceblobstore", "default")
_KNOWN_TO_NOTEBOOK = "WINDROW_DATASTORES"
"""JSON: the name of the notebook's default one, and by name the folders that are datastores of the notebook alone."""
_WHY = DATA + "; " + OUTPUT


class Datastore(metaclass=Named):
    """A datastore: `Datastore.get(workspace, name)`."""

    why_absent = _WHY

    def __init__(self, workspace: Any, name: Optional[str] = None) -> None:
        """Without `name`, the default one. Raises NoAgent, RuntimeError for a name that the master does not have."""
        known = places()
        names = (_told().get("default"), *_DEFAULTS) if name is None else (name,)
        found = next((one for one in names if one in known), None)
        if found is None:
            asked, there = " or ".join(repr(one) for one in names if one), ", ".join(sorted(known)) or "none"
            raise RuntimeError(
                "The master has no datastore %s (it has: %s). Start it with --datastore NAME=PLACE, or give the data "
                "to the step as an input" % (asked, there)
            )
        self.name = found
        self.root = known[found]

    @classmethod
    def get(cls, workspace: Any, datastore_name: str) -> Datastore:
        """A datastore by name. `workspace` has no effect. Raises as the class."""
        return cls(workspace, datastore_name)

    @classmethod
    def get_default(cls, workspace: Any) -> Datastore:
        """The default datastore. Raises as the class."""
        return cls(workspace)

    def path(self, path: Optional[str] = None, data_reference_name: Optional[str] = None) -> DataPath:
        """A place in the datastore."""
        return DataPath(self, path or "")

    def upload(
        self, src_dir: str, target_path: Optional[str] = None, overwrite: bool = False, show_progress: bool = True
    ) -> DataPath:
        """Copies the files of a folder into the datastore. `overwrite`: replaces files; by default they stay. Raises
        RuntimeError where the script cannot write.
        """
        found = [os.path.join(folder, name) for folder, _, names in os.walk(src_dir) for name in names]
        return self.upload_files(sorted(found), src_dir, target_path, overwrite)

    def upload_files(
        self,
        files: Sequence[str],
        relative_root: Optional[str] = None,
        target_path: Optional[str] = None,
        overwrite: bool = False,
        show_progress: bool = True,
    ) -> DataPath:
        """Copies files into the datastore, under their paths below `relative_root`, else under their names. Each is on
        the disk, and whole, when it has its name. Otherwise as `upload`.
        """
        folder = self._folder((target_path or "").strip("/"))
        for file in files:
            below = os.path.relpath(file, relative_root) if relative_root else os.path.basename(file)
            if below.split(os.sep)[0] == os.pardir:
                below = os.path.basename(file)
            self._copy(file, os.path.join(folder, below), overwrite)
        return DataPath(self, target_path or "")

    def download(
        self, target_path: str, prefix: Optional[str] = None, overwrite: bool = False, show_progress: bool = True
    ) -> int:
        """Copies the files below `prefix` into a folder, under their own paths; returns how many. Raises RuntimeError
        where the script cannot read.
        """
        start = (prefix or "").lstrip("/")
        root, count = self._folder(""), 0
        for place in _files_below(os.path.join(root, os.path.dirname(start)), self._unreadable):
            below = os.path.relpath(place, root)
            target = os.path.join(target_path, below)
            if below.startswith(start) and (overwrite or not os.path.lexists(target)):
                os.makedirs(os.path.dirname(target), exist_ok=True)
                try:
                    shutil.copyfile(place, target)
                except PermissionError as error:
                    self._unreadable(error)
                count += 1
        return count

    def _folder(self, path: str) -> str:
        if not self.root.startswith("/"):
            raise RuntimeError(
                "The datastore %r is in a store, at %s, which scripts do not reach: %s" % (self.name, self.root, _WHY)
            )
        if not os.path.isdir(self.root):
            raise RuntimeError(
                "The datastore %r is at %s, which is not there for this script: %s" % (self.name, self.root, _WHY)
            )
        return os.path.join(self.root, path)

    def _copy(self, file: str, place: str, overwrite: bool) -> None:
        if os.path.lexists(place) and not overwrite:
            return
        begun = os.path.join(os.path.dirname(place), ".%s.%d.partial" % (os.path.basename(place)[:200], os.getpid()))
        with open(file, "rb") as source:
            try:
                os.makedirs(os.path.dirname(place), exist_ok=True)
                with open(begun, "wb") as copy:
                    shutil.copyfileobj(source, copy, 1 << 20)
                    copy.flush()
                    os.fsync(copy.fileno())
                os.replace(begun, place)
            except PermissionError as error:
                raise RuntimeError(
                    "The script may not write to %s, in the datastore %r: %s" % (error.filename, self.name, OUTPUT)
                ) from error

    def _unreadable(self, error: OSError) -> NoReturn:
        if not isinstance(error, PermissionError):
            raise error
        raise RuntimeError(
            "The script may not read %s, in the datastore %r: %s" % (error.filename, self.name, DATA)
        ) from error

    def __getattr__(self, name: str) -> NoReturn:
        """Raises AttributeError."""
        raise missing("Datastore", name, _WHY)

    def __repr__(self) -> str:
        """Shows name and place."""
        return "Datastore(%r, %r)" % (self.name, self.root)


class DataPath:
    """A place in a datastore, as the path of a dataset."""

    def __init__(self, datastore: Datastore, path_on_datastore: str = "", name: Optional[str] = None) -> None:
        """`path_on_datastore`: the path within the datastore."""
        self.datastore = datastore
        self.path_on_datastore = path_on_datastore
        self.name = name

    @property
    def location(self) -> str:
        """The path or address of the place."""
        return "%s/%s" % (self.datastore.root.rstrip("/"), self.path_on_datastore.lstrip("/"))


def places() -> Dict[str, str]:
    """The folder or address of each datastore, by name. Raises NoAgent."""
    return {**ask({"do": "datastores"})[0]["places"], **_told().get("places", {})}


def _told() -> Dict[str, Any]:
    told: Dict[str, Any] = json.loads(os.environ.get(_KNOWN_TO_NOTEBOOK) or "{}")
    return told


def _files_below(place: str, refuse: Callable[[OSError], NoReturn]) -> Sequence[str]:
    found = [os.path.join(folder, name) for folder, _, names in os.walk(place, onerror=refuse) for name in names]
    return sorted(found)


__getattr__ = names_of(__name__)
