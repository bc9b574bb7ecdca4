"""Values that are secrets by their names, or by what they look like: they stay out of what is shown or handed on.

Texts are of scripts and of other clients, and may have millions of characters: the time that is spent on one grows with
its length alone, whatever it holds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from typing import Any

LEFT_OUT = "left-out"
"""What stands in place of a secret value."""
CHARACTERS_MIN = 4
"""Shorter values are not looked for in messages: they would be found everywhere."""
SOUGHT_MAX = 200
"""Of the secrets that a text shows by what they look like, so many are also looked for in the rest of it."""
_SECRET = re.compile(
    r"(?i)(secret|passw|token|credential|(api|access|account)[-_]?key|connection[-_]?str|\bsas\b|_key$)"
)
_IN_VALUES = re.compile(
    r"(?i:\b(?:AccountKey|SharedAccessKey|SharedAccessSignature|Password|Pwd)\s*=\s*(?P<of_connection>[^;\s\"']{4,}))"
    # Of a URL with a signature of Azure, AWS or Google in its query.
    r"|(?i:[?&](?:sig|X-Amz-Signature|X-Goog-Signature)=(?P<signature>[^&\s\"'#]{16,}))"
    # user:password@ of a URL.
    r"|(?i:\b[a-z][a-z0-9+.-]{1,20}://[^\s/:@\"']{0,256}:(?P<password>[^\s/@\"']{4,256})@)"
    # The token in the address of a conda channel.
    r"|(?i:\bhttps?://[^\s/:@\"']{1,256}/t/(?P<channel>[A-Za-z0-9-]{16,256})/)"
    r"|(?P<key>-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]{0,40}PRIVATE KEY-----|\Z))"
    # Tokens that say by how they begin what they are: GitHub, GitLab, Slack, Hugging Face, OpenAI and Anthropic, npm,
    # PyPI, Google, AWS; and JSON web tokens.
    r"|\b(?P<token>gh[pousr]_[A-Za-z0-9]{36,255}|github_pat_[A-Za-z0-9_]{40,255}|glpat-[A-Za-z0-9_-]{20,}"
    r"|xox[abeoprs]-[A-Za-z0-9-]{10,}|hf_[A-Za-z0-9]{30,}"
    r"|npm_[A-Za-z0-9]{36}|pypi-AgE[A-Za-z0-9_-]{50,}|AIza[A-Za-z0-9_-]{35}|(?:AKIA|ASIA)[A-Z0-9]{16}"
    r")(?![A-Za-z0-9])"
    # All of a run that begins so, whether it is a secret or not: looking ahead from each place of a run would take its
    # length squared. `_WHOLE_RUNS` decides.
    r"|\b(?P<run>sk-[A-Za-z0-9_-]+|eyJ[A-Za-z0-9_.-]+)"
)
"""Secrets by what they look like, whatever their name: the group that matched is the secret."""
_WHOLE_RUNS = re.compile(r"sk-(?=[\w-]*[A-Z])(?=[\w-]*\d)[\w-]{32,}|eyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{10,}", re.ASCII)
_PLACEHOLDER = re.compile(r"\$\{\{|\$\{?\w+\}?$|<[^>]*>$|\*+$|x+$|left-out$", re.IGNORECASE)
"""What stands where a secret would be: a reference, a blank to fill in."""
_SIGNS = (
    *("secret", "passw", "token", "credential", "key", "connection", "sas", "pwd", "sig", "://", "github_pat", "glpat"),
    *("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "xox", "hf_", "sk-", "npm_", "pypi-", "aiza", "akia", "asia", "eyj"),
)
"""A text that holds none of these, whatever their case, has no secret."""


def secrets_in(value: str) -> list[str]:
    """The parts of a text that look like secrets: keys in connection strings, signatures and passwords in URLs, private
    keys, tokens of well-known services.
    """
    return list(dict.fromkeys(secret for match in _IN_VALUES.finditer(value) if (secret := _secret_of(match))))


def _secret_of(match: re.Match[str]) -> str:
    """The secret that `_IN_VALUES` has found; empty if it is none, but something that stands for one."""
    secret = match[match.lastgroup or 0]
    if match.lastgroup == "run" and not _WHOLE_RUNS.match(secret):
        return ""
    return "" if _PLACEHOLDER.match(secret) else secret


def _masked(match: re.Match[str]) -> str:
    """What `_IN_VALUES` has found, without its secret."""
    if not _secret_of(match):
        return match[0]
    begin, end = (at - match.start() for at in match.span(match.lastgroup or 0))
    return f"{match[0][:begin]}{LEFT_OUT}{match[0][end:]}"


def secret_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Those environment variables that are secrets by their name, or hold one, by name. The whole value counts."""
    return {name: value for name, value in sorted(variables.items()) if _SECRET.search(name) or secrets_in(value)}


def without_secrets(arguments: Iterable[str]) -> tuple[list[str], dict[str, str]]:
    """Arguments with `LEFT_OUT` in place of the values of options that are secrets, and of what looks like a secret in
    any other; and what was left out, by option (by position, as `argument 3`, where there is none).
    """
    told, found = list(arguments), {}
    for at, word in enumerate(told):
        option, equals, value = word.partition("=")
        if not option.startswith("-") or not _SECRET.search(option):
            continue
        if equals:
            told[at] = f"{option}={LEFT_OUT}"
            found[option] = value
        elif at + 1 < len(told) and not told[at + 1].startswith("-"):
            found[option] = told[at + 1]
            told[at + 1] = LEFT_OUT
    for at, word in enumerate(told):
        if secrets := secrets_in(word):
            told[at] = _left_out(word, secrets[:SOUGHT_MAX])
        for number, secret in enumerate(secrets):
            found[f"argument {at + 1}" + (f" ({number + 1})" if number else "")] = secret
    return told, found


def redacted(text: str, secrets: Iterable[str]) -> str:
    """A text without the values of secrets, and without what looks like one: a message or traceback may quote them."""
    return _left_out(text, {*secrets, *secrets_in(text)[:SOUGHT_MAX]})


def _left_out(text: str, sought: Collection[str]) -> str:
    """A text without what looks like a secret, each where it shows, and without these values anywhere."""
    text = _IN_VALUES.sub(_masked, text)
    for value in sorted(sought, key=len, reverse=True):
        if len(value) >= CHARACTERS_MIN:
            text = text.replace(value, LEFT_OUT)
    return text


def shown_text(text: str) -> str:
    """A text without what looks like a secret."""
    return redacted(text, ()) if _may_hold_secrets(text) else text


def _may_hold_secrets(text: str) -> bool:
    """False: a look at it would find nothing. That takes a hundredth of the time of a look."""
    lower = text.lower()
    return any(sign in lower for sign in _SIGNS)


@lru_cache(maxsize=16)
def shown_document(document: bytes) -> bytes:
    """A job's document (docs/contracts.md, section 1) without the values of secrets; what is no document stays."""
    if not _may_hold_secrets(document.decode(errors="replace")):
        return document
    try:
        job = json.loads(document)
        changed = False
        for step in job["steps"]:
            variables = secret_variables(step["environment_variables"])
            step["environment_variables"].update(dict.fromkeys(variables, LEFT_OUT))
            step["arguments"], found = without_secrets(step["arguments"])
            for name, given in step.get("inputs", {}).items():
                # An input that is text. A short one, such as `true`, may stand for anything in a command.
                if _SECRET.search(name) and given.get("value"):
                    found[name], given["value"] = given["value"], LEFT_OUT
            changed |= bool(variables or found)
            if command := step.get("command"):
                step["command"] = redacted(command, [*variables.values(), *found.values()])
                changed |= step["command"] != command
        shown = _shown(job)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return document
    return json.dumps(shown).encode() if changed or shown != job else document


def _shown(value: Any) -> Any:
    """A part of a document in which no text looks like a secret: paths of inputs, options of pip, channels, tags."""
    if isinstance(value, str):
        return shown_text(value)
    if isinstance(value, list):
        return [_shown(one) for one in value]
    if isinstance(value, dict):
        return {name: _shown(one) for name, one in value.items()}
    return value
