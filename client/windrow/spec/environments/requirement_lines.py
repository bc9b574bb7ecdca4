"""pip's requirement lines: the packages of an environment, and where pip looks for them.

The lines are kept as they are, checked as far as is possible without an index; the environment's builder reads them
again. Reference: docs/reference/azure-ml/parallel-job.md#tasks (`conda_file`); pip's format of requirements files.
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from windrow.spec.effective.environment_document import is_option
from windrow.spec.reading.context import Context
from windrow.spec.reading.nodes import Place, Source, source_label
from windrow.spec.reading.problems import listed
from windrow.spec.reading.yaml_files import FILE_BYTES_MAX

_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_VERSION = r"[A-Za-z0-9.*+!_-]+"
_CLAUSE = rf"(?:===|==|~=|!=|<=|>=|<|>)\s*{_VERSION}"
_REQUIREMENT = re.compile(
    rf"{_NAME}\s*(?:\[[^\]]*\])?\s*(?:\(?\s*{_CLAUSE}(?:\s*,\s*{_CLAUSE})*\s*,?\s*\)?)?\s*(?:;.+)?(?:\s+--hash=\S+)*"
)
_AT_URL = re.compile(rf"{_NAME}\s*(?:\[[^\]]*\])?\s*@\s*\S+.*")
_URL = re.compile(r"(?:git|hg|bzr|svn)\+\S+.*|https?://\S+.*", re.IGNORECASE)
_CONDA_PIN = re.compile(rf"({_NAME})\s*=\s*({_VERSION})(?:=\S+)?")
_COMMENT = re.compile(r"(?:^|\s)#.*$")
CREDENTIALS = re.compile(r"://[^/@\s]*[^/@\s$}]@|://[^/@\s]+:[^/@\s$]+@")
_FOR_UV = "~/.netrc, or as UV_EXTRA_INDEX_URL in their environment"

_VALUED = {
    "-i": "index-url",
    "--index-url": "index-url",
    "--pypi-url": "index-url",
    "--extra-index-url": "extra-index-url",
    "-f": "find-links",
    "--find-links": "find-links",
    "--trusted-host": "trusted-host",
    "--no-binary": "no-binary",
    "--only-binary": "only-binary",
}
_FLAGS = {"--no-index": "no-index", "--pre": "pre"}
_NESTED_MAX = 10
"""The deepest nesting of requirements files that name each other."""


class Requirements(NamedTuple):
    """Lines for pip, in the order given: what to install, bounds for whatever is installed, and pip's options."""

    requirements: list[str]
    constraints: list[str]
    options: list[str]

    @classmethod
    def none(cls) -> Requirements:
        """No lines yet."""
        return cls([], [], [])


def read_requirement(line: str, place: Place, key: str, found: Requirements, context: Context, depth: int = 0) -> None:
    """Reads one line of a pip list; `depth`: the nesting of requirements files that contain it.

    Notes an error for a line that pip could not read either, or that names something only this machine has.
    """
    text = " ".join(_COMMENT.sub("", line).split())
    if not text:
        return
    if text.startswith("-"):
        _read_option(text, place, key, found, context, depth)
        return
    why = _why_not(text)
    if why:
        context.problems.error(place, key, f'"{text[:120]}" {why}')
        return
    if CREDENTIALS.search(text):
        warn_of_credentials(place, key, context, _FOR_UV)
    found.requirements.append(text)


def read_requirements_file(
    path: str, place: Place, key: str, found: Requirements, context: Context, depth: int = 0
) -> None:
    """Reads a requirements file, and those that it names. `place` and `key` are where it is named."""
    text = _text_of(path, place, key, context, depth)
    if text is None:
        return
    source = Source("environment", source_label(path), os.path.dirname(path))
    number, line = 0, ""
    for at, part in enumerate(text.splitlines(), 1):
        number = number or at
        if part.endswith("\\") and not _COMMENT.search(part):
            line += part[:-1] + " "
            continue
        read_requirement(line + part, Place(source, number, 1), key, found, context, depth)
        number, line = 0, ""
    if line:
        read_requirement(line, Place(source, number, 1), key, found, context, depth)


def _read_nested(
    option: str, value: str, place: Place, key: str, found: Requirements, context: Context, depth: int
) -> None:
    if not value or "://" in value:
        context.problems.error(
            place,
            key,
            f'"{option} {value}" does not name a file on this machine; put its lines here, or name a local file.',
        )
        return
    path = os.path.normpath(os.path.join(place.source.folder, value))
    if option in ("-r", "--requirement"):
        read_requirements_file(path, place, key, found, context, depth + 1)
        return
    bounds = Requirements.none()
    read_requirements_file(path, place, key, bounds, context, depth + 1)
    found.constraints.extend(bounds.requirements + bounds.constraints)
    found.options.extend(bounds.options)


def _text_of(path: str, place: Place, key: str, context: Context, depth: int) -> str | None:
    if depth > _NESTED_MAX:
        context.problems.error(
            place,
            key,
            f"{path} is included by requirements files nested {_NESTED_MAX} deep; check whether one of them "
            "includes itself.",
        )
        return None
    try:
        with open(path, "rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
        if len(content) > FILE_BYTES_MAX:
            raise ValueError("it is too large for a list of requirements")
        return content.decode("utf-8-sig")
    except FileNotFoundError:
        why = "there is no such file"
    except OSError as error:
        why = f"it cannot be read: {error.strerror}"
    except UnicodeDecodeError:
        why = "it is not UTF-8 text"
    except ValueError as error:
        why = str(error)
    context.problems.error(
        place,
        key,
        f'"{path}" should be a requirements file, but {why}; paths are relative to the file that holds them.',
    )
    return None


def _split_option(text: str) -> tuple[str, str]:
    """An option and its value, in any notation: `-r x`, `--requirement=x`, `-rx`."""
    if not text.startswith("-"):
        return "", text
    if text.startswith("--"):
        name, _, value = text.partition("=") if "=" in text.split(None, 1)[0] else text.partition(" ")
        return name, value.strip().strip("'\"")
    return text[:2], text[2:].lstrip("= ").strip().strip("'\"")


def _read_option(text: str, place: Place, key: str, found: Requirements, context: Context, depth: int) -> None:
    name, value = _split_option(text)
    if name in ("-r", "--requirement", "-c", "--constraint"):
        _read_nested(name, value, place, key, found, context, depth)
        return
    if name in ("-e", "--editable"):
        # Installed like any other: nobody edits what an agent has fetched.
        read_requirement(value, place, key, found, context, depth)
        return
    if name in _FLAGS:
        found.options.append(f"--{_FLAGS[name]}")
        return
    if name not in _VALUED:
        known = listed([*(option for option in _VALUED if option.startswith("--")), *_FLAGS])
        context.problems.warn(place, key, f'"{text}" has no effect; these options of pip are supported: {known}.')
        return
    option = f"--{_VALUED[name]}={value}"
    if not is_option(option):
        context.problems.error(place, key, f'"{text}" has no value, or one that contains spaces.')
        return
    address = _VALUED[name] in ("index-url", "extra-index-url", "find-links")
    if address and not value.startswith(("http:", "https:", "$")):
        context.problems.error(
            place,
            key,
            f'"{text}" does not name a web address, and agents cannot read the files of this machine; write http:// or '
            "https://.",
        )
        return
    if CREDENTIALS.search(text):
        warn_of_credentials(place, key, context, _FOR_UV)
    found.options.append(option)


def _why_not(text: str) -> str:
    """Why a text is not a requirement, as the rest of a sentence about it; "" if it is one."""
    if _URL.fullmatch(text) or (_AT_URL.fullmatch(text) and not re.search(r"@\s*(?:file:|[./])", text)):
        return ""
    local = text.startswith((".", "/", "~", "file:")) or re.search(r"@\s*(?:file:|[./])", text)
    if local or re.fullmatch(r"\S+\.(?:whl|tar\.gz|zip)", text):
        return (
            "is a file or folder of this machine, which agents do not have. Put the package into the code folder, on "
            "an index or at a web address, or let scripts run in a Python that has it (--python PATH)."
        )
    if _REQUIREMENT.fullmatch(text):
        return ""
    pin = _CONDA_PIN.fullmatch(text)
    if pin:
        return f"is conda's way to pin a version; in a pip list write {pin[1]}=={pin[2]}."
    return "is not a requirement that pip can read; write a name and versions, as in numpy or numpy>=1.24,<2."


def warn_of_credentials(place: Place, key: str, context: Context, where: str) -> None:
    """Warns of an address that contains credentials. `where` they belong instead."""
    context.problems.warn(
        place,
        key,
        "contains a name or password, which everyone who can see the job can read. Write the address without it, "
        f"and give it to the agents: in {where}.",
    )
