"""The job file that says what a command line without one asks for."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
from collections.abc import Sequence
from typing import NamedTuple

from windrow.common.quantities import first_few
from windrow.errors import UsageError
from windrow.spec.naming.locations import absolute, is_elsewhere, parse_location
from windrow.spec.one_line.inputs import (
    ASSET,
    DEFINED,
    DELIMITERS,
    FILES,
    PLAIN,
    READS,
    Given,
    groups_of,
    is_named,
    local_files,
    read_inputs,
    tables_in,
)
from windrow.spec.one_line.request import ROW_SUFFIXES, SCRIPT_SUFFIX, OneLine
from windrow.spec.one_line.sizes import Chosen, choose_size, what
from windrow.spec.one_line.text_tables import HowRead, how_read
from windrow.spec.one_line.yaml_text import flow, scalar
from windrow.spec.settings.fields import parse_value, step_needs
from windrow.spec.settings.pace import parse_duration, parse_rate
from windrow.spec.settings.schema import RETURNS
from windrow.spec.tables.mltable import FILE_NAME, PLAIN_KEY, PLAIN_VALUE

CHOSEN = "chosen by windrow"
"""Follows a mini-batch size that was not given."""

_HAS_RUN = re.compile(
    rb"^[ \t]*(?:async[ \t]+)?def[ \t]+run\b|^run\b[^\n=(]*="
    rb"|^[ \t]*(?:from[ \t]+\S+[ \t]+)?import\b[^\n]*(?:\brun\b|\*)|^[ \t]*from\b[^\n]*import[ \t]*\([^)]*\brun\b",
    re.MULTILINE,
)
_CHOSEN_BEFORE = re.compile(rf'^ *mini_batch_size: "(\w+)" +# {CHOSEN}$', re.MULTILINE)


class MadeJob(NamedTuple):
    """`files`: texts by path below the folder of the job file; the job file itself is `job_name`. `told`: what the run
    reads, in what pieces, and what it writes. `notes`: what of the input may be read unlike it is meant.
    """

    job_name: str
    files: dict[str, str]
    told: str
    notes: tuple[str, ...] = ()


def run_name(one: OneLine, folder: str) -> str:
    """The name under which the job file of such a run is kept: the same for each run of a script into an output."""
    output, script = one.output, absolute(one.script, folder)
    place = output if is_elsewhere(output) else absolute(output, folder)
    digest = hashlib.sha256(f"{script}\0{place}".encode("utf-8", "surrogateescape")).hexdigest()
    return f"{_name(os.path.basename(output), 'rows')}-{digest[:12]}"


def make_job_file(
    one: OneLine, folder: str, *, relative_to: str | None = None, job_name: str = "job.yml", before: str = ""
) -> MadeJob:
    """The job file and what it needs beside it.

    `folder`: where typed paths begin. `relative_to`: the folder in which the job file will be, if paths have to be
    relative to it. `before`: the text of the job file that the same command has made before. Raises UsageError.
    """
    _check_script(one, folder)
    _check_arguments(one)
    suffix = _check_output(one, folder)
    given = read_inputs(one.inputs, one.kind, folder)
    _check_output_is_no_input(one, given, folder)
    _check_division(one, given)
    found = _CHOSEN_BEFORE.search(before)
    chosen = Chosen("", "") if one.partition_keys else choose_size(given, one.slots, found[1] if found else "")
    size, comment = one.mini_batch_size or chosen.text, "" if one.mini_batch_size else f"  # {CHOSEN}"
    script = absolute(one.script, folder)
    step = _name(one.name or os.path.splitext(os.path.basename(script))[0], "script")
    files: dict[str, str] = {}
    inputs: dict[str, str] = {}
    found_in: list[str] = []
    notes: list[str] = []

    def path(place: str, base: str | None = relative_to) -> str:
        return _path(place, base)

    if one.kind == "auto":
        notes += [
            _tables_note(one_of.typed, ends) for one_of in given if one_of.is_list and (ends := tables_in(one_of))
        ]
    for group in groups_of(given):
        name = _unused(_input_name(group), inputs)
        settings = _read_settings(group)
        found_in += [settings.words] if settings.words else []
        notes += [_zeros_note(group[0].typed, settings.zeros)] if settings.zeros else []
        if len(group) == 1 and group[0].entry != "pattern" and not settings.words:
            inputs[name] = flow(_input(group[0], path(group[0].place)))
            continue
        stem = os.path.splitext(job_name)[0]
        table = f"{name}" if relative_to is None else f"{stem}.{name}"
        base = None if relative_to is None else os.path.join(relative_to, table)
        files[f"{table}/{FILE_NAME}"] = _mltable(group, base, settings)
        inputs[name] = flow({"type": "mltable", "path": f"./{table}"})
    divided = [f"${{{{inputs.{name}}}}}" for name in inputs]
    lines = ["type: pipeline", f"display_name: {scalar(step)}", "jobs:", f"  {step}:", "    type: parallel"]
    lines += ["    inputs:", *(f"      {name}: {text}" for name, text in inputs.items())]
    output = one.output if is_elsewhere(one.output) else path(absolute(one.output, folder))
    lines += ["    outputs:", f"      rows: {flow({'type': 'uri_file', 'path': output})}"]
    if len(divided) == 1:
        lines.append(f"    input_data: {divided[0]}")
    else:
        lines += ["    input_data:", *(f"      - {name}" for name in divided)]
    if size:
        lines.append(f'    mini_batch_size: "{size}"{comment}')
    if one.partition_keys:
        lines.append(f"    partition_keys: [{', '.join(scalar_in_list(key) for key in one.partition_keys)}]")
    if one.workers is not None:
        lines.append(f"    max_concurrency_per_instance: {one.workers}")
    needs = {name: value for name in step_needs() if (value := getattr(one, name)) is not None}
    if needs:
        lines.append(f"    resources: {flow(needs)}")
    retries = {"max_retries": one.max_retries, "timeout": one.timeout}
    given_retries = {name: value for name, value in retries.items() if value is not None}
    if given_retries:
        lines.append(f"    retry_settings: {flow(given_retries)}")
    lines += ["    task:", "      type: run_function", f"      code: {scalar(path(os.path.dirname(script)))}"]
    lines.append(f"      entry_script: {scalar(os.path.basename(script))}")
    row_format = ROW_SUFFIXES[suffix]
    arguments = ["--append_row_format", row_format] if row_format != "text" else []
    ours = (
        ("--returns", one.returns),
        ("--split", one.split),
        ("--retry_delay", one.retry_delay),
        ("--rate_limit", one.rate_limit),
        ("--idle_gpu_timeout", None if one.idle_gpu_timeout is None else str(one.idle_gpu_timeout)),
    )
    for name, value in ours:
        arguments += [name, value] if value is not None else []
    arguments += ["--speculate", "True"] if one.speculate else []
    if words := shlex.join([*arguments, *one.arguments]):
        lines.append(f"      program_arguments: {scalar(words)}")
    lines.append("      append_row_to: ${{outputs.rows}}")
    files[job_name] = "\n".join(lines) + "\n"
    return MadeJob(job_name, files, _told(one, given, chosen, found_in), tuple(notes))


def scalar_in_list(text: str) -> str:
    """A text in a list on one line."""
    return flow({"k": text})[4:-1]


def _told(one: OneLine, given: Sequence[Given], chosen: Chosen, found_in: Sequence[str]) -> str:
    names = first_few([g.typed for g in given], 3)
    pieces = chosen.words
    if one.mini_batch_size or one.partition_keys or not pieces:
        pieces = ""
    else:
        pieces += " that runs" if one.keeps_earlier else ""
        pieces = f"{pieces} ({'chosen; ' if chosen.text else 'by default; '}--mini-batch-size sets it); "
    read = "".join(f"{words}; " for words in dict.fromkeys(found_in))
    return f"{names}: {read}{pieces}run() gets {what(given)}; rows go to {one.output}."


def _tables_note(typed: str, suffix: str) -> str:
    return (
        f"{typed} holds only {suffix} files, and run() gets their paths. With --as table it gets DataFrames; --as "
        "files says that paths are meant."
    )


def _zeros_note(typed: str, zeros: Sequence[tuple[str, str]]) -> str:
    value = zeros[0][1]
    names = first_few([f'"{name}"' for name, _ in zeros], 3)
    columns = ", ".join(scalar_in_list(name) for name, _ in zeros[:3])
    are = "is a column" if len(zeros) == 1 else "are columns"
    return (
        f"{typed}: {names} {are} of numbers, so leading zeros get lost: {value} becomes {int(value)}. To keep "
        "the text, name a folder with an MLTable file that says infer_column_types: {column_type_overrides: "
        f"[{{columns: [{columns}], column_type: string}}]}} (docs/how-to/run-on-your-own-csv.md shows it)."
    )


def _check_script(one: OneLine, folder: str) -> None:
    script = absolute(one.script, folder)
    if not one.script.endswith(SCRIPT_SUFFIX):
        raise UsageError(f"{one.script} is not a script: its name must end in {SCRIPT_SUFFIX}.")
    try:
        with open(script, "rb") as file:
            source = file.read()
    except FileNotFoundError:
        raise UsageError(f"There is no script {one.script} ({script}). Check the path.") from None
    except OSError as error:
        raise UsageError(f"The script {one.script} cannot be read: {error.strerror}.") from error
    if not _HAS_RUN.search(source):
        raise UsageError(
            f"{one.script} has no function run(). Windrow calls run(mini_batch) for each part of the input, and takes "
            "the list or DataFrame of rows that it returns. Add one (`windrow init` writes an example)."
        )


def _check_arguments(one: OneLine) -> None:
    """As an argument of the script, a wrong value would be the script's own."""
    if one.mini_batch_size is not None and re.fullmatch(r"0+ *[kmg]?b?", one.mini_batch_size, re.IGNORECASE):
        raise UsageError(
            f"--mini-batch-size {one.mini_batch_size}: it must be a number of files from 1 on, such as 10, or of a "
            "table a size, such as 512kb. Without it, Windrow chooses one."
        )
    if one.returns is not None and one.returns not in RETURNS:
        raise UsageError(f"--returns {one.returns}: it must be one of {', '.join(RETURNS)}.")
    if one.split is not None and one.split not in ("auto", "off") and not (one.split.isdecimal() and int(one.split)):
        raise UsageError(f"--split {one.split}: it must be off, auto, or how many mini-batches to split at a time.")
    for name, field in step_needs().items():
        text = getattr(one, name)
        try:
            if text is not None:
                parse_value(field, text)
        except ValueError as error:
            raise UsageError(f"--{name.replace('_', '-')} {text}: {error}.") from None
    for option, text, parse in (
        ("--retry-delay", one.retry_delay, parse_duration),
        ("--rate-limit", one.rate_limit, parse_rate),
    ):
        try:
            if text is not None:
                parse(text)
        except ValueError as error:
            raise UsageError(f"{option} {text}: {error}.") from None


def _check_division(one: OneLine, given: Sequence[Given]) -> None:
    """A list of files is divided by their number, and has no columns."""
    files = [read.typed for read in given if read.holds == FILES]
    if not files:
        return
    instead = "leave out --as files" if one.kind == "files" else "add --as table"
    if one.mini_batch_size is not None and not one.mini_batch_size.strip().isdecimal():
        raise UsageError(
            f"--mini-batch-size {one.mini_batch_size}: {files[0]} is read as files, so it must be a number of files, "
            f"such as 10. If its files are tables, {instead}: then it is a size, such as 512kb."
        )
    if one.partition_keys:
        raise UsageError(
            f"--partition-keys {','.join(one.partition_keys)}: {files[0]} is read as files, which have no columns. If "
            f"its files are tables, {instead}; to take keys from their paths, give a folder with an MLTable file whose "
            "extract_columns_from_partition_format names them."
        )


def _check_output(one: OneLine, folder: str) -> str:
    """The suffix of the output."""
    known = ".csv, .jsonl, .parquet, or .txt for lines of text"
    if not one.output:
        raise UsageError(f"-o is missing: the file for the rows, such as -o rows.csv. Its suffix must be {known}.")
    suffix = os.path.splitext(one.output)[1]
    if suffix not in ROW_SUFFIXES:
        raise UsageError(f'{one.output_option} {one.output}: the suffix "{suffix}" is not supported. Use {known}.')
    if parse_location(one.output).kind == "local" and os.path.isdir(absolute(one.output, folder)):
        raise UsageError(f"{one.output_option} {one.output} is a folder. Give the name of a file.")
    return suffix


def _check_output_is_no_input(one: OneLine, given: Sequence[Given], folder: str) -> None:
    output = one.output if is_elsewhere(one.output) else absolute(one.output, folder)
    for read in given:
        if output == read.place:
            raise UsageError(f"{one.output_option} {one.output} is also an input. Choose another file.")
        if read.entry == "pattern" and is_named(output, read.place):
            raise UsageError(
                f'{one.output_option} {one.output} matches the pattern "{read.typed}", so the next run would read it '
                "as input. Choose a file in another folder, or with another suffix."
            )


def _input(one: Given, path: str) -> dict[str, str | int]:
    if one.holds == ASSET:
        return {"path": one.place}
    if one.holds != FILES:
        return {"type": "mltable", "path": path}
    return {"type": "uri_file" if one.entry == "file" else "uri_folder", "path": path}


def _read_settings(group: Sequence[Given]) -> HowRead:
    """How the files of delimited tables on this machine are read."""
    holds = group[0].holds
    if holds not in DELIMITERS:
        return HowRead()
    return how_read((file for one in group if not one.is_address for file in local_files(one)), DELIMITERS[holds])


def _mltable(group: Sequence[Given], base: str | None, settings: HowRead) -> str:
    lines = ["type: mltable", "paths:"]
    lines += [f"  - {one.entry}: {scalar(_path(one.place, base))}" for one in group]
    holds = group[0].holds
    if holds not in (FILES, DEFINED, PLAIN, ASSET):
        told = settings.settings(DELIMITERS[holds]) if holds in DELIMITERS else {}
        lines += ["transformations:", f"  - {READS[holds]}{f': {flow(told)}' if told else ''}"]
        lines.append(f"metadata: {flow({PLAIN_KEY: PLAIN_VALUE})}  # types and headers as without this file")
    return "\n".join(lines) + "\n"


def _path(place: str, base: str | None) -> str:
    if is_elsewhere(place) or place.startswith("azureml:") or base is None:
        return place
    below = os.path.relpath(place, base)
    return below if below.startswith("..") or below == "." else f"./{below}"


def _input_name(group: Sequence[Given]) -> str:
    if len(group) > 1 or group[0].entry == "pattern":
        return "files" if group[0].holds == FILES else "table"
    place = group[0].place.rstrip("/")
    return _name(os.path.splitext(os.path.basename(place))[0], "data")


def _name(text: str, default: str) -> str:
    """A name that steps and inputs may have."""
    found = re.sub(r"[^A-Za-z0-9_.]+" if "." in text and default == "rows" else r"[^A-Za-z0-9]+", "_", text).strip("_.")
    found = found[:40] or default
    return found if not found[0].isdigit() else f"{default}_{found}"


def _unused(name: str, taken: dict[str, str]) -> str:
    number, found = 1, name
    while found in taken:
        number += 1
        found = f"{name}_{number}"
    return found
