"""Reads the keys of a mapping by its table, noting those that are unknown, wrong or without effect."""

from __future__ import annotations

from collections.abc import Callable, Collection

from windrow.spec.naming.expressions import AlreadyReported, Reference, has_expression, substitute
from windrow.spec.naming.names import NAME
from windrow.spec.reading.context import Context
from windrow.spec.reading.nodes import Mapping, Node, Place, Scalar, Sequence, is_null, shown
from windrow.spec.reading.problems import did_you_mean, listed
from windrow.spec.settings.arguments import RUNTIME_ARGUMENTS
from windrow.spec.settings.fields import Field, parse_value
from windrow.spec.settings.schema import belongs_to

Resolve = Callable[[Reference], str]
"""Gives the text behind a reference. Raises ValueError, saying why, if there is none, and AlreadyReported if an error
already says so."""


def as_mapping(node: Node | None, key: str, context: Context) -> Mapping | None:
    """The node if it is a mapping; None if it is absent, or (with an error) something else."""
    if node is None or isinstance(node, Mapping):
        return node
    if not is_null(node):
        context.problems.error(node, key, f"is {shown(node)}; it has to be a mapping, with keys below it.")
    return None


def check_keys(mapping: Mapping, table: dict[str, Field], key: str, context: Context) -> None:
    """Warns of keys that are unknown or have no effect, and says where an unknown key belongs.

    A wrong value is an error even where the key has no effect.
    """
    warn_of_unknown(mapping, table, key, context, lambda name: _where_it_belongs(name, table))
    warn_of_no_effect(mapping, table, key, context)


def warn_of_unknown(
    mapping: Mapping, known: Collection[str], key: str, context: Context, hint: Callable[[str], str] | None = None
) -> None:
    """Warns of keys that are not among the `known` ones. `hint`: the sentence to add for a key; by default, the most
    similar known key.
    """
    for name in mapping.entries:
        if name not in known:
            advice = hint(name) if hint is not None else did_you_mean(name, known)
            context.problems.warn(
                mapping.key_places[name],
                f"{key}.{name}" if key else name,
                f"is unknown here and has no effect.{advice}",
            )


def warn_of_no_effect(mapping: Mapping, table: dict[str, Field], key: str, context: Context) -> None:
    """Warns of keys whose fields have an `effect` text. A wrong value is an error."""
    for name, node in mapping.entries.items():
        known = table.get(name)
        if known is None or not known.effect or is_null(node):
            continue
        path = f"{key}.{name}" if key else name
        if known.kind == "map":
            if not read_text_map(node, path, context):
                continue
        elif known.kind == "node":
            if _is_empty(node):
                continue
        elif read_scalar(node, known, path, context) in (None, False):
            continue
        what = f"{shown(node)} has" if isinstance(node, Scalar) else "has"
        context.problems.warn(node, path, f"{what} no effect: {known.effect}.")


def _is_empty(node: Node) -> bool:
    return (isinstance(node, Mapping) and not node.entries) or (isinstance(node, Sequence) and not node.items)


def _where_it_belongs(name: str, table: dict[str, Field]) -> str:
    elsewhere = belongs_to(name, table)
    if elsewhere:
        return f" It belongs to {elsewhere}."
    if name in RUNTIME_ARGUMENTS:
        return f" It is an argument: write --{name} in task.program_arguments."
    return did_you_mean(name, table)


def read_scalar(
    node: Node | None, field_: Field, key: str, context: Context, resolve: Resolve | None = None
) -> int | float | bool | str | None:
    """Reads the value of one setting; None if it is absent or (with an error) not allowed. With `resolve`,
    expressions are replaced first.
    """
    if node is None or (is_null(node) and field_.kind == "text"):
        return None
    if not isinstance(node, Scalar) or node.value is None:
        context.problems.error(node, key, f"is {shown(node)}; it must be {field_.allowed}.")
        return None
    value = node.value if field_.kind not in ("text", "choice") else node.text
    try:
        if isinstance(value, str) and resolve and has_expression(value):
            value = substitute(value, resolve)
            return parse_resolved(field_, value, node.text)
        return parse_value(field_, value)
    except AlreadyReported:
        return None
    except ValueError as error:
        context.problems.error(node, key, f"is {shown(node)}; {error}.")
        return None


def parse_resolved(field_: Field, value: str, written: str) -> int | float | bool | str:
    """Parses a value that an expression gave. Raises ValueError, naming that value."""
    try:
        return parse_value(field_, value)
    except ValueError as error:
        raise ValueError(f'that is "{value}", and {error}' if written != value else str(error)) from None


def read_text(node: Node | None, key: str, context: Context, resolve: Resolve | None = None) -> str | None:
    """Reads a text setting."""
    value = read_scalar(node, Field("text"), key, context, resolve)
    return None if value is None else str(value)


def read_texts(node: Node | None, key: str, context: Context) -> list[str]:
    """Reads a list of scalars as text."""
    if node is None or is_null(node):
        return []
    if isinstance(node, Sequence) and all(isinstance(item, Scalar) and item.value is not None for item in node.items):
        return [item.text for item in node.items if isinstance(item, Scalar)]
    context.problems.error(node, key, f"is {shown(node)}; it must be a list of text.")
    return []


def read_text_map(node: Node | None, key: str, context: Context, resolve: Resolve | None = None) -> dict[str, str]:
    """Reads a mapping of names to text; other scalars (numbers, true) count as their YAML text. Reference:
    docs/reference/azure-ml/client.md#spellings.
    """
    mapping = as_mapping(node, key, context)
    texts: dict[str, str] = {}
    for name, value in mapping.entries.items() if mapping else ():
        if not isinstance(value, Scalar):
            context.problems.error(
                value, f"{key}.{name}", f"is {shown(value)}; it must be text, a number or true/false."
            )
            continue
        try:
            texts[name] = substitute(value.text, resolve) if resolve else value.text
        except AlreadyReported:
            continue
        except ValueError as error:
            context.problems.error(value, f"{key}.{name}", f"is {shown(value)}; {error}.")
    return texts


def check_name(name: str, what: str, place: Node | Place, key: str, context: Context) -> None:
    """Notes an error for a name of a step, input or output that could not be used in an expression."""
    if not NAME.fullmatch(name):
        allowed = "at most 64 ASCII letters, digits, _ and -, starting with a letter, digit or _"
        context.problems.error(place, key, f'"{name}" is not a valid name for {what}; use {allowed}.')


def unknown_name(what: str, name: str, known: list[str]) -> str:
    """The message for a reference to an unknown name; it lists the known names."""
    return f'there is no {what} "{name}".{did_you_mean(name, known)} Available: {listed(known)}'
