"""Reading the keys of one mapping by its table, with a problem for each that is unknown, wrong or without effect."""

from __future__ import annotations

from collections.abc import Callable, Collection
from collections.abc import Mapping as MappingType
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from windrow.spec.arguments import RUNTIME_ARGUMENTS
from windrow.spec.expressions import AlreadyTold, Reference, has_expression, substitute
from windrow.spec.fields import Field, parse_value
from windrow.spec.names import NAME
from windrow.spec.nodes import Mapping, Node, Place, Scalar, Sequence, Source, is_null, shown
from windrow.spec.problems import Problems, did_you_mean, listed
from windrow.spec.schema import belongs_to

if TYPE_CHECKING:
    from windrow.spec.assets import AssetLookup, OpenLookup

Resolve = Callable[[Reference], str]
"""Gives the text behind a reference; raises ValueError, saying why, where there is none, and AlreadyTold where an
error has said that."""


class Origin(NamedTuple):
    """Where an effective setting comes from.

    `kind` is default, job, component, --set, argument or settings file; `where` is `file:line`.
    """

    kind: str
    where: str = ""

    def __str__(self) -> str:
        return f"{self.kind} ({self.where})" if self.where else self.kind


class StepCode(NamedTuple):
    """The code that a step names, and where it does: for checks that look into it.

    `folder` is absolute, `entry_script` as in the effective step ("" for a command). The folder is there, and so is the
    script. `variables` are the step's environment variables.
    """

    step: str
    folder: str
    folder_place: Place
    folder_key: str
    entry_script: str = ""
    script_place: Place | None = None
    script_key: str = ""
    variables: MappingType[str, str] = MappingProxyType({})


class Context:
    """What all readers of one job file share: where it is, what was found wrong, and where each setting came from."""

    def __init__(
        self,
        source: Source,
        *,
        embedded: bool,
        datastores: Collection[str] = (),
        assets: OpenLookup | None = None,
    ) -> None:
        self.source = source
        self.embedded = embedded
        self.datastores = datastores
        """Names of those that the private master of an embedded run has."""
        self.problems = Problems()
        self.origins: dict[str, Origin] = {}
        self.job_name: str | None = None
        self.default_compute = ""
        """The pool of steps that name none; "" any node."""
        self.default_datastore = ""
        """The datastore of outputs that name no place; "" the master's own default one."""
        self.force_rerun: bool | None = None
        """What the pipeline says of reuse: True, no step is reused; False, all are that do not deny it."""
        self.broken_steps: set[str] = set()
        """Steps that an error was noted for while another spelling was translated: there is nothing of them to read."""
        self.own_outputs: set[str] = set()
        """Keys of outputs at relative paths, which are this machine's."""
        self.placed_outputs: set[str] = set()
        """Keys of outputs without a path, which have one in the datastore that the pipeline names as the default."""
        self._open_assets = assets
        self._assets: AssetLookup | None = None
        self.partition_places: dict[str, Place] = {}
        """Where the partition keys of a step are given."""
        self.division_places: dict[str, Place] = {}
        """Where the inputs that a step divides are named."""
        self.codes: list[StepCode] = []
        """The code of steps, as far as it is there."""

    def asset_lookup(self) -> AssetLookup | None:
        """The registry in which assets are looked up; None: there is none."""
        if self._assets is None and self._open_assets is not None:
            self._assets = self._open_assets()
        return self._assets


def origin_of(node: Node | Place) -> Origin:
    """The origin of a value written in a file or given by --set."""
    place = node.place
    return Origin(place.source.kind, place.source.label if place.source.kind == "--set" else str(place))


def as_mapping(node: Node | None, key: str, context: Context) -> Mapping | None:
    """The node if it is a mapping; None if there is nothing, or (with an error) if it is something else."""
    if node is None or isinstance(node, Mapping):
        return node
    if not is_null(node):
        context.problems.error(node, key, f"is {shown(node)}; it has to be a mapping, with keys below it.")
    return None


def check_keys(mapping: Mapping, table: dict[str, Field], key: str, context: Context) -> None:
    """Warns of keys that are unknown, and of those that have no effect.

    Errors in values without effect count as errors all the same.
    """
    for name, node in mapping.entries.items():
        known = table.get(name)
        path = f"{key}.{name}" if key else name
        if known is None:
            elsewhere = belongs_to(name, table)
            if elsewhere:
                hint = f" It belongs to {elsewhere}."
            elif name in RUNTIME_ARGUMENTS:
                hint = f" It is an argument: write --{name} in task.program_arguments."
            else:
                hint = did_you_mean(name, table)
            context.problems.warn(mapping.key_places[name], path, f"is unknown here and has no effect.{hint}")
        elif known.effect and not is_null(node):
            if known.kind == "map":
                if not read_text_map(node, path, context):
                    continue
            elif known.kind != "node" and read_scalar(node, known, path, context) in (None, False):
                continue
            what = f"{shown(node)} has" if isinstance(node, Scalar) else "has"
            context.problems.warn(node, path, f"{what} no effect: {known.effect}.")


def read_scalar(
    node: Node | None, field_: Field, key: str, context: Context, resolve: Resolve | None = None
) -> int | float | bool | str | None:
    """The value of one setting; None if it is absent or (with an error) not allowed.

    Expressions are replaced first, where `resolve` is given.
    """
    if node is None or (is_null(node) and field_.kind == "text"):
        return None
    if not isinstance(node, Scalar) or node.value is None:
        context.problems.error(node, key, f"is {shown(node)}; allowed is {field_.allowed}.")
        return None
    value = node.value if field_.kind not in ("text", "choice") else node.text
    try:
        if isinstance(value, str) and resolve and has_expression(value):
            value = substitute(value, resolve)
            return parse_resolved(field_, value, node.text)
        return parse_value(field_, value)
    except AlreadyTold:
        return None
    except ValueError as error:
        context.problems.error(node, key, f"is {shown(node)}; {error}.")
        return None


def parse_resolved(field_: Field, value: str, written: str) -> int | float | bool | str:
    """A value that came out of an expression. Raises ValueError, naming what it came to."""
    try:
        return parse_value(field_, value)
    except ValueError as error:
        raise ValueError(f'that is "{value}", and {error}' if written != value else str(error)) from None


def read_text(node: Node | None, key: str, context: Context, resolve: Resolve | None = None) -> str | None:
    """A text setting."""
    value = read_scalar(node, Field("text"), key, context, resolve)
    return None if value is None else str(value)


def read_texts(node: Node | None, key: str, context: Context) -> list[str]:
    """A list of scalars as text."""
    if node is None or is_null(node):
        return []
    if isinstance(node, Sequence) and all(isinstance(item, Scalar) and item.value is not None for item in node.items):
        return [item.text for item in node.items if isinstance(item, Scalar)]
    context.problems.error(node, key, f"is {shown(node)}; allowed is a list of text.")
    return []


def read_text_map(node: Node | None, key: str, context: Context, resolve: Resolve | None = None) -> dict[str, str]:
    """A mapping of names to text; values that are no text (numbers, true) stand for their YAML text.

    Reference: docs/reference/azure-ml/client.md#spellings.
    """
    mapping = as_mapping(node, key, context)
    texts: dict[str, str] = {}
    for name, value in mapping.entries.items() if mapping else ():
        if not isinstance(value, Scalar):
            context.problems.error(
                value, f"{key}.{name}", f"is {shown(value)}; allowed is a text, number or true/false."
            )
            continue
        try:
            texts[name] = substitute(value.text, resolve) if resolve else value.text
        except AlreadyTold:
            continue
        except ValueError as error:
            context.problems.error(value, f"{key}.{name}", f"is {shown(value)}; {error}.")
    return texts


def check_name(name: str, what: str, place: Node | Place, key: str, context: Context) -> None:
    """Notes an error for a name of a step, input or output that expressions could not hold."""
    if not NAME.fullmatch(name):
        allowed = "at most 64 letters, digits, _ and - of ASCII, beginning with a letter, digit or _"
        context.problems.error(place, key, f'"{name}" is no name of {what}; allowed are {allowed}.')


def unknown_name(what: str, name: str, known: list[str]) -> str:
    """Message for a reference to nothing: names what there is."""
    return f'there is no {what} "{name}".{did_you_mean(name, known)} There are: {listed(known)}'
