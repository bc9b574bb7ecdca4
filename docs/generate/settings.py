"""The page of settings outside job files: environment variables, the agent's configuration, what scripts see."""

from __future__ import annotations

import dataclasses
import re

import typer
from commands import options_of, shown_default, walk
from markdown import escaped, head, joined, listed, sentence
from windrow.cli.lines.app import app
from windrow_agent.config import AgentConfig
from windrow_agent.workers.variables import PASSED
from windrow_master.limits import Limits

TEXT = """\
Settings outside job files. Options of commands are in [commands.md](commands.md), keys of job files in
[job-file.md](job-file.md), variables of a cluster in containers in
[the guide to deployment](../how-to/deploy-with-containers.md).
"""
OTHERS = {
    "WINDROW_TOKEN_FILE": "File with the client token. A client uses it, and `WINDROW_CA_FILE`, with an address "
    "that is given by `--master` or in Python",
    "WINDROW_CONTEXTS": "File of the contexts. Default: `windrow/contexts.json` in `$XDG_CONFIG_HOME`, else in "
    "`~/.config`",
    "WINDROW_REGISTRIES": "File of the registries of components. Default: `windrow/registries.json` in "
    "`$XDG_CONFIG_HOME`, else in `~/.config`",
    "WINDROW_STORAGE_RETRY": "Seconds for which a failing request to remote storage is repeated",
    "WINDROW_STORAGE_READ_TIMEOUT": "Seconds without a byte after which a read from remote storage is given up",
    "WINDROW_INSTALL_HINT": "Text added to the message that a script's Python lacks a package, for images to say how "
    "packages are added",
    "NO_COLOR": "Set to anything: no colours",
    "TMPDIR": "Folder for temporary files, such as the planner's copies of files from web servers",
}
"""Variables that no option stands for."""
FOR_NOTIFY = {
    "WINDROW_JOB": "The name of the job",
    "WINDROW_STATE_WORD": "Its state, such as `completed`",
    "WINDROW_SUMMARY": "How it ended, in one line",
}
"""Variables that Windrow sets."""
TYPES = {"str": "text", "Path": "path", "int": "whole number", "float": "number", "bool": "true or false"}


def page() -> str:
    """The whole page."""
    lines = head(
        "Settings",
        "options of `windrow`, the agent's configuration and variables, and the master's limits",
        TEXT,
    )
    lines += [
        "## Environment variables",
        "",
        "An option on the command line wins over its variable. `WINDROW_STATE`, `WINDROW_MASTER`, "
        "`WINDROW_ENVIRONMENTS` and `WINDROW_SANDBOX` also count in Python, where a call does not say otherwise. A "
        "variable of an option that can be repeated holds several values, separated by spaces.",
        "",
    ]
    for name, commands in sorted(variables().items()):
        lines.append(f"- `{name}`: stands for {', '.join(commands)}.")
    lines.append("")
    lines += [f"- `{name}`: {sentence(text)}" for name, text in OTHERS.items()]
    lines += ["", "Windrow sets these for a command line of `--notify`:", ""]
    lines += [f"- `{name}`: {sentence(text)}" for name, text in FOR_NOTIFY.items()]
    lines += ["", "## The agent's configuration", ""]
    lines += [
        "`windrow agent --config FILE` takes a JSON object with these keys, instead of all options.",
        "",
        *configuration(),
        "",
        "## The limits of a master",
        "",
        "What one master takes at most. `windrow master --limit NAME=NUMBER` sets one; it can be repeated. What would "
        "pass a limit is refused (`LIMIT_REACHED`), or fails its step, with a message that names the limit. A run on "
        "this machine has the defaults.",
        "",
        *limits(),
        "",
        "## What scripts see of the agent's environment",
        "",
        "These variables pass from the agent's environment to scripts, besides `LC_*` and those that "
        "`windrow agent --pass-env` names:",
        "",
        f"{', '.join(f'`{name}`' for name in sorted(PASSED))}.",
    ]
    return joined(lines)


def variables() -> dict[str, list[str]]:
    """The variables of options, each with the options that they stand for."""
    found: dict[str, dict[str, list[str]]] = {}
    for path, command in walk("windrow", typer.main.get_command(app)):
        for option in options_of(command):
            if option.envvar:
                name = option.metavar if option.param_type_name == "argument" else option.opts[0]
                found.setdefault(option.envvar, {}).setdefault(name, []).append(path)
    return {
        name: [
            f"`{option}` of {'most commands' if len(paths) > 6 else ', '.join(f'`{path}`' for path in paths)}"
            for option, paths in options.items()
        ]
        for name, options in found.items()
    }


def limits() -> list[str]:
    """The limits of a master, with their defaults and meanings."""
    return [
        listed(f"`{field.name}`", [f"default: {field.default:,}"], sentence(field.metadata["meaning"]))
        for field in dataclasses.fields(Limits)
    ]


def configuration() -> list[str]:
    """The keys of the agent's configuration, with their texts from its docstring."""
    described = dict(
        re.findall(r"^ +- ``?(\w+)``?: (.*?)(?=\n +- |\n *\Z|\n\n)", AgentConfig.__doc__ or "", re.M | re.S)
    )
    lines = []
    for field in dataclasses.fields(AgentConfig):
        notes = [TYPES.get(str(field.type).partition(" | ")[0], "")]
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            notes.append("required")
        elif given := shown_default(None if field.default is dataclasses.MISSING else field.default):
            notes.append(f"default: {given}")
        text = escaped(sentence(described.get(field.name, "").replace("``", "`")))
        lines.append(listed(f"`{field.name}`", notes, text))
    return lines
