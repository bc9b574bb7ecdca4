"""Datasets: lists of files, and tables. Whatever a plain path cannot express is written as an MLTable file.

Reference: docs/reference/azure-ml/mltable.md; docs/reference/azure-ml/parallel-job.md#inputs-and-outputs.
"""

from __future__ import annotations

import copy
import fnmatch
import hashlib
import json
import os
import re
from collections.abc import Sequence
from typing import Any, Self

from windrow.common.trees import walk
from windrow.errors import UsageError
from windrow.ml.places import calling_place
from windrow.ml.v1.absent import Refusing, RefusingType, tell_no_effect
from windrow.ml.v1.asset_names import version_of
from windrow.ml.v1.bindings import NamedInput, Output
from windrow.ml.v1.datastores import DataPath, DataReference, Datastore
from windrow.ml.v1.local_data import copy_files, local_files, read_frame
from windrow.ml.v1.table_options import DataType
from windrow.sdk.asset import Asset
from windrow.spec.reading.problems import did_you_mean, listed
from windrow.spec.tables.mltable import HEADERS, PLAIN_KEY, V1_VALUE
from windrow.spec.v1.data import is_file_name

_PATTERN = re.compile(r"[*?\[]")
_KEYS = re.compile(r"\{(\w+)(?::[^{}]*)?\}")
PARTITION_KEYS = "partition_keys"
"""The key in the `metadata` of a dataset's MLTable file."""


class _Dataset(Refusing):
    def __init__(self, paths: Sequence[str], steps: Sequence[Any], partition_format: str | None = None) -> None:
        self.paths = tuple(paths)
        self.steps = list(steps)
        self.partition_keys: list[str] = _KEYS.findall(partition_format or "")
        self.name: str | None = None
        self.description = ""
        self.tags: dict[str, str] = {}
        self.version: int | str = 1
        self.registered = ""
        """Its reference, if it is a data asset of the master, and nothing is done to it: `azureml:<name>:<version>`."""
        self.asset_place: tuple[str, str] | None = None
        """The type and the path of that data asset."""
        self.place = calling_place()

    def as_named_input(self, name: str) -> NamedInput:
        """Return the dataset as an input of a step."""
        return NamedInput(name, self)

    def as_mount(self, path_on_compute: str | None = None) -> NamedInput:
        """Return an input that is read in place."""
        return NamedInput(self.name or "dataset", self, "mount", path_on_compute)

    def as_download(self, path_on_compute: str | None = None) -> NamedInput:
        """Return an input that is copied to the script."""
        return NamedInput(self.name or "dataset", self, "download", path_on_compute)

    def register(
        self,
        workspace: Any,
        name: str,
        description: str | None = None,
        tags: dict[str, str] | None = None,
        create_new_version: bool = False,
    ) -> Self:
        """Register the dataset with the master as a data asset, which other notebooks find by its name. If another
        dataset has the name, `create_new_version` makes this one its next version; otherwise raises UsageError. Raises
        RequestRefused, for example if there is nothing at its path.
        """
        kind, path = self.asset_place or self._place_of_asset(workspace.tables_folder)
        known = workspace.datasets
        wanted = Asset("data", known.name_of(name), "", kind, path, False, description or "", tags or {})
        newest, wanted = known.newest(name), known.placed(wanted)
        same = newest is not None and (newest.type, newest.path) == (wanted.type, wanted.path)
        if newest is not None and not same and not create_new_version:
            raise UsageError(
                f"The workspace has another dataset {name!r} (version {newest.version}): pass create_new_version=True "
                "to make this one its next version, or take another name."
            )
        if same and (description or tags) and (description or "", tags or {}) != (newest.description, newest.tags):
            tell_no_effect(
                f"register({name!r}): description and tags",
                f"the same data is version {newest.version} already, and a version never changes",
            )
        # A dataset that was registered before is a version already, and versions never change.
        made = self if self.name is None else copy.copy(self)
        made.become(newest if same else known.register(wanted))
        return made

    def become(self, asset: Asset) -> None:
        """Stand for a data asset of the master, which holds the same data."""
        self.name, self.version = asset.name, version_of(asset)
        self.description, self.tags = asset.description, dict(asset.tags)
        self.registered, self.asset_place = asset.reference, (asset.type, asset.path)

    def _place_of_asset(self, folder: str) -> tuple[str, str]:
        """The type and the path to register. `folder`: where MLTable files are written."""
        path = self._own_path()
        if not path:
            # Relative: the file is of this machine, and is uploaded to a served master.
            return "mltable", os.path.relpath(self.write_mltable(folder))
        is_file = os.path.isfile(path) or (not os.path.isdir(path) and is_file_name(path.rpartition("/")[2]))
        return ("uri_file", path) if is_file else ("uri_folder", path.rstrip("/"))

    def with_step(self, step: Any) -> Self:
        """Return a dataset with one more transformation."""
        made = copy.copy(self)
        made.steps = [*self.steps, step]
        made.registered, made.asset_place = "", None
        return made

    def take(self, count: int) -> Self:
        """Keep only the first `count` files or rows."""
        return self.with_step({"take": count})

    def skip(self, count: int) -> Self:
        """Leave out the first `count` files or rows."""
        return self.with_step({"skip": count})

    def take_sample(self, probability: float, seed: int | None = None) -> Self:
        """Keep a random sample of the files or rows."""
        return self.with_step({"take_random_sample": {"probability": probability, "seed": seed or 0}})

    def reference(self, folder: str) -> dict[str, Any]:
        """The entry for the dataset among a pipeline's data references. `folder`: where MLTable files are written."""
        plain = self.plain_path()
        return {"path": plain} if plain else {"path": self.write_mltable(folder), "type": "mltable"}

    def plain_path(self) -> str:
        """The path, if the dataset is nothing but a path; else ""."""
        return self.registered or self._own_path()

    def _own_path(self) -> str:
        if len(self.paths) != 1 or self.steps or _PATTERN.search(self.paths[0]):
            return ""
        return self.paths[0]

    def definition(self) -> dict[str, Any]:
        """The content of the dataset's MLTable file."""
        entries = []
        for path in self.paths:
            pattern, is_folder = _PATTERN.search(path), os.path.isdir(path) or path.endswith("/")
            entries.append({"pattern" if pattern else "folder" if is_folder else "file": path})
        # What partition_by says is no transformation, and `metadata` is free.
        metadata: dict[str, Any] = {PARTITION_KEYS: self.partition_keys} if self.partition_keys else {}
        if any("read_delimited" in step for step in self.steps):
            metadata[PLAIN_KEY] = V1_VALUE
        more = {"metadata": metadata} if metadata else {}
        return {"type": "mltable", "paths": entries, "transformations": self.steps, **more}

    def write_mltable(self, folder: str) -> str:
        """Write the dataset's MLTable file; return its folder, which equal datasets share."""
        definition = self.definition()
        digest = hashlib.sha256(json.dumps(definition, sort_keys=True).encode()).hexdigest()
        place = os.path.join(folder, digest[:24])
        os.makedirs(place, exist_ok=True)
        path = os.path.join(place, "MLTable")
        temporary = f"{path}.{os.getpid()}"
        with open(temporary, "w", encoding="utf-8") as file:
            # JSON is YAML, too, and scripts read it without PyYAML (Run.input_datasets).
            json.dump(definition, file, indent=2, ensure_ascii=False)
        os.replace(temporary, path)
        return place


class FileDataset(_Dataset):
    """A list of files."""

    def __init__(self, paths: Sequence[str], partition_format: str | None = None) -> None:
        """`partition_format`: names parts of the paths, counted from the end."""
        steps = [{"extract_columns_from_partition_format": {"partition_format": _from_root(partition_format)}}]
        super().__init__(paths, steps if partition_format else [], partition_format)

    def to_path(self) -> list[str]:
        """The local files. Raises UsageError for a sample."""
        return [file.path for file in local_files(self.paths, self.steps)]

    def download(self, target_path: str | None = None, overwrite: bool = False, **more: Any) -> list[str]:
        """Copy its local files into a folder (by default a new temporary one), under their paths below the dataset's;
        return their places. Raises UsageError for files that exist already, and if no file is local."""
        files = local_files(self.paths, self.steps)
        if not files:
            raise UsageError(
                f"download: there is no local file at {', '.join(self.paths)}. Fetch remote data with the tools "
                "of its store, or read it in a step."
            )
        return copy_files(files, target_path, overwrite=overwrite)


class TabularDataset(_Dataset):
    """A table."""

    def _own_path(self) -> str:
        """Empty: a table is written as an MLTable file, which says how to read it."""
        return ""

    def keep_columns(self, columns: Any, validate: bool = False) -> Self:
        """Keep only these columns."""
        return self.with_step({"keep_columns": columns})

    def drop_columns(self, columns: Any) -> Self:
        """Leave out these columns."""
        return self.with_step({"drop_columns": columns})

    def partition_by(
        self,
        partition_keys: Sequence[str],
        target: Any = None,
        name: str | None = None,
        show_progress: bool = True,
        partition_as_file_dataset: bool = False,
    ) -> Self:
        """Return a table that can be divided by these columns. Nothing is copied: rows are grouped when a step
        divides the table. Raises UsageError for partition_as_file_dataset, because there are no files.
        """
        if partition_as_file_dataset:
            raise UsageError(
                "partition_by copies nothing, so there are no files for partition_as_file_dataset=True: leave it out, "
                "and give partition_keys to the ParallelRunConfig, whose script then gets a DataFrame for each group."
            )
        made = copy.copy(self)
        made.partition_keys = list(partition_keys)
        made.asset_place = None
        made.name = name or self.name
        return made

    def to_pandas_dataframe(self, *arguments: Any, **more: Any) -> Any:
        """The rows of local CSV, Parquet or JSON lines files, read by pandas.

        Raises UsageError for a table with steps other than `take`, `skip`, `keep_columns`, `drop_columns`.
        """
        files = [file.path for file in local_files(self.paths)]
        if not files:
            raise UsageError(f"to_pandas_dataframe: there is no local file at {', '.join(self.paths)}.")
        return read_frame(files, self.steps)

    def get_partition_key_values(self, partition_keys: Sequence[str] | None = None) -> list[dict[str, Any]]:
        """The distinct values of its partition keys, or of some of them, in the order of the rows.

        Raises UsageError as `to_pandas_dataframe`, and for a key that the dataset is not divided by.
        """
        keys = list(self.partition_keys if partition_keys is None else partition_keys)
        for key in keys:
            if key not in self.partition_keys:
                raise UsageError(
                    f"{key!r} is not a partition key of the dataset.{did_you_mean(key, self.partition_keys)} Its keys: "
                    f"{listed(self.partition_keys)}"
                )
        if not keys:
            return []
        found: list[dict[str, Any]] = self.to_pandas_dataframe()[keys].drop_duplicates().to_dict("records")
        return found


class _Files(metaclass=RefusingType):
    @staticmethod
    def from_files(
        path: Any, validate: bool = True, partition_format: str | None = None, is_file: bool = False
    ) -> FileDataset:
        """Files at a path or pattern, or at several: local, addresses, (datastore, path), or `datastore.path(...)`."""
        return FileDataset(_paths(path), partition_format)

    @staticmethod
    def upload_directory(
        src_dir: str, target: Any, pattern: str | None = None, overwrite: bool = False, show_progress: bool = True
    ) -> FileDataset:
        """Copy the files of a folder into a datastore. `pattern`: only files whose path matches, as in `fnmatch`;
        `overwrite`: as in `Datastore.upload`.
        """
        store, path = _target(target)
        if pattern is None:
            store.upload(src_dir, path, overwrite)
        else:
            found = [os.path.join(folder, name) for folder, _, names in walk(src_dir) for name in names]
            wanted = [file for file in sorted(found) if fnmatch.fnmatchcase(os.path.abspath(file), pattern)]
            if not wanted:
                raise UsageError(f"upload_directory: no path of a file below {src_dir} matches {pattern!r}.")
            store.upload_files(wanted, src_dir, path, overwrite)
        return FileDataset([store.place_of(path)])


class _Tables(metaclass=RefusingType):
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
        invalid_lines: str = "error",
        encoding: str = "utf8",
    ) -> TabularDataset:
        """Files of JSON lines."""
        options = {"include_path_column": include_path, "invalid_lines": invalid_lines, "encoding": encoding}
        return _table(path, "read_json_lines", options, partition_format, set_column_types)

    @staticmethod
    def register_pandas_dataframe(
        dataframe: Any,
        target: Any,
        name: str,
        description: str | None = None,
        tags: dict[str, str] | None = None,
        show_progress: bool = True,
        row_group_size: int | None = None,
        make_target_path_unique: bool = True,
    ) -> TabularDataset:
        """Write the rows as a Parquet file into a datastore, and keep it as the next version of a dataset.

        `target`: a datastore, `(datastore, path)` or `datastore.path(...)`. The file's folder is there, named after its
        content; with `make_target_path_unique=False` the file is in `path` itself. The index is left out. Raises
        UsageError for a datastore that is not a folder of this machine.
        """
        store, path = _target(target)
        if store.workspace is None:
            raise UsageError(
                f"register_pandas_dataframe: the datastore {store.name} belongs to no workspace. Get it from one: "
                "ws.get_default_datastore(), or Datastore.get(ws, NAME)."
            )
        content = dataframe.to_parquet(index=False, row_group_size=row_group_size)
        digest = hashlib.sha256(content).hexdigest()[:24]
        below = f"{path or 'managed-dataset'}/{digest}" if make_target_path_unique or not path else path
        place = store.write(f"{below}/{name}.parquet", content)
        made = _Tables.from_parquet_files(place)
        return made.register(store.workspace, name, description, tags, create_new_version=True)


def _target(target: Any) -> tuple[Datastore, str]:
    """The datastore that data is to be written to, and the path in it."""
    if isinstance(target, Datastore):
        return target, ""
    if isinstance(target, tuple) and len(target) == 2 and isinstance(target[0], Datastore):
        return target[0], str(target[1] or "").strip("/")
    if isinstance(target, (DataReference, DataPath)):
        return target.datastore, (target.path_on_datastore or "").strip("/")
    raise UsageError(
        f"The target is {type(target).__name__}; it must be a datastore, (datastore, path) or datastore.path(...)."
    )


class Dataset:
    """Makes datasets (`Dataset.File`, `Dataset.Tabular`), and finds those that a workspace keeps."""

    File = _Files
    Tabular = _Tables

    @staticmethod
    def get_by_name(workspace: Any, name: str, version: Any = "latest") -> Any:
        """Return a data asset of the master as a dataset of its type: a table for an MLTable file that reads one.
        Raises NotFound.
        """
        return workspace.datasets.find(name, None if version == "latest" else version)


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
    known = {
        "no_headers": "no_header",
        "only_first_file_has_headers": "from_first_file",
        "combine_all_files_headers": "all_files_different_headers",
        "all_files_have_same_headers": "all_files_same_headers",
    }
    known |= {name: name for name in HEADERS}
    found = known.get(str(getattr(header, "name", header)).lower())
    if found is None:
        raise UsageError(
            f"header={header!r} is not known; it must be True, False or a member of PromoteHeadersBehavior."
        )
    return found


def _from_root(partition_format: str | None) -> str:
    text = partition_format or ""
    return text if text.startswith("/") else f"/{text}"


def _paths(path: Any) -> list[str]:
    """The local paths and addresses that the `path` of a dataset stands for."""
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
        f"a dataset's path is {type(path).__name__}; it must be text, (datastore, path), "
        "datastore.path(...), or a list of these."
    )


def _absolute(text: str) -> str:
    place = os.path.abspath(text)
    return place + "/" if text.endswith("/") else place
