"""The page of a job file's keys: kind, range and default from the field tables, meaning from `job_file.toml`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from markdown import head, joined, listed
from spec_tables import EXACT_ONLY, OWN, Field, Key, tables

TEXT = """\
Every key that Windrow knows, with what it may be, its default, and what it does. [The job file](../job-file.md)
explains how they work together. `windrow schema` prints the same for editors, as a JSON Schema.

A key *without effect* is read, checked, and named in a warning. An unknown key gives a warning with a suggestion.
Numbers and true or false may be written as text. A number of a step may also be an expression, such as
`${{parent.inputs.size}}`.
"""
SECTIONS = (
    ("pipeline", "The pipeline", "The whole file."),
    ("settings", "settings", "Below `settings:` of the pipeline."),
    ("step", "A parallel step", "Below `jobs.<step>:`. A component has most of these keys, too."),
    ("component", "A component", "Only in a component: a file, or a mapping below `jobs.<step>.component:`."),
    ("retry_settings", "retry_settings", "Below `jobs.<step>.retry_settings:`."),
    ("resources", "resources", "Below `jobs.<step>.resources:`."),
    ("task", "task", "Below `jobs.<step>.task:`."),
    ("command_step", "A command step", "Below `jobs.<step>:` of type `command`. Its other keys are those of any step."),
    ("limits", "limits", "Below `jobs.<step>.limits:` of a command step."),
    (
        "pipeline_step",
        "A pipeline step",
        "Below `jobs.<step>:` of type `pipeline`. Its other keys are those of any step.",
    ),
    ("if_else", "An if_else node", "Below `jobs.<node>:` of type `if_else`."),
    ("do_while", "A do_while node", "Below `jobs.<node>:` of type `do_while`."),
    ("do_while_limits", "limits of a do_while node", "Below `jobs.<node>.limits:` of type `do_while`."),
    (
        "input",
        "Inputs",
        "Below `inputs.<name>:` of the pipeline, a step or a component. A value alone is a literal or a binding.",
    ),
    ("output", "Outputs", "Below `outputs.<name>:`. It may also be empty, or just a path or a binding."),
)
IN_ARGUMENTS = """\
Inside `task.program_arguments`. Windrow reads them. They stay visible to the script, which therefore parses with
`parse_known_args()`; those that are Windrow's own do so only if the script's source names them. An argument wins over
the key that sets the same.
"""
PREFIXES = "A unique prefix is taken for one of these, with a warning:"
EXACT = "These count only by their full name:"


def page() -> str:
    """The whole page."""
    found = tables()
    lines = head("Keys of a job file", "`windrow.spec` and `docs/generate/job_file.toml`", TEXT)
    for name, title, where in SECTIONS:
        lines += [f"## {title}", "", where, "", *entries(found[name].keys.values()), ""]
    arguments = found["arguments"].keys
    lines += ["## Program arguments", "", *IN_ARGUMENTS.splitlines(), ""]
    for title, wanted in (
        (PREFIXES, arguments.keys() - EXACT_ONLY.keys() - OWN.keys()),
        (EXACT, EXACT_ONLY.keys() | OWN.keys()),
    ):
        lines += [title, "", *entries((one for one in arguments.values() if one.name in wanted), "--"), ""]
    return joined(lines)


def entries(keys: Iterable[Key], prefix: str = "") -> Iterator[str]:
    """Keys as entries of a list; those without effect last."""
    for key in sorted(keys, key=lambda key: bool(key.field.effect)):
        if key.field.effect:
            yield f"- `{prefix}{key.name}`: without effect; {key.field.effect}."
            continue
        default = f"default: `{key.default}`" if key.default else ""
        yield listed(f"`{prefix}{key.name}`", [kind(key.field), default], key.text)


def kind(field: Field) -> str:
    """What a value may be, in a few words; "" if the text says it."""
    match field.kind:
        case "choice":
            return ", ".join(f"`{choice}`" for choice in field.choices)
        case "duration":
            return "a time with its unit, such as `1s`"
        case "rate":
            return "a rate, such as `20/s`"
        case "size":
            return "a number, or a size such as `100kb`"
        case "text" | "node":
            return ""
    # Limits of the protocol's integers mean nothing to people.
    if field.maximum is not None and field.maximum >= 2**31 - 1:
        field = field._replace(maximum=None, minimum=field.minimum if (field.minimum or 0) > -(2**31) + 1 else None)
    return field.allowed
