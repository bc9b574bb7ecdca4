"""Parameters and outputs of v1 pipelines: what steps are bound by."""

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING, Any, Self

from windrow.ml.places import calling_place

if TYPE_CHECKING:
    from windrow.ml.v1.steps import PipelineStep
    from windrow.ml.v1.stores import Datastore


class PipelineParameter:
    """A value that a submission may change: `Experiment.submit(pipeline, pipeline_parameters={name: value})`."""

    def __init__(self, name: str, default_value: Any) -> None:
        """`default_value`: a literal, or a dataset."""
        self.name = name
        self.default_value = default_value
        self.place = calling_place()


class Output:
    """An output of a step, and the input of others."""

    def __init__(self, name: str, datastore: Datastore | None, output_name: str, output_mode: str) -> None:
        """`name`: of what it is to other steps; `output_name`: of what it is to its own."""
        self.name = name
        self.output_name = output_name
        self.datastore = datastore
        self.output_mode = output_mode
        self.path_on_datastore: str | None = None
        self.destination: str | None = None
        self.registered_as: str | None = None
        """The data asset that it becomes when its step is done."""
        self.place = calling_place()
        self.producer: PipelineStep | None = None
        """The step that writes it."""

    def as_input(self, name: str | None = None) -> NamedInput:
        """As an input of that name."""
        return NamedInput(name or self.name, self)

    as_named_input = as_input


class PipelineData(Output):
    """An output of a step, in a folder of the pipeline's run."""

    def __init__(
        self,
        name: str,
        datastore: Datastore | None = None,
        output_name: str | None = None,
        output_mode: str = "mount",
        output_path_on_compute: str | None = None,
        output_overwrite: bool | None = None,
        **more: Any,
    ) -> None:
        """`datastore`: where it goes; by default Windrow's place for outputs."""
        super().__init__(name, datastore, output_name or name, output_mode)

    def as_dataset(self) -> Self:
        """Itself: files are files."""
        return self

    parse_parquet_files = parse_delimited_files = as_dataset

    def as_mount(self, input_name: str | None = None) -> NamedInput:
        """As an input that is read in place."""
        return NamedInput(input_name or self.name, self, "mount")

    def as_download(
        self, input_name: str | None = None, path_on_compute: str | None = None, overwrite: bool | None = None
    ) -> NamedInput:
        """As an input that is copied to the script."""
        return NamedInput(input_name or self.name, self, "download")

    def as_direct(self) -> NamedInput:
        """As an input that is given as it is."""
        return NamedInput(self.name, self, "direct")


class OutputFileDatasetConfig(Output):
    """An output of a step at a place of its own."""

    _unnamed = itertools.count(1)

    def __init__(
        self, name: str | None = None, destination: Any = None, source: str | None = None, **more: Any
    ) -> None:
        """`destination`: a local path, or a datastore with the path in it, in which `{run-id}` stands for the run of
        the step and `{output-name}` for `name`."""
        # By their order: the same script makes the same job each time.
        name = name or f"output_{next(self._unnamed)}"
        super().__init__(name, None, name, "mount")
        if isinstance(destination, tuple):
            self.datastore, self.path_on_datastore = (*destination, None)[:2]
        elif isinstance(destination, (str, os.PathLike)):
            self.destination = os.fspath(destination)

    def as_mount(self, *arguments: Any, **more: Any) -> Self:
        """Written in place."""
        self.output_mode = "mount"
        return self

    def as_upload(self, *arguments: Any, **more: Any) -> Self:
        """Written when the step is done."""
        self.output_mode = "upload"
        return self

    def register_on_complete(self, name: str, *arguments: Any, **more: Any) -> Self:
        """It becomes the next version of that data asset when its step is done."""
        self.registered_as = name
        return self

    def read_delimited_files(self, *arguments: Any, **more: Any) -> Self:
        """Itself: what reads it decides how."""
        return self

    read_parquet_files = read_delimited_files


class NamedInput:
    """Data under the name of an input, with the way it is read: `dataset.as_named_input(name).as_mount()`."""

    def __init__(self, name: str, dataset: Any, mode: str | None = None, path_on_compute: str | None = None) -> None:
        """`dataset`: a dataset, an output, or a parameter whose value is one. `mode`: mount, download or direct."""
        self.name = name
        self.dataset = dataset
        self.mode = mode
        self.place = calling_place()

    def as_named_input(self, name: str) -> NamedInput:
        """Under another name."""
        return NamedInput(name, self.dataset, self.mode)

    def as_mount(self, path_on_compute: str | None = None) -> NamedInput:
        """Read in place."""
        return NamedInput(self.name, self.dataset, "mount")

    def as_download(self, path_on_compute: str | None = None) -> NamedInput:
        """Copied to the script."""
        return NamedInput(self.name, self.dataset, "download")

    def as_direct(self) -> NamedInput:
        """Given as it is."""
        return NamedInput(self.name, self.dataset, "direct")

    as_hdfs = as_direct


def data_behind(item: Any) -> Any:
    """What is read or written, where it stands under the name of an input; else the thing itself."""
    while isinstance(item, NamedInput):
        item = item.dataset
    return item
