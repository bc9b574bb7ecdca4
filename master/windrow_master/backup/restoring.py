"""Brings a backup back into an empty state folder. Until that is done, no master starts over the folder."""

from __future__ import annotations

import os
from pathlib import Path

from windrow.common.beneath import Folder
from windrow.common.durable import sync_folder
from windrow.common.removal import remove_tree

from windrow_master.backup.contents import (
    BackupError,
    BackupFiles,
    BackupNote,
    copy_file,
    own_like,
    read_backup_note,
    verify,
)
from windrow_master.files.durable import make_durable, sync_file_system
from windrow_master.files.lock import StateLock
from windrow_master.files.state_files import StateFiles
from windrow_master.store.sqlite.copying import troubles


def restore_backup(source: Path, state: Path) -> BackupNote:
    """Bring a backup back as a state folder. Raises BackupError, StateError, OSError."""
    backup, files = BackupFiles(source), StateFiles(state)
    note = read_backup_note(backup)
    verify(backup.state, note)
    make_durable(state)
    # Nobody else restores into it, and no master uses it.
    lock = StateLock.acquire(files)
    try:
        _make_room(files)
        own_like(backup.state.stat(), state)
        with (
            Folder.open(os.path.realpath(backup.state)) as saved,
            Folder.open(os.path.realpath(state)) as target,
        ):
            for name in note.files:
                copy_file(saved, target, name)
        verify(state, note)
        if found := troubles(files):
            raise BackupError(f"The backup is not sound: {found}. {state} is incomplete; use another backup.")
        # Before the sync: an older copy that is put in the place of the database later is known by it.
        lock.note(note.incarnation)
        own_like(backup.state.stat(), files.lock)
        sync_file_system(state)
        files.unfinished_restore.rmdir()
        sync_folder(state)
    finally:
        lock.release()
    return note


def _make_room(files: StateFiles) -> None:
    """Mark the folder as incomplete, and remove what an earlier attempt has left. Raises BackupError if there is
    anything else.
    """
    mark = files.unfinished_restore
    there = sorted(path for path in files.folder.iterdir() if path not in (files.lock, mark))
    if mark.exists():
        for path in there:
            if path.is_dir() and not path.is_symlink():
                remove_tree(path)
            else:
                path.unlink()
        return
    if there:
        names = ", ".join(os.fspath(path.name) for path in there[:3])
        raise BackupError(
            f"{files.folder} is not empty ({names}). Restore into an empty folder, or move its content away."
        )
    mark.mkdir()
    sync_folder(files.folder)
