"""What a group of a fleet says of Slurm."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from windrow.spec.reading import keys, nodes
from windrow.spec.reading.context import Context
from windrow.spec.settings.fields import Field

LOG_FOLDER = "~/.local/state/windrow/slurm"
_FIELDS = {
    "partition": Field("text"),
    "account": Field("text"),
    "qos": Field("text"),
    "constraint": Field("text"),
    "log_folder": Field("text"),
    "extra_args": Field("texts"),
    "setup": Field("texts"),
}
_TAKEN = (
    "job-name",
    "array",
    "clusters",
    "cluster",
    "parsable",
    "wait",
    "wrap",
    "test-only",
    "help",
    "usage",
    "version",
)
"""Options of sbatch by which the fleet would not find its allocations, or would not learn what they are called."""
_TAKEN_LETTERS = ("-J", "-a", "-M", "-W", "-h", "-V")


class SlurmSettings(NamedTuple):
    """What sbatch is told besides the shape and the lifetime. "": Slurm's own default."""

    partition: str = ""
    account: str = ""
    qos: str = ""
    constraint: str = ""
    extra_args: tuple[str, ...] = ()
    """Further options of sbatch. They come last, so they hold where they contradict those of the fleet."""
    setup: tuple[str, ...] = ()
    """Lines of bash that run on the node before the agent starts: `module load python/3.11`."""
    log_folder: str = LOG_FOLDER
    """Where what the agents print goes, one file an allocation. Nodes have to see it under the same path."""

    @property
    def log_path(self) -> Path:
        """The folder of logs, without `~`."""
        return Path(self.log_folder).expanduser()


def read(mapping: nodes.Mapping, key: str, context: Context) -> SlurmSettings:
    """Reads the keys below `slurm`. A relative `log_folder` starts at the folder of the file."""
    keys.warn_of_unknown(mapping, _FIELDS, key, context)
    entries = mapping.entries
    words = {
        name: keys.read_text(entries.get(name), f"{key}.{name}", context) or ""
        for name in ("partition", "account", "qos", "constraint", "log_folder")
    }
    folder = Path(words.pop("log_folder") or LOG_FOLDER).expanduser()
    extra_args = keys.read_texts(entries.get("extra_args"), f"{key}.extra_args", context)
    for argument in extra_args:
        trouble = _trouble(argument)
        if trouble:
            context.problems.error(entries["extra_args"], f"{key}.extra_args", f'has "{argument}": {trouble}')
    return SlurmSettings(
        **words,
        extra_args=tuple(extra_args),
        setup=tuple(keys.read_texts(entries.get("setup"), f"{key}.setup", context)),
        log_folder=str(Path(context.source.folder or ".").absolute() / folder),
    )


def _trouble(argument: str) -> str:
    """Why sbatch must not be given an argument; "" if it may."""
    if not argument.startswith("-") or argument in ("-", "--"):
        return (
            "write an option and its value as one text, such as --nodelist=node7; sbatch would take this for a script."
        )
    option = argument.partition("=")[0]
    # sbatch takes the beginning of a long option for the whole of it.
    if option in _TAKEN or argument[:2] in _TAKEN_LETTERS or _begins_a_taken_one(option):
        return "the fleet sets or needs this itself. Remove it."
    return ""


def _begins_a_taken_one(option: str) -> bool:
    return option.startswith("--") and any(taken.startswith(option[2:]) for taken in _TAKEN)
