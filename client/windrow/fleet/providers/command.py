"""An engine of one's own, by commands: one submits, one lists, one cancels, and one may tell why.

Each gets one JSON document on standard input and answers on standard output; what it writes to standard error is shown
to people. docs/reference/fleet-file.md describes the documents.
"""

from __future__ import annotations

import json
from collections.abc import Mapping as Values
from collections.abc import Sequence
from typing import Any, NamedTuple

from windrow.common.quantities import seconds_in
from windrow.fleet.provider import Kind, Refused, Request, Seen, State, Unreachable
from windrow.fleet.providers import engine_command
from windrow.spec.reading.context import Context
from windrow.spec.reading.keys import check_keys, read_texts
from windrow.spec.reading.nodes import Mapping, Scalar, is_null, shown
from windrow.spec.settings.fields import Field

NO_ANSWER = 75
"""The exit code by which a command says that the engine did not answer; EX_TEMPFAIL of sysexits.h."""
TIMEOUT_S = 60
WORDS_MAX = 500
"""Characters of what a command says that are shown."""
_NEEDED = ("submit", "list", "cancel")
_KEYS = {name: Field("texts") for name in (*_NEEDED, "why")} | {"timeout": Field("text")}


class Settings(NamedTuple):
    """The commands, as words; `why` may be empty. `folder`: where they run, that of the file."""

    submit: tuple[str, ...]
    list: tuple[str, ...]
    cancel: tuple[str, ...]
    why: tuple[str, ...]
    timeout_s: float
    folder: str


def read(mapping: Mapping, key: str, context: Context) -> Settings:
    """Read the keys below `command`."""
    check_keys(mapping, _KEYS, key, context)
    words = {}
    for name in (*_NEEDED, "why"):
        words[name] = tuple(read_texts(mapping.entries.get(name), f"{key}.{name}", context))
        if name in _NEEDED and not words[name] and is_null(mapping.entries.get(name)):
            context.problems.error(mapping, f"{key}.{name}", "is missing; write the command as a list of words.")
    timeout_s, node = TIMEOUT_S, mapping.entries.get("timeout")
    if node is not None and not is_null(node):
        seconds = seconds_in(node.text) if isinstance(node, Scalar) else None
        if not seconds:
            context.problems.error(node, f"{key}.timeout", f"is {shown(node)}; it must be a time such as 30s.")
        timeout_s = seconds or TIMEOUT_S
    return Settings(words["submit"], words["list"], words["cancel"], words["why"], timeout_s, context.source.folder)


class _Answer(NamedTuple):
    """What a command has answered."""

    returncode: int
    stdout: str
    stderr: str


class Commands:
    """The allocations of one group of an engine that commands speak to."""

    def __init__(self, settings: Settings, prefix: str) -> None:
        self._settings = settings
        self._prefix = prefix

    def submit(self, request: Request) -> str:
        """Ask for one allocation. Raises Refused, Unreachable."""
        done = self._run(self._settings.submit, document(request))
        if done.returncode:
            raise Refused(_words(done) or f"{self._settings.submit[0]} ended with exit code {done.returncode}.")
        return str(_answer(done, self._settings.submit, "id"))

    def allocations(self) -> Sequence[Seen]:
        """Those that the command lists, one JSON document a line. Raises Unreachable."""
        command = self._settings.list
        done = self._run(command, {"prefix": self._prefix})
        if done.returncode:
            raise Unreachable(_words(done) or f"{command[0]} ended with exit code {done.returncode}.")
        seen = []
        for line in filter(str.strip, done.stdout.splitlines()):
            try:
                one = json.loads(line)
                name, state = str(one["name"]), State(one["state"])
                found = Seen(name, str(one.get("id", name)), state, str(one.get("reason", "")))
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
                raise Unreachable(
                    f"{command[0]} wrote a line that is no allocation ({error!r}): {line[:200]}"
                ) from error
            if name.startswith(self._prefix):
                seen.append(found)
        return seen

    def cancel(self, seen: Seen, *, only_queued: bool) -> bool:
        """End an allocation. Raises Unreachable."""
        done = self._run(self._settings.cancel, _told(seen) | {"only_queued": only_queued})
        if done.returncode:
            raise Unreachable(_words(done) or f"{self._settings.cancel[0]} ended with exit code {done.returncode}.")
        return bool(_answer(done, self._settings.cancel, "cancelled"))

    def why(self, seen: Seen) -> str:
        """What the command says of an allocation; "" without one. Raises Unreachable."""
        if not self._settings.why:
            return ""
        done = self._run(self._settings.why, _told(seen))
        return done.stdout.strip()[:WORDS_MAX] if done.returncode == 0 else _words(done)

    def _run(self, command: Sequence[str], told: Values[str, Any]) -> _Answer:
        """Run a command to its end. Raises Unreachable if it cannot be run, is killed, or says that nobody answers."""
        done = engine_command.run(
            command,
            stdin=f"{json.dumps(told)}\n".encode(),
            time_limit_s=self._settings.timeout_s,
            folder=self._settings.folder,
        )
        answer = _Answer(done.code, done.out.decode(errors="replace"), done.err.decode(errors="replace"))
        if done.code == NO_ANSWER or done.code < 0:
            how = f"was ended by signal {-done.code}" if done.code < 0 else "says that the engine did not answer"
            raise Unreachable(_words(answer) or f"{command[0]} {how}.")
        return answer


def document(request: Request) -> dict[str, Any]:
    """What the submit command gets."""
    return {
        "name": request.name,
        "slots": request.shape.slots,
        "memory_bytes": request.shape.memory_bytes,
        "gpus": request.shape.gpus,
        "lifetime_s": request.lifetime_s,
        "arguments": list(request.agent.arguments),
        "environment": dict(request.agent.environment),
        "folder": request.agent.folder,
    }


def _told(seen: Seen) -> dict[str, Any]:
    return {"name": seen.name, "id": seen.engine_id, "state": seen.state.value}


def _words(done: _Answer) -> str:
    """What a command said to people, in one line."""
    return " ".join((done.stderr.strip() or done.stdout.strip()).split())[:WORDS_MAX]


def _answer(done: _Answer, command: Sequence[str], key: str) -> Any:
    try:
        return json.loads(done.stdout)[key]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        said = done.stdout.strip()[:200]
        raise Unreachable(f'{command[0]} did not answer with a JSON document that has "{key}": {said!r}') from error


def show(settings: Settings, request: Request) -> str:
    """The submit command with what it gets."""
    return f"{' '.join(settings.submit)} <<'END'\n{json.dumps(document(request), indent=2)}\nEND"


KIND = Kind(read, Commands, show)
