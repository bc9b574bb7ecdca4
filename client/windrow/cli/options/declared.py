"""How commands declare themselves: `@command`, and `Option` and `Argument` in the annotations of their parameters.

Both readers of command lines take them from here: `plain_lines` reads what is plain, without typer; `app` makes a typer
application, which reads all else.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from types import NoneType, UnionType
from typing import Any, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

Function = Callable[..., "int | None"]
"""A command. It returns its exit code; None is 0."""
_Function = TypeVar("_Function", bound=Function)


EXIT_CODES = (
    "Exit codes: 0 done, 1 job failed, 2 bad usage or job file, 3 done with failures that no threshold "
    "allows (with --strict: with any), 4 cancelled, 5 master unreachable, 130 interrupted with the state kept."
)
"""What help says of `exit_codes`."""


class Option:
    """An option of a command, in `Annotated[type, Option(…)]`.

    names:
        As they are typed, such as `--limit` and `-n`; without any, made from the parameter's name.
    envvar:
        The environment variable that stands for an option that is not given.
    min, max:
        Bounds of a number, both allowed.
    autocompletion:
        The texts with which a beginning can go on.
    readable:
        Whether an existing path must be readable for this user.
    excludes:
        Parameters that cannot be given together with this one, each with the reason.
    """

    def __init__(
        self,
        *names: str,
        help: str,
        metavar: str | None = None,
        envvar: str | None = None,
        min: float | None = None,
        max: float | None = None,
        autocompletion: Callable[[str], list[str]] | None = None,
        readable: bool = True,
        excludes: dict[str, str] | None = None,
    ) -> None:
        self.names = names
        self.help = help
        self.metavar = metavar
        self.envvar = envvar
        self.min = min
        self.max = max
        self.autocompletion = autocompletion
        self.readable = readable
        self.excludes = excludes or {}


class Argument(Option):
    """An argument of a command, which its place tells from others. Of the settings above it has no names."""


class Parameter(NamedTuple):
    """A parameter of a command."""

    declared: Option
    names: tuple[str, ...]
    """As they are typed; of an argument, none."""
    kind: type
    """Of one value: bool, str, int, float, Path or an Enum."""
    is_many: bool
    """Whether the value is a list, of everything that is given."""
    is_required: bool
    default: Any
    """Unless it is required."""

    @property
    def is_flag(self) -> bool:
        """Whether the option takes no value."""
        return self.kind is bool


class Help(NamedTuple):
    """What the help of a command says besides its docstring."""

    epilog: str
    """Begins with `Example: `."""
    short_help: str | None
    """Its line in the list of the group; by default the first sentence of its docstring."""


class Group(NamedTuple):
    """Commands under a word of their own, such as `windrow job`."""

    help: str
    epilog: str
    commands: dict[str, str | Group]
    """By name, in the order of the help: `module:function` within `windrow.cli`, or a group."""


def command(*, epilog: str, short_help: str | None = None) -> Callable[[_Function], _Function]:
    """Declare a function to be a command of `windrow`; `command_table` gives it its name."""

    def declare(function: _Function) -> _Function:
        HELPS[function] = Help(epilog, short_help)
        return function

    return declare


HELPS: dict[Function, Help] = {}
"""Of every command that is loaded."""


@cache
def options_of(function: Function) -> dict[str, Parameter]:
    """The parameters of a command, by name and in their order."""
    code: Any = function.__code__
    hints = get_type_hints(function, include_extras=True)
    names = code.co_varnames[: code.co_argcount]
    defaults = function.__defaults__ or ()
    given = dict(zip(names[len(names) - len(defaults) :], defaults, strict=True))
    found = {}
    for name in names:
        whole, declared = get_args(hints[name])[:2]
        kind, is_many = _kind(whole)
        typed = () if isinstance(declared, Argument) else declared.names or (f"--{name.replace('_', '-')}",)
        found[name] = Parameter(declared, typed, kind, is_many, name not in given, given.get(name))
    return found


def _kind(whole: Any) -> tuple[type, bool]:
    """The type of one value of `T`, `T | None` or `list[T] | None`, and whether there can be many."""
    kind = next((one for one in get_args(whole) if one is not NoneType), whole) if _is_union(whole) else whole
    return (get_args(kind)[0], True) if get_origin(kind) is list else (kind, False)


def _is_union(hint: Any) -> bool:
    return get_origin(hint) in (Union, UnionType)


def load(place: str) -> Function:
    """The function of a command, from its place in the table."""
    module, _, name = place.partition(":")
    found: Any = import_module(f"windrow.cli.{module}")
    for part in name.split("."):
        found = getattr(found, part)
    function: Function = found
    return function
