"""`python -m windrow_agent.replay FILE`: runs one mini-batch again in this terminal, apart from its job.

It does what an agent does before a worker gets a mini-batch: it gets the code, the step's environment, side inputs and
data from stores, and writes the worker's configuration. Then it becomes the worker's replay host. It contacts no
master.

FILE is a JSON object: `folder` (for all files), `step` and `assignment` (StepSpec and Assignment of GetReplay, base64),
`inputs` (name to path), `archive` (of the code) or `code` (a folder that is used as it is), `python` (replaces the
step's environment), `item` (the only one to run, counted from 0; null: all), `pdb`, `write_outputs`, `kept` (whether
`folder` stays afterwards; for messages), `master` (its address; for messages), `passed` (more variables that the script
gets from this environment).
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from time import monotonic_ns
from typing import Any, NoReturn

from windrow.common.interpreter import NoInterpreter, check_interpreter, find_interpreter
from windrow.common.trees import make_folders
from windrow.rpc.log_paths import worker_place
from windrow.rpc.v1 import agent_service_pb2 as rpc
from windrow.rpc.v1 import work_pb2 as work
from windrow.storage.recipe_files import local_files
from windrow.storage.urls import is_remote

from windrow_agent.config import default_node_id
from windrow_agent.environments.failures import EnvironmentFailed
from windrow_agent.environments.libraries import needed_libraries
from windrow_agent.environments.provider import Environments, Held, folder_of
from windrow_agent.fetching.fetcher import Fetcher, NotFetched
from windrow_agent.leases.lease import Lease
from windrow_agent.node.gpus import find_gpus
from windrow_agent.node.strays import mark_of
from windrow_agent.steps.code_cache import CodeCache, CodeUnavailable
from windrow_agent.steps.lineages import Lineage
from windrow_agent.steps.step import BadStep, Step
from windrow_agent.supervision.distributor import packet_of
from windrow_agent.supervision.worker_config import as_config, boot_path, hosting, script_config, variables
from windrow_agent.workers import frames
from windrow_agent.workers.page import Page
from windrow_agent.workers.variables import worker_environment

LEASE_ID = 1
FETCHED_BYTES_MAX = 1 << 50
INLINE_ROWS_BYTES_MAX = 256 << 10
MISSING_SHOWN = 5
PASSED = ("PYTHONBREAKPOINT", "COLUMNS", "LINES", "COLORTERM", "NO_COLOR")
"""Variables that reach the script besides those of workers: users of a terminal and a debugger expect them."""


class CannotReplay(Exception):
    """The mini-batch cannot run on this machine; the text says what is missing, why, and what to do."""


def main(arguments: list[str]) -> int:
    """Becomes the worker and does not return; returns 1 if it cannot be prepared, 2 for bad usage."""
    if len(arguments) != 1:
        print("usage: python -m windrow_agent.replay FILE    (FILE: a JSON document)", file=sys.stderr)
        return 2
    try:
        asyncio.run(_prepare(json.loads(Path(arguments[0]).read_text())))
    except (CannotReplay, CodeUnavailable, NotFetched, NoInterpreter, BadStep) as error:
        print(f"windrow: The mini-batch cannot be replayed here. {str(error).rstrip('.')}.", file=sys.stderr)
    except OSError as error:
        print(f"windrow: The replay could not be prepared: {error}.", file=sys.stderr)
    except KeyboardInterrupt:
        return 130
    return 1


async def _prepare(given: dict[str, Any]) -> NoReturn:
    """Prepares everything, then becomes the worker. Raises CannotReplay, and what `main` reports."""
    folder = Path(given["folder"])
    spec = work.StepSpec.FromString(base64.b64decode(given["step"]))
    assignment = work.Assignment.FromString(base64.b64decode(given["assignment"]))
    assignment.item_first += given.get("item") or 0
    places = _output_places(spec, folder / "outputs", write_outputs=bool(given.get("write_outputs")))
    step = Step.open(spec, folder, default_node_id(), 1, monotonic_ns(), Lineage())
    if given.get("code"):
        code = Path(given["code"])
    else:
        archive = Path(given["archive"])
        step.code_sums = await CodeCache(archive.parent, _no_download).unpack(spec.code_digest, step.code)
        code = step.code
    await _check_visible(step, assignment.recipe, given)
    built = await _environment(step, code) if spec.HasField("environment") and not given.get("python") else None
    python = str(built.python) if built is not None else find_interpreter(given.get("python"), os.environ)
    if built is None:
        check_interpreter(python)
    recipe = await _fetch(step, assignment)
    _become(python, built, given, step, code, assignment, recipe, places)


async def _no_download(digest: str, partial: Path) -> None:
    raise CodeUnavailable(f"The code archive {digest} arrived damaged. Try again")


# The environment.


async def _environment(step: Step, code: Path) -> Held:
    """The step's environment, found in this user's cache or built. Raises CannotReplay."""

    def begin() -> None:
        print("Building the step's environment (--python PATH: none is built) ...", file=sys.stderr)

    folder = os.environ.get("WINDROW_ENVIRONMENTS_FOLDER")
    environments = Environments(
        lambda: folder_of(Path(folder) if folder else None, step.folder, os.environ),
        None,
        os.environ,
        step.folder,
    )
    log = step.log_file(rpc.LOG_KIND_ENVIRONMENT, 0)
    try:
        held = await environments.provide(
            step.spec.environment,
            code=code,
            libraries=needed_libraries(step.reader, step.rows),
            log=log,
            is_wanted=lambda: True,
            on_build=begin,
        )
    except EnvironmentFailed as failed:
        detail = f"\n{failed.detail.rstrip()}" if failed.detail else ""
        raise CannotReplay(f"Its environment could not be built: {failed}{detail}") from failed
    finally:
        log.end()
    if held.missing:
        held.release()
        raise CannotReplay(
            f"Its environment has no {' and '.join(held.missing)}, which it needs for its table: add what is missing "
            "to the dependencies of its conda_file, and submit the job again; or replay it with --python PATH"
        )
    # The lock is held for as long as the process that this one becomes.
    os.set_inheritable(held.lock.descriptor, True)
    return held


# Outputs.


def _output_places(spec: work.StepSpec, scratch: Path, *, write_outputs: bool) -> dict[str, str]:
    """Paths of the script's outputs, by name: below `scratch`, or as in the job."""
    places: dict[str, str] = {}
    for output in spec.stored_outputs:
        if write_outputs and not is_remote(output.address):
            places[output.name] = output.address
            continue
        place = scratch / output.name
        places[output.name] = str(place / output.address.rstrip("/").rpartition("/")[2] if output.is_file else place)
    return places


def _make_outputs(spec: work.StepSpec, places: Mapping[str, str]) -> str:
    """Makes the folders of outputs; returns the step's own output folder, "" if it has none."""
    told = ""
    for output in spec.stored_outputs:
        place = Path(places[output.name])
        folder = place.parent if output.is_file else place
        make_folders(folder)
        if spec.output_path == f"\0outputs/{output.name}\0":
            told = str(folder)
    return told


# Data.


async def _check_visible(step: Step, recipe: bytes, given: dict[str, Any]) -> None:
    """Raises CannotReplay if something that it reads is not on this machine."""
    needed = [path for path in given.get("inputs", {}).values() if not is_remote(path)]
    named = "\0".join((step.spec.command, *step.spec.arguments))
    divided = [os.fsdecode(path) for path in local_files(step.reader, recipe)]
    missing = await asyncio.to_thread(_missing, [path for path in needed if path in named] + divided)
    if missing:
        shown = ", ".join(missing[:MISSING_SHOWN])
        more = f" and {len(missing) - MISSING_SHOWN:,} more" if len(missing) > MISSING_SHOWN else ""
        where = f" of the master at {given['master']}" if given.get("master") else ""
        raise CannotReplay(
            f"What it reads is not on this machine: {shown}{more}. The nodes{where} may see these paths, or they were "
            "moved or removed since. Replay it on a node, or where the same folders are mounted"
        )


def _missing(paths: list[str]) -> list[str]:
    return [path for path in dict.fromkeys(paths) if not os.path.exists(path)]  # noqa: PTH110  may be no UTF-8


async def _fetch(step: Step, assignment: work.Assignment) -> bytes:
    """Fetches data from stores, and copies, as an agent does; returns the recipe for the worker. Raises CannotReplay,
    NotFetched.
    """
    if not step.spec.side_inputs and not step.needs_fetching:
        return bytes(assignment.recipe)
    loop = asyncio.get_running_loop()
    fetched: asyncio.Future[bytes] = loop.create_future()

    def ready(_: Step, lease: Lease, recipe: bytes) -> None:
        fetched.set_result(recipe)

    def failed(_: Step, lease: Lease, completion: work.Completion) -> None:
        fetched.set_exception(CannotReplay(f"Its data could not be fetched: {completion.message}"))

    fetcher = Fetcher(FETCHED_BYTES_MAX, ready, failed)
    try:
        for side in step.spec.side_inputs:
            print(f"Fetching input {side.name} from {side.address} ...", file=sys.stderr)
            step.side_inputs[side.name] = await fetcher.fetch_input(
                step, side.name, side.address, writable=side.writable
            )
        if not step.needs_fetching:
            return bytes(assignment.recipe)
        print("Fetching the mini-batch ...", file=sys.stderr)
        fetcher.add(_lease(step, assignment, assignment.recipe), step)
        return await fetched
    finally:
        fetcher.close()


def _lease(step: Step, assignment: work.Assignment, recipe: bytes) -> Lease:
    return Lease(
        lease_id=LEASE_ID,
        step_id=step.step_id,
        generation=step.spec.generation,
        mini_batch_index=assignment.mini_batch_index,
        item_first=assignment.item_first,
        item_count=assignment.item_count,
        recipe=bytes(recipe),
        attempt=assignment.attempt,
    )


# The worker.


def _become(
    python: str,
    built: Held | None,
    given: dict[str, Any],
    step: Step,
    code: Path,
    assignment: work.Assignment,
    recipe: bytes,
    places: dict[str, str],
) -> NoReturn:
    """Turns this process into the worker. Raises OSError, CannotReplay."""
    spec = step.spec
    output_path = _make_outputs(spec, places)
    scratch = step.scratch / "process000"
    scratch.mkdir(parents=True, exist_ok=True)
    logs = step.log_folder / "user" / "entry_script_log" / step.node_id
    metrics = step.log_folder / worker_place(rpc.LOG_KIND_METRICS, step.node_id, 0)
    for folder in (logs, metrics.parent):
        folder.mkdir(parents=True, exist_ok=True)
    work_near, work_far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    result_near, result_far = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    # Everything that it will ever be sent; after that it finds the channel closed.
    work_near.send(packet_of(_lease(step, assignment, recipe), scratch))
    work_near.send(frames.shutdown_packet())
    document = {
        **hosting(step, 0, step.node_id, 0, scratch, logs, metrics),
        "requests_path": "",
        "code_folder": str(code),
        "work_fd": work_far.fileno(),
        "result_fd": result_far.fileno(),
        "page_path": str(Page(step.scratch / "process000.page").path),
        "inline_rows_bytes_max": INLINE_ROWS_BYTES_MAX,
        "install_hint": os.environ.get("WINDROW_INSTALL_HINT", ""),
        **script_config(step, places),
        "output_path": output_path,
        "replay": {
            "item": given.get("item"),
            "pdb": bool(given.get("pdb")),
            "run_timeout_s": step.limits.run_s,
            "load_timeout_s": step.limits.load_s,
            "outputs": places,
            "kept": bool(given.get("kept")),
        },
    }
    config = step.scratch / "process000.json"
    config.write_bytes(as_config(document))
    gpus = find_gpus(os.environ)
    devices = gpus.devices
    environment = worker_environment(
        os.environ,
        variables(step, places),
        passed=(*PASSED, *given.get("passed", ())),
        built=None if built is None else str(built.folder),
        job_id=spec.job_id,
        node_id=step.node_id,
        node_rank=0,
        mark=mark_of("replay", 0),
        output_path=output_path,
        work_folder=str(code),
        gpu_count=len(devices),
        gpu_device=",".join(devices) if devices else None,
        gpu_variable=gpus.variable,
    )
    for end in (work_near, work_far, result_near, result_far):
        os.set_inheritable(end.fileno(), True)
    os.chdir(code)
    # asyncio has replaced this handler; the worker must not inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execve(python, [python, str(boot_path()), "--replay", str(config)], environment)
    except OSError as error:
        raise CannotReplay(f"The Python interpreter {python} could not be started: {error.strerror}") from error


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
