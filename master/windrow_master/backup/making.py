"""Makes a backup of a state folder, while its master runs or not.

1. Nothing is deleted meanwhile (`files.backup_lock`).
2. The database is copied first, as it is at one moment. A file is durable before the database names it, and grows only
   at its end. So what the copy names is in the files that are copied afterwards, with more behind it here and there.
3. A job that was retried meanwhile may have begun its files anew. Then all is copied once more.
4. Everything is read again and compared, SQLite checks the copy, and the note is written, durably. Only then the folder
   gets its name.

It works at the lowest priority, so that jobs go on.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from pathlib import Path

import windrow
from windrow.common.beneath import Folder
from windrow.common.durable import sync_folder
from windrow.common.notes import write_note
from windrow.common.removal import discard_tree

from windrow_master.backup.contents import (
    BackupError,
    BackupFiles,
    BackupNote,
    copy_file,
    digest_of,
    entries_of,
    own_like,
    verify,
)
from windrow_master.files.backup_lock import backing_up
from windrow_master.files.durable import make_durable, sync_file_system
from windrow_master.files.lock import incarnation_in, is_locked
from windrow_master.files.state_files import StateFiles
from windrow_master.store.errors import DatabaseDamaged
from windrow_master.store.protocol import Traces
from windrow_master.store.sqlite.copying import Copied, copy_database, generations, troubles
from windrow_master.store.sqlite.integrity import refuse_damaged_files

TRIES = 3


def make_backup(state: Path, target: Path) -> BackupNote:
    """Make a backup of a state folder at `target`, which must not exist. Raises BackupError, StateError, OSError."""
    files = StateFiles(state)
    if not files.database.is_file():
        raise BackupError(
            f"{state} holds no database, so there is nothing to save. Name the state folder: --state DIR."
        )
    if os.path.lexists(target):
        raise BackupError(f"{target} exists already. A backup replaces nothing: name a new folder.")
    with contextlib.suppress(OSError):
        os.nice(19)
    make_durable(target.parent)
    partial = target.with_name(f".{target.name}.partial-{secrets.token_hex(4)}")
    partial.mkdir(0o700)
    try:
        with backing_up(files):
            _refuse_damage(files)
            note = _copied(files, BackupFiles(partial))
        _verify(BackupFiles(partial), note)
        write_note(BackupFiles(partial).note, note.to_json(), durable=True)
        sync_file_system(partial)
        partial.rename(target)
        sync_folder(target.parent)
    except BaseException:
        discard_tree(partial)
        raise
    return note


def _refuse_damage(files: StateFiles) -> None:
    """Raise DatabaseDamaged if no master has the database open, and its files are not what was written.

    Before it is opened: SQLite would drop what follows damage in its log, and also how long the log was. The copy would
    pass for a sound one, and so would the database.
    """
    if is_locked(files.lock):
        return
    try:
        refuse_damaged_files(files.database, Traces(incarnation_in(files.lock), files.signs_of_use()))
    except DatabaseDamaged:
        # A master that has just started writes the log.
        if not is_locked(files.lock):
            raise


def _copied(files: StateFiles, backup: BackupFiles) -> BackupNote:
    for _ in range(TRIES):
        discard_tree(backup.state)
        backup.state.mkdir(0o700)
        database = StateFiles(backup.state).database
        copied = copy_database(files.database, database)
        own_like(files.folder.stat(), backup.state)
        own_like(files.database.stat(), database)
        left_out: list[str] = []
        with (
            Folder.open(os.path.realpath(files.folder)) as source,
            Folder.open(os.path.realpath(backup.state)) as target,
        ):
            found = {database.name: digest_of(target, database.name)}
            for name in entries_of(files, backup.folder, left_out):
                entry = copy_file(source, target, name)
                if entry is not None:
                    found[name] = entry
        if _still_holds(files, copied):
            return BackupNote(
                time=time.time(),
                windrow_version=windrow.__version__,
                schema=copied.schema,
                incarnation=copied.incarnation,
                jobs=len(copied.generations),
                files=found,
                left_out=sorted(set(left_out)),
            )
    raise BackupError(
        f"Jobs in {files.folder} were retried while they were copied, {TRIES} times. Make the backup when fewer are."
    )


def _still_holds(files: StateFiles, copied: Copied) -> bool:
    """Whether no job of the copy has been opened again since."""
    now = generations(files.database)
    return all(now.get(job_key, generation) == generation for job_key, generation in copied.generations.items())


def _verify(backup: BackupFiles, note: BackupNote) -> None:
    verify(backup.state, note)
    if found := troubles(StateFiles(backup.state)):
        raise BackupError(
            f"The backup is not sound, so it was removed: {found}. Check the state folder: windrow state check DIR."
        )
