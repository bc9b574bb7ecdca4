"""The places of a step's inputs by name, with what scripts call of a dataset of Azure ML
(docs/reference/azure-ml/parallel-job.md#inputs-of-a-run).

The worker says the places in environment variables, so that processes which the script starts have them, too.
"""

from __future__ import annotations

import glob
import json
import os
import shutil
import tempfile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Iterator, List, Mapping, NoReturn, Optional, Tuple

__all__ = ["Input", "Mount", "Places"]

_DEFINITION = "MLTable"
_ENCODINGS = {
    "utf8": "utf-8-sig",
    "utf8bom": "utf-8-sig",
    "iso88591": "latin-1",
    "latin1": "cp1252",
    "ascii": "ascii",
    "utf16": "utf-16",
    "utf32": "utf-32",
    "windows1252": "cp1252",
}
_BY_SUFFIX = {
    ".csv": ("read_delimited", {}),
    ".tsv": ("read_delimited", {"delimiter": "\t"}),
    ".jsonl": ("read_json_lines", {}),
    ".parquet": ("read_parquet", {}),
}
_IN_RUN = "A ParallelRunStep gets the rows as the mini-batches of its run()"


class Places:
    """Like a dictionary, whose keys are the names of inputs (or outputs)."""

    def __init__(self, prefix: str, what: str, made_of: Any) -> None:
        """`prefix`: of the variables; `made_of`: makes a value of a name and a place."""
        self._prefix = prefix
        self._what = what
        self._made_of = made_of

    def __getitem__(self, name: str) -> Any:
        place = os.environ.get(self._prefix + name)
        if place is None:
            raise KeyError("The step has no %s %r. It has: %s" % (self._what, name, ", ".join(self) or "none"))
        return self._made_of(name, place)

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(name[len(self._prefix) :] for name in os.environ if name.startswith(self._prefix)))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._prefix + name in os.environ

    def get(self, name: str, default: Any = None) -> Any:
        """The value of a name, else `default`."""
        place = os.environ.get(self._prefix + name)
        return default if place is None else self._made_of(name, place)

    def keys(self) -> List[str]:
        """The names."""
        return list(self)

    def values(self) -> List[Any]:
        """The values, by name."""
        return [self[name] for name in self]

    def items(self) -> List[Tuple[str, Any]]:
        """The names and their values."""
        return [(name, self[name]) for name in self]

    def __repr__(self) -> str:
        return repr(dict(self.items()))


class Input(str):
    """The path of an input, as a text: what Azure ML gives for `as_mount()`. Its methods are those of a dataset."""

    name: str

    def __new__(cls, name: str, place: str) -> Input:
        """`name`: of the input; `place`: its path."""
        made = super().__new__(cls, place)
        made.name = name
        return made

    def to_path(self) -> List[str]:
        """The paths of its files."""
        files, steps = self._files()
        return _taken(files, [step for step in steps if not next(iter(step)).startswith("read_")], self.name)

    def download(self, target_path: Optional[str] = None, overwrite: bool = False, **more: Any) -> List[str]:
        """Copies its files into a folder (by default a new temporary one); returns their places. Raises FileExistsError
        unless `overwrite`.
        """
        folder = target_path or tempfile.mkdtemp(prefix="windrow-")
        root = str(self) if os.path.isdir(self) else os.path.dirname(self)
        places = []
        for file in self.to_path():
            below = os.path.relpath(file, root)
            place = os.path.join(folder, os.path.basename(file) if below.startswith("..") else below)
            if os.path.lexists(place) and not overwrite:
                raise FileExistsError("There is %s already; overwrite=True replaces it" % place)
            os.makedirs(os.path.dirname(place), exist_ok=True)
            shutil.copy2(file, place)
            places.append(place)
        return places

    def mount(self, mount_point: Optional[str] = None, **more: Any) -> Mount:
        """The input where it is, for `with`: nothing needs to be mounted."""
        self._need_path()
        return Mount(str(self))

    def to_pandas_dataframe(self, *arguments: Any, **more: Any) -> Any:
        """The rows of its files, read by pandas: of a table, or of files with the suffixes .csv, .tsv, .jsonl,
        .parquet. Raises RuntimeError for what only mini-batches support.
        """
        files, steps = self._files()
        read = next((step for step in steps if next(iter(step)).startswith("read_")), None)
        rest = [step for step in steps if step is not read]
        if read is None:
            suffixes = {os.path.splitext(file)[1].lower() for file in files}
            if len(suffixes) != 1 or not suffixes <= set(_BY_SUFFIX):
                raise RuntimeError(
                    "The input %r is no table, and its files have the suffixes %s; to_pandas_dataframe() reads those "
                    "of one kind: %s. Read the files of to_path() with a library of their format"
                    % (self.name, ", ".join(sorted(suffixes)) or "of no file", ", ".join(_BY_SUFFIX))
                )
            kind, options = _BY_SUFFIX[suffixes.pop()]
        else:
            kind, options = next(iter(read.items()))
        return _frame(kind, options or {}, files, rest, self.name)

    def _need_path(self) -> None:
        if "://" in self and not os.path.exists(self):
            raise RuntimeError(
                "The input %r is in a store, at %s, and the script gets its address: give the input the mode "
                "ro_mount or download (as_mount(), as_download()), or read the address with a library of the store"
                % (self.name, self)
            )

    def _files(self) -> Tuple[List[str], List[Dict[str, Any]]]:
        """Its files, in order, and the transformations of its MLTable file, if it has one."""
        self._need_path()
        definition = os.path.join(self, _DEFINITION) if os.path.isdir(self) else str(self)
        if os.path.basename(definition) != _DEFINITION or not os.path.isfile(definition):
            return _below(str(self)), []
        table = _parsed(definition, self.name)
        files = []  # type: List[str]
        for entry in table.get("paths") or []:
            ((kind, text),) = entry.items()
            place = os.path.normpath(os.path.join(os.path.dirname(definition), text))
            if "://" in text:
                raise RuntimeError("The table %r has files in a store (%s). %s" % (self.name, text, _IN_RUN))
            files += sorted(glob.glob(place, recursive=True)) if kind == "pattern" else _below(place)
        steps = [{step: None} if isinstance(step, str) else step for step in table.get("transformations") or []]
        return files, steps


class Mount:
    """An input that stands where it is."""

    def __init__(self, mount_point: str) -> None:
        """`mount_point`: its path."""
        self.mount_point = mount_point

    def start(self) -> None:
        """Does nothing."""

    def stop(self) -> None:
        """Does nothing."""

    def __enter__(self) -> Mount:
        """The mount itself."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Does nothing."""


def _below(place: str) -> List[str]:
    """The files of a folder, or the file itself."""
    if not os.path.isdir(place):
        return [place]
    found = [os.path.join(folder, name) for folder, _, names in os.walk(place) for name in names]
    return sorted(found)


def _parsed(definition: str, name: str) -> Mapping[str, Any]:
    """The content of an MLTable file. Those that Windrow writes are JSON."""
    with open(definition, encoding="utf-8") as file:
        text = file.read()
    try:
        return json.loads(text)  # type: ignore[no-any-return]
    except ValueError:
        pass
    try:
        import yaml
    except ImportError:
        raise RuntimeError(
            "The table %r has an MLTable file in YAML (%s), which needs PyYAML in this Python: add pyyaml to the "
            "step's environment. %s" % (name, definition, _IN_RUN)
        ) from None
    return yaml.safe_load(text)  # type: ignore[no-any-return]


def _taken(files: List[str], steps: List[Dict[str, Any]], name: str) -> List[str]:
    for step in steps:
        kind, value = next(iter(step.items()))
        if kind == "take":
            files = files[:value]
        elif kind == "skip":
            files = files[value:]
        elif kind != "extract_columns_from_partition_format":
            _refuse(kind, name)
    return files


def _refuse(kind: str, name: str) -> NoReturn:
    raise RuntimeError("%s of the dataset %r is done only for mini-batches. %s" % (kind, name, _IN_RUN))


def _frame(kind: str, options: Mapping[str, Any], files: List[str], steps: List[Dict[str, Any]], name: str) -> Any:
    import pandas as pd

    frames = []  # type: List[Any]
    for file in files:
        if kind == "read_parquet":
            frame = pd.read_parquet(file)
        elif kind == "read_json_lines":
            frame = pd.read_json(file, lines=True, encoding=_encoding(options, name))
        elif kind == "read_delimited":
            frame = _delimited(file, options, frames[0].columns if frames else None, name)
        else:
            _refuse(kind, name)
        frames.append(frame)
    if options.get("include_path_column"):
        for file, frame in zip(files, frames):
            frame.insert(0, "Path", file)
    rows = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()
    for step in steps:
        kind, value = next(iter(step.items()))
        columns = [value] if isinstance(value, str) else value
        if kind == "take":
            rows = rows.head(value)
        elif kind == "skip":
            rows = rows.iloc[value:].reset_index(drop=True)
        elif kind == "keep_columns":
            rows = rows[columns]
        elif kind == "drop_columns":
            rows = rows.drop(columns=columns)
        else:
            _refuse(kind, name)
    return rows


def _delimited(file: str, options: Mapping[str, Any], first: Any, name: str) -> Any:
    """Reads a delimited file. `first`: the columns of the first file; None while reading that file."""
    import pandas as pd

    header = options.get("header")
    bare = header == "no_header" or (header == "from_first_file" and first is not None)
    text = {} if options.get("infer_column_types", True) else {"dtype": str, "keep_default_na": False}  # type: Any
    frame = pd.read_csv(
        file,
        sep=options.get("delimiter", ","),
        header=None if bare else 0,
        encoding=_encoding(options, name),
        **text,
    )
    if header == "no_header":
        frame.columns = ["Column%d" % number for number in range(1, len(frame.columns) + 1)]
    elif header != "all_files_different_headers" and first is not None and len(first) == len(frame.columns):
        frame.columns = first
    return frame


def _encoding(options: Mapping[str, Any], name: str) -> str:
    said = str(options.get("encoding") or "utf8")
    if said not in _ENCODINGS:
        _refuse("encoding: %s" % said, name)
    return _ENCODINGS[said]
