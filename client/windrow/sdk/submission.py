"""What a job needs before it can be submitted: its code and its data where the master is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windrow.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from typing import BinaryIO

    from windrow.rpc.connection import Connection
    from windrow.spec import EffectiveJob, LoadedJob
    from windrow.transfer.code_archive import CodeArchive


def upload_code(
    connection: Connection,
    loaded: LoadedJob,
    *,
    written: Sequence[str],
    data_paths: dict[tuple[str, str], str] | None,
    kept_outputs: dict[tuple[str, str], str | None] | None,
    name: str | None,
    priority: int,
    weight: int,
) -> EffectiveJob:
    """Pack the code folders of a loaded job, upload what the master lacks, and make the effective job.

    `written`: outputs of other jobs, which are not code. `data_paths`, `kept_outputs`: as of
    `windrow.spec.build_effective`. Raises UsageError for code that cannot be packed.
    """
    import tempfile

    from windrow.spec import build_effective
    from windrow.transfer.upload import FileSource, upload_artifact

    digests: dict[str, str] = {}
    for code in sorted(set(loaded.code_folders.values())):
        # Without a name: nothing is left behind, however this process ends.
        with tempfile.TemporaryFile() as archive:
            packed = pack_code(loaded, code, archive, written)
            digests[code] = packed.digest
            upload_artifact(connection, packed.digest, FileSource(archive))
    return build_effective(
        loaded,
        digests,
        data_paths=data_paths,
        kept_outputs=kept_outputs,
        name=name,
        priority=priority,
        weight=weight,
    )


def pack_code(loaded: LoadedJob, folder: str, archive: BinaryIO, written: Sequence[str] = ()) -> CodeArchive:
    """Pack one code folder of a job, with the entry scripts of its steps, without the data of the job that is in it. A
    run without a job file has no code in files named `….log`: they are of earlier runs, as after `… | tee run.log`.

    `archive`: an empty file that is open for writing. `written`: outputs of other jobs, which are also left out. Raises
    UsageError for a folder that cannot be packed.
    """
    from windrow.spec.one_line.request import is_one_line
    from windrow.transfer.data_in_code import data_in

    scripts = {step.entry_script for step in loaded.job.steps if loaded.code_folders[step.name] == folder}
    required = sorted(name for name in scripts if name.endswith(".py"))
    with_logs = not is_one_line(loaded.job.job_file)
    return pack_folder(folder, archive, required, lambda: data_in(folder, loaded, written), with_logs=with_logs)


def pack_folder(
    folder: str,
    archive: BinaryIO,
    required: Sequence[str] = (),
    left_out: Callable[[], Collection[str]] = lambda: (),
    *,
    with_logs: bool = True,
) -> CodeArchive:
    """Pack a code folder. `archive`: as of `pack_code`; `required`: relative paths of what must be in it; `left_out`:
    finds the relative paths of what is no code; `with_logs`: as of `windrow.transfer.code_archive.pack`. Raises
    UsageError for a folder that cannot be packed.
    """
    from windrow.common.archives import ArchiveError, not_packed
    from windrow.transfer.code_archive import pack

    try:
        return pack(folder, archive, required=required, left_out=left_out(), with_logs=with_logs)
    except ArchiveError as error:
        raise UsageError(str(error)) from error
    except OSError as error:
        told = not_packed(folder, error)
        raise UsageError(told[0].upper() + told[1:]) from error
