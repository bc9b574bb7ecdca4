"""Upload of local data to a served master: what a job file names by a relative path.

If the master sees the same folder under the same path (one machine, a share, a volume), nothing is uploaded. Else the
data goes, as an archive named by its digest, into the master's default datastore. It is uploaded once, however often it
is submitted, and a broken upload continues where it stopped.

Outputs at relative paths are also local: the master keeps them, unless it can write to the same folder.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import grpc

from windrow.common.archives import ArchiveError, not_read_advice
from windrow.errors import RequestRefused, TransferFailed, UsageError
from windrow.rpc import errors
from windrow.rpc.connection import STREAM_TIMEOUT_S, Connection, Patience
from windrow.rpc.v1 import artifact_service_pb2 as pb
from windrow.rpc.v1 import artifact_service_pb2_grpc
from windrow.spec import DataInput
from windrow.spec.naming.locations import is_elsewhere
from windrow.transfer.data_archive import DataArchive
from windrow.transfer.fetch_places import path_below
from windrow.transfer.upload import UPLOAD_TRIES, upload_artifact

if TYPE_CHECKING:
    from windrow.spec import LoadedJob

DEFAULT_DATASTORE: Final = "default"
READING, UPLOADING, UNPACKING, PLACED = "reading", "uploading", "unpacking", "placed"
_LOOKS = 3
"""How often the two views of a path are compared, if it changes meanwhile."""


class UploadMoment(NamedTuple):
    """The progress of an input's upload.

    `key`: the input, as in the job file. `phase`: `reading` (for the digest), `uploading`, `unpacking` (by the master),
    each with bytes `done` of `total`; at last `placed`, with the bytes sent now, of those of all files.
    """

    key: str
    phase: str
    done: int
    total: int


OnUpload = Callable[[UploadMoment], None]


def upload_data(
    connection: Connection, loaded: LoadedJob, datastores: dict[str, str], on_upload: OnUpload
) -> dict[tuple[str, str], str]:
    """Upload local data to a served master; return its paths there, by step and input.

    `datastores`: the master's. Raises WindrowError; JobFileError for a table that names files elsewhere.
    """
    master = _Uploads(connection, datastores, on_upload)
    if loaded.own_inputs:
        _refuse_before_uploads(master, loaded)
    placed: dict[tuple[str, bool], str] = {}
    found: dict[tuple[str, str], str] = {}
    for step in loaded.job.steps:
        for name, given in step.inputs.items():
            key = loaded.own_inputs.get((step.name, name))
            if key is None or not isinstance(given, DataInput):
                continue
            what = (given.path, given.type == "mltable")
            if what not in placed:
                placed[what] = master.bring(key, given)
            found[step.name, name] = placed[what]
    return found


def upload_path(
    connection: Connection, key: str, given: DataInput, datastores: dict[str, str], on_upload: OnUpload
) -> str:
    """Upload local data like that of an input; return its path on the master. `key`: its name in messages. Raises as
    `upload_data` does."""
    return _Uploads(connection, datastores, on_upload).bring(key, given)


def refuse_before_uploads(connection: Connection, loaded: LoadedJob, datastores: dict[str, str]) -> None:
    """Check the paths of a job as the master would, without uploading anything. Raises WindrowError."""
    _refuse_before_uploads(_Uploads(connection, datastores, lambda moment: None), loaded)


def to_be_uploaded(connection: Connection, loaded: LoadedJob, datastores: dict[str, str]) -> set[tuple[str, str]]:
    """The inputs, by step and name, whose data must be uploaded. Raises WindrowError."""
    master = _Uploads(connection, datastores, lambda moment: None)
    inputs = {(step.name, name): given for step in loaded.job.steps for name, given in step.inputs.items()}
    own = {key: given for key in loaded.own_inputs if isinstance(given := inputs.get(key), DataInput)}
    return {key for key, given in own.items() if not master.sees(given.path)}


def outputs_kept(
    connection: Connection, loaded: LoadedJob, datastores: dict[str, str]
) -> dict[tuple[str, str], str | None]:
    """The outputs at relative paths that the master keeps, since it does not see the folder of this machine.

    By step and name, each with the path below the folder of the job file that a download fills; None if that path leads
    out of the folder. Raises WindrowError.
    """
    master = _Uploads(connection, datastores, lambda moment: None)
    kept: dict[tuple[str, str], str | None] = {}
    for step in loaded.job.steps:
        for name, output in step.outputs.items():
            if (step.name, name) not in loaded.own_outputs or output.path is None:
                continue
            nearest = Path(output.path)
            while not os.path.exists(nearest):  # noqa: PTH110  Path.exists raises where this user may not look
                nearest = nearest.parent
            if not master.sees(str(nearest)):
                kept[step.name, name] = path_below(output.path, loaded.job.job_file)
    return kept


def _refuse_before_uploads(master: _Uploads, loaded: LoadedJob) -> None:
    """Check the master's own paths before an upload of perhaps an hour, not only at submission. Raises WindrowError."""
    for step in loaded.job.steps:
        for name, given in step.inputs.items():
            if not isinstance(given, DataInput) or (step.name, name) in loaded.own_inputs or is_elsewhere(given.path):
                continue
            if given.asset is not None:
                continue  # checked when it was registered, and perhaps among the master's own outputs
            if not master.look(given.path).exists:
                raise UsageError(
                    f"Step {step.name!r}, input {name!r}: {given.path} does not exist on the machine of the master "
                    f"at {master.address} (its datastores: {master.datastores}). Nothing was uploaded."
                )
        for name, output in step.outputs.items():
            own = (step.name, name) in loaded.own_outputs
            if output.path is not None and not own and not is_elsewhere(output.path):
                master.look(output.path)


class _Uploads:
    """Uploads to one master."""

    def __init__(self, connection: Connection, datastores: dict[str, str], on_upload: OnUpload) -> None:
        self._connection = connection
        self._takes_data = DEFAULT_DATASTORE in datastores
        self._on_upload = on_upload
        self._stub = artifact_service_pb2_grpc.ArtifactServiceStub(connection.channel)
        self.address = connection.address
        self.datastores = ", ".join(f"{name}={path}" for name, path in sorted(datastores.items())) or "it has none"

    def look(self, path: str) -> pb.StatDataResponse:
        """Ask what the master has at a path. Raises WindrowError, RequestRefused (PATH_OUTSIDE)."""
        response: pb.StatDataResponse = self._connection.call(
            self._stub.StatData, pb.StatDataRequest(path=os.fsencode(path))
        )
        return response

    def sees(self, path: str) -> bool:
        """Whether the master sees the same file or folder at this path. Raises WindrowError, OSError."""
        for _ in range(_LOOKS):
            here = _look(path)
            try:
                there = self.look(path)
            except RequestRefused as error:
                if error.reason == errors.PATH_OUTSIDE:
                    return False
                raise
            if there.exists and (there.is_folder, there.inode, there.mtime_ns, there.length) == here:
                return True
            if _look(path) == here:
                return False
        return False

    def bring(self, key: str, given: DataInput) -> str:
        """Upload the data of an input if necessary; return its path on the master. Raises WindrowError,
        JobFileError."""
        try:
            if self.sees(given.path):
                return given.path
            if not self._takes_data:
                raise UsageError(
                    f"{key}: {given.path} is data of this machine, and the master at {self.address} takes no uploads: "
                    f"it has no datastore named {DEFAULT_DATASTORE} (its datastores: {self.datastores}). Start it with "
                    f"--datastore {DEFAULT_DATASTORE}=PATH, or give the data's absolute path in a datastore."
                )
            root, below = _archived(given)
            if given.type == "mltable":
                _check_table(root, key)
            archive = DataArchive(root)
            return self._place(key, archive) + below
        except ArchiveError as error:
            raise UsageError(f"{key}: {error}") from error
        except OSError as error:
            place = os.fsdecode(error.filename) if error.filename else given.path
            raise UsageError(
                f"{key}: {place} cannot be read for the upload: {error.strerror}. {not_read_advice(place, error)}."
            ) from error

    def _place(self, key: str, archive: DataArchive) -> str:
        def told(phase: str) -> Callable[[int], None]:
            return lambda done: self._on_upload(UploadMoment(key, phase, done, archive.length))

        told(READING)(0)
        digest = archive.digest(told(READING))
        sent = 0
        for _ in range(UPLOAD_TRIES):
            path = self._unpacked(digest, told(UNPACKING))
            if path:
                self._on_upload(UploadMoment(key, PLACED, sent, archive.content_bytes))
                return path
            sent += upload_artifact(self._connection, digest, archive, on_bytes=told(UPLOADING))
        raise TransferFailed(
            f"{key}: the master at {self.address} lost the data {UPLOAD_TRIES} times after it was uploaded. "
            "Its log, master.log in its state folder, may show the reason. Then submit again."
        )

    def _unpacked(self, digest: str, on_bytes: Callable[[int], None]) -> str:
        """The folder of the unpacked data; "" if the master lacks the archive. Raises WindrowError."""
        patience = Patience(self._connection)
        while True:
            try:
                call = self._stub.PlaceData(pb.PlaceDataRequest(digest=digest), timeout=STREAM_TIMEOUT_S)
                with self._connection.stream(call) as responses:
                    for response in responses:
                        patience.answered()
                        if response.path:
                            return str(response.path)
                        on_bytes(response.bytes_done)
                raise TransferFailed(
                    f"The master at {self.address} did not report where it put the data. Submit again."
                )
            except grpc.RpcError as error:
                failure = errors.read_failure(error)
                if failure.reason == errors.ARTIFACT_MISSING:
                    return ""
                if failure.reason == errors.STORAGE_FULL:
                    raise TransferFailed(failure.message, reason=failure.reason) from error
                patience.wait_or_raise(error)


def _look(path: str) -> tuple[bool, int, int, int]:
    """What is at a local path, in the terms of StatData. Raises OSError."""
    status = Path(path).stat()
    is_folder = stat.S_ISDIR(status.st_mode)
    return is_folder, status.st_ino, status.st_mtime_ns, 0 if is_folder else status.st_size


def _archived(given: DataInput) -> tuple[str, str]:
    """The path to archive for an input, and the path of the input inside the unpacked folder."""
    from windrow.spec.tables.mltable import FILE_NAME

    path = Path(given.path)
    if path.is_dir():
        return given.path, ""
    if given.type == "mltable" and path.name == FILE_NAME:
        return str(path.parent), f"/{FILE_NAME}"
    return given.path, f"/{path.name}"


def _check_table(folder: str, key: str) -> None:
    """Raise JobFileError for an MLTable file with relative paths out of its folder: only the folder is uploaded."""
    from windrow.spec.reading.problems import Problems
    from windrow.spec.tables.mltable import FILE_NAME, read_mltable

    definition = Path(folder, FILE_NAME)
    if not definition.is_file():
        return
    problems = Problems()
    table = read_mltable(definition, problems)
    for index, entry in enumerate(table.paths if table is not None else ()):
        if is_elsewhere(entry.text):
            continue
        place = os.path.normpath(os.path.join(folder, entry.text))  # noqa: PTH118  `..` goes as the planner goes
        if not Path(entry.text).is_absolute() and not Path(place).is_relative_to(folder):
            problems.error(
                entry.place,
                f"paths[{index}].{entry.kind}",
                f'"{entry.text}" points outside the folder of the MLTable file ({folder}). Only the content of that '
                f"folder is uploaded for {key}. Move the data into it, or put both into a datastore of the "
                "master and give the absolute path of the MLTable there.",
            )
    problems.raise_errors()
