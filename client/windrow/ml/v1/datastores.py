"""Datastores: folders of this machine, or places in a store."""

from __future__ import annotations

import glob
import os
import shutil
from collections.abc import Sequence
from typing import Any

from windrow.common.quantities import counted
from windrow.common.trees import copy_tree, paths_named
from windrow.errors import UsageError
from windrow.ml.places import calling_place

DEFAULT_NAME = "workspaceblobstore"


class Datastore:
    """A datastore. `root`: its folder or address; "" if only the master knows it."""

    workspace: Any = None
    """The workspace object that it was got from."""

    def __new__(cls, workspace: Any = None, name: str | None = None, root: str = "") -> Any:
        """Make `Datastore(workspace, name)` the same as `Datastore.get(workspace, name)`."""
        if workspace is not None and hasattr(workspace, "datastore_named"):
            return workspace.datastore_named(name or DEFAULT_NAME)
        return super().__new__(cls)

    def __init__(self, workspace: Any = None, name: str | None = None, root: str = "") -> None:
        """Workspaces call this; notebooks call `get`."""
        if not hasattr(self, "name"):
            self.name = name or DEFAULT_NAME
            self.root = root

    @staticmethod
    def get(workspace: Any, datastore_name: str = DEFAULT_NAME) -> Datastore:
        """Return a datastore of a workspace by name."""
        store: Datastore = workspace.datastore_named(datastore_name)
        return store

    @staticmethod
    def get_default(workspace: Any) -> Datastore:
        """Return the default datastore of a workspace."""
        store: Datastore = workspace.get_default_datastore()
        return store

    @staticmethod
    def register_azure_blob_container(
        workspace: Any, datastore_name: str, container_name: str, account_name: str | None, **more: Any
    ) -> Datastore:
        """Add a container of Azure Blob Storage as a datastore. Agents read it with their own credentials.

        Notebooks put a second container beside the default one: `account_name=workspace.get_default_datastore()
        .account_name`. Where that is None, since the default datastore is a folder, so is this one, beside it.
        """
        default = workspace.get_default_datastore()
        if account_name is None and default.is_folder:
            folder = os.path.join(os.path.dirname(default.root.rstrip("/")), container_name)
            os.makedirs(folder, exist_ok=True)
            return Datastore.register_folder(workspace, datastore_name, folder)
        store = Datastore(name=datastore_name, root=f"abfss://{container_name}@{account_name}.dfs.core.windows.net")
        store.workspace = workspace
        workspace.datastores[datastore_name] = store
        return store

    register_azure_data_lake_gen2 = register_azure_blob_container

    @staticmethod
    def register_folder(workspace: Any, datastore_name: str, folder: str | os.PathLike[str]) -> Datastore:
        """Add a folder of this machine as a datastore. Azure ML does not have this method."""
        store = Datastore(name=datastore_name, root=os.path.abspath(folder))
        store.workspace = workspace
        workspace.datastores[datastore_name] = store
        return store

    def path(self, path: str | None = None, data_reference_name: str | None = None) -> DataReference:
        """Return a place in the datastore."""
        return DataReference(self, data_reference_name, path)

    def place_of(self, path: str | None) -> str:
        """The path or address of a place in the datastore."""
        rest = (path or "").lstrip("/")
        if not self.root:
            return f"azureml://datastores/{self.name}/paths/{rest}"
        return os.path.join(self.root, rest) if self.is_folder else f"{self.root}/{rest}"

    @property
    def account_name(self) -> str | None:
        """The storage account of an address in Azure; None for any other place."""
        host = self.root.partition("://")[2].partition("/")[0].rpartition("@")[2]
        return host.partition(".")[0] if self.root.startswith(("abfs", "wasb")) and host else None

    @property
    def account_key(self) -> None:
        """None: no keys are kept. Agents read a store with their own credentials."""
        return None

    @property
    def container_name(self) -> str | None:
        """The container of an address in Azure; None for any other place."""
        found = self.root.partition("://")[2].partition("@")[0]
        return found if self.root.startswith(("abfs", "wasb")) and "@" in self.root else None

    @property
    def is_folder(self) -> bool:
        """Whether the datastore is a folder of this machine."""
        return self.root.startswith("/")

    def upload(
        self, src_dir: str, target_path: str = "", overwrite: bool = False, show_progress: bool = False
    ) -> DataReference:
        """Copy a folder's content into the datastore. `overwrite`: replace files that exist; by default they stay."""
        target = self._folder(target_path)
        kept: list[str] = []

        def copied(source: str, place: str) -> None:
            _copy(source, place, overwrite, kept)

        copy_tree(src_dir, target, copied)
        _tell(kept)
        return self.path(target_path)

    def upload_files(
        self,
        files: Sequence[str],
        relative_root: str | None = None,
        target_path: str = "",
        overwrite: bool = False,
        show_progress: bool = False,
    ) -> DataReference:
        """Copy files into the datastore, under their paths below `relative_root`. `overwrite`: as in `upload`."""
        target = self._folder(target_path)
        kept: list[str] = []
        for file in files:
            below = os.path.relpath(file, relative_root) if relative_root else os.path.basename(file)
            place = os.path.join(target, below if not below.startswith("..") else os.path.basename(file))
            os.makedirs(os.path.dirname(place), exist_ok=True)
            _copy(file, place, overwrite, kept)
        _tell(kept)
        return self.path(target_path)

    def download(
        self, target_path: str, prefix: str | None = None, overwrite: bool = False, show_progress: bool = False
    ) -> int:
        """Copy the files below `prefix` into a folder, under their own paths; return their number. `overwrite`: as in
        `upload`."""
        root, count = self._folder(""), 0
        kept: list[str] = []
        for file in paths_named(os.path.join(glob.escape(root), "**")):
            below = os.path.relpath(file, root)
            if os.path.isfile(file) and below.startswith(prefix or ""):
                place = os.path.join(target_path, below)
                os.makedirs(os.path.dirname(place), exist_ok=True)
                count += _copy(file, place, overwrite, kept)
        _tell(kept)
        return count

    def write(self, path: str, content: bytes) -> str:
        """Write a file of the datastore, and return its place. Raises UsageError if it is not a folder of this machine.
        Azure ML does not have this method.
        """
        folder, name = os.path.split(path)
        place = os.path.join(self._folder(folder), name)
        temporary = f"{place}.{os.getpid()}"
        with open(temporary, "wb") as file:
            file.write(content)
        os.replace(temporary, place)
        return place

    def _folder(self, path: str) -> str:
        if not self.is_folder:
            raise UsageError(
                f"The datastore {self.name} is not a folder of this machine "
                f"({self.root or 'only its master knows where it is'}); copy data there with the tools of its store, "
                "and name it by its path."
            )
        folder = os.path.join(self.root, path.strip("/"))
        os.makedirs(folder, exist_ok=True)
        return folder

    def __repr__(self) -> str:
        """Show name and place."""
        return f"Datastore({self.name!r}, {self.root!r})"


def _copy(source: str, place: str, overwrite: bool, kept: list[str]) -> bool:
    """Copy a file. If it exists already, note it in `kept` and return False."""
    if not overwrite and os.path.lexists(place):
        kept.append(place)
        return False
    shutil.copy2(source, place)
    return True


def _tell(kept: list[str]) -> None:
    if kept:
        print(f"Kept {counted(len(kept), 'file')} already in place, such as {kept[0]}; overwrite=True replaces them.")


class DataPath:
    """A place in a datastore, as the path of a dataset."""

    def __init__(self, datastore: Datastore, path_on_datastore: str = "", name: str | None = None) -> None:
        """`path_on_datastore`: the path within the datastore."""
        self.datastore = datastore
        self.path_on_datastore = path_on_datastore
        self.name = name

    @property
    def location(self) -> str:
        """The path or address of the place."""
        return self.datastore.place_of(self.path_on_datastore)


class DataPathComputeBinding:
    """How a parameter that is a DataPath is read: `(parameter, DataPathComputeBinding(mode="mount"))`."""

    def __init__(self, mode: str = "mount", path_on_compute: str | None = None, overwrite: bool = False) -> None:
        """`mode`: mount or download. `path_on_compute` has no effect, which a warning says."""
        self.mode = mode
        self.path_on_compute = path_on_compute


class DataReference:
    """A place in a datastore, for use as an input or in the path of a dataset."""

    def __init__(
        self,
        datastore: Datastore,
        data_reference_name: str | None = None,
        path_on_datastore: str | None = None,
        mode: str = "mount",
        path_on_compute: str | None = None,
        overwrite: bool = False,
    ) -> None:
        """`mode`: mount or download. `path_on_compute` has no effect, which a warning says."""
        self.datastore = datastore
        self.path_on_datastore = path_on_datastore or ""
        self.data_reference_name = data_reference_name or f"{datastore.name}_data"
        self.name = self.data_reference_name
        self.mode = mode
        self.path_on_compute = path_on_compute
        self.place = calling_place()

    def as_mount(self) -> DataReference:
        """Return the reference, to be read in place."""
        return DataReference(
            self.datastore, self.data_reference_name, self.path_on_datastore, "mount", self.path_on_compute
        )

    def as_download(self, path_on_compute: str | None = None, overwrite: bool = False) -> DataReference:
        """Return the reference, to be copied to the script."""
        return DataReference(
            self.datastore, self.data_reference_name, self.path_on_datastore, "download", path_on_compute
        )

    @property
    def location(self) -> str:
        """The path or address of the place."""
        return self.datastore.place_of(self.path_on_datastore)
