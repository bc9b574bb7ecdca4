"""What binds the steps of v1 pipelines to each other: parameters, outputs, and inputs under a name."""

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING, Any, Protocol, Self

from windrow.errors import UsageError
from windrow.ml.places import calling_place
from windrow.ml.v1.absent import tell_no_effect
from windrow.ml.v1.asset_names import dataset_name

if TYPE_CHECKING:
    from windrow.ml.v1.datastores import Datastore


class Producer(Protocol):
    """What an output needs from the step that writes it; a `windrow.ml.v1.steps.PipelineStep` provides it."""

    name: str


class PipelineParameter:
    """A value that a submission may change: `Experiment.submit(pipeline, pipeline_parameters={name: value})`."""

    def __init__(self, name: str, default_value: Any) -> None:
        """`default_value`: a literal, or a dataset."""
        self.name = name
        self.default_value = default_value
        self.place = calling_place()


class Output:
    """An output of a step, which other steps can read.

    Not v2's `Output` (`windrow.ml.assets`), which has a path and a type.
    """

    def __init__(self, name: str, datastore: Datastore | None, output_name: str, output_mode: str) -> None:
        """`name`: for other steps; `output_name`: for the step that writes it."""
        self.name = name
        self.output_name = output_name
        self.datastore = datastore
        self.output_mode = output_mode
        self.path_on_compute: str | None = None
        """Where the script was meant to write it. It has no effect, which a warning says."""
        self.path_on_datastore: str | None = None
        self.destination: str | None = None
        self.registered_as: str | None = None
        """The data asset that it is registered as when its step is done."""
        self.place = calling_place()
        self.producer: Producer | None = None
        """The step that writes it."""

    def as_input(self, name: str | None = None) -> NamedInput:
        """Return the output as an input with this name."""
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
        data_type: str | None = None,
        is_directory: bool | None = None,
        pipeline_output_name: str | None = None,
        training_output: Any = None,
    ) -> None:
        """`datastore`: where it goes; by default Windrow's place for outputs. `pipeline_output_name` and
        `training_output` have no effect, which a warning says; the rest is ignored."""
        if pipeline_output_name and pipeline_output_name not in (name, output_name):
            tell_no_effect(
                f"{name}: pipeline_output_name={pipeline_output_name!r}",
                f"get_pipeline_output finds an output by its own name, {output_name or name}",
            )
        if training_output is not None:
            tell_no_effect(f"{name}: training_output", "no step trains by itself; its script writes the output")
        super().__init__(name, datastore, output_name or name, output_mode)
        self.path_on_compute = output_path_on_compute

    def as_dataset(self) -> Self:
        """Return the output itself, which is a dataset of files already."""
        return self

    def parse_delimited_files(self, *arguments: Any, **options: Any) -> OutputTable:
        """Return the output's delimited files as a table. Raises UsageError for options other than the defaults."""
        return _as_table(self, ("include_path", "separator", "header", "partition_format"), arguments, options)

    def parse_parquet_files(self, *arguments: Any, **options: Any) -> OutputTable:
        """Return the output's Parquet files as a table. Raises UsageError as `parse_delimited_files` does."""
        return _as_table(self, ("include_path", "partition_format", "file_extension"), arguments, options)

    def as_mount(self, input_name: str | None = None) -> NamedInput:
        """Return an input that is read in place."""
        return NamedInput(input_name or self.name, self, "mount")

    def as_download(
        self, input_name: str | None = None, path_on_compute: str | None = None, overwrite: bool | None = None
    ) -> NamedInput:
        """Return an input that is copied to the script."""
        return NamedInput(input_name or self.name, self, "download", path_on_compute)

    def as_direct(self) -> NamedInput:
        """Return an input that is passed to the script unchanged."""
        return NamedInput(self.name, self, "direct")


class PipelineOutputFileDataset:
    """What `PipelineData.as_dataset` returns: the output itself."""

    def __new__(cls, pipeline_data: PipelineData) -> PipelineData:  # type: ignore[misc]
        """Return the output."""
        return pipeline_data.as_dataset()


class OutputFileDatasetConfig(Output):
    """An output of a step at a place of its own."""

    _unnamed = itertools.count(1)

    def __init__(
        self,
        name: str | None = None,
        destination: Any = None,
        source: str | None = None,
        partition_format: str | None = None,
    ) -> None:
        """`destination`: a local path, or a datastore with a path in it, in which `{run-id}` stands for the run of the
        step and `{output-name}` for `name`. `source` and `partition_format` have no effect, which a warning says: the
        script's argument names the place."""
        # Numbered in order, so that a script makes the same job each time.
        name = name or f"output_{next(self._unnamed)}"
        super().__init__(name, None, name, "mount")
        if partition_format:
            tell_no_effect(f"{name}: partition_format", "let the script also write an MLTable file that contains it")
        self.path_on_compute = source
        if isinstance(destination, tuple):
            self.datastore, self.path_on_datastore = (*destination, None)[:2]
        elif isinstance(destination, (str, os.PathLike)):
            self.destination = os.fspath(destination)

    def as_mount(self, disable_metadata_cache: bool = False) -> Self:
        """Have the output written in place."""
        self.output_mode = "mount"
        return self

    def as_upload(self, overwrite: bool = False, source_globs: Any = None) -> Self:
        """Have the output written when the step is done. `source_globs` has no effect, which a warning says."""
        if source_globs:
            tell_no_effect(f"{self.name}: source_globs", "all files of an output are kept; write the others elsewhere")
        self.output_mode = "upload"
        return self

    def register_on_complete(self, name: str, *arguments: Any, **more: Any) -> Self:
        """Make the output the next version of that data asset when its step is done."""
        self.registered_as = dataset_name(name)
        return self

    def read_delimited_files(self, *arguments: Any, **options: Any) -> OutputTable:
        """Return the output's delimited files as a table. Raises UsageError for options other than the defaults."""
        return _as_table(self, ("include_path", "separator", "header", "partition_format"), arguments, options)

    def read_parquet_files(self, *arguments: Any, **options: Any) -> OutputTable:
        """Return the output's Parquet files as a table. Raises UsageError as `read_delimited_files` does."""
        return _as_table(self, ("include_path", "partition_format"), arguments, options)


class NamedInput:
    """Data under the name of an input, with the way it is read: `dataset.as_named_input(name).as_mount()`."""

    def __init__(self, name: str, dataset: Any, mode: str | None = None, path_on_compute: str | None = None) -> None:
        """`dataset`: a dataset, an output, or a parameter whose value is one. `mode`: mount, download or direct.
        `path_on_compute` has no effect, which a warning says: the script's argument names the place."""
        self.name = name
        self.dataset = dataset
        self.mode = mode
        self.path_on_compute = path_on_compute
        self.place = calling_place()

    def as_named_input(self, name: str) -> NamedInput:
        """Return the input under another name."""
        return NamedInput(name, self.dataset, self.mode, self.path_on_compute)

    def as_mount(self, path_on_compute: str | None = None) -> NamedInput:
        """Return the input, read in place."""
        return NamedInput(self.name, self.dataset, "mount", path_on_compute)

    def as_download(self, path_on_compute: str | None = None) -> NamedInput:
        """Return the input, copied to the script."""
        return NamedInput(self.name, self.dataset, "download", path_on_compute)

    def as_direct(self) -> NamedInput:
        """Return the input, passed to the script unchanged."""
        return NamedInput(self.name, self.dataset, "direct")

    as_hdfs = as_direct


class OutputTable(NamedInput):
    """The files of an output as a table: a ParallelRunStep that divides it gets DataFrames. Every other step gets the
    folder."""

    def as_input(self, name: str | None = None) -> OutputTable:
        """Return the table as an input with this name."""
        return OutputTable(name or self.name, self.dataset)

    def as_named_input(self, name: str) -> OutputTable:
        """Return the table as an input with this name."""
        return OutputTable(name, self.dataset)

    def register_on_complete(self, name: str, *arguments: Any, **more: Any) -> Self:
        """Make the output the next version of that data asset when its step is done."""
        self.dataset.register_on_complete(name)
        return self


def _as_table(output: Output, names: tuple[str, ...], arguments: tuple[Any, ...], options: Any) -> OutputTable:
    """Return the table, or raise UsageError for an option that is not the default. `names`: those of the positional
    arguments.
    """
    given = {**dict(zip(names, arguments, strict=False)), **options}
    for name, value in given.items():
        if value is None or getattr(value, "name", value) in _READ_BY_DEFAULT.get(name, (False, {}, "")):
            continue
        raise UsageError(
            f"{output.name}: {name}={value!r} is not supported for the files of an output: they are read by their "
            "names (.csv, .tsv, .jsonl, .parquet), with the columns of their headers. Let the step that writes them "
            "also write an MLTable file beside them, which says how they are read, and leave this out."
        )
    return OutputTable(output.name, output)


_READ_BY_DEFAULT: dict[str, tuple[Any, ...]] = {
    "header": (True, "ALL_FILES_HAVE_SAME_HEADERS"),
    "separator": (",",),
    "file_extension": ("", ".csv", ".parquet"),
}
"""Values that mean what happens anyway."""


def data_behind(item: Any) -> Any:
    """Return the data behind an input's name; anything else unchanged."""
    while isinstance(item, NamedInput):
        item = item.dataset
    return item
