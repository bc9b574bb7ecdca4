"""Datasets: lists of files, and tables. What a plain path cannot say is written as an MLTable file.

Reference: mltable.md; parallel-job.md, section 1.4.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
import re
from collections.abc import Sequence
from typing import Any, Self

import yaml

from windrow.errors import UsageError
from windrow.ml.places import calling_place
from windrow.ml.v1.named import NamedInput, Output
from windrow.ml.v1.stores import DataPath, DataReference, Datastore

_PATTERN = re.compile(r"[*?\[]")
_KEYS = re.compile(r"\{(\w+)(?::[^{}]*)?\}")


class _Dataset:
    def __init__(self, paths: Sequence[str], steps: Sequence[Any], partition_format: str | None = None) -> None:
        self.paths = tuple(paths)
        self.steps = list(steps)
        self.partition_keys: list[str] = _KEYS.findall(partition_format or "")
        self.name: str | None = None
        self.description = ""
        self.version = 1
        self.place = calling_place()

    def as_named_input(self, name: str) -> NamedInput:
        """As the input of a step."""
        return NamedInput(name, self)

    def as_mount(self, path_on_compute: str | None = None) -> NamedInput:
        """As an input that is read in place."""
        return NamedInput(self.name or "dataset", self, "mount")

    def as_download(self, path_on_compute: str | None = None) -> NamedInput:
        """As an input that is copied to the script."""
        return NamedInput(self.name or "dataset", self, "download")

    def register(self, workspace: Any, name: str, description: str | None = None, **more: Any) -> Self:
        """Keep it in the workspace object under a name."""
        self.name = name
        self.description = description or ""
        known = workspace.datasets.get(name)
        self.version = known.version + 1 if known is not None and known is not self else 1
        workspace.datasets[name] = self
        return self

    def with_step(self, step: Any) -> Self:
        """A dataset with one transformation more."""
        made = copy.copy(self)
        made.steps = [*self.steps, step]
        return made

    def take(self, count: int) -> Self:
        """The first ones."""
        return self.with_step({"take": count})

    def skip(self, count: int) -> Self:
        """All but the first ones."""
        return self.with_step({"skip": count})

    def take_sample(self, probability: float, seed: int | None = None) -> Self:
        """A sample."""
        return self.with_step({"take_random_sample": {"probability": probability, "seed": seed or 0}})

    def reference(self, folder: str) -> dict[str, Any]:
        """What a pipeline's data reference says of it. `folder`: where MLTable files are written."""
        plain = self.plain_path()
        return {"path": plain} if plain else {"path": self.write_mltable(folder), "type": "mltable"}

    def plain_path(self) -> str:
        """The path, where the dataset is nothing more than that; "" else."""
        if len(self.paths) != 1 or self.steps or _PATTERN.search(self.paths[0]):
            return ""
        return self.paths[0]

    def definition(self) -> dict[str, Any]:
        """The content of its MLTable file."""
        entries = []
        for path in self.paths:
            pattern, is_folder = _PATTERN.search(path), os.path.isdir(path) or path.endswith("/")
            entries.append({"pattern" if pattern else "folder" if is_folder else "file": path})
        return {"type": "mltable", "paths": entries, "transformations": self.steps}

    def write_mltable(self, folder: str) -> str:
        """A folder with its MLTable file, the same one for equal datasets."""
        definition = self.definition()
        digest = hashlib.sha256(json.dumps(definition, sort_keys=True).encode()).hexdigest()
        place = os.path.join(folder, digest[:24])
        os.makedirs(place, exist_ok=True)
        path = os.path.join(place, "MLTable")
        temporary = f"{path}.{os.getpid()}"
        with open(temporary, "w", encoding="utf-8") as file:
            yaml.safe_dump(definition, file, sort_keys=False, allow_unicode=True)
        os.replace(temporary, path)
        return place


class FileDataset(_Dataset):
    """A list of files."""

    def __init__(self, paths: Sequence[str], partition_format: str | None = None) -> None:
        """`partition_format`: names parts of the paths, from their end."""
        steps = [{"extract_columns_from_partition_format": {"partition_format": _from_root(partition_format)}}]
        super().__init__(paths, steps if partition_format else [], partition_format)

    def to_path(self) -> list[str]:
        """The files that are local."""
        import glob

        found: list[str] = []
        for path in self.paths:
            inside = os.path.join(path, "**") if os.path.isdir(path) else path
            found += sorted(file for file in glob.glob(inside, recursive=True) if os.path.isfile(file))
        return found


class TabularDataset(_Dataset):
    """A table."""

    def plain_path(self) -> str:
        """A table says how it is read."""
        return ""

    def keep_columns(self, columns: Any, validate: bool = False) -> Self:
        """With these columns only."""
        return self.with_step({"keep_columns": columns})

    def drop_columns(self, columns: Any) -> Self:
        """Without these columns."""
        return self.with_step({"drop_columns": columns})

    def partition_by(
        self, partition_keys: Sequence[str], target: Any = None, name: str | None = None, **more: Any
    ) -> Self:
        """A table that can be divided by these columns. Nothing is copied: rows are grouped when a step divides it."""
        made = copy.copy(self)
        made.partition_keys = list(partition_keys)
        made.name = name or self.name
        return made

    def to_pandas_dataframe(self, *arguments: Any, **more: Any) -> Any:
        """The rows of local CSV, Parquet or JSON lines files, read by pandas.

        Raises UsageError for a table with further steps.
        """
        import pandas as pd

        read = next(iter(self.steps[0]))
        if len(self.steps) > 1:
            raise UsageError(
                "to_pandas_dataframe reads files as they are; this table has further steps: "
                f"{', '.join(next(iter(step)) for step in self.steps[1:])}. Run it through a step."
            )
        options = self.steps[0][read] or {}
        frames = []
        for file in FileDataset(self.paths).to_path():
            if read == "read_parquet":
                frames.append(pd.read_parquet(file))
            elif read == "read_json_lines":
                frames.append(pd.read_json(file, lines=True))
            else:
                header = None if options.get("header") == "no_header" else 0
                frames.append(pd.read_csv(file, sep=options.get("delimiter", ","), header=header))
        if not frames:
            raise UsageError(f"to_pandas_dataframe: there is no local file at {', '.join(self.paths)}.")
        return pd.concat(frames, ignore_index=True)


class _Files:
    @staticmethod
    def from_files(path: Any, validate: bool = True, partition_format: str | None = None, **more: Any) -> FileDataset:
        """Files at a path or pattern, or at several: local, addresses, (datastore, path), or `datastore.path(...)`."""
        return FileDataset(_paths(path), partition_format)

    @staticmethod
    def upload_directory(src_dir: str, target: Any, pattern: str | None = None, **more: Any) -> FileDataset:
        """The files of a folder, copied into a datastore."""
        store, path = target if isinstance(target, tuple) else (target.datastore, target.path_on_datastore)
        store.upload(src_dir, path)
        return FileDataset([store.place_of(path)])


class _Tables:
    @staticmethod
    def from_delimited_files(
        path: Any,
        validate: bool = True,
        include_path: bool = False,
        infer_column_types: bool = True,
        set_column_types: dict[str, Any] | None = None,
        separator: str = ",",
        header: Any = True,
        partition_format: str | None = None,
        support_multi_line: bool = False,
        empty_as_string: bool = False,
        encoding: str = "utf8",
        **more: Any,
    ) -> TabularDataset:
        """Delimited text files."""
        options = {
            "delimiter": separator,
            "header": _header(header),
            "encoding": encoding,
            "support_multi_line": support_multi_line,
            "empty_as_string": empty_as_string,
            "include_path_column": include_path,
        }
        if not infer_column_types:
            options["infer_column_types"] = False
        return _table(path, "read_delimited", options, partition_format, set_column_types)

    @staticmethod
    def from_parquet_files(
        path: Any,
        validate: bool = True,
        include_path: bool = False,
        set_column_types: dict[str, Any] | None = None,
        partition_format: str | None = None,
        **more: Any,
    ) -> TabularDataset:
        """Parquet files."""
        return _table(path, "read_parquet", {"include_path_column": include_path}, partition_format, set_column_types)

    @staticmethod
    def from_json_lines_files(
        path: Any,
        validate: bool = True,
        include_path: bool = False,
        set_column_types: dict[str, Any] | None = None,
        partition_format: str | None = None,
        encoding: str = "utf8",
        **more: Any,
    ) -> TabularDataset:
        """Files of JSON lines."""
        options = {"include_path_column": include_path, "encoding": encoding}
        return _table(path, "read_json_lines", options, partition_format, set_column_types)


class Dataset:
    """`Dataset.File`, `Dataset.Tabular`, and those that a workspace keeps."""

    File = _Files
    Tabular = _Tables

    @staticmethod
    def get_by_name(workspace: Any, name: str, version: Any = "latest") -> Any:
        """One that was registered with this workspace object, else a registered data asset of the master."""
        known = workspace.datasets.get(name)
        if known is not None:
            return known
        newest = version in (None, "latest")
        return FileDataset([f"azureml:{name}@latest" if newest else f"azureml:{name}:{version}"])


class DataType:
    """Types of columns, for `set_column_types`."""

    def __init__(self, name: Any) -> None:
        """`name`: as MLTable names it."""
        self.name = name

    @staticmethod
    def to_string() -> DataType:
        """Text."""
        return DataType("string")

    @staticmethod
    def to_long() -> DataType:
        """Whole numbers."""
        return DataType("int")

    @staticmethod
    def to_float(decimal_mark: str = ".") -> DataType:
        """Numbers."""
        return DataType("float")

    @staticmethod
    def to_bool() -> DataType:
        """True or false."""
        return DataType("boolean")

    @staticmethod
    def to_datetime(formats: Any = None) -> DataType:
        """Times."""
        wanted = [formats] if isinstance(formats, str) else list(formats or ["%Y-%m-%d %H:%M:%S"])
        return DataType({"datetime": {"formats": wanted}})


def _table(
    path: Any, read: str, options: dict[str, Any], partition_format: str | None, types: dict[str, Any] | None
) -> TabularDataset:
    steps: list[Any] = [{read: options}]
    if types:
        converted = [
            {"columns": [column], "column_type": kind.name if isinstance(kind, DataType) else kind}
            for column, kind in types.items()
        ]
        steps.append({"convert_column_types": converted})
    if partition_format:
        steps.append({"extract_columns_from_partition_format": {"partition_format": _from_root(partition_format)}})
    return TabularDataset(_paths(path), steps, partition_format)


def _header(header: Any) -> str:
    if isinstance(header, bool):
        return "all_files_same_headers" if header else "no_header"
    name = str(getattr(header, "name", header)).lower()
    return {"no_headers": "no_header", "only_first_file_has_headers": "from_first_file"}.get(
        name, "all_files_same_headers"
    )


def _from_root(partition_format: str | None) -> str:
    text = partition_format or ""
    return text if text.startswith("/") else f"/{text}"


def _paths(path: Any) -> list[str]:
    """The local paths and addresses that a dataset's `path` means."""
    if isinstance(path, (str, os.PathLike)):
        text = os.fspath(path)
        return [text if "://" in text or text.startswith("azureml:") else _absolute(text)]
    if isinstance(path, (DataReference, DataPath)):
        return [path.location]
    if isinstance(path, tuple) and len(path) == 2 and isinstance(path[0], Datastore):
        below = path[1] if isinstance(path[1], (list, tuple)) else [path[1]]
        return [path[0].place_of(one) for one in below]
    if isinstance(path, (list, tuple)):
        return [found for one in path for found in _paths(one)]
    if isinstance(path, Output):
        raise UsageError(f"{path.name} is the output of a step: give it to the next step, not to a dataset.")
    raise UsageError(
        f"a dataset's path is {type(path).__name__}; allowed are text, (datastore, path), datastore.path(...), "
        "and lists."
    )


def _absolute(text: str) -> str:
    place = os.path.abspath(text)
    return place + "/" if text.endswith("/") else place
