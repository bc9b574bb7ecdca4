"""The options of `windrow run`, read without typer: importing it would delay the start of master and agent.

The reader here knows only the plain cases. All else (--help, a mistake) is left to the typer command of the same name
in `windrow.cli.lines.app`. A test checks that both have the same options.
"""

from __future__ import annotations

import os

from windrow.embedded import state_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from windrow.embedded.session import Session

FLAGS = {
    "--dry-run": "dry_run",
    "--restart": "restart",
    "--keep-rows": "keep_rows",
    "--exact-row-index": "exact_row_index",
    "--speculate": "speculate",
    "--strict": "strict",
    "--tolerate": "tolerate",
    "--no-progress": "no_progress",
}
VALUES = {
    "--since": "since",
    "--code-change": "code_change",
    "--state": "state",
    "--python": "python",
    "--environments": "environments",
    "--slots": "slots",
    "--sandbox": "sandbox",
    "--format": "form",
    "-o": "output",
    "--output": "output",
    "--as": "kind",
    "--mini-batch-size": "mini_batch_size",
    "--workers": "workers",
    "--timeout": "timeout",
    "--max-retries": "max_retries",
    "--partition-keys": "partition_keys",
    "--returns": "returns",
    "--split": "split",
    "--retry-delay": "retry_delay",
    "--rate-limit": "rate_limit",
    "--cpus-per-worker": "cpus_per_worker",
    "--memory-per-worker": "memory_per_worker",
    "--gpus-per-worker": "gpus_per_worker",
    "--min-nodes": "min_nodes",
    "--idle-gpu-timeout": "idle_gpu_timeout",
    "--save": "save",
}
LISTS = {"--set": "sets", "--datastore": "datastores", "--notify": "notify"}
CHOICES = {
    "form": ("text", "json"),
    "environments": ("build", "own"),
    "sandbox": ("off", "auto", "given", "strict"),
    "kind": ("auto", "files", "table"),
    "code_change": ("ask", "rerun", "mix"),
}
NUMBERS = {
    "slots": (1, 4096),
    "workers": (1, 4096),
    "timeout": (1, 259_200),
    "max_retries": (0, 2**31 - 1),
    "idle_gpu_timeout": (1, 259_200),
}
ONE_LINE = (
    "output", "kind", "mini_batch_size", "workers", "timeout", "max_retries", "partition_keys", "returns", "split",
    "retry_delay", "rate_limit", "cpus_per_worker", "memory_per_worker", "gpus_per_worker", "min_nodes",
    "idle_gpu_timeout", "speculate", "save",
)  # fmt: skip
"""What stands in a job file, if there is one."""


class RunOptions:
    """The options of one `windrow run`."""

    def __init__(self, job_file: str = "") -> None:
        self.job_file = job_file
        """The job file, or the script of a run without one."""
        self.inputs: list[str] = []
        self.arguments: list[str] = []
        """Of the script."""
        self.output: str | None = None
        self.kind = "auto"
        self.mini_batch_size: str | None = None
        self.workers: int | None = None
        self.timeout: int | None = None
        self.max_retries: int | None = None
        self.partition_keys: str | None = None
        self.returns: str | None = None
        self.split: str | None = None
        self.retry_delay: str | None = None
        self.rate_limit: str | None = None
        self.cpus_per_worker: str | None = None
        self.memory_per_worker: str | None = None
        self.gpus_per_worker: str | None = None
        self.min_nodes: str | None = None
        self.idle_gpu_timeout: int | None = None
        self.speculate = False
        self.save: str | None = None
        self.sets: list[str] = []
        self.sets_folder: str | None = None
        """Where relative paths in `sets` begin; by default at the job file."""
        self.datastores: list[str] = []
        self.state = state_folder.default()
        self.python: str | None = None
        self.environments = "own" if os.environ.get("WINDROW_ENVIRONMENTS") == "own" else "build"
        self.slots: int | None = None
        self.sandbox: str | None = None
        """How workers are confined; None: as $WINDROW_SANDBOX says."""
        self.dry_run = False
        self.since = ""
        self.code_change = "ask"
        self.restart = False
        self.keep_rows = False
        self.exact_row_index = False
        self.strict = False
        self.tolerate = False
        self.no_progress = False
        self.notify: list[str] = []
        self.form = "text"
        self.retried = ""
        """The job to retry (`windrow job retry`); then the job file is optional."""

    @property
    def is_script(self) -> bool:
        """Whether a script runs without a job file."""
        return self.job_file.endswith(".py")

    def open_session(self) -> Session:
        """Open the state folder of the run, with a private master and agent. Raises what `open_session` raises."""
        from windrow.embedded.session import open_session

        return open_session(
            self.state,
            with_agent=True,
            python=self.python,
            environments=self.environments,
            slots=self.slots,
            sandbox=self.sandbox,
            datastores=self.datastores,
            tell=self._tell,
        )

    def _tell(self, message: str) -> None:
        # Here: nearly no run has to wait, and each would load what tells it.
        from windrow.cli.messages import say

        say(message)

    def misplaced(self) -> str:
        """An option or input that is given beside a job file, as typed; "" if there is none."""
        if self.is_script:
            return ""
        if self.inputs:
            return self.inputs[0]
        named = {name: option for option, name in {**VALUES, **FLAGS}.items() if name in ONE_LINE}
        empty = RunOptions()
        found = next((name for name in ONE_LINE if getattr(self, name) != getattr(empty, name)), "")
        return named[found] if found else "--" if self.arguments else ""


def parse(arguments: list[str]) -> RunOptions | None:
    """The options of a plain, correct command line; None for any other."""
    options = RunOptions()
    rest = iter(arguments)
    for argument in rest:
        name, equals, value = argument.partition("=") if argument.startswith("--") else (argument, "", "")
        if argument == "--":
            options.arguments = list(rest)
        elif argument in FLAGS:
            setattr(options, FLAGS[argument], True)
        elif name in VALUES or name in LISTS:
            text = value if equals else next(rest, None)
            if text is None or not _take(options, name, text):
                return None
        elif argument.startswith("-") or not argument:
            return None
        elif options.job_file:
            options.inputs.append(argument)
        else:
            options.job_file = argument
    if os.environ.get("WINDROW_ENVIRONMENTS", "build") not in CHOICES["environments"]:
        return None  # typer reports it
    if not options.job_file or options.misplaced():
        return None
    if (options.restart and options.keep_rows) or (options.strict and options.tolerate):
        return None
    if options.workers is not None and options.slots is not None:
        return None
    options.slots = options.slots or options.workers
    return options


def foreign_option(arguments: list[str]) -> str:
    """An option behind a script that `windrow run` does not have, as typed; "" if there is none."""
    rest = iter(arguments)
    is_script = False
    for argument in rest:
        name, equals, _ = argument.partition("=")
        if argument == "--":
            return ""
        if name in VALUES or name in LISTS:
            if not equals:
                next(rest, None)
        elif not argument.startswith("-"):
            is_script = is_script or RunOptions(argument).is_script
        elif is_script and name not in FLAGS and name not in ("-h", "--help") and name[:2] not in VALUES:
            return name
    return ""


def _take(options: RunOptions, name: str, text: str) -> bool:
    if name in LISTS:
        getattr(options, LISTS[name]).append(text)
    elif VALUES[name] in NUMBERS:
        least, most = NUMBERS[VALUES[name]]
        if not text.isascii() or not text.isdecimal() or not least <= int(text) <= most:
            return False
        setattr(options, VALUES[name], int(text))
    elif text not in CHOICES.get(VALUES[name], (text,)):
        return False
    else:
        setattr(options, VALUES[name], text)
    return True
