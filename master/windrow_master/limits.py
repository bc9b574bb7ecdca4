"""What one master takes at most. Each limit has a name and a number; what would pass it is refused, and told so.

`windrow master --limit NAME=NUMBER` sets one. `docs/reference/settings.md` is made from the fields.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass

LARGEST = 2**31 - 1
"""Of any limit that counts things: mini-batches have 32-bit numbers."""
LARGEST_BYTES = 2**62
OPTION = "--limit"
LISTED_TWICE = 2
"""Leases that one message may list, for each that a node is handed: those of results under way come on top."""


class BadLimit(Exception):
    """An option that sets no limit. The text says which limits there are."""


def _limit(default: int, meaning: str) -> int:
    field: int = dataclasses.field(default=default, metadata={"meaning": meaning})
    return field


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one master."""

    mini_batches_per_step: int = _limit(
        10_000_000, "mini-batches of one step. A step whose input is cut into more fails while it is divided"
    )
    mini_batches_per_job: int = _limit(20_000_000, "mini-batches of all steps of one job")
    ready_mini_batches: int = _limit(
        1_000_000,
        "mini-batches that are ready to run, of all steps. While so many wait, inputs are not divided further; a step "
        "of which few wait is divided on",
    )
    open_jobs: int = _limit(2_000, "jobs that have not ended. A further one is refused")
    open_jobs_per_project: int = _limit(1_000, "the same of one project")
    open_document_bytes: int = _limit(
        1 << 30,
        "size of the documents of these jobs, of all projects: the master has them in memory, at some five times their "
        "size",
    )
    open_document_bytes_per_project: int = _limit(256 << 20, "the same of one project")
    uploads: int = _limit(256, "uploads of code and data at a time, of all clients")
    uploads_per_client: int = _limit(
        64, "the same of one client: of one token, or of one address where clients have none"
    )
    upload_bytes: int = _limit(
        256 << 30, "what these uploads have announced and not sent yet, of all clients. The disk must have room for it"
    )
    upload_bytes_per_client: int = _limit(64 << 30, "the same of one client")
    left_uploads: int = _limit(
        64,
        "uploads that broke off and may be continued. Beyond that, or if their room is needed, the oldest are removed",
    )
    nodes: int = _limit(
        10_000,
        "nodes that are registered at a time. One of a further name is refused, and its agent tries again; those that "
        "are registered may come back",
    )
    workers_per_node: int = _limit(
        1_024, "workers of one step on one node that count. One that names more gets work for so many"
    )
    leases_per_node: int = _limit(
        20_000, "mini-batches that one node is handed at a time, of all steps. One that asks for more gets so many"
    )
    message_parts: int = _limit(
        50_000,
        "entries of the lists in one message of a client or node, such as results and leases held. At least twice "
        "leases_per_node: an agent lists all that it holds",
    )
    row_uploads: int = _limit(512, "uploads of large rows at a time, of all nodes. A node that is refused tries again")
    script_files: int = _limit(
        64, "uploads of scripts' files and models at a time, of all nodes. A node that is refused tries again"
    )
    script_bytes_per_call: int = _limit(
        64 << 30,
        "what scripts hand in by one call, files or a model. A call that brings more is an error",
    )
    script_bytes_per_job: int = _limit(
        256 << 30,
        "what scripts of one job hand in: files of its runs, and content of models that nobody had",
    )
    script_files_per_job: int = _limit(
        100_000, "files that scripts of one job hand in: of its runs, and of the models that they register"
    )
    script_models_per_job: int = _limit(
        20_000, "versions of models that scripts of one job register. They stay when the job is deleted"
    )
    assets_per_kind: int = _limit(
        200_000,
        "versions of models that are registered, of all projects; the same of data assets, and of each other kind. A "
        "further one is refused",
    )
    assets_per_project: int = _limit(100_000, "of these, versions that one project has registered, of each kind")
    sorted_steps: int = _limit(
        10_000,
        "steps whose input rows are sorted by partition keys and kept, in the folder `partitions` of the datastore "
        "`default`. A further one fails",
    )
    sorted_steps_per_project: int = _limit(5_000, "of these, steps of jobs of one project")
    script_words_bytes_per_job: int = _limit(32 << 20, "descriptions and tags of these models")
    planner_memory_bytes: int = _limit(
        8 << 30, "memory of one process that divides an input. A step whose input takes more to divide fails"
    )
    streams: int = _limit(10_000, "open calls that stream, of all clients and nodes")
    streams_per_client: int = _limit(
        1_000, "the same of one client, without the one Work stream of each node; and of all health checks"
    )
    document_bytes: int = _limit(4 << 20, "size of one job document: the job file with all it includes, as submitted")


def read_limits(given: Iterable[str]) -> Limits:
    """The limits that options `NAME=NUMBER` set; all others have their defaults. Raises BadLimit."""
    names = [field.name for field in dataclasses.fields(Limits)]
    found: dict[str, int] = {}
    for item in given:
        name, _, number = item.partition("=")
        if name not in names:
            raise BadLimit(f"{OPTION} {item}: there is no limit of this name. There are: {', '.join(names)}")
        largest = LARGEST_BYTES if "_bytes" in name else LARGEST
        try:
            found[name] = int(number)
        except ValueError:
            found[name] = 0
        if not 1 <= found[name] <= largest:
            raise BadLimit(f"{OPTION} {item}: write NAME=NUMBER, with a whole number from 1 to {largest}")
    limits = Limits(**found)
    if limits.message_parts < LISTED_TWICE * limits.leases_per_node:
        raise BadLimit(
            f"{OPTION} message_parts must be at least {LISTED_TWICE} times leases_per_node, which is "
            f"{limits.leases_per_node}, and is {limits.message_parts}: an agent lists the leases that it holds, with "
            f"those whose results were not acknowledged, in one message"
        )
    return limits


def how_to_raise(name: str, wanted: int | None = None) -> str:
    """What an operator does about a limit, as the end of a message."""
    number = "NUMBER" if wanted is None else str(wanted)
    return f"start the master with `windrow master {OPTION} {name}={number}`"
