"""`azureml.core.Dataset`, offered where the real package is not installed: data that is registered, or at a path.

A data asset of the master is read where it is. Where the script cannot read it there, the agent opens its files, if
scripts of the node may have them, and they are copied into the worker's folder.
"""

from __future__ import annotations

import glob
import os

from ._agent import NoAgent, ask, bring, readable
from ._stand_ins import DATA, OUTPUT, Named, missing, names_of
from ._told import TOLD
from .inputs import Input

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, NoReturn, Optional, Tuple, Union

__all__ = ["Dataset"]

_REGISTERED = "a script registers no data. Give the output a name to be registered by, or register it in the notebook"
_HEADERS = ("no_header", "from_first_file", "all_files_different_headers", "all_files_same_headers")
"""By the numbers of `PromoteHeadersBehavior`."""


class Data(Input):
    """Files or a table: a path, as a text, with the methods of a dataset."""

    version: Union[int, str, None] = None
    description = ""

    def __init__(self, name: str, place: str) -> None:
        """`place`: its path; where there are several, the first."""
        self.id = self.name = name
        self.tags: Dict[str, str] = {}
        self._asset: Dict[str, Any] = {}
        self._places: List[str] = []
        self._steps: List[Dict[str, Any]] = []

    def take(self, count: int) -> Data:
        """Keeps the first files or rows."""
        return self._with({"take": count})

    def skip(self, count: int) -> Data:
        """Leaves out the first files or rows."""
        return self._with({"skip": count})

    def keep_columns(self, columns: Any, validate: bool = False) -> Data:
        """Keeps only these columns."""
        return self._with({"keep_columns": columns})

    def drop_columns(self, columns: Any) -> Data:
        """Leaves out these columns."""
        return self._with({"drop_columns": columns})

    def _with(self, step: Dict[str, Any]) -> Data:
        made = type(self)(self.name, str(self))
        made.__dict__.update(self.__dict__)
        made._steps = [*self._steps, step]
        return made

    def _files(self) -> Tuple[List[str], List[Dict[str, Any]]]:
        if not self._places:
            files, steps = super()._files()
            return files, [*steps, *self._steps]
        files = []
        for place in self._places:
            if "://" in place:
                _refuse_store(place)
            found = sorted(glob.glob(place, recursive=True)) if glob.has_magic(place) else [place]
            if not found:
                raise FileNotFoundError("There is no file at %s that the script may read: %s" % (place, DATA))
            for one in found:
                files += files_below(one)
        return files, self._steps

    def _need_path(self) -> None:
        known = self._asset
        if not known or str(self) == known["path"]:
            if "://" in self:
                _refuse_store(str(self))
            return
        bring({"do": "open_data", "name": known["name"], "version": known["version"]}, os.path.dirname(str(self)))

    def __getattr__(self, name: str) -> NoReturn:
        """Raises AttributeError."""
        raise missing("Dataset", name, _REGISTERED if name in ("register", "unregister_all_versions") else DATA)


def files_below(place: str) -> List[str]:
    """The file, or the files of a folder. Raises FileNotFoundError, PermissionError."""
    if not os.path.isdir(place):
        with open(place, "rb"):
            return [place]

    def refuse(error: OSError) -> NoReturn:
        raise error

    found = [os.path.join(folder, name) for folder, _, names in os.walk(place, onerror=refuse) for name in names]
    return sorted(found)


class _Files(metaclass=Named):
    why_absent = OUTPUT

    @staticmethod
    def from_files(path: Any, validate: bool = True, partition_format: Optional[str] = None, **more: Any) -> Data:
        """Files at a path or pattern, or at several: paths, `(datastore, path)` or `datastore.path(...)`."""
        if partition_format:
            _refuse("partition_format")
        return _data(path, [])


class _Tables(metaclass=Named):
    why_absent = OUTPUT

    @staticmethod
    def from_delimited_files(
        path: Any,
        validate: bool = True,
        include_path: bool = False,
        infer_column_types: bool = True,
        set_column_types: Any = None,
        separator: str = ",",
        header: Any = True,
        partition_format: Optional[str] = None,
        support_multi_line: bool = False,
        empty_as_string: bool = False,
        encoding: str = "utf8",
    ) -> Data:
        """Delimited text files, which `to_pandas_dataframe` reads."""
        if partition_format or set_column_types or empty_as_string:
            _refuse("partition_format, set_column_types and empty_as_string")
        number = getattr(header, "value", header)
        options = {
            "delimiter": separator,
            "header": _HEADERS[3 if number is True else number],
            "encoding": encoding,
            "infer_column_types": infer_column_types,
            "include_path_column": include_path,
        }
        return _data(path, [{"read_delimited": options}])

    @staticmethod
    def from_parquet_files(path: Any, validate: bool = True, include_path: bool = False, **more: Any) -> Data:
        """Parquet files."""
        return _table(path, "read_parquet", include_path, more)

    @staticmethod
    def from_json_lines_files(path: Any, validate: bool = True, include_path: bool = False, **more: Any) -> Data:
        """Files of JSON lines."""
        return _table(path, "read_json_lines", include_path, more)


class Dataset(metaclass=Named):
    """Finds data by its name, or at paths."""

    why_absent = DATA
    File = _Files
    Tabular = _Tables

    @staticmethod
    def get_by_name(workspace: Any, name: str, version: Union[int, str] = "latest") -> Data:
        """A data asset of the master. `workspace` has no effect. Raises FileNotFoundError for one that there is not."""
        wanted = "" if version in (None, "latest") else str(version)
        try:
            known = ask({"do": "data", "name": name, "version": wanted})[0]["data"]
        except NoAgent as error:
            raise RuntimeError("The data asset %r cannot be looked up: %s" % (name, error)) from error
        place = known["path"].rstrip("/") or "/"
        if "://" not in place and not readable(place):
            folder = os.path.join(TOLD["scratch_folder"], "data", known["name"], known["version"])
            place = os.path.join(folder, os.path.basename(place))
        made = Data(known["name"], place)
        made._asset = {**known, "path": known["path"].rstrip("/") or "/"}
        made.id = "%s:%s" % (known["name"], known["version"])
        made.version = int(known["version"]) if known["version"].isdigit() else known["version"]
        made.tags, made.description = dict(known["tags"]), known["description"]
        return made

    get = get_by_name

    @staticmethod
    def get_by_id(workspace: Any, id: str, **more: Any) -> Data:
        """A data asset by the id that `Dataset.get_by_name` gives it, `name:version`. Raises FileNotFoundError."""
        name, _, version = id.partition(":")
        return Dataset.get_by_name(workspace, name, version or "latest")


def _data(path: Any, steps: List[Dict[str, Any]]) -> Data:
    places = [_place(one) for one in (path if isinstance(path, (list, set)) else [path])]
    if not places:
        raise ValueError("A dataset needs a path")
    made = Data("dataset", places[0])
    made._places, made._steps = places, steps
    return made


def _place(path: Any) -> str:
    if isinstance(path, tuple):
        store, below = path
        path = store.path(below)
    place = str(getattr(path, "location", path))
    return place if "://" in place else os.path.abspath(place)


def _table(path: Any, kind: str, include_path: bool, more: Dict[str, Any]) -> Data:
    if any(more.values()):
        _refuse(", ".join(name for name, value in more.items() if value))
    return _data(path, [{kind: {"include_path_column": include_path}}])


def _refuse(what: str) -> NoReturn:
    raise RuntimeError("%s of a dataset in a script is done only for inputs of a step: %s" % (what, DATA))


def _refuse_store(place: str) -> NoReturn:
    raise RuntimeError("%s is in a store, which scripts do not reach: %s" % (place, DATA))


__getattr__ = names_of(__name__)
