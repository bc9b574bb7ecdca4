"""Makes the modules that notebooks import, such as `windrow.ml.v1.core.compute`, from the table of names.

Their folders hold only stubs, which `make docs` writes for type checkers and editors. To Python, such a folder is a
package, and would hide the module of its name. So this finder comes before that of files.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType

_PREFIX = "windrow.ml.v1."
FIRST_NAMES = frozenset(
    {"contrib", "core", "data", "exceptions", "history", "pipeline", "telemetry", "train", "widgets"}
)
"""The first parts of the names of modules that the vendor has. All other modules are files; the table itself imports
them.
"""


def install() -> None:
    """Let `import` find the modules of the table."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        name = fullname.removeprefix(_PREFIX)
        if name == fullname or name.partition(".")[0] not in FIRST_NAMES:
            return None
        from windrow.ml.v1.names import module_names

        known = module_names()
        if name not in known:
            return None
        is_package = any(other.startswith(f"{name}.") for other in known)
        return importlib.machinery.ModuleSpec(fullname, _Loader(), is_package=is_package)


class _Loader(importlib.abc.Loader):
    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        """Let Python make the module as any other."""

    def exec_module(self, module: ModuleType) -> None:
        from windrow.ml.v1.absent import standing_in
        from windrow.ml.v1.names import ALL_NAMES, MODULES

        name = module.__name__.removeprefix(_PREFIX)
        there = MODULES.get(name, {})
        module.__doc__ = f"As `azureml.{name}`."
        module.__dict__.update(there, __all__=sorted(there), __getattr__=standing_in(module.__name__, ALL_NAMES))
