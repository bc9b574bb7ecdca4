"""The plan of a dry run, for people."""

from __future__ import annotations

import json
import shlex
import sys
import textwrap
from typing import Any

from windrow.cli.messages import DIM, RED, coloured
from windrow.cli.tables import out
from windrow.common.quantities import counted, first_few, size
from windrow.dry_run.document import problems_of
from windrow.dry_run.room import need_words

KINDS = {
    "files": "files",
    "delimited": "slices of delimited text",
    "json_lines": "slices of JSON lines",
    "parquet": "row groups of Parquet files",
    "records": "records of JSON lines",
    "sorted_rows": "rows, sorted by the partition keys",
    "none": "nothing: they have no input",
}
WIDTH = 13
DEFAULTS_WIDTH = 110
NODES_SHOWN = 5
"""Of those with room for equally many workers."""


def print_plan(document: dict[str, Any], *, where: str, what: str) -> None:
    """Print the whole plan to standard output. `where`: what would run the job. `what`: the job file, or the script."""
    out(f"Dry run of {what}: nothing is started, and nothing is kept.")
    out(f"The job would be named {document['job_id']} and run by {where}.")
    _unfinished(document["unfinished"])
    for note in document["notes"]:
        out(f"Note: {note}")
    _graph(document)
    for step in document["steps"]:
        out("")
        _step(step)
    if document["outputs"]:
        out("")
        out("Outputs of the job")
        for name, bound in document["outputs"].items():
            _print_line(name, f"{bound['place']}  (output {bound['output']} of step {bound['step']})")
    out("")
    problems = problems_of(document)
    for problem in problems:
        out(f"{coloured('would fail:', RED, sys.stdout)} {problem}")
    if not problems:
        out("No problem was found: the job can run.")


def _unfinished(found: dict[str, Any] | None) -> None:
    if found is None:
        return
    if found["equal"]:
        out(f"It has already started: `windrow run` would continue the unfinished run {found['job_id']}.")
    else:
        out(
            f"Another run of this job file is unfinished ({found['job_id']}), with other settings, inputs or code: "
            "`windrow run` would ask for --restart or --keep-rows."
        )


def _graph(document: dict[str, Any]) -> None:
    """Print the steps in the order in which they can run; steps with the same number run side by side."""
    steps = document["steps"]
    out("")
    out(f"{counted(len(steps), 'step')}, in the order in which they can run")
    width = max(len(step["name"]) for step in steps)
    for index, step in enumerate(steps):
        first = index == 0 or steps[index - 1]["level"] != step["level"]
        number = f"{step['level'] + 1}." if first else ""
        waits = f"waits for {', '.join(step['waits_for'])}" if step["waits_for"] else "starts at once"
        beside = f"; side by side with {', '.join(step['beside'])}" if step["beside"] else ""
        out(f"  {number:<3} {step['name']:<{width}}  {step['type']:<8}  {waits}{beside}")
    if len(steps) > 1:
        fails = (
            "the steps that depend on it are left out, and all others continue"
            if document["continue_on_step_failure"]
            else "the job fails, and its running steps are ended"
        )
        out(f"  When a step fails, {fails}.")


def _step(step: dict[str, Any]) -> None:
    out(f"Step {step['name']} ({step['type']})")
    code = step["code"]
    if code is not None:
        script = f", entry script {step['entry_script']}" if step["entry_script"] else ""
        _print_line("code", f"{code['folder']} ({counted(code['files'], 'file')}, {size(code['bytes'])}){script}")
    has_environment = step["settings"].get("environment", {}).get("value") is not None
    for index, condition in enumerate(step["runs_if"]):
        _print_line("runs if" if index == 0 else "", condition)
    _print_line("python", step["python"] or f"that of {'its environment' if has_environment else 'the nodes'}")
    if step["command"] is not None:
        _print_line("command", step["command"])
    elif step["arguments"]:
        _print_line("arguments", shlex.join(step["arguments"]))
    for title, part in (("inputs", step["inputs"]), ("outputs", step["outputs"])):
        for index, (name, value) in enumerate(part.items()):
            text = _input_text(value) if title == "inputs" else _output_text(value)
            origin = f"  [{value['origin']['where']}]" if value["origin"]["where"] else ""
            _print_line(title if index == 0 else "", f"{name}: {text}{origin}")
    _division(step["division"])
    if step["room"] is not None and not step["room"]["lacking"]:
        _print_line("workers", _room_text(step["room"]))
    for note in step["notes"]:
        _print_line("note", note)
    _settings(step["settings"])


def _input_text(value: dict[str, Any]) -> str:
    if value["kind"] == "literal":
        return json.dumps(value["value"], ensure_ascii=False)
    text = f"{value['type']} {value['place']}"
    if value["kind"] == "output":
        text += f", output {value['output']} of step {value['step']}"
    if value["divided"]:
        text += ", divided into mini-batches"
    elif value["brought"]:
        text += ", copied to each node first"
    return text


def _output_text(value: dict[str, Any]) -> str:
    text = f"{value['type']} {value['place']}"
    if value["rows"] is not None:
        return f"{text}, the rows of all mini-batches" + (
            "" if value["rows"] == value["place"] else f": {value['rows']}"
        )
    return f"{text}, written on the node and then uploaded" if value["brought"] else text


def _division(division: dict[str, Any]) -> None:
    state = division["state"]
    if state == "command":
        _print_line("runs", "once, on one node")
        return
    if state == "waits":
        _print_line("division", f"not known yet{': ' + division['why'] if division['why'] else ''}")
        return
    if division["error"]:
        _print_line("division", f"fails: {division['error']}")
        return
    if not division["complete"] and not division["mini_batches"]:
        _print_line("division", f"not known: the planning stopped before the first mini-batch ({division['stopped']})")
        return
    least = "" if division["complete"] else "at least "
    items = division["items"]
    known = f" with {least}{counted(items, 'item')}" if items is not None else ""
    if items is None:
        known = "; the number of items is known only after loading (--exact-row-index counts them first)"
    text = f"{least}{counted(division['mini_batches'], 'mini-batch')}{known}"
    stopped = f" ({division['stopped']})" if division["stopped"] else ""
    _print_line("division", f"{text}{stopped}")
    if taken := division["taken_over"]:
        _print_line("", _taken_over(division, taken))
    what = KINDS.get(division["kind"], division["kind"])
    _print_line("", f"made of {what}")
    for first in division["first"]:
        _print_line("", _mini_batch(first))
    if division["mini_batches"] > len(division["first"]):
        _print_line("", "…")
    for warning in division["warnings"]:
        _print_line("", f"warning: {warning}")
    for note in division["notes"]:
        _print_line("", f"note: {note}")


def _room_text(room: dict[str, Any]) -> str:
    """How many workers there can be, where, and what each takes."""
    most = f"at most {room['workers']:,} at a time"
    by_count: dict[int, list[str]] = {}
    for one in room["nodes"]:
        by_count.setdefault(one["workers"], []).append(one["node"])
    if [one["node"] for one in room["nodes"]] == [""]:
        where = " on this machine"
    else:
        places = (
            f"{count:,} on {'each of ' * (len(names) > 1)}{first_few(names, NODES_SHOWN)}"
            for count, names in by_count.items()
        )
        where = f": {'; '.join(places)}"
    return f"{most}{where}; each takes {need_words(room)}"


def _taken_over(division: dict[str, Any], taken: dict[str, Any]) -> str:
    """What is taken over and does not run, and what does run."""
    left = division["mini_batches"] - taken["mini_batches"]
    items = f" with {counted(division['items'] - taken['items'], 'item')}" if division["items"] is not None else ""
    would = f"{counted(left, 'mini-batch')}{items} would run"
    have = counted(taken["mini_batches"], "mini-batch")
    have += f" with {counted(taken['items'], 'item')}" if taken["mini_batches"] else ""
    so_far = "" if division["complete"] else ", of those counted"
    return f"taken over from job {taken['job']}: {have}; {would}{so_far}"


def _mini_batch(first: dict[str, Any]) -> str:
    parts = [counted(first["items"], "item")] if first["items"] else []
    if first["bytes"] is not None:
        parts.append(size(first["bytes"]))
    if first["partition"]:
        parts.append(first["partition"])
    more = f", … {first['holds_more']:,} more" if first["holds_more"] else ""
    if first["taken_over"]:
        parts.append("taken over")
    about = f" ({', '.join(parts)})" if parts else ""
    return f"{first['index']}{about}: {', '.join(first['holds'])}{more}"


def _settings(settings: dict[str, Any]) -> None:
    """Print the settings that are given, each on a line with its place, and then the defaults."""
    given = {name: told for name, told in settings.items() if told["origin"]["kind"] != "default"}
    width = max((len(name) for name in given), default=0)
    values = {name: _value_text(told) for name, told in given.items()}
    values_width = min(max(map(len, values.values()), default=0), 40)
    for index, (name, told) in enumerate(given.items()):
        text = f"{name:<{width}} = {values[name]:<{values_width}}"
        _print_line("settings" if index == 0 else "", f"{text}  {_origin_text(told['origin'])}")
    left = [f"{name} = {_value_text(told)}" for name, told in settings.items() if name not in given]
    for index, line in enumerate(textwrap.wrap("; ".join(left), DEFAULTS_WIDTH, break_long_words=False)):
        _print_line("by default" if index == 0 else "", line, DIM)


def _value_text(told: dict[str, Any]) -> str:
    if told["means"]:
        return told["means"] if told["value"] in (None, "") else f"{_shown(told['value'])} ({told['means']})"
    return _shown(told["value"])


def _shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _origin_text(origin: dict[str, str]) -> str:
    """`job.yml:12`, `--set jobs.score.mini_batch_size=4`, `argument --error_threshold in job.yml:20`."""
    named = origin["kind"] in ("job", "component", "--set")
    return origin["where"] if named else " ".join(part for part in (origin["kind"], origin["where"]) if part)


def _print_line(name: str, text: str, colour: str = "") -> None:
    line = f"  {name:<{WIDTH}}{text}".rstrip()
    out(coloured(line, colour, sys.stdout) if colour else line, hang=2 + WIDTH)
