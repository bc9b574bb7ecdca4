"""Stubs of the modules below `windrow.ml.v1` that a finder makes: type checkers and editors see files only."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from windrow.ml.v1.names import MODULES

FOLDER = "client/windrow/ml/v1"
HEAD = "# Made from `windrow.ml.v1.names` by `make docs`. Do not edit."


def files() -> dict[str, Callable[[], str]]:
    """Each stub, and what makes it. Modules without names have none, unless others are in them."""
    return {
        f"{FOLDER}/{name.replace('.', '/')}{'/__init__' if is_package else ''}.pyi": partial(text, name)
        for name in MODULES
        for is_package in [any(other.startswith(f"{name}.") and MODULES[other] for other in MODULES)]
        if is_package or MODULES[name]
    }


def text(module: str) -> str:
    """The stub of a module."""
    imports, constants = [], []
    for name, value in sorted(MODULES[module].items()):
        if callable(value):
            alias = f" as {name}" if name != value.__name__ else ""
            imports.append(f"from {value.__module__} import {value.__name__}{alias}")
        else:
            constants.append(
                f"{name}: {'tuple[type[Exception], ...]' if isinstance(value, tuple) else type(value).__name__}"
            )
    names = "".join(f'    "{name}",\n' for name in sorted(MODULES[module]))
    return "\n".join(
        [HEAD, *sorted(imports), *constants, "", f"__all__ = [\n{names}]" if names else "__all__ = []", ""]
    )
