"""Sections of the plan files, for inputs that are listed completely before their first mini-batch is cut: tables,
records, and inputs divided by keys.

A single input has all of both files. Several inputs are listed in turn, so that an input that cannot be divided is
reported before anything runs. After the last one, the listing gets one more line, the *contents*: the sections of all
inputs. `frontier` of a position is then `{"contents": offset}`, where a restarted planner finds them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from windrow_worker.loading import is_row_index_exact

from windrow_master.planning.emitter import Emitter
from windrow_master.planning.inputs import about
from windrow_master.planning.plan_files.plan_files import PlanFiles
from windrow_master.planning.request import DividedInput, Request


class Section(NamedTuple):
    """The part of the files that belongs to one input: [begin, end) of the listing, and of the recipes written with
    it.

    `position`: where its first mini-batch begins, in the strategy's terms.
    """

    listing: tuple[int, int]
    recipes: tuple[int, int]
    position: dict[str, Any]


class Listed(NamedTuple):
    """The result of listing an input."""

    reader: dict[str, Any]
    position: dict[str, Any]


def plan_sections(
    request: Request,
    list_input: Callable[[int], Listed],
    emit_input: Callable[[DividedInput, Section, dict[str, Any]], None],
    plan_files: PlanFiles,
    emitter: Emitter,
) -> None:
    """Plan the whole step. Raises PlanningError.

    `list_input(number)` lists an input. `emit_input(given, section, position)` emits its mini-batches from a position
    on.
    """
    start = request.checkpoint
    if not request.several:
        if start is None:
            listed = list_input(0)
            emitter.set_reader(listed.reader)
            position = listed.position
        else:
            position = start.position["next"]
        section = Section((0, plan_files.listing.length), (0, plan_files.recipes.length), position)
        emit_input(request.inputs[0], section, position)
    else:
        if start is None:
            sections = _list_all(request, list_input, plan_files, emitter)
        else:
            sections = _contents(plan_files, start.position["frontier"]["contents"])
        first = 0 if start is None else start.position["next"]["input"]
        for number, section in enumerate(sections[first:], first):
            position = emitter.begin_input(number) or section.position
            with about(request.inputs[number], request, emitter):
                emit_input(request.inputs[number], section, position)
    emitter.finish()


def _list_all(
    request: Request, list_input: Callable[[int], Listed], plan_files: PlanFiles, emitter: Emitter
) -> list[Section]:
    sections: list[Section] = []
    readers: list[dict[str, Any]] = []
    for number, given in enumerate(request.inputs):
        emitter.begin_input(number)
        listing_begin, recipes_begin = plan_files.listing.length, plan_files.recipes.length
        with about(given, request, emitter):
            reader, position = list_input(number)
        readers.append(reader)
        listing, recipes = (listing_begin, plan_files.listing.length), (recipes_begin, plan_files.recipes.length)
        sections.append(Section(listing, recipes, position))
    reader = {
        "kind": "inputs",
        "names": [given.name for given in request.inputs],
        "inputs": readers,
        "row_index_exact": all(map(is_row_index_exact, readers)),
    }
    # Whether agents have files to fetch.
    reader |= {flag: True for flag in ("remote", "copy") if any(one.get(flag) for one in readers)}
    emitter.set_reader(reader)
    line = json.dumps([section._asdict() for section in sections], separators=(",", ":")).encode() + b"\n"
    emitter.frontier = {"contents": plan_files.listing.append(line)}
    return sections


def _contents(plan_files: PlanFiles, at: int) -> list[Section]:
    found = json.loads(plan_files.listing.read(at, plan_files.listing.length))
    return [Section(tuple(one["listing"]), tuple(one["recipes"]), one["position"]) for one in found]
