"""Decides whether a step can be reused: not run, because an earlier job made the same outputs (`reuse`;
docs/contracts.md, section 1).

1. A step is reused only if settings, code and inputs are the same, and its outputs are still what the earlier job made.
2. What a step made is kept for reuse only if nothing in it failed, and settings, code and inputs were the same at its
   end as at its beginning. So its workers read just these inputs, unless somebody changed one and changed it back
   meanwhile.
3. Nothing here fails a step: if anything cannot be determined, the step runs.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from windrow.common.journal import log, say
from windrow.common.notes import NoteDamaged, read_note, write_note
from windrow.spec.effective.job import EffectiveStep, LiteralInput

from windrow_master.core.state import Step
from windrow_master.core.states import StepState
from windrow_master.datastores import Datastores
from windrow_master.files.state_files import StateFiles, StepFiles
from windrow_master.reuse.digest_processes import DigestProcesses
from windrow_master.reuse.digests import NoDigest, Place
from windrow_master.reuse.key import settings_key
from windrow_master.reuse.notes import ReuseNote, ReuseNotes
from windrow_master.roots import Roots
from windrow_master.shell.open_jobs import OpenJobs
from windrow_master.step_paths import StepPaths
from windrow_master.store.protocol import StoreReader

NOTHING_LIKE_IT = (
    "No earlier step of this name had the same settings and code, in the same Python, and succeeded without failures."
)


class Begun(NamedTuple):
    """A step that later jobs may reuse. `generation`: that of its job.

    Not the client's `Begun`, which is a run of `windrow run`.
    """

    job_id: str
    project: str
    step_id: int
    generation: int
    effective: EffectiveStep
    files: StepFiles

    @classmethod
    def of(cls, jobs: OpenJobs, step: Step) -> Begun:
        """Make one from a step of the core. Raises UnknownDatastore."""
        job = jobs.job_of(step)
        return cls(job.job_id, job.queue, step.step_id, job.generation, jobs.effective(step), jobs.files(step))


class Reuse:
    """Finds earlier steps to reuse, and notes what steps make for jobs to come."""

    def __init__(
        self,
        reader: StoreReader,
        files: StateFiles,
        datastores: Datastores,
        readable: Roots | None,
        scripts_run_in: str,
    ) -> None:
        """`datastores`: resolves addresses in MLTable files. `readable`: the roots that inputs must be below;
        anywhere if None. `scripts_run_in`: what is known of the agents' Python."""
        self._reader = reader
        self._made = ReuseNotes(files.made)
        self._process = DigestProcesses(files.digests, datastores, readable)
        self._scripts_run_in = scripts_run_in

    async def look(self, begun: Begun, paths: StepPaths) -> StepPaths:
        """Look for an earlier step to reuse. Return the paths with `reused_from` if there is one, else with
        `why_run`."""
        try:
            return await self._look(begun, paths)
        except Exception as error:
            log.exception("a step was not reused: please report this", extra={"fields": {"step": begun.step_id}})
            return replace(paths, why_run=f"The search for outputs of earlier jobs failed: {error!r}.")

    async def keep(self, begun: Begun, paths: StepPaths) -> None:
        """Note what a step made, for later jobs. Call it only if nothing in the step failed."""
        try:
            await self._keep(begun, paths)
        except OSError as error:
            say(logging.WARNING, "a step cannot be reused later", step=begun.step_id, reason=str(error))
        except Exception:
            log.exception("a step cannot be reused later: please report this")

    async def _look(self, begun: Begun, paths: StepPaths) -> StepPaths:
        key = settings_key(begun.effective, paths.inputs, self._scripts_run_in, begun.project)
        try:
            inputs = await self._process.digests(_inputs(begun.effective, paths))
        except NoDigest as error:
            return replace(paths, why_run=f"Its inputs cannot be compared: {error}.")
        found, why = await self._find(key, inputs)
        if found is None:
            note = {"generation": begun.generation, "key": key, "inputs": inputs}
            try:
                await asyncio.to_thread(_write_note, begun.files.reuse, note)
            except OSError as error:
                say(logging.WARNING, "a step cannot be reused later", step=begun.step_id, reason=str(error))
            return replace(paths, why_run=why)
        return replace(StepPaths.from_json(found.paths.encode()), inputs=paths.inputs, reused_from=found.job_id)

    async def _keep(self, begun: Begun, paths: StepPaths) -> None:
        note = await asyncio.to_thread(_read_note, begun.files.reuse)
        if note is None or note["generation"] != begun.generation:
            return
        made = ReuseNote(begun.job_id, begun.step_id, note["inputs"], {}, replace(paths, why_run="").to_json().decode())
        try:
            made = made._replace(outputs=await self._outputs_of(begun, paths, note))
        except NoDigest as error:
            say(logging.WARNING, "a step cannot be reused later", step=begun.step_id, reason=str(error))
            made = made._replace(why_not=str(error))
        await asyncio.to_thread(self._made.add, note["key"], made)

    async def _outputs_of(self, begun: Begun, paths: StepPaths, note: dict[str, Any]) -> dict[str, str]:
        """The digests of the outputs. Raises NoDigest if settings or inputs have changed since the step began."""
        if note["key"] != settings_key(begun.effective, paths.inputs, self._scripts_run_in, begun.project):
            raise NoDigest("its settings or its Python changed while it ran")
        inputs, outputs = _inputs(begun.effective, paths), _outputs(paths)
        digests = await self._process.digests(inputs | outputs)
        changed = next((name for name in inputs if digests[name] != note["inputs"][name]), None)
        if changed is not None:
            raise NoDigest(f"its {_told(changed)} has changed while it ran")
        return {name: digests[name] for name in outputs}

    async def _find(self, key: str, inputs: dict[str, str]) -> tuple[ReuseNote | None, str]:
        """The note of an earlier step that can be reused. If there is none: None, and why the newest cannot."""
        reasons = []
        for made in await asyncio.to_thread(self._made.find, key):
            why_not = await self._why_not(made, inputs)
            if why_not is None:
                return made, ""
            reasons.append(why_not)
        return None, next(filter(None, reasons), NOTHING_LIKE_IT)

    async def _why_not(self, made: ReuseNote, inputs: dict[str, str]) -> str | None:
        """Why this note does not serve a step with these inputs; None if it does. If empty, treat the note as if it did
        not exist."""
        if made.why_not:
            return f"The outputs of job {made.job_id} cannot be reused: {made.why_not}."
        changed = next((name for name, digest in inputs.items() if made.inputs.get(name) != digest), None)
        if changed is not None:
            return f"Its {_told(changed)} differs from that of job {made.job_id}."
        if not await asyncio.to_thread(self._has_completed, made):
            return ""
        places = _outputs(StepPaths.from_json(made.paths.encode()))
        try:
            outputs = await self._process.digests(places)
        except NoDigest as error:
            return f"The outputs of job {made.job_id} no longer exist: {error}."
        changed = next((name for name, digest in outputs.items() if made.outputs.get(name) != digest), None)
        if changed is None:
            return None
        return f"The {_told(changed)} of job {made.job_id} is not what it was then: {places[changed].path}."

    def _has_completed(self, made: ReuseNote) -> bool:
        """Whether the step came to its end. A master that died may have left a note of one that did not."""
        job = self._reader.job_by_id(made.job_id)
        steps = [] if job is None else self._reader.steps_of(job.job_key)
        return any(step.step_id == made.step_id and step.state == StepState.COMPLETED for step in steps)


def message_of(paths: StepPaths) -> str:
    """The message of a step that was reused."""
    return f"Reused from job {paths.reused_from}: settings, code and inputs are the same, so nothing had to run."


def _inputs(step: EffectiveStep, paths: StepPaths) -> dict[str, Place]:
    return {
        f"inputs.{name}": Place(given.type, paths.inputs[name])
        for name, given in step.inputs.items()
        if not isinstance(given, LiteralInput)
    }


def _outputs(paths: StepPaths) -> dict[str, Place]:
    # Of whatever type, an output is compared as all its files.
    return {f"outputs.{name}": Place("uri_folder", path) for name, path in paths.outputs.items()}


def _told(name: str) -> str:
    scope, _, rest = name.partition(".")
    return f"{scope[:-1]} {rest!r}"


def _write_note(path: Path, note: dict[str, object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # Durable: else a loss of power may leave an empty note, by which the step cannot be reused.
    write_note(path, note, durable=True)


def _read_note(path: Path) -> dict[str, Any] | None:
    try:
        return read_note(path)
    except (NoteDamaged, OSError) as error:
        say(logging.WARNING, "a step cannot be reused later", reason=str(error))
        return None
