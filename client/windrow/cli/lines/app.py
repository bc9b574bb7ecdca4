"""The typer application: it reads the command lines that are not plain, and makes all help and shell completion."""

from __future__ import annotations

import inspect
import itertools
import sys
from collections.abc import Callable
from typing import Annotated, Any, get_args, get_type_hints

import typer

import windrow
from windrow.cli.lines.command_table import WINDROW
from windrow.cli.lines.execution import execute
from windrow.cli.messages import report
from windrow.cli.options.declared import HELPS, Argument, Function, Group, Option, load
from windrow.errors import UsageError

SETTINGS: dict[str, Any] = {
    "pretty_exceptions_enable": False,
    # Plain help: rich would take [default: …] for markup, and costs 50 ms.
    "rich_markup_mode": None,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}
"""Of every typer application of `windrow`."""


def made_of(group: Group, **more: Any) -> typer.Typer:
    """The application of a group and of those within."""
    made = typer.Typer(help=group.help, epilog=group.epilog, no_args_is_help=True, **more)
    for name, entry in group.commands.items():
        if isinstance(entry, Group):
            made.add_typer(made_of(entry), name=name)
        else:
            function = load(entry)
            texts = HELPS[function]
            made.command(name, epilog=texts.epilog, short_help=texts.short_help)(as_typer_reads(function))
    return made


def as_typer_reads(function: Function) -> Callable[..., None]:
    """A function for typer that executes the command."""

    def run(**values: Any) -> None:
        raise typer.Exit(execute(function, values))

    hints = get_type_hints(function, include_extras=True)
    parameters = [
        parameter.replace(annotation=_annotation(hints[name]))
        for name, parameter in inspect.signature(function).parameters.items()
    ]
    run.__name__, run.__doc__ = getattr(function, "__name__", ""), function.__doc__
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run


def _annotation(hint: Any) -> Any:
    """A parameter's type with typer's own declaration."""
    kind, declared = get_args(hint)[:2]
    return Annotated[kind, _typer_option(declared)]


def _typer_option(declared: Option) -> Any:
    make = typer.Argument if isinstance(declared, Argument) else typer.Option
    return make(
        *declared.names,
        help=declared.help,
        metavar=declared.metavar,
        envvar=declared.envvar,
        min=declared.min,
        max=declared.max,
        autocompletion=declared.autocompletion,
        readable=declared.readable,
    )


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"windrow {windrow.__version__}")
        raise typer.Exit


app = made_of(WINDROW, name="windrow", **SETTINGS)


@app.callback()
def windrow_command(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Options of `windrow` itself."""


def run_app() -> int:
    """Run the command line of this process.

    Returns its exit code, or ends the process with it. If JSON is requested, usage errors are also reported as JSON.
    """
    if not _wants_json(sys.argv[1:]):
        app(prog_name="windrow")
    try:
        return app(prog_name="windrow", standalone_mode=False) or 0
    except typer.Abort:
        return 1
    except Exception as error:
        # What typer says of a command line; of which package its class is depends on typer's version.
        if not hasattr(error, "format_message"):
            raise
        return report(UsageError(error.format_message()), "json")


def _wants_json(arguments: list[str]) -> bool:
    """Whether the command line asks for JSON, as far as can be told before it is read: it may be what is wrong."""
    pairs = itertools.pairwise(arguments)
    return "--format=json" in arguments or ("--format", "json") in pairs
