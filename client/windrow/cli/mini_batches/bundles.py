"""Repro bundles: a mini-batch that failed, with all that a colleague needs to run it, in one zip file.

A bundle holds `bundle.json`, `code.tar` (the step's code), `data/` (the files that it reads, each below its own
path), `traceback.txt` and `README.txt`. Secrets stay out: values of environment variables and arguments that look like
secrets, or whose names do.
"""

from __future__ import annotations

import base64
import json
import os
import platform
import shlex
import stat
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple

from google.protobuf.message import DecodeError

import windrow
from windrow.common.quantities import counted, size
from windrow.common.secret_values import LEFT_OUT, redacted, secret_variables, secrets_in, without_secrets
from windrow.common.trees import make_folders, walk
from windrow.errors import UsageError
from windrow.rpc.v1 import work_pb2
from windrow.storage.recipe_files import below, local_files, only
from windrow.storage.urls import is_remote

if TYPE_CHECKING:
    from windrow.sdk.client import Client
    from windrow.sdk.mini_batch import MiniBatchDetails

FORMAT = 1
SUFFIX = ".zip"
DOCUMENT, CODE, TRACEBACK, README, DATA = "bundle.json", "code.tar", "traceback.txt", "README.txt", "data"
_DOCUMENT_BYTES_MAX = 64 << 20
_DAMAGED = (
    *(zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, DecodeError),
    *(ValueError, LookupError, TypeError, AttributeError),
)
"""What reading a damaged archive, or a document that is not of this form, may raise. RuntimeError: zipfile says so of
what is encrypted, or packed in a way that it does not know."""


class Written(NamedTuple):
    """What a bundle holds. `data_bytes`: None if the data stayed out, for the reason in `why`."""

    path: Path
    data_bytes: int | None
    why: str
    secrets: tuple[str, ...]


class Opened(NamedTuple):
    """A bundle that is unpacked in a folder, with its paths moved there. `item`: the only one to run; None for all.
    `items`: in words. `secrets`: the names of what was left out.
    """

    job_id: str
    item: int | None
    items: list[str]
    secrets: list[str]
    step: work_pb2.StepSpec
    assignment: work_pb2.Assignment
    inputs: dict[str, str]
    archive: Path


def write_bundle(
    client: Client, job_id: str, index: int, step: str | None, *, item: int | None, target: Path, data_mb: int
) -> Written:
    """Write the bundle of a mini-batch, whole or not at all. `item`: of one of its items alone.

    Raises UsageError, NotFound, RequestRefused.
    """
    found = client.replay(job_id, index, step=step)
    told = client.mini_batch(job_id, index, step=step)
    spec, assignment = found.step, found.assignment
    items, item = _narrow(spec, assignment, list(found.items), item)
    secrets = _without_secrets(spec)
    spec.command = redacted(spec.command, secrets.values())
    named = "\0".join((spec.command, *spec.arguments))
    inputs = {name: path for name, path in found.inputs.items() if path in named}
    files, why = _files_of(spec, assignment, inputs.values(), data_mb)
    failure = next((one for one in reversed(told.attempts) if one.state == "failed"), None)
    document = {
        "format": FORMAT,
        "windrow_version": windrow.__version__,
        "python_version": platform.python_version(),
        "platform": platform.platform(),
        "job_id": job_id,
        "step_name": spec.step_name,
        "mini_batch_index": assignment.mini_batch_index,
        "item": item,
        "items": items,
        "step": base64.b64encode(spec.SerializeToString()).decode(),
        "assignment": base64.b64encode(assignment.SerializeToString()).decode(),
        "inputs": inputs,
        "secrets": list(secrets),
        "files": None if files is None else [
            {"path": path, "bytes": about.st_size, "mtime_ns": about.st_mtime_ns} for path, about in files
        ],
        "message": redacted(failure.message, secrets.values()) if failure is not None else "",
    }  # fmt: skip
    partial = target.with_name(f".{target.name}.partial")
    try:
        code = partial.with_suffix(".tar")
        client.download_code(spec.code_digest, code)
        with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED, allowZip64=True) as archive:
            archive.writestr(README, _readme(document, told, why, target.name))
            archive.writestr(DOCUMENT, json.dumps(document, indent=1))
            archive.writestr(TRACEBACK, redacted(failure.detail if failure is not None else "", secrets.values()))
            archive.write(code, CODE)
            for path, _ in files or ():
                archive.write(path, f"{DATA}{path}")
        partial.replace(target)
    except OSError as error:
        raise UsageError(
            f"The bundle {target} cannot be written: {error.strerror or error}. Choose another place with -o FILE.zip."
        ) from error
    finally:
        partial.unlink(missing_ok=True)
        partial.with_suffix(".tar").unlink(missing_ok=True)
    total = None if files is None else sum(about.st_size for _, about in files)
    return Written(target, total, why, tuple(secrets))


def open_bundle(path: Path, folder: Path) -> Opened:
    """Unpack a bundle into a folder that exists. Raises UsageError if it is damaged, or is none."""
    try:
        with zipfile.ZipFile(path) as archive:
            document = _document(archive, path)
            sizes = {f"{DATA}{one['path']}": one["bytes"] for one in document["files"] or ()}
            wanted = {CODE, *sizes}
            for info in archive.infolist():
                if info.filename in wanted:
                    _extract(archive, info, folder, sizes.get(info.filename))
                    wanted.discard(info.filename)
        if wanted:
            raise UsageError(f"{path} is not complete: {', '.join(sorted(wanted))} is missing. Ask for it again.")
        for one in document["files"] or ():
            os.utime(folder / DATA / one["path"].lstrip("/"), ns=(one["mtime_ns"], one["mtime_ns"]))
        step = work_pb2.StepSpec.FromString(base64.b64decode(document["step"], validate=True))
        assignment = work_pb2.Assignment.FromString(base64.b64decode(document["assignment"], validate=True))
        inputs = dict(document["inputs"])
        if document["files"] is not None:
            inputs = _move(step, assignment, inputs, str(folder / DATA))
        item = document["item"]
        if item is not None and type(item) is not int:
            raise TypeError("item is not a number")
        job_id, items, secrets = str(document["job_id"]), _texts(document, "items"), _texts(document, "secrets")
    except _DAMAGED as error:
        raise UsageError(f"{path} is not a bundle, or is damaged: {error}. Ask for it again.") from error
    except OSError as error:
        raise UsageError(f"The bundle {path} cannot be read: {error.strerror or error}.") from error
    return Opened(job_id, item, items, secrets, step, assignment, inputs, folder / CODE)


# Writing.


def _narrow(
    spec: work_pb2.StepSpec, assignment: work_pb2.Assignment, items: list[str], item: int | None
) -> tuple[list[str], int | None]:
    """Leave only one item in the recipe, if items can be told apart there; else it is picked when the bundle runs."""
    if item is None:
        return items, None
    if spec.command:
        raise UsageError(f"Step {spec.step_name} is a command, which has no items: leave --item out.")
    if assignment.item_count and item >= assignment.item_count:
        raise UsageError(
            f"The mini-batch has {counted(assignment.item_count, 'item')}, counted from 0; there is no item {item}."
        )
    recipe = only(json.loads(spec.reader or b"{}"), assignment.recipe, item)
    if recipe is None:
        return items, item
    assignment.recipe = recipe
    assignment.item_first += item
    assignment.item_count = 1
    return items[item : item + 1], None


def _without_secrets(spec: work_pb2.StepSpec) -> dict[str, str]:
    """Take secrets out of the step; return their values by name."""
    found = secret_variables(spec.environment_variables)
    for name in found:
        del spec.environment_variables[name]
    arguments, in_arguments = without_secrets(spec.arguments)
    del spec.arguments[:]
    spec.arguments.extend(arguments)
    # An index or channel may have a password or token in its address.
    for what, lines in (
        ("option of pip", spec.environment.options),
        ("line of pip", spec.environment.requirements),
        ("line of pip", spec.environment.conda.pip),
        ("channel", spec.environment.conda.channels),
    ):
        for at, line in enumerate(lines):
            for secret in secrets_in(line):
                found[f"{what} {at + 1}"] = secret
                lines[at] = lines[at].replace(secret, LEFT_OUT)
    return found | in_arguments


def _files_of(
    spec: work_pb2.StepSpec, assignment: work_pb2.Assignment, inputs: Iterable[str], data_mb: int
) -> tuple[list[tuple[str, os.stat_result]] | None, str]:
    """The local files that the bundle holds; None if the data stays out, and why."""
    reader = json.loads(spec.reader or b"{}")
    if _is_sorted(reader, assignment.recipe):
        return None, "its rows were sorted by the keys of the step, and are in the state folder of the master"
    paths = [os.fsdecode(path) for path in local_files(reader, assignment.recipe)]
    for path in inputs:
        if not is_remote(path):
            try:
                paths += _below(path)
            except OSError as error:
                return None, f"{path} cannot be read on this machine ({error.strerror})"
    found: list[tuple[str, os.stat_result]] = []
    total = 0
    for path in dict.fromkeys(paths):
        try:
            about = os.stat(path)  # noqa: PTH116  may be no UTF-8
            path.encode()
        except OSError as error:
            return None, f"{path} cannot be read on this machine ({error.strerror})"
        except UnicodeEncodeError:
            return None, f"the name of {path!r} is not valid UTF-8"
        if not stat.S_ISREG(about.st_mode):
            return None, f"{path} is not a file"
        total += about.st_size
        found.append((os.path.abspath(path), about))  # noqa: PTH100
    if total > data_mb * 1_000_000:
        return None, f"they are {size(total)}, more than --data-mb {data_mb}"
    return found, ""


def _is_sorted(reader: dict[str, Any], recipe: bytes) -> bool:
    """Whether a mini-batch is of rows that the planner has sorted: no file of the input holds them together."""
    if reader.get("kind") == "inputs":
        number, _, rest = recipe.partition(b"\0")
        return _is_sorted(reader["inputs"][int(number)], rest)
    if reader.get("kind") not in ("table", "records"):
        return False
    where = json.loads(recipe)
    return any("file" not in part for part in where.get("parts", (where,)))


def _below(path: str) -> list[str]:
    """A file, or all files of a folder. Raises OSError."""
    if not os.path.isdir(path):  # noqa: PTH112
        return [path]

    def fail(error: OSError) -> None:
        raise error

    return [os.path.join(folder, name) for folder, _, names in walk(path, fail) for name in sorted(names)]  # noqa: PTH118


def _readme(document: dict[str, Any], told: MiniBatchDetails, why: str, name: str) -> str:
    items = document["items"]
    shown = "\n".join(f"  {item}" for item in items[:20]) + (f"\n  … and {len(items) - 20:,} more" * (len(items) > 20))
    replay = f"windrow mb replay {shlex.quote(name)}"
    lines = [
        f"A mini-batch of the job {document['job_id']} (step {document['step_name']}, mini-batch "
        f"{document['mini_batch_index']}), to be run again by Windrow.",
        "",
        f"What happened: {document['message'] or told.mini_batch.state}",
        f"The traceback is in {TRACEBACK}.",
        "",
        "To run it, on any machine with Windrow:",
        "",
        f"    {replay}",
        f"    {replay} --pdb           # stop in the debugger where it fails",
        f"    {replay} --code DIR      # with your own copy of the code",
        "",
        "Its items:",
        shown,
        "",
        f"The code of the step is in {CODE}, as it is: look through it, and through the data, before you pass this on. "
        f"The job ran with Windrow {document['windrow_version']}.",
    ]
    if document["files"] is None:
        lines += ["", f"Its data is not in the bundle: {why}. Where it runs, the same paths must be there."]
    if document["secrets"]:
        lines += [
            "",
            f"Left out, because they look like secrets: {', '.join(document['secrets'])}. Set the variables in the "
            "environment of `windrow mb replay` if the script needs them.",
        ]
    return "\n".join(lines) + "\n"


# Reading.


def _document(archive: zipfile.ZipFile, path: Path) -> dict[str, Any]:
    info = archive.getinfo(DOCUMENT)
    if info.file_size > _DOCUMENT_BYTES_MAX:
        raise ValueError(f"{DOCUMENT} is too large")
    document = json.loads(archive.read(info))
    if document["format"] != FORMAT:
        raise UsageError(
            f"{path} was made by Windrow {document['windrow_version']}, in a form that this version does not read. "
            "Install that version to run it."
        )
    return dict(document)


def _texts(document: dict[str, Any], key: str) -> list[str]:
    """A list of texts. Raises TypeError if it is none."""
    found = document[key]
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise TypeError(f"{key} is not a list of texts")
    return found


def _extract(archive: zipfile.ZipFile, info: zipfile.ZipInfo, folder: Path, expected: int | None) -> None:
    """Write one member; its checksum is verified. Raises ValueError for one that would be written elsewhere."""
    inside = PurePosixPath(info.filename)
    if inside.is_absolute() or ".." in inside.parts or (expected is not None and info.file_size != expected):
        raise ValueError(f"{info.filename} is not what the bundle lists")
    target = folder / inside
    make_folders(target.parent)
    with archive.open(info) as source, target.open("xb") as file:
        while chunk := source.read(1 << 20):
            file.write(chunk)


def _move(
    step: work_pb2.StepSpec, assignment: work_pb2.Assignment, inputs: dict[str, str], folder: str
) -> dict[str, str]:
    """Move all local paths of a step and its mini-batch below a folder; return the moved inputs."""
    if step.reader:
        reader, assignment.recipe = below(json.loads(step.reader), assignment.recipe, folder)
        step.reader = json.dumps(reader).encode()
    moved = {name: path if is_remote(path) else folder + path for name, path in inputs.items()}
    # Longer paths first: one may begin with another.
    for path in sorted((path for path in inputs.values() if not is_remote(path)), key=len, reverse=True):
        step.command = step.command.replace(path, folder + path)
        arguments = [word.replace(path, folder + path) for word in step.arguments]
        del step.arguments[:]
        step.arguments.extend(arguments)
    return moved
