"""Why an environment could not be built: whose fault it is, as far as its builder's output shows, and what to do."""

from __future__ import annotations

import re
from typing import NamedTuple

from windrow_agent.outgoing.completions import shortened

_WORDS_MAX = 3 << 10
_WORDS_SHORT = 1200
"""The message contains the whole output if it is no longer than this."""
_CREDENTIALS = re.compile(r"(://)[^/@\s]+@")

_OF_THE_NODE = re.compile(
    r"dns error|failed to lookup address|error sending request|connection (?:refused|reset|closed)|connect error"
    r"|network is unreachable|operation timed out|timed? ?out|tcp connect|client error \(connect\)"
    r"|certificate|HTTP status (?:server error|client error \((?:401|403|407|429))"
    r"|no space left|disk quota|read-only file system|permission denied|input/output error|too many open files"
    r"|cannot allocate memory|python-build-standalone",
    re.IGNORECASE,
)
_OF_THE_LIST = re.compile(
    r"no solution found|was not found in the package registry|failed to parse|couldn't parse|failed to build"
    r"|no interpreter found|invalid version|HTTP status client error \(404"
    r"|could not find subdir",
    re.IGNORECASE,
)


class Builder(NamedTuple):
    """A program that builds environments. `remedy`: what helps if it cannot reach its packages."""

    name: str
    remedy: str


UV = Builder("uv", "give the agent its index (UV_DEFAULT_INDEX)")
RATTLER = Builder(
    "rattler", "name channels that it reaches in the conda_file (their credentials: RATTLER_AUTH_FILE of the agent)"
)


class EnvironmentFailed(Exception):
    """An environment could not be provided on this node; the text says why and what to do.

    `of_node`: the node is at fault (its network, its disk), and another may do better; otherwise the list is.
    `detail`: the builder's output.
    """

    def __init__(self, message: str, *, of_node: bool, detail: str = "") -> None:
        super().__init__(message)
        self.of_node = of_node
        self.detail = detail


def failure_of(what: str, words: str, builder: Builder = UV) -> EnvironmentFailed:
    """The failure of a builder's command. `what`: what has failed; `words`: its output."""
    words = _CREDENTIALS.sub(r"\1***@", words).strip()
    of_node = _OF_THE_NODE.search(words) is not None
    if of_node and "no solution found" in words.casefold() and "python-build" not in words:
        # It reached an index which has no such package; the network error is about another index.
        of_node = "error sending request" in words
    gist = _gist(words) or f"{builder.name} printed nothing"
    if "python-build-standalone" in words or "no interpreter found" in words.casefold():
        advice = (
            "Install that Python on this node, or ask for another version in the conda_file; or run scripts in your "
            "own Python (--python PATH), or in the agent's (--environments own)"
        )
    elif of_node:
        advice = (
            f"Check the network and the disk of this node, or {builder.remedy}; or run scripts in your own Python "
            "(--python PATH), or in the agent's (--environments own)"
        )
    elif _OF_THE_LIST.search(words) is not None:
        advice = (
            "Correct the versions in the conda_file; or run scripts in your own Python (--python PATH), or in the "
            "agent's (--environments own)"
        )
    else:
        advice = "Run scripts in your own Python (--python PATH), or in the agent's (--environments own)"
    detail = shortened(words, _WORDS_MAX) if len(words) > _WORDS_SHORT else ""
    return EnvironmentFailed(f"{what}: {gist}. {advice}", of_node=of_node, detail=detail)


def _gist(words: str) -> str:
    """The error and its causes in one line, without hints."""
    lines = [line.strip() for line in words.splitlines()]
    begin = next((index for index, line in enumerate(lines) if line.startswith(("error:", "×", "x "))), None)
    if begin is None:
        begin = max(0, len(lines) - 3)
    told = []
    for line in lines[begin:]:
        if line.startswith("hint:"):
            break
        text = re.sub(r"^(?:error:|cause:|Caused by:|×|╰─▶|├─▶|│|x )\s*", "", line)
        if text:
            told.append(text)
    if len(told) > 3:
        told = [told[0], told[1], told[-1]]
    return shortened(": ".join(line.rstrip(".:") for line in told), 1000)
