"""The one entry of an input that is a folder or a file."""

from __future__ import annotations

import os

from windrow_master.planning.entries import AnyEntry, file_entry, folder_entry
from windrow_master.planning.request import Request


def input_entry(request: Request) -> AnyEntry:
    """The files of a `uri_folder` or `uri_file`, local or in a store. Raises PlanningError."""
    text = os.fsdecode(request.path)
    is_folder = request.input_type == "uri_folder"
    if request.is_remote:
        from windrow_master.planning.remote import remote_file, remote_folder

        return (remote_folder if is_folder else remote_file)(request.path, text, request.roots)
    return (folder_entry if is_folder else file_entry)(request.path, text, request.roots)
