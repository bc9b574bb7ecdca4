"""Lists the public names of the vendor's installed packages, as `windrow.ml` mirrors them. Runs in an environment that
has them, and imports nothing of ours: python vendor_names.py azure.ai.ml|azureml > names.json

By module, its public names: `classes`, `functions` and `exceptions`, with blanks between them; `values` of constants;
`members` of classes that only name values, and `enums`, whose type is that of their values if it is not `Enum`.
"""

from __future__ import annotations

import contextlib
import enum
import importlib
import io
import json
import pkgutil
import sys
import types
import warnings
from typing import Any

PLAIN = (str, int, float, bool, type(None))
TESTS = ("test", "tests", "conftest")
LEFT_OUT = ("azureml.automl", "azureml.dataprep", "azureml.train.restclients")
"""What these packages are made of: they are no part of the API that notebooks import from."""
VALUE_MAX = 80
"""Longer texts are messages."""


def modules_below(root: str) -> dict[str, types.ModuleType]:
    """The public modules below `root` that can be imported, by name."""
    found: dict[str, types.ModuleType] = {}
    waiting = [root]
    while waiting:
        name = waiting.pop()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                module = importlib.import_module(name)
        except BaseException:  # needs something that is not there
            continue
        found[name] = module
        for entry in pkgutil.iter_modules(getattr(module, "__path__", ())):
            below = f"{name}.{entry.name}"
            if not entry.name.startswith("_") and entry.name not in TESTS and below not in LEFT_OUT:
                waiting.append(below)
    return found


def members_of(made: type) -> tuple[str, dict[str, Any]] | None:
    """What a class names, and whether as `enums` or `members`; None if it does more than to name plain values."""
    if issubclass(made, enum.Enum):
        members = {name: member.value for name, member in made.__members__.items()}
        kind = "enums"
    else:
        members = {name: value for name, value in vars(made).items() if not name.startswith("_")}
        kind = "members"
        if made.__bases__ != (object,) or "__init__" in vars(made) or not members:
            return None
    return (kind, members) if all(isinstance(value, PLAIN) for value in members.values()) else None


def kind_of(value: object, root: str) -> tuple[str, Any] | None:
    """What a name is, and its value if that is mirrored; None if it is not the vendor's."""
    if isinstance(value, type):
        if not value.__module__.startswith(root):
            return None
        return ("exceptions", None) if issubclass(value, BaseException) else members_of(value) or ("classes", None)
    if isinstance(value, PLAIN):
        return ("values", value) if len(str(value)) <= VALUE_MAX else None
    if callable(value) and str(getattr(value, "__module__", "")).startswith(root):
        return "functions", None
    return None


def names_of(module: types.ModuleType, root: str) -> dict[str, Any]:
    """The public names of a module, by kind."""
    listed = getattr(module, "__all__", None)
    found: dict[str, dict[str, Any]] = {}
    for name in sorted({*dir(module), *(listed or ())}):
        if name.startswith("_") or not hasattr(module, name) or name == "TYPE_CHECKING":
            continue
        value = getattr(module, name)
        if isinstance(value, PLAIN) and not name.isupper() and name not in (listed or ()):
            continue
        kind = kind_of(value, root)
        if kind is not None:
            found.setdefault(kind[0], {})[name] = kind[1]
    told: dict[str, Any] = dict(found)
    for kind_name in ("classes", "functions", "exceptions"):
        if kind_name in told:
            told[kind_name] = " ".join(told[kind_name])
    return told


def main() -> None:
    """Print the names below the root that is given."""
    root = sys.argv[1]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        modules = modules_below(root)
        names = {name: names_of(module, root) for name, module in sorted(modules.items())}
    print(json.dumps(names, indent=1, sort_keys=True))


if __name__ == "__main__":
    main()
