"""The divided inputs of a step: the entry of a folder or file, and which input a message is about."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from windrow_master.planning.emitter import Emitter
from windrow_master.planning.errors import PlanningError
from windrow_master.planning.listing.entries import AnyEntry, file_entry, folder_entry
from windrow_master.planning.request import DividedInput, Request
from windrow_master.roots import Roots


def input_entry(given: DividedInput, roots: Roots | None) -> AnyEntry:
    """The files of a `uri_folder` or `uri_file`, local or in a store. Raises PlanningError."""
    text = os.fsdecode(given.path)
    is_folder = given.type == "uri_folder"
    if given.is_remote:
        from windrow_master.planning.listing.remote import remote_file, remote_folder

        return (remote_folder if is_folder else remote_file)(given.path, text, roots)
    return (folder_entry if is_folder else file_entry)(given.path, text, roots)


@contextmanager
def about(given: DividedInput, request: Request, emitter: Emitter) -> Iterator[None]:
    """Names the input in errors and warnings, if there are several."""
    if not request.several:
        yield
        return
    emitter.subject = f"Input {given.name}: "
    try:
        yield
    except PlanningError as error:
        raise PlanningError(emitter.subject + str(error), error.category) from error
    finally:
        emitter.subject = ""
