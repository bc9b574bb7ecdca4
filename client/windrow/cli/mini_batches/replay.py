"""`windrow mb replay`: fetches what a mini-batch needs, and lets the agent's code run it in this terminal."""

from __future__ import annotations

import base64
import contextlib
import json
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self

from windrow.cli.messages import say
from windrow.common.quantities import counted
from windrow.common.removal import discard_tree
from windrow.common.signal_names import signal_name
from windrow.common.trees import walk
from windrow.errors import UsageError

if TYPE_CHECKING:
    from windrow.rpc.v1 import work_pb2
    from windrow.sdk.client import Client

ITEMS_SHOWN = 5


class Replay:
    """A replay, for a `with` statement: `bring` fills a folder with what it needs, `run` runs it.

    The name of a temporary folder is known before the folder is made, so an interrupt at any moment removes it.
    """

    def __init__(self, keep: Path | None) -> None:
        """`keep`: an empty or missing folder; a temporary one if None."""
        self._kept = keep is not None
        self._folder = keep.absolute() if keep is not None else _temporary_name()
        self._config = self._folder / "replay.json"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._remove()

    def run(self) -> int:
        """Run the mini-batch in this terminal; return the exit code."""
        # Ctrl-C belongs to the script: it ends run(), and this process reports the outcome. Unlike an ignored signal, a
        # handler is not inherited.
        handlers = {signal.SIGINT: lambda number, frame: None, signal.SIGTERM: _leave, signal.SIGHUP: _leave}
        before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        try:
            done = subprocess.run([sys.executable, "-P", "-m", "windrow_agent.replay", str(self._config)], check=False)
            was_running = any("process000.json.running" in names for _, _, names in walk(self._folder))
        finally:
            # While these handlers are set, one more Ctrl-C does not interrupt the removal.
            self._remove()
            for number, handler in before.items():
                signal.signal(number, handler)
        if self._kept:
            say(f"Everything is kept in {self._folder}")
        if done.returncode < 0:
            say(
                f"The process was ended by {signal_name(-done.returncode)}. In a job this is a `crash` of the "
                "mini-batch (`oom` if memory ran out)."
            )
            return 1
        if was_running:
            say(
                f"The script ended the process with exit code {done.returncode}; it must return, not exit. In a job "
                "this is a `crash` of the mini-batch."
            )
            return 1
        return done.returncode

    def bring(
        self,
        client: Client,
        job_id: str,
        index: int,
        step: str | None,
        *,
        item: int | None,
        pdb: bool,
        python: str | None,
        code: Path | None,
        write_outputs: bool,
    ) -> None:
        """Fill the folder with what the replay needs. Raises UsageError, NotFound, RequestRefused."""
        found = client.replay(job_id, index, step=step)
        spec = found.step
        _check_wanted(spec, item=item, pdb=pdb)
        if code is not None:
            code = _checked_code(code, spec.entry_script)
        with self._written():
            self._make_folder()
            archive = self._folder / "code" / f"{spec.code_digest}.tar"
            if code is None:
                archive.parent.mkdir()
                client.download_code(spec.code_digest, archive)
            self._configure(
                spec,
                found.assignment,
                inputs=dict(found.inputs),
                archive=str(archive),
                code=str(code) if code is not None else None,
                python=python,
                item=item,
                pdb=pdb,
                write_outputs=write_outputs,
                master="" if client.is_here else client.address,
            )
        left = found.items_left_out
        _introduce(job_id, spec, found.assignment, found.items, left, item, code, write_outputs=write_outputs)

    def bring_bundle(self, bundle: Path, *, item: int | None, pdb: bool, python: str | None, code: Path | None) -> None:
        """Fill the folder with what a bundle holds (`windrow.cli.mini_batches.bundles`). Raises UsageError."""
        from windrow.cli.mini_batches.bundles import open_bundle

        with self._written():
            self._make_folder()
            unpacked = self._folder / "bundle"
            unpacked.mkdir()
            opened = open_bundle(bundle, unpacked)
            spec = opened.step
            if item is None:
                item = opened.item
            _check_wanted(spec, item=item, pdb=pdb)
            if code is not None:
                code = _checked_code(code, spec.entry_script)
            archive = self._folder / "code" / f"{spec.code_digest}.tar"
            archive.parent.mkdir()
            opened.archive.rename(archive)
            self._configure(
                spec,
                opened.assignment,
                inputs=opened.inputs,
                archive=str(archive),
                code=str(code) if code is not None else None,
                python=python,
                item=item,
                pdb=pdb,
                write_outputs=False,
                master="",
                passed=opened.secrets,
            )
        if opened.secrets:
            say(f"The bundle is without {', '.join(opened.secrets)}: the script gets what this environment has.")
        _introduce(opened.job_id, spec, opened.assignment, opened.items, 0, item, code, write_outputs=False)

    @contextlib.contextmanager
    def _written(self) -> Iterator[None]:
        """Turn what goes wrong with the folder into an error that says what to do."""
        try:
            yield
        except OSError as error:
            raise UsageError(
                f"The replay cannot be written to {self._folder}: {error.strerror}. Free some space there, or choose "
                "another folder with --keep DIR."
            ) from error

    def _configure(self, spec: work_pb2.StepSpec, assignment: work_pb2.Assignment, **more: object) -> None:
        """Write what the agent's code reads (`windrow_agent.replay`)."""
        document = {
            "folder": str(self._folder),
            "step": base64.b64encode(spec.SerializeToString()).decode(),
            "assignment": base64.b64encode(assignment.SerializeToString()).decode(),
            "kept": self._kept,
            **more,
        }
        self._config.write_text(json.dumps(document))

    def _remove(self) -> None:
        if not self._kept:
            discard_tree(self._folder)

    def _make_folder(self) -> None:
        if not self._kept:
            self._folder.mkdir(mode=0o700)
            return
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            if any(self._folder.iterdir()):
                raise UsageError(f"--keep {self._folder} is not empty. Choose a new or empty folder.")
        except OSError as error:
            raise UsageError(
                f"--keep {self._folder} cannot be used: {error.strerror}. Choose another folder."
            ) from error


def _leave(number: int, frame: object) -> None:
    """Leave; on the way out, the running process is killed and the folder removed."""
    raise SystemExit(128 + number)


def _check_wanted(spec: work_pb2.StepSpec, *, item: int | None, pdb: bool) -> None:
    if spec.command and pdb:
        raise UsageError(
            f"Step {spec.step_name} is a command: --pdb stops only where a script's run() raises. Without --pdb the "
            "command has this terminal; a breakpoint() in its Python code stops there."
        )
    if spec.command and item is not None:
        raise UsageError(f"Step {spec.step_name} is a command, which has no items: leave --item out.")


def _checked_code(code: Path, entry_script: str) -> Path:
    if not code.is_dir():
        raise UsageError(f"--code {code} is not a folder. Give the folder with the step's code.")
    if entry_script.endswith(".py") and not (code / entry_script).is_file():
        raise UsageError(
            f"--code {code} does not contain {entry_script}, the step's entry script. Give the folder that "
            "is `code:` in the job file."
        )
    return code.absolute()


def _temporary_name() -> Path:
    return Path(tempfile.gettempdir(), f"windrow-replay-{secrets.token_hex(8)}")


def _introduce(
    job_id: str,
    spec: work_pb2.StepSpec,
    given: work_pb2.Assignment,
    items: Sequence[str],
    left_out: int,
    item: int | None,
    code: Path | None,
    *,
    write_outputs: bool,
) -> None:
    """Say which mini-batch runs, with which items and code, and where it writes. `left_out`: items beyond these.
    `item`: the only one that runs.
    """
    count = f" ({counted(given.item_count, 'item')})" if given.item_count else ""
    what = "the command" if spec.command else f"mini-batch {given.mini_batch_index}{count}"
    if item is not None:
        what = f"only item {item} of {what}"
        # Of a table, one text names many items.
        if len(items) + left_out == given.item_count:
            items, left_out = items[item : item + 1], 0
    say(f"Replaying {what} of step {spec.step_name}, job {job_id}.")
    for name in items[:ITEMS_SHOWN]:
        say(f"  {name}")
    left = len(items) - ITEMS_SHOWN + left_out
    if left > 0:
        say(f"  … and {left:,} more")
    say(f"Code: {f'{code}, as it is now' if code is not None else 'as the job has it'}.")
    local = [output.address for output in spec.stored_outputs if "://" not in output.address]
    remote = [output.name for output in spec.stored_outputs if "://" in output.address]
    if write_outputs and local:
        say(f"The job does not change, except what the script writes to {', '.join(local)} (--write-outputs).")
    else:
        say("The job does not change: what the script writes to its outputs goes to a scratch folder.")
    if write_outputs and remote:
        say(f"Nothing is uploaded: what the script writes to {', '.join(remote)} goes to a scratch folder.")
    say("─" * min(80, _width()))


def _width() -> int:
    return shutil.get_terminal_size().columns
