"""What a step divides: the inputs that `input_data` names or, with runtime arguments, nothing at all, or records.

Several inputs are divided one after the other, and have to be of one kind: all lists of files, or all tables.
Reference: docs/reference/azure-ml/parallel-job.md#program-arguments, #undocumented-arguments, #several-inputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windrow.spec.effective.job import DataInput, EffectiveStep, LiteralInput, OutputInput, StepInput
from windrow.spec.job.bindings import Bindings
from windrow.spec.job.components import StepNodes
from windrow.spec.naming.expressions import Reference, whole_reference
from windrow.spec.reading.context import Context, origin_of
from windrow.spec.reading.keys import read_text, unknown_name
from windrow.spec.reading.nodes import Node, Place, Scalar, Sequence, is_null, shown
from windrow.spec.reading.problems import listed


def read_input_data(nodes: StepNodes, name: str, bindings: Bindings, context: Context) -> tuple[str, ...]:
    """The names of the inputs that a step divides, in order; inputs with errors are left out."""
    node, key = nodes.settings.entries.get("input_data"), f"jobs.{name}.input_data"
    if node is None or is_null(node) or (isinstance(node, Sequence) and not node.items):
        context.problems.error(
            nodes.place if node is None or is_null(node) else node,
            key,
            f"{'is an empty list' if isinstance(node, Sequence) else 'is missing'}; name the input that is divided, as "
            f"in ${{{{inputs.x}}}}. Available: {', '.join(bindings.input_names(name)) or 'none'}",
        )
        return ()
    context.origins[key] = origin_of(node)
    context.division_places[f"jobs.{name}"] = node.place
    if not isinstance(node, Sequence):
        return _one_input(node, key, name, bindings, context)
    names: list[str] = []
    for number, item in enumerate(node.items):
        for found in _one_input(item, f"{key}[{number}]", name, bindings, context):
            if found in names:
                context.problems.error(
                    item, f"{key}[{number}]", f"{shown(item)} is listed twice; list each input once."
                )
                continue
            names.append(found)
    return tuple(names)


def _one_input(node: Node, key: str, name: str, bindings: Bindings, context: Context) -> tuple[str, ...]:
    """The name of one input; empty, with an error, if there is none."""
    known = bindings.input_names(name)
    text = read_text(node, key, context)
    if text is None:
        if is_null(node):
            context.problems.error(node, key, "is empty; name an input, as in ${{inputs.x}}.")
        return ()
    try:
        reference = whole_reference(text)
    except ValueError as error:
        context.problems.error(node, key, f"is {shown(node)}; {error}.")
        return ()
    if reference is None or reference.scope != "inputs":
        wanted = (
            text.strip()
            if reference is None and text.strip() in known
            else (reference or Reference("inputs", "x")).name or "x"
        )
        hint = " For several inputs, write a list of expressions." if text.count("${{") > 1 else ""
        context.problems.error(
            node,
            key,
            f"is {shown(node)}; it must be one of the step's own inputs, as in ${{{{inputs.{wanted}}}}}.{hint}",
        )
        return ()
    resolved = bindings.resolved(name, reference.name)
    if resolved is None:
        context.problems.error(node, key, unknown_name("input", reference.name, known))
        return ()
    # A missing value that is required is reported where the input is.
    is_told = resolved.broken or (resolved.value is None and not resolved.optional)
    if not is_told and not isinstance(resolved.value, DataInput | OutputInput):
        what = (
            f'the text "{resolved.value.value}"'
            if isinstance(resolved.value, LiteralInput)
            else "an optional input without a value"
        )
        context.problems.error(
            node, key, f"{shown(node)} is {what}, which cannot be divided; give that input a type and a path."
        )
    return (reference.name,)


def check_no_input_data(node: Node | None, values: dict[str, Any], name: str, context: Context) -> None:
    """Warns of an input that is ignored because `--rank_mini_batch_count` asks for mini-batches without input."""
    if node is not None and not is_null(node):
        context.problems.warn(
            node,
            f"jobs.{name}.input_data",
            f"{shown(node)} is not divided: --rank_mini_batch_count {values['rank_mini_batch_count']} makes "
            "mini-batches without input.",
        )


def check_file_format(
    divided: Mapping[str, StepInput], values: dict[str, Any], place: Place | None, step_key: str, context: Context
) -> None:
    """Notes settings that conflict with `--amlbi_file_format` and `--amlbi_mini_batch_rows`."""
    if place is None:
        return
    key, asked = f"{step_key}.task.program_arguments", values["file_format"]
    tables = [name for name, given in divided.items() if not _is_files(given)]
    if asked and values["rank_mini_batch_count"]:
        values["file_format"] = values["mini_batch_rows"] = None
    elif asked and tables:
        which = f" ({tables[0]})" if len(divided) > 1 else ""
        context.problems.error(
            place,
            key,
            f"--amlbi_file_format {asked} is for an input of type uri_file or uri_folder; the input that is divided"
            f"{which} is of type mltable, whose own steps say how its files are read. Change its type, or remove the "
            "argument.",
        )
    elif values["mini_batch_rows"] is not None and not asked:
        context.problems.warn(
            place,
            key,
            f"--amlbi_mini_batch_rows {values['mini_batch_rows']} has no effect without --amlbi_file_format jsonl.",
        )
        values["mini_batch_rows"] = None


def check_modes(divided: Mapping[str, StepInput], node: Node | None, step_key: str, context: Context) -> None:
    """Notes an error if scripts would get copies of some lists of files and the originals of others: all
    mini-batches of a step are delivered in the same way.
    """
    modes = {
        name: given.mode for name, given in divided.items() if _is_files(given) and not isinstance(given, LiteralInput)
    }
    copied = [name for name, mode in modes.items() if mode == "download"]
    if node is not None and copied and len(copied) < len(modes):
        others = [name for name in modes if name not in copied]
        context.problems.error(
            node,
            f"{step_key}.input_data",
            f"divides inputs with mode: download ({listed(copied)}) together with others ({listed(others)}). Give all "
            "of them that mode, or none.",
        )


def check_size_unit(
    node: Node | None, size: int | None, divided: Mapping[str, StepInput], step_key: str, context: Context
) -> None:
    """Warns of a size in bytes for an input that is divided by number of files."""
    files = any(_is_files(given) for given in divided.values())
    if files and isinstance(node, Scalar) and node.text.strip()[-1:].casefold() == "b":
        context.problems.warn(
            node,
            f"{step_key}.mini_batch_size",
            f"{shown(node)} means {size} files: for this input the size counts files, not bytes.",
        )


def table_digests(divided: Mapping[str, StepInput], context: Context) -> dict[str, str]:
    """The sha256 of the MLTable file of each input that has one on this machine. That file decides what is read and
    how, so a run with another one is another run.
    """
    found: dict[str, str] = {}
    for name, given in divided.items():
        if context.embedded and isinstance(given, DataInput) and given.type == "mltable":
            from windrow.spec.tables.table_files import definition_digest

            digest = definition_digest(given.path)
            found |= {name: digest} if digest else {}
    return found


def check_tables(step: EffectiveStep, bindings: Bindings, context: Context) -> tuple[str, ...]:
    """Notes what is wrong with the tables that a step divides. Returns the libraries that the script's Python needs
    for them.
    """
    libraries: dict[str, None] = {}
    files: list[str] = []
    tables: list[str] = []
    for name in step.input_data:
        given, resolved = step.inputs.get(name), bindings.resolved(step.name, name)
        if resolved is None or not isinstance(given, DataInput | OutputInput):
            continue
        if given.type != "mltable":
            files.append(name)
        needed = _check_table(step, name, given, resolved.place, context)
        libraries.update(dict.fromkeys(needed))
        if needed:
            tables.append(name)
    if files and tables:
        key = f"jobs.{step.name}"
        context.problems.error(
            context.division_places[key],
            f"{key}.input_data",
            f"divides lists of files ({listed(files)}) together with tables ({listed(tables)}), but all inputs of a "
            "step have to be of one kind. Divide them in separate steps, or give them types of one kind.",
        )
    return tuple(libraries)


def _check_table(
    step: EffectiveStep, name: str, given: DataInput | OutputInput, place: Place, context: Context
) -> tuple[str, ...]:
    key = f"jobs.{step.name}"
    if step.partition_keys and given.type != "mltable":
        context.problems.error(
            context.partition_places[key],
            f"{key}.partition_keys",
            f"is {listed(step.partition_keys)}, but the input {name} is a {given.type}, which has no keys; "
            "make it type: mltable, with an MLTable file whose extract_columns_from_partition_format names them.",
        )
    if not isinstance(given, DataInput) or given.type != "mltable":
        return ()
    # Most jobs read no table.
    from windrow.spec.tables.table_files import Partition, check_table

    partition = (
        Partition(step.partition_keys, context.partition_places[key], f"{key}.partition_keys")
        if step.partition_keys
        else None
    )
    return check_table(given.path, place, f"{key}.inputs.{name}", context, partition)


def _is_files(given: StepInput) -> bool:
    return isinstance(given, DataInput | OutputInput) and given.type != "mltable"
