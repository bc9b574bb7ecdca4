"""`windrow run --dry-run` and `windrow job create --dry-run`: the plan of a job, and whether it would fail."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from windrow.cli import exit_codes
from windrow.cli.display.plan import print_plan
from windrow.cli.display.typed_words import typed_problems
from windrow.cli.messages import YELLOW, coloured, report, say
from windrow.cli.options.run_options import RunOptions
from windrow.cli.running import one_line
from windrow.cli.tables import print_json
from windrow.common.interpreter import find_interpreter
from windrow.common.quantities import counted
from windrow.common.role_query import Unanswered
from windrow.common.role_query import ask as ask_process
from windrow.dry_run.document import Code, make_document, problems_of
from windrow.dry_run.query import ask, outputs_written
from windrow.dry_run.room import Room, room_document
from windrow.embedded import datastores as embedded_datastores
from windrow.embedded import state_folder
from windrow.embedded.job_interpreter import check_job_interpreter
from windrow.sdk.client import Client
from windrow.sdk.code_change import refuse_without_earlier_job
from windrow.sdk.earlier_jobs import taking_over
from windrow.sdk.submission import pack_code
from windrow.spec import DataInput, JobFileError, Origin, build_effective, load_job
from windrow.spec.earlier_results import NO_LAST, refuse_nothing_divided, with_results_of
from windrow.spec.one_line.words import in_options
from windrow.spec.reading.problems import Problem, grouped
from windrow.storage.credentials import hide_credentials
from windrow.validation.validate import check_loaded

if TYPE_CHECKING:
    from windrow.spec import EffectiveJob, LoadedJob


def dry_run(options: RunOptions) -> int:
    """The plan of what `windrow run` with the same options would do. Returns the exit code."""
    hide_credentials()
    try:
        return _dry_run(options)
    except KeyboardInterrupt:
        return exit_codes.INTERRUPTED
    except BrokenPipeError:
        sys.stdout = None
        return exit_codes.DONE
    except Exception as error:
        return report(error, options.form)


def _dry_run(options: RunOptions) -> int:
    state = os.path.abspath(options.state)  # noqa: PTH100  links stay
    has_state = state_folder.has_state(state)  # raises if nobody could tell what is in it
    python = find_interpreter(options.python, os.environ)
    known = embedded_datastores.known(state, embedded_datastores.read(options.datastores))
    of_inputs: tuple[str, ...] = ()
    with contextlib.ExitStack() as opened:
        moved, job_file = _Moved(), options.job_file
        if options.is_script:
            made = one_line.make(options)
            of_inputs = made.notes
            folder = opened.enter_context(tempfile.TemporaryDirectory(prefix="windrow-"))
            moved, job_file = _Moved(folder, one_line.kept_in(options, state)), one_line.write(made, folder)
        try:
            loaded = load_job(
                job_file,
                options.sets,
                datastores=known,
                # Asked only by a file that names an asset; a master of this state folder has to be asked then.
                assets=lambda: opened.enter_context(Client(state=state)).asset_lookup(),
            )
            refuse_without_earlier_job(loaded, options.code_change, options.since)
            if options.exact_row_index:
                loaded = loaded.with_exact_row_index()
            builds = options.environments == "build" and not options.python
            check_job_interpreter(python, loaded, builds=builds)
            loaded = moved.job(_checked(loaded, python))
        except JobFileError as error:
            problems, warnings = (moved.problems(found) for found in (error.problems, error.warnings))
            raise JobFileError(typed_problems(problems, options), typed_problems(warnings, options)) from error
        warnings, notes = (typed_problems(found, options) for found in (loaded.warnings, loaded.notes))
        loaded = loaded._replace(warnings=warnings, notes=notes)
        # As in a run: results of other jobs beside the code are no code.
        job, codes = packed(loaded, written=outputs_written(state) if has_state else ())
        if options.since:
            refuse_nothing_divided(job, options.since)
        divided, outputs = [step.name for step in job.steps], os.path.join(state, "outputs")  # noqa: PTH118
        answer = ask(job, state=state, outputs=outputs, datastores=known, divided=divided, since=options.since)
    if answer["since"] is not None:
        job, loaded = _since(job, loaded, with_results_of(job, answer["since"]))
    here = _this_machine(options.slots)
    slots = options.slots or (here.slots if here else None)
    rooms = [here] if here else []
    for step in job.steps:
        if lacking := room_document(step, rooms)["lacking"]:
            answer["steps"][step.name]["problems"].append(
                in_options(f"{lacking}: the step would wait without end", job.job_file)
            )
    document = make_document(loaded, job, answer, codes, python=python, builds=builds, slots=slots, rooms=rooms)
    document["notes"] += of_inputs
    workers = f", {counted(slots, 'worker')} at a time" if slots else ""
    where = f"a private master and agent of this machine{workers}, with their state in {state}"
    what = options.job_file if options.is_script else job.job_file
    return _tell(moved.told(document), loaded, options.form, where, what=what)


class _Moved(NamedTuple):
    """The job file of a run without one is in a temporary folder (`made`) in a dry run. To the user, and when earlier
    runs are looked for, it is where the run keeps it (`kept`).
    """

    made: str = ""
    kept: str = ""

    def job(self, loaded: LoadedJob) -> LoadedJob:
        """The job as the run loads it, whose settings come from the command line. Not the paths of its inputs: those
        are read from the temporary folder.
        """
        if not self.made:
            return loaded
        typed = Origin("command line")
        origins = {key: typed if self.made in origin.where else origin for key, origin in loaded.origins.items()}
        job = loaded.job._replace(job_file=self.told(loaded.job.job_file))
        warnings, notes = self.problems(loaded.warnings), self.problems(loaded.notes)
        return loaded._replace(job=job, origins=origins, warnings=warnings, notes=notes)

    def problems(self, found: Sequence[Problem]) -> tuple[Problem, ...]:
        """The problems at the places where the run would find them."""
        return tuple(Problem(*map(self.told, problem)) for problem in found)

    def told(self, value: Any) -> Any:
        """Text, or what holds it, without the temporary folder."""
        if isinstance(value, str):
            return value.replace(self.made, self.kept) if self.made else value
        if isinstance(value, dict):
            return {key: self.told(entry) for key, entry in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.told(entry) for entry in value]
        return value


def dry_create(
    client: Client,
    file: str,
    *,
    sets: Sequence[str],
    name: str | None,
    priority: int,
    since: str,
    code_change: str,
    as_json: bool,
) -> int:
    """The plan of what `windrow job create` with the same options would submit. Returns the exit code."""
    master = client.master()
    loaded = _checked(client.load_job(file, sets), find_interpreter(None, os.environ), packages=False)
    refuse_without_earlier_job(loaded, code_change, since)
    uploaded: set[tuple[str, str]] = set()
    kept: dict[tuple[str, str], str | None] = {}
    if not master.embedded:
        from windrow.transfer.local_data import outputs_kept, refuse_before_uploads, to_be_uploaded

        refuse_before_uploads(client.connection, loaded, master.datastores)
        uploaded = to_be_uploaded(client.connection, loaded, master.datastores)
        kept = outputs_kept(client.connection, loaded, master.datastores)
    job, codes = packed(loaded, name=name, priority=priority, kept_outputs=kept)
    if since:
        job, loaded = _since(job, loaded, taking_over(client, job, since))
    divided = [step.name for step in job.steps if _is_here(loaded, step.name)]
    default = master.datastores.get("default", "")
    outputs = f"{default or '<state folder of the master>'}/outputs"
    answer = ask(job, state=None, outputs=outputs, datastores=master.datastores, divided=divided)
    for step in job.steps:
        division = answer["steps"][step.name]["division"]
        if division["state"] == "waits" and not division["why"]:
            division["why"] = "its input is not on this machine; the master divides it"
    _name_uploads(job, uploaded, answer, default)
    for step in job.steps:
        if step.resume_from is not None:
            answer["steps"][step.name]["notes"].append(
                f"unchanged results are taken over from job {step.resume_from}; the master counts them when it divides "
                "the input"
            )
    if since:
        answer["since"] = next((step.resume_from for step in job.steps if step.resume_from is not None), None)
        answer["notes"] += [NO_LAST] * (answer["since"] is None)
    rooms = [
        Room(node.node_id, node.slots, node.memory_bytes, node.gpu_count, node.pools)
        for node in client.list_nodes()
        if node.state == "ready" and not node.cordoned
    ]
    for waiting, note in _without_room(job, rooms):
        answer["steps"][waiting]["notes"].append(note)
    document = make_document(loaded, job, answer, codes, python="", slots=None, rooms=rooms)
    if uploaded:
        keys = ", ".join(sorted({loaded.own_inputs[key] for key in uploaded}))
        document["notes"].append(f"{keys}: data of this machine, which is uploaded to the master once.")
    for place in kept:
        path = job.fetch.get(".".join(place))
        fills = f"`windrow job download` fills {path}" if path else "`windrow job download --to DIR` fetches it"
        document["notes"].append(f"{loaded.own_outputs[place]}: the master keeps the output; {fills}.")
    return _tell(document, loaded, "json" if as_json else "text", f"the master at {client.address}", what=job.job_file)


def _since(job: EffectiveJob, loaded: LoadedJob, resuming: EffectiveJob) -> tuple[EffectiveJob, LoadedJob]:
    """Apply `--since`: the job with the results that it takes over, and the job file with their origin."""
    changed = [new.name for old, new in zip(job.steps, resuming.steps, strict=True) if new != old]
    origins = {f"jobs.{name}.resume_from": Origin("--since") for name in changed}
    return resuming, loaded._replace(origins={**loaded.origins, **origins})


def packed(
    loaded: LoadedJob,
    *,
    name: str | None = None,
    priority: int = 0,
    kept_outputs: Mapping[tuple[str, str], str | None] | None = None,
    written: Sequence[str] = (),
) -> tuple[EffectiveJob, dict[str, Code]]:
    """The job as it would be submitted, and the content of its code folders. `written`: outputs of other jobs. Raises
    UsageError.
    """
    codes: dict[str, Code] = {}
    for folder in sorted(set(loaded.code_folders.values())):
        with tempfile.TemporaryFile() as archive:
            made = pack_code(loaded, folder, archive, written)
            codes[folder] = Code(made.file_count, made.content_bytes, made.digest)
    digests = {folder: code.digest for folder, code in codes.items()}
    return build_effective(loaded, digests, kept_outputs=kept_outputs, name=name, priority=priority), codes


def _name_uploads(job: EffectiveJob, uploaded: set[tuple[str, str]], answer: dict[str, Any], default: str) -> None:
    """Replace paths of this machine by those where the master will have the data."""
    for step in job.steps:
        told = answer["steps"][step.name]
        for name, given in step.inputs.items():
            if (step.name, name) not in uploaded or not isinstance(given, DataInput):
                continue
            place = f"{default}/uploads/<digest of {given.path}>"
            told["inputs"][name] = place
            told["words"] = [word.replace(given.path, place) for word in told["words"]]


def _without_room(job: EffectiveJob, rooms: Sequence[Room]) -> Iterator[tuple[str, str]]:
    """Steps that would wait with the nodes that take work now, and why."""
    for step in job.steps:
        if not rooms:
            yield step.name, "no node takes work at the moment; the step would wait for one"
        elif not any(room.is_open_to(step) for room in rooms):
            yield step.name, f"no node of the pool {step.compute} takes work at the moment; the step would wait for one"
        else:
            found = room_document(step, rooms)
            if found["lacking"]:
                yield step.name, f"{found['lacking']}; the step would wait for a node that does"
            elif len(found["nodes"]) < step.min_nodes:
                yield (
                    step.name,
                    f"it begins on {step.min_nodes} nodes at once (min_nodes), and a worker fits on "
                    f"{len(found['nodes'])}; the step would wait for more",
                )


def _this_machine(slots: int | None) -> Room | None:
    """What an agent on this machine would have for workers, with so many slots; None if that cannot be found out."""
    try:
        told = ask_process("windrow_agent.node")
        gpus = sum(not device["trouble"] for device in told["gpus"]["devices"])
        return Room("", slots or int(told["cpu_count"]), int(told["memory_bytes"]), gpus)
    except Unanswered:
        return None


def _is_here(loaded: LoadedJob, step_name: str) -> bool:
    """Whether all data that a step divides is on this machine, and the same as what the master will have."""
    step = next(step for step in loaded.job.steps if step.name == step_name)
    data = [name for name in step.input_data if isinstance(step.inputs[name], DataInput)]
    return all((step_name, name) in loaded.own_inputs for name in data)


def _checked(loaded: LoadedJob, python: str, *, packages: bool = True) -> LoadedJob:
    """Add the warnings of a thorough check. `packages`: scripts run in that Python. Raises JobFileError."""
    found = check_loaded(loaded, python, packages=packages)
    if found.errors:
        raise JobFileError(found.errors, found.warnings)
    return loaded._replace(warnings=found.warnings)


def _tell(document: dict[str, Any], loaded: LoadedJob, output: str, where: str, *, what: str) -> int:
    problems = problems_of(document)
    code = exit_codes.JOB_FAILED if problems else exit_codes.DONE
    if output == "json":
        print_json({**document, "problems": problems, "exit_code": code})
        return code
    for line in grouped(loaded.warnings):
        say(f"{coloured('warning:', YELLOW, sys.stderr)} {line}")
    for line in grouped(loaded.notes):
        say(f"note: {line}")
    print_plan(document, where=where, what=what)
    return code
