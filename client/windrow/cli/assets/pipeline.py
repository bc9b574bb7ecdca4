"""`windrow pipeline`: job files that the master keeps under names, to be run with parameters."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import yaml

from windrow.cli import exit_codes
from windrow.cli.assets.named_assets import (
    ListedName,
    Tags,
    Version,
    age_of,
    described,
    named_version,
    print_assets,
    tag_of,
)
from windrow.cli.display.uploads import UploadDisplay
from windrow.cli.jobs.create import NOTIFY_WAITS, tell_submitted
from windrow.cli.messages import YELLOW, coloured, say
from windrow.cli.options.declared import Argument, Option, command
from windrow.cli.options.master_choice import master_options
from windrow.cli.options.run_options import RunOptions
from windrow.cli.options.shared import (
    Environments,
    EnvironmentsChoice,
    Master,
    Notify,
    Output,
    OutputForm,
    SandboxChoice,
    Sets,
    State,
    Strict,
    Tolerate,
    open_client,
)
from windrow.cli.running import run_start
from windrow.cli.tables import local_time, out, print_fields, print_json
from windrow.errors import UsageError
from windrow.sdk.asset import Asset

if TYPE_CHECKING:
    from windrow.sdk.client import Client


Name = Annotated[str, Argument(metavar="NAME", help="Name of the pipeline, or NAME:VERSION.")]


@command(epilog="Example: windrow pipeline publish job.yml --name nightly")
def publish(
    file: Annotated[Path, Argument(metavar="FILE", help="The job file: a pipeline YAML with parallel steps.")],
    name: Annotated[str, Option("--name", "-n", metavar="NAME", help="Name of the pipeline.")],
    version: Annotated[
        str | None, Option("--version", metavar="VERSION", help="Version [default: the next number].")
    ] = None,
    sets: Sets = None,
    description: Annotated[str, Option("--description", metavar="TEXT", help="Description for people.")] = "",
    tag: Tags = None,
    master: Master = None,
    state: State = None,
    output: Output = OutputForm.TEXT,
) -> int:
    """Keep a job file under a name and a version.

    Its code, components and environments are kept with it. The inputs of the job file are the parameters of the
    pipeline. Its data stays where it is, and is read there by each run. A version never changes; publishing the same
    again is harmless.
    """
    from windrow.sdk import pipelines
    from windrow.spec.reading.problems import grouped

    tags = dict(tag_of(text) for text in tag or ())
    wanted = Asset("pipeline", name, version or "", "", "", False, description, tags)
    with open_client(master, state, make=True) as client:
        made = pipelines.publish(client, client.read_job(file, sets or ()), wanted)
    for line in grouped(made.warnings):
        say(f"{coloured('warning:', YELLOW, sys.stderr)} {line}")
    asset = made.asset
    if output is OutputForm.JSON:
        print_json(asset.to_dict())
    else:
        out(f"{asset.name}:{asset.version}")
        say(f"Run it with: windrow pipeline run {asset.name}:{asset.version}{master_options(master, state)}")
    return exit_codes.DONE


@command(epilog="Example: windrow pipeline list --name nightly")
def list_pipelines(
    name: ListedName = "",
    master: Master = None,
    state: State = None,
    output: Output = OutputForm.TEXT,
) -> int:
    """List published pipelines.

    Shows the latest version of each, or all versions of one.
    """
    with open_client(master, state) as client:
        found = sorted(client.list_pipelines(name), key=lambda asset: asset.name)
    print_assets(
        found,
        output,
        columns={"PUBLISHED": age_of, "DESCRIPTION": lambda asset: asset.description},
        word="pipeline",
        name=name,
        register="Publish one with: windrow pipeline publish FILE --name NAME",
    )
    return exit_codes.DONE


@command(epilog="Example: windrow pipeline show nightly:2")
def show(
    name: Name, version: Version = None, master: Master = None, state: State = None, output: Output = OutputForm.TEXT
) -> int:
    """Show a version of a pipeline, with its parameters."""
    from windrow.sdk import pipelines

    with open_client(master, state) as client:
        asset = _found(client, name, version)
        with pipelines.fetched(client, asset, None) as job_file:
            parameters = pipelines.parameters_of(job_file)
    if output is OutputForm.JSON:
        print_json({**asset.to_dict(), "parameters": parameters})
        return exit_codes.DONE
    print_fields(
        [
            ("name", asset.name),
            ("version", asset.version),
            ("published", local_time(asset.create_time)),
            *described(asset),
            *((f"parameter {key}", "" if value is None else str(value)) for key, value in parameters.items()),
        ]
    )
    return exit_codes.DONE


@command(epilog="Example: windrow pipeline run nightly --param day=2026-05-01")
def run(
    name: Name,
    version: Version = None,
    param: Annotated[
        list[str] | None,
        Option(
            "--param",
            "-p",
            metavar="NAME=VALUE",
            help="Value of a parameter (an input of the pipeline); of data, its path. Relative paths begin at the "
            "current folder. Repeatable.",
        ),
    ] = None,
    sets: Sets = None,
    stream: Annotated[
        bool, Option("--stream", help="On a master: follow the job until it ends. Runs here are followed always.")
    ] = False,
    restart: Annotated[
        bool, Option("--restart", help="Here: cancel the unfinished run of this version and start a new one.")
    ] = False,
    python: Annotated[
        str | None, Option(metavar="PATH", help="Here: interpreter for the scripts, as of windrow run.")
    ] = None,
    environments: EnvironmentsChoice = Environments.BUILD,
    sandbox: SandboxChoice = None,
    slots: Annotated[
        int | None,
        Option(min=1, max=4096, metavar="N", help="Here: number of workers [default: one per processor]."),
    ] = None,
    strict: Strict = False,
    tolerate: Tolerate = False,
    notify: Notify = None,
    master: Master = None,
    state: State = None,
    output: Output = OutputForm.TEXT,
) -> int:
    """Run a published pipeline, with other values of its parameters.

    With a master, the job is submitted to it, as by `windrow job create`. Without one it runs on this machine, as by
    `windrow run`, and the same command continues an unfinished run.
    """
    # These read job files, which the other commands need not.
    from windrow.sdk import pipelines

    parameters = dict(_parameter(text) for text in param or ())
    with open_client(master, state) as client:
        asset = _found(client, name, version)
        if client.state is None:
            if notify and not stream:
                raise UsageError(NOTIFY_WAITS)
            for option, given in (("--restart", restart), ("--python", python), ("--slots", slots)):
                if given:
                    raise UsageError(
                        f"{option} is for runs on this machine, and this pipeline is a master's. Leave it out, or name "
                        "a state folder with --state."
                    )
            with UploadDisplay(quiet=output is OutputForm.JSON) as display:
                job = pipelines.run(client, asset, parameters, sets=sets or (), on_upload=display.show)
            return tell_submitted(
                client,
                job,
                stream=stream,
                strict=strict,
                tolerate=tolerate,
                targets=notify or (),
                options=master_options(master, state),
                output=output,
            )
        folder = client.state
        with pipelines.fetched(client, asset, folder) as job_file:
            own_sets = pipelines.sets_of(job_file, parameters)
    options = RunOptions(job_file)
    options.state, options.form = folder, output.value
    options.sets, options.sets_folder = [*own_sets, *(sets or ())], str(Path.cwd())
    options.restart, options.strict, options.tolerate, options.notify = restart, strict, tolerate, notify or []
    options.python, options.environments, options.slots = python, environments.value, slots
    options.sandbox = None if sandbox is None else sandbox.value
    return run_start.run(options)


def _found(client: Client, text: str, version: str | None) -> Asset:
    name, version = named_version("pipeline", text, version)
    return client.pipeline(name, version)


def _parameter(text: str) -> tuple[str, str]:
    """A parameter, and the YAML text of its value."""
    from windrow.sdk.pipelines import yaml_of

    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageError(f"--param {text}: expected NAME=VALUE, for example --param day=2026-05-01.")
    return name.strip(), value if _is_plain(value) else yaml_of(value)


def _is_plain(text: str) -> bool:
    """Whether a text is a number, a truth value or nothing as YAML writes it; all else, such as a date, is text."""
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        return False
    return value is None or isinstance(value, (bool, int, float))
